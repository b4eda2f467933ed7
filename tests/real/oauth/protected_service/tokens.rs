//! Which tokens are accepted, where, and whose session is whose.

use serde_json::json;
use testkit::http_client::HttpRequest;
use testkit::http_session::Hello;
use testkit::{ClientSession, HttpSession};

use super::{Protected, REST, STATIC_TOKEN};

#[test]
fn a_request_without_a_token_is_told_where_to_get_one() {
    let Some(service) = Protected::start() else { return };
    for path in ["/mcp", "/mcp/fake", "/sse"] {
        let metadata = format!("/.well-known/oauth-protected-resource{path}");
        let (status, challenge) = service.enter(path, None);
        assert_eq!(status, 401);
        let named = format!("resource_metadata=\"{}{metadata}\", scope=\"mcp:user\"", service.url);
        assert!(challenge.starts_with("Bearer ") && challenge.ends_with(&named), "{challenge}");
        let document = service.serve.fetch(&HttpRequest::new("GET", &metadata));
        assert_eq!(document.status, 200);
        let document = document.json();
        assert_eq!(document["resource"], format!("{}{path}", service.url));
        assert_eq!(document["authorization_servers"], json!([service.issuer]));
        assert_eq!(document["bearer_methods_supported"], json!(["header"]));
    }
    let root = service.serve.fetch(&HttpRequest::new("GET", "/.well-known/oauth-protected-resource")).json();
    assert_eq!(root["resource"], service.url);
    let settings = service.serve.fetch(&HttpRequest::new("GET", &format!("{REST}/settings")));
    assert_eq!(settings.status, 401);
    assert!(settings.headers["www-authenticate"].ends_with("scope=\"mcp:operator\""), "{settings:?}");
}

#[test]
fn forged_expired_and_foreign_tokens_are_refused() {
    let Some(service) = Protected::start() else { return };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let mcp = format!("{}/mcp", service.url);
    for (wanted, why) in [
        (json!({"by": "stranger"}), "signature"),
        (json!({"by": "none"}), "algorithm"),
        (json!({"by": "public"}), "algorithm"),
        (json!({"kid": "unknown"}), "key"),
        (json!({"header": {"typ": "logout+jwt"}}), "not an access token"),
        (json!({"claims": {"exp": now - 60}}), "expired"),
        (json!({"claims": {"nbf": now + 300}}), "not valid yet"),
        (json!({"claims": {"aud": "https://other.example"}}), "audience"),
        (json!({"claims": {"aud": format!("{mcp}/fake")}}), "audience"),
        (json!({"claims": {"iss": "https://other.example"}}), "issuer"),
        (json!({"claims": {"sub": ""}}), "subject"),
    ] {
        let token = service.mint(&wanted);
        let (status, challenge) = service.enter("/mcp", Some(&token));
        assert_eq!(status, 401, "{wanted}");
        assert!(challenge.contains("error=\"invalid_token\"") && challenge.contains(why), "{wanted}: {challenge}");
        assert!(challenge.contains("resource_metadata="), "{challenge}");
        let rest = service.with_token(&token, &HttpRequest::new("GET", &format!("{REST}/tools")));
        assert_eq!(rest.status, 401, "{wanted}");
    }
    // So many wrong tokens lock out nobody: signatures are not guessed.
    for audience in [service.url.clone(), format!("{}/", service.url), mcp.clone()] {
        let token = service.token(&json!({"aud": audience}));
        assert_eq!(service.enter("/mcp", Some(&token)).0, 200, "{audience}");
    }
    let of_one = service.token(&json!({"aud": [format!("{mcp}/fake"), "https://other.example"]}));
    assert_eq!(service.enter("/mcp/fake", Some(&of_one)).0, 200);
    assert_eq!(service.enter("/mcp", Some(STATIC_TOKEN)).0, 200);
    let log = service.serve.stderr_text();
    assert!(log.contains("rejected_token") && !log.contains("eyJ"), "{log}");
}

#[test]
fn keys_rotate_while_the_service_runs() {
    let Some(service) = Protected::start() else { return };
    let old = service.token(&json!({}));
    assert_eq!(service.enter("/mcp", Some(&old)).0, 200);
    service.ask("/rotate", &json!({}));
    let new = service.token(&json!({}));
    assert_eq!(service.enter("/mcp", Some(&new)).0, 200);
    assert_eq!(service.enter("/mcp", Some(&old)).0, 401, "its key was withdrawn");
    let before = service.requests("/jwks");
    for key in ["a", "b", "c"] {
        assert_eq!(service.enter("/mcp", Some(&service.mint(&json!({"kid": key})))).0, 401);
    }
    assert_eq!(service.requests("/jwks"), before, "not more than once a minute");
}

#[test]
fn a_session_belongs_to_a_person_and_not_to_a_token() {
    let Some(service) = Protected::start() else { return };
    let (first, refreshed) = (service.token(&json!({"jti": "1"})), service.token(&json!({"jti": "2"})));
    let other = service.token(&json!({"sub": "bob"}));
    assert_ne!(first, refreshed);
    let session = HttpSession::introduce(service.serve.address(), "/mcp", &Hello::default().with_token(&first));
    let list = session.post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#);
    let status = |token: &str| service.with_token(token, &list).status;
    assert_eq!((status(&first), status(&refreshed)), (200, 200));
    assert_eq!((status(&other), status(STATIC_TOKEN)), (404, 404), "there is no such session for others");
    assert_eq!(service.serve.fetch(&list.without("Authorization")).status, 401);
}

#[test]
fn a_token_never_reaches_a_server() {
    let Some(service) = Protected::start() else { return };
    let token = service.token(&json!({}));
    let mut session = HttpSession::introduce(service.serve.address(), "/mcp", &Hello::default().with_token(&token));
    let called = session.ask("tools/call", json!({"name": "fake.echo", "arguments": {"text": "x"}}));
    assert!(called["error"].is_null(), "{called}");
    assert!(!called.to_string().contains(&token) && !service.serve.stderr_text().contains(&token), "{called}");
}
