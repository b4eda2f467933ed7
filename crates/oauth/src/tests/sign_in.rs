//! Sign-ins: discovery, identity, the authorization request, the redirect.

use catalog::{OAuthSettings, ResourceParameter, TokenEndpointAuthMethod};
use serde_json::json;

use super::provider::{
    ISSUER, Process, REDIRECT, RESOURCE_METADATA, SERVER, answer, challenge, metadata_of, parameter,
};
use crate::{CallbackError, ChangeKind, FetchError, LoggedOut, LoginState, Step};

const SERVER_METADATA: &str = "GET https://as.example/.well-known/oauth-authorization-server/t";
const REGISTER: &str = "POST https://as.example/register";
const ASK: &str = "POST https://mcp.example/a/mcp";

#[tokio::test]
async fn a_person_signs_in_and_the_token_is_used() {
    let process = Process::new();
    let source = process.oauth.source(process.protected.clone());
    let mut changes = process.oauth.subscribe();
    source.prepare().await;
    assert_eq!(source.header(), None);
    assert_eq!(process.oauth.login_state("key").await.unwrap(), LoginState::None);

    let attempt = process.begin().await;
    let url = &attempt.authorization_url;
    assert!(url.starts_with("https://as.example/authorize?tenant=t&response_type=code&"), "{url}");
    for (name, value) in [
        ("client_id", "client-1"),
        ("redirect_uri", REDIRECT),
        ("scope", "read"),
        ("resource", SERVER),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(parameter(url, name).as_deref(), Some(value));
    }
    assert!(matches!(process.oauth.login_state("key").await.unwrap(), LoginState::Pending { .. }));
    let registration = process.provider.requests_to(REGISTER).remove(0).json();
    assert_eq!(registration["application_type"], "native");
    assert_eq!(registration["redirect_uris"], json!([REDIRECT]));
    assert_eq!(registration["token_endpoint_auth_method"], "none");

    let state = parameter(url, "state").unwrap();
    let signed_in = process.oauth.finish(&format!("code=code-secret&state={state}")).await.unwrap();
    assert_eq!((signed_in.issuer.as_str(), signed_in.server.as_str()), (ISSUER, "docs"));
    let asked = process.provider.token_requests().remove(0);
    assert_eq!(asked.form("code").as_deref(), Some("code-secret"));
    assert_eq!(asked.form("resource").as_deref(), Some(SERVER));
    assert_eq!(asked.form("redirect_uri").as_deref(), Some(REDIRECT));
    assert!(asked.form("code_verifier").unwrap().len() >= 43);
    assert_eq!(source.header().unwrap(), "Bearer access-2-secret");
    let change = changes.recv().await.unwrap();
    assert_eq!((change.key.as_str(), change.kind), ("key", ChangeKind::SignedIn));

    // State and code are used up.
    let again = process.oauth.finish(&format!("code=code-secret&state={state}")).await;
    assert_eq!(again.unwrap_err(), CallbackError::Unknown);
    assert_eq!(process.provider.token_requests().len(), 1);
}

#[tokio::test]
async fn an_unknown_or_absent_or_repeated_state_changes_nothing() {
    let process = Process::new();
    let attempt = process.begin().await;
    let state = parameter(&attempt.authorization_url, "state").unwrap();
    for query in ["", "code=x", "code=x&state=", "code=x&state=guess", &format!("code=x&state={state}&state=guess")] {
        assert_eq!(process.oauth.finish(query).await.unwrap_err(), CallbackError::Unknown, "{query}");
    }
    assert!(matches!(process.oauth.login_state("key").await.unwrap(), LoginState::Pending { .. }));
    process.oauth.finish(&format!("code=x&state={state}")).await.unwrap();
}

#[tokio::test]
async fn the_issuer_of_a_redirect_is_compared_byte_by_byte() {
    for (is_announced, iss, is_accepted) in [
        (true, Some(ISSUER), true),
        (false, Some(ISSUER), true),
        (false, None, true),
        (true, None, false),
        (true, Some("https://evil.example"), false),
        (false, Some("https://evil.example"), false),
        (true, Some("https://as.example/t/"), false),
        (true, Some("https://AS.example/t"), false),
        (true, Some("https://as.example:443/t"), false),
    ] {
        let process = Process::new();
        process.provider.metadata("authorization_response_iss_parameter_supported", is_announced.into());
        let attempt = process.begin().await;
        let state = parameter(&attempt.authorization_url, "state").unwrap();
        let iss = iss.map(|iss| format!("&iss={iss}")).unwrap_or_default();
        let finished = process.oauth.finish(&format!("error=evil&state={state}{iss}")).await.unwrap_err();
        match finished {
            CallbackError::Denied { error, .. } => assert!(is_accepted && error == "evil", "{iss}"),
            error @ CallbackError::ForeignIssuer { .. } => {
                assert!(!is_accepted && !error.to_string().contains("evil"), "{iss}: {error}");
            }
            other => panic!("{other}"),
        }
        assert!(process.provider.token_requests().is_empty());
    }
}

#[tokio::test]
async fn a_refusal_of_the_person_is_reported_and_escaped() {
    let process = Process::new();
    let attempt = process.begin().await;
    let state = parameter(&attempt.authorization_url, "state").unwrap();
    let query = format!("error=access_denied&error_description=no%1b%5B31m+way&state={state}");
    let error = process.oauth.finish(&query).await.unwrap_err();
    assert!(error.to_string().contains("access_denied (no") && !error.to_string().contains('\x1b'), "{error}");
    assert!(matches!(process.oauth.login_state("key").await.unwrap(), LoginState::Failed { .. }));
}

#[tokio::test]
async fn metadata_is_found_at_every_place_where_it_may_be() {
    let metadata = || metadata_of("https://as.example/t");
    for place in [
        "GET https://as.example/.well-known/openid-configuration/t",
        "GET https://as.example/t/.well-known/openid-configuration",
    ] {
        let process = Process::new();
        process.provider.always(SERVER_METADATA, Ok(answer(404, "")));
        process.provider.always(place, Ok(answer(200, metadata())));
        process.begin().await;
    }
    let process = Process::new();
    process.provider.always(RESOURCE_METADATA, Ok(answer(200, "<html>a website that answers everything</html>")));
    let document = json!({"resource": "https://mcp.example/", "authorization_servers": [ISSUER]}).to_string();
    process
        .provider
        .always("GET https://mcp.example/.well-known/oauth-protected-resource", Ok(answer(200, document.clone())));
    let attempt = process.begin().await;
    // Exactly as it is spelled there.
    assert_eq!(parameter(&attempt.authorization_url, "resource").as_deref(), Some("https://mcp.example/"));

    let process = Process::new();
    process.provider.always(RESOURCE_METADATA, Ok(answer(404, "")));
    let header = "Bearer resource_metadata=\"https://mcp.example/meta\"";
    process.provider.always(ASK, Ok(challenge(header)));
    process.provider.always("GET https://mcp.example/meta", Ok(answer(200, document)));
    process.begin().await;
    assert!(process.provider.requests_to(RESOURCE_METADATA).is_empty());
}

#[tokio::test]
async fn metadata_of_another_issuer_or_resource_is_not_used() {
    for issuer in ["https://as.example/t/", "https://AS.example/t", "https://as.example:443/t", "https://evil.example"]
    {
        let process = Process::new();
        process.provider.metadata("issuer", issuer.into());
        let error = process.oauth.begin(&process.protected, REDIRECT).await.unwrap_err();
        assert_eq!(error.step, Step::ServerMetadata);
        assert!(error.to_string().contains("set `oauth.issuer` to it"), "{error}");
    }
    let process = Process::new();
    let document = json!({"resource": "https://other.example/mcp", "authorization_servers": [ISSUER]});
    process.provider.always(RESOURCE_METADATA, Ok(answer(200, document.to_string())));
    let error = process.oauth.begin(&process.protected, REDIRECT).await.unwrap_err();
    assert!(error.to_string().contains("https://other.example/mcp"), "{error}");
    assert!(process.provider.requests_to(REGISTER).is_empty());
}

#[tokio::test]
async fn an_issuer_that_differs_can_be_pinned() {
    let settings = OAuthSettings {
        issuer: Some("https://real.example".into()),
        server_metadata_url: Some("https://as.example/meta".into()),
        ..OAuthSettings::default()
    };
    let process = Process::with_settings(settings);
    process.provider.always("GET https://as.example/meta", Ok(answer(200, metadata_of("https://real.example"))));
    process.sign_in().await.unwrap();
    assert_eq!(process.grant().await.authorization_server.issuer, "https://real.example");
}

#[tokio::test]
async fn a_server_of_2025_03_26_is_its_own_authorization_server() {
    for has_metadata in [true, false] {
        let process = Process::new();
        process.provider.always(RESOURCE_METADATA, Ok(answer(404, "")));
        process.provider.always(ASK, Ok(answer(401, "")));
        if has_metadata {
            let metadata = json!({
                "issuer": "https://mcp.example/",
                "authorization_endpoint": "https://mcp.example/authorize",
                "token_endpoint": "https://mcp.example/token",
                "registration_endpoint": "https://mcp.example/register",
                "code_challenge_methods_supported": ["S256"],
            });
            process.provider.always(
                "GET https://mcp.example/.well-known/oauth-authorization-server",
                Ok(answer(200, metadata.to_string())),
            );
        }
        process.provider.always("POST https://mcp.example/register", Ok(answer(201, r#"{"client_id":"c"}"#)));
        process.provider.always("POST https://mcp.example/token", Ok(answer(200, r#"{"access_token":"t"}"#)));
        let attempt = process.begin().await;
        assert!(attempt.authorization_url.starts_with("https://mcp.example/authorize?"));
        assert_eq!(parameter(&attempt.authorization_url, "resource").as_deref(), Some(SERVER));
        assert_eq!(parameter(&attempt.authorization_url, "scope"), None);
    }
}

#[tokio::test]
async fn a_server_that_asks_for_nothing_needs_no_sign_in() {
    let process = Process::new();
    process.provider.always(RESOURCE_METADATA, Ok(answer(404, "")));
    process.provider.always(ASK, Ok(answer(200, "")));
    let error = process.oauth.begin(&process.protected, REDIRECT).await.unwrap_err();
    assert!(error.to_string().contains("does not ask for a sign-in"), "{error}");
}

#[tokio::test]
async fn an_authorization_server_without_s256_is_refused() {
    for (methods, is_pinned, is_refused) in [
        (json!(["plain"]), false, true),
        (json!([]), true, true),
        (json!(null), false, true),
        (json!(null), true, false),
    ] {
        let issuer = is_pinned.then(|| ISSUER.to_owned());
        let process = Process::with_settings(OAuthSettings { issuer, ..OAuthSettings::default() });
        process.provider.metadata("code_challenge_methods_supported", methods.clone());
        let begun = process.oauth.begin(&process.protected, REDIRECT).await;
        assert_eq!(begun.is_err(), is_refused, "{methods}");
    }
}

#[tokio::test]
async fn a_client_is_configured_or_documented_or_registered_or_asked_for() {
    let configured = OAuthSettings {
        client_id: Some("mine".into()),
        client_secret: Some("hunter2-secret".into()),
        client_metadata_url: Some("https://me.example/client.json".into()),
        ..OAuthSettings::default()
    };
    let process = Process::with_settings(configured.clone());
    process.provider.metadata("client_id_metadata_document_supported", true.into());
    process.provider.metadata("token_endpoint_auth_methods_supported", json!(["client_secret_post"]));
    process.sign_in().await.unwrap();
    let asked = process.provider.token_requests().remove(0);
    assert_eq!(
        (asked.form("client_id"), asked.form("client_secret")),
        (Some("mine".into()), Some("hunter2-secret".into()))
    );
    assert!(!process.grant().await.to_json().contains("hunter2"), "a configured secret is not stored again");

    let documented = OAuthSettings { client_id: None, client_secret: None, ..configured };
    let process = Process::with_settings(documented.clone());
    process.provider.metadata("client_id_metadata_document_supported", true.into());
    let attempt = process.begin().await;
    assert_eq!(parameter(&attempt.authorization_url, "client_id").as_deref(), Some("https://me.example/client.json"));

    let process = Process::with_settings(documented);
    let attempt = process.begin().await;
    assert_eq!(parameter(&attempt.authorization_url, "client_id").as_deref(), Some("client-1"));

    let process = Process::new();
    process.provider.metadata("registration_endpoint", json!(null));
    let error = process.oauth.begin(&process.protected, REDIRECT).await.unwrap_err().to_string();
    assert!(error.contains(REDIRECT) && error.contains("`oauth.client_id`") && error.contains("`docs`"), "{error}");
}

#[tokio::test]
async fn a_refused_registration_is_explained() {
    for (status, body, said) in [
        (403, "Forbidden: unknown client name", "HTTP 403: Forbidden: unknown client name"),
        (404, "<html><h1>Not found</h1></html>", "HTTP 404: Not found"),
        (
            422,
            r#"{"error":"invalid_redirect_uri","error_description":"no loopback"}"#,
            "invalid_redirect_uri (no loopback)",
        ),
    ] {
        let process = Process::new();
        process.provider.always(REGISTER, Ok(answer(status, body)));
        let error = process.oauth.begin(&process.protected, REDIRECT).await.unwrap_err();
        assert_eq!(error.step, Step::Registration);
        let error = error.to_string();
        assert!(error.contains(said) && error.contains(REDIRECT) && error.contains("as.example/register"), "{error}");
    }
}

#[tokio::test]
async fn a_registration_is_used_again_for_the_same_redirect_and_issuer_only() {
    let process = Process::new();
    process.sign_in().await.unwrap();
    process.sign_in().await.unwrap();
    assert_eq!(process.provider.requests_to(REGISTER).len(), 1);
    assert_eq!(process.oauth.last_redirect_uri("key").await.as_deref(), Some(REDIRECT));
    process.oauth.begin(&process.protected, "http://127.0.0.1:9/callback").await.unwrap();
    assert_eq!(process.provider.requests_to(REGISTER).len(), 2, "another redirect address");
    let document = json!({"resource": SERVER, "authorization_servers": ["https://two.example"]});
    process.provider.always(RESOURCE_METADATA, Ok(answer(200, document.to_string())));
    process.provider.always(
        "GET https://two.example/.well-known/oauth-authorization-server",
        Ok(answer(200, metadata_of("https://two.example"))),
    );
    process.begin().await;
    assert_eq!(process.provider.requests_to(REGISTER).len(), 3, "another issuer");
}

#[tokio::test]
async fn a_configured_client_is_not_taken_to_another_issuer() {
    let settings = OAuthSettings { client_id: Some("mine".into()), ..OAuthSettings::default() };
    let process = Process::with_settings(settings);
    process.sign_in().await.unwrap();
    let document = json!({"resource": SERVER, "authorization_servers": ["https://two.example"]});
    process.provider.always(RESOURCE_METADATA, Ok(answer(200, document.to_string())));
    process.provider.always(
        "GET https://two.example/.well-known/oauth-authorization-server",
        Ok(answer(200, metadata_of("https://two.example"))),
    );
    let error = process.oauth.begin(&process.protected, REDIRECT).await.unwrap_err().to_string();
    assert!(error.contains(ISSUER) && error.contains("https://two.example"), "{error}");
}

#[tokio::test]
async fn a_registered_client_authenticates_as_the_server_wants_it() {
    use TokenEndpointAuthMethod::{ClientSecretBasic, ClientSecretPost, None as Public};
    for (offered, answered, expected) in [
        (json!(["none"]), None, Public),
        (json!(["client_secret_basic"]), Some("s3cret"), ClientSecretBasic),
        (json!(["client_secret_post"]), Some("s3cret"), ClientSecretPost),
        (json!(null), Some("s3cret"), ClientSecretBasic),
        (json!(null), None, Public),
    ] {
        let process = Process::new();
        process.provider.metadata("token_endpoint_auth_methods_supported", offered.clone());
        let client = json!({"client_id": "c", "client_secret": answered}).to_string();
        process.provider.always(REGISTER, Ok(answer(201, client)));
        process.sign_in().await.unwrap();
        assert_eq!(process.grant().await.client.auth_method, expected, "{offered}");
        let asked = process.provider.token_requests().remove(0);
        assert_eq!(asked.headers.contains_key("authorization"), expected == ClientSecretBasic);
        assert_eq!(asked.form("client_secret").is_some(), expected == ClientSecretPost);
        assert_eq!(asked.form("client_id").is_some(), expected != ClientSecretBasic);
    }
}

#[tokio::test]
async fn scopes_come_from_the_settings_or_the_challenge_or_the_resource() {
    let scope_of = async |process: &Process| {
        let attempt = process.begin().await;
        parameter(&attempt.authorization_url, "scope")
    };
    let settings = OAuthSettings { scopes: Some(vec!["mine".into()]), ..OAuthSettings::default() };
    assert_eq!(scope_of(&Process::with_settings(settings)).await.as_deref(), Some("mine"));
    assert_eq!(scope_of(&Process::new()).await.as_deref(), Some("read"));
    let process = Process::new();
    process.provider.always(ASK, Ok(challenge("Bearer")));
    assert_eq!(scope_of(&process).await.as_deref(), Some("all"));
    process.provider.metadata("scopes_supported", json!(["openid", "other", "offline_access"]));
    let attempt = process.begin().await;
    assert_eq!(parameter(&attempt.authorization_url, "scope").as_deref(), Some("all offline_access"));
    assert_eq!(parameter(&attempt.authorization_url, "prompt").as_deref(), Some("consent"));
}

#[tokio::test]
async fn the_resource_parameter_can_be_replaced_and_left_out() {
    for (resource, expected) in
        [(ResourceParameter::Exactly("urn:x".into()), Some("urn:x")), (ResourceParameter::Omitted, None)]
    {
        let process = Process::with_settings(OAuthSettings { resource, ..OAuthSettings::default() });
        let attempt = process.begin().await;
        let state = parameter(&attempt.authorization_url, "state").unwrap();
        assert_eq!(parameter(&attempt.authorization_url, "resource").as_deref(), expected);
        process.oauth.finish(&format!("code=c&state={state}")).await.unwrap();
        assert_eq!(process.provider.token_requests()[0].form("resource").as_deref(), expected);
    }
}

#[tokio::test]
async fn the_redirect_address_of_the_settings_is_used() {
    let settings = OAuthSettings { callback_port: Some(8080), ..OAuthSettings::default() };
    let process = Process::with_settings(settings);
    let attempt = process.begin().await;
    let used = parameter(&attempt.authorization_url, "redirect_uri");
    assert_eq!(used.as_deref(), Some("http://localhost:8080/callback"));
}

#[tokio::test]
async fn an_unreachable_provider_is_named_with_the_step() {
    let process = Process::new();
    process.provider.always(SERVER_METADATA, Err(FetchError::Unsent("connection refused".into())));
    let error = process.oauth.begin(&process.protected, REDIRECT).await.unwrap_err().to_string();
    assert!(error.contains("reading the metadata of the authorization server"), "{error}");
    assert!(error.contains("as.example/.well-known") && error.contains("connection refused"), "{error}");
}

#[tokio::test]
async fn endpoints_that_are_not_encrypted_are_refused() {
    for (endpoint, said) in [("http://as.example/token", "not encrypted"), ("file:///etc/passwd", "no host")] {
        let process = Process::new();
        process.provider.metadata("token_endpoint", endpoint.into());
        let error = process.oauth.begin(&process.protected, REDIRECT).await.unwrap_err().to_string();
        assert!(error.contains("`token_endpoint`") && error.contains(said), "{error}");
    }
}

#[tokio::test]
async fn a_logout_revokes_where_that_is_offered_and_forgets() {
    let process = Process::new();
    process.provider.metadata("revocation_endpoint", "https://as.example/revoke".into());
    assert_eq!(process.oauth.logout(&process.protected).await.unwrap(), LoggedOut::NotSignedIn);
    process.sign_in().await.unwrap();
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    assert!(source.header().is_some());
    assert_eq!(process.oauth.logout(&process.protected).await.unwrap(), LoggedOut::Revoked);
    let asked = process.provider.requests_to("POST https://as.example/revoke").remove(0);
    assert_eq!(asked.form("token").as_deref(), Some("refresh-2-secret"));
    assert_eq!(source.header(), None);
    assert_eq!(process.oauth.login_state("key").await.unwrap(), LoginState::None);

    process.sign_in().await.unwrap();
    process.provider.always("POST https://as.example/revoke", Ok(answer(500, "")));
    assert!(matches!(process.oauth.logout(&process.protected).await.unwrap(), LoggedOut::NotRevoked(_)));
    assert_eq!(process.oauth.login_state("key").await.unwrap(), LoginState::None);
}

#[tokio::test]
async fn nothing_secret_is_shown() {
    let process = Process::new();
    process.sign_in().await.unwrap();
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    let shown = format!("{:?} {source:?} {:?}", process.oauth, process.grant().await);
    assert!(!shown.contains("-secret"), "{shown}");
    process.provider.always("POST https://as.example/token", Ok(answer(500, "oops")));
    let error = process.sign_in().await.unwrap_err();
    assert!(!format!("{error:?} {error}").contains("code-secret"), "{error:?}");
}

#[tokio::test]
async fn a_query_of_the_url_is_not_part_of_the_resource() {
    let process = Process::new();
    let url = format!("{SERVER}?key=hunter2");
    process.provider.always(&format!("POST {url}"), Ok(challenge("Bearer")));
    process.provider.always(RESOURCE_METADATA, Ok(answer(404, "")));
    process.provider.always("POST https://mcp.example/register", Ok(answer(201, r#"{"client_id":"c"}"#)));
    let protected = crate::Protected { url, ..process.protected.clone() };
    let attempt = process.oauth.begin(&protected, REDIRECT).await.unwrap();
    assert_eq!(parameter(&attempt.authorization_url, "resource").as_deref(), Some(SERVER));
}

#[tokio::test]
async fn metadata_that_is_unavailable_for_now_is_not_taken_for_absent() {
    let process = Process::new();
    process.provider.always(RESOURCE_METADATA, Ok(answer(503, "back soon")));
    let error = process.oauth.begin(&process.protected, REDIRECT).await.unwrap_err();
    assert_eq!((error.step, error.kind), (Step::ResourceMetadata, crate::FlowErrorKind::Temporary));
    assert!(error.to_string().contains("HTTP 503: back soon"), "{error}");
    assert!(process.provider.requests_to("POST https://mcp.example/register").is_empty());
    let process = Process::new();
    process.provider.always(SERVER_METADATA, Ok(answer(502, "")));
    let error = process.oauth.begin(&process.protected, REDIRECT).await.unwrap_err();
    assert_eq!((error.step, error.kind), (Step::ServerMetadata, crate::FlowErrorKind::Temporary));
}

#[tokio::test]
async fn a_redirect_that_comes_too_late_changes_nothing() {
    let process = Process::new();
    let attempt = process.begin().await;
    let state = parameter(&attempt.authorization_url, "state").unwrap();
    process.oauth.expire_attempts();
    let error = process.oauth.finish(&format!("code=x&state={state}")).await.unwrap_err();
    assert_eq!(error, CallbackError::Expired { server: "docs".into() });
    assert!(process.provider.token_requests().is_empty());
    let again = process.oauth.finish(&format!("code=x&state={state}")).await.unwrap_err();
    assert_eq!(again, CallbackError::Unknown);
}

#[tokio::test]
async fn the_client_of_entra_needs_no_resource_and_refreshes_with_scopes() {
    let settings = OAuthSettings {
        client_id: Some("app".into()),
        scopes: Some(vec!["api://x/.default".into(), "offline_access".into()]),
        issuer: Some(ISSUER.into()),
        resource: ResourceParameter::Omitted,
        ..OAuthSettings::default()
    };
    let process = Process::with_settings(settings);
    // It supports PKCE and does not say so.
    process.provider.metadata("code_challenge_methods_supported", json!(null));
    process.sign_in().await.unwrap();
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    source.after_unauthorized(source.header().as_ref(), &[]).await.unwrap();
    let refresh = process.provider.token_requests().remove(1);
    assert_eq!(refresh.form("resource"), None);
    assert_eq!(refresh.form("scope").as_deref(), Some("api://x/.default offline_access"));
}

#[tokio::test]
async fn google_is_asked_for_a_refresh_token_in_its_own_way() {
    let settings = OAuthSettings {
        client_id: Some("web".into()),
        client_secret: Some("web-secret".into()),
        issuer: Some("https://accounts.google.com".into()),
        server_metadata_url: Some("https://as.example/meta".into()),
        ..OAuthSettings::default()
    };
    let process = Process::with_settings(settings);
    let metadata = metadata_of("https://accounts.google.com");
    process.provider.always("GET https://as.example/meta", Ok(answer(200, metadata)));
    let attempt = process.begin().await;
    assert_eq!(parameter(&attempt.authorization_url, "access_type").as_deref(), Some("offline"));
}

#[tokio::test]
async fn a_challenge_counts_whichever_request_was_refused() {
    // The connection has heard it, and is gone.
    let process = Process::new();
    process.provider.always(ASK, Ok(answer(200, "")));
    let source = process.oauth.source(process.protected.clone());
    source.after_unauthorized(None, &["Bearer scope=\"of-tools-list\"".into()]).await.unwrap_err();
    source.after_unauthorized(None, &[]).await.unwrap_err();
    drop(source);
    let attempt = process.begin().await;
    assert_eq!(parameter(&attempt.authorization_url, "scope").as_deref(), Some("of-tools-list"));
    assert!(process.provider.requests_to(ASK).is_empty(), "nobody needs to ask again");

    // Nobody has heard one, and `initialize` is answered.
    let process = Process::new();
    process.provider.always(ASK, Ok(challenge("Bearer scope=\"of-tools-list\"")));
    process.provider.once(ASK, Ok(answer(200, "")));
    let attempt = process.begin().await;
    assert_eq!(parameter(&attempt.authorization_url, "scope").as_deref(), Some("of-tools-list"));
    let asked = process.provider.requests_to(ASK);
    assert!(asked[0].body.contains("\"initialize\"") && asked[1].body.contains("\"tools/list\""));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_not_finished_leaves_its_registration_to_the_next_one() {
    let process = Process::new();
    let registered = || process.provider.requests_to("POST https://as.example/register").len();
    let client = |attempt: &crate::Attempt| parameter(&attempt.authorization_url, "client_id").unwrap();
    let first = process.begin().await;
    let second = process.begin().await;
    assert_eq!((client(&first), registered()), (client(&second), 1));
    process.oauth.begin(&process.protected, "http://127.0.0.1:4712/callback").await.unwrap();
    assert_eq!(registered(), 2, "another redirect address needs another registration");
    // The authorization server no longer knows it.
    process.provider.once("POST https://as.example/token", Ok(answer(401, r#"{"error":"invalid_client"}"#)));
    process.sign_in().await.unwrap_err();
    process.begin().await;
    assert_eq!(registered(), 3);
    // It may say so only to the person.
    tokio::time::sleep(std::time::Duration::from_secs(3601)).await;
    process.begin().await;
    assert_eq!(registered(), 4);
}
