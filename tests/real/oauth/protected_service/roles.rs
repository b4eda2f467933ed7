//! What each role may do over REST and in the console.

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::serve::Fetched;
use testkit::wait_until;

use super::{Protected, REST, STATIC_TOKEN};

/// A method and a path, a body, and the lowest role that may send it.
const REQUESTS: &[(&str, &str, &str, &str)] = &[
    ("GET", "/tools", "", "user"),
    ("POST", "/execute", r#"{"name": "fake.echo", "arguments": {}}"#, "user"),
    ("POST", "/search", r#"{"query": "echo"}"#, "user"),
    ("GET", "/documents", "", "user"),
    ("GET", "/servers", "", "operator"),
    ("GET", "/executions", "", "operator"),
    ("GET", "/settings", "", "operator"),
    ("GET", "/export", "", "operator"),
    ("GET", "/export?secrets=true", "", "admin"),
    ("GET", "/audit", "", "admin"),
    ("PATCH", "/settings", "{}", "admin"),
    ("POST", "/import", "{}", "admin"),
];

fn send(service: &Protected, token: &str, method: &str, path: &str, body: &str) -> Fetched {
    let mut request = HttpRequest::new(method, &format!("{REST}{path}"));
    if !body.is_empty() {
        request = request.header("Content-Type", "application/json").body(body);
    }
    service.with_token(token, &request)
}

#[track_caller]
fn check(service: &Protected, token: &str, role: &str, is_identity: bool) {
    let rank = |role: &str| ["user", "operator", "admin"].iter().position(|it| *it == role);
    for (method, path, body, needed) in REQUESTS {
        // The endpoint needs a role, and its parameter another.
        let needed = if role == "user" && path.contains('?') { &"operator" } else { needed };
        let answer = send(service, token, method, path, body);
        if rank(role) >= rank(needed) {
            assert!(![401, 403].contains(&answer.status), "{role}: {method} {path}: {answer:?}");
            continue;
        }
        assert_eq!((answer.status, &answer.json()["error_code"]), (403, &json!("ROLE_REQUIRED")), "{role} {path}");
        assert_eq!(answer.json()["context"], json!({"required": needed, "role": role}));
        let challenge = answer.headers.get("www-authenticate").cloned().unwrap_or_default();
        let has_scope = challenge.contains("error=\"insufficient_scope\"") && challenge.contains("resource_metadata=");
        assert_eq!(has_scope, is_identity, "{path}: {challenge}");
        assert!(!has_scope || challenge.ends_with(&format!("scope=\"mcp:{needed}\"")), "{path}: {challenge}");
    }
}

#[test]
fn each_role_may_do_what_those_before_it_may_and_more() {
    let Some(service) = Protected::start() else { return };
    for role in ["user", "operator", "admin"] {
        let token = service.token(&json!({"sub": role, "scope": format!("openid mcp:{role}")}));
        check(&service, &token, role, true);
    }
    check(&service, &service.token(&json!({"sub": "nobody", "scope": "openid"})), "user", true);
    check(&service, STATIC_TOKEN, "admin", false);
    // Roles of static tokens, while the service runs.
    let file = service.folder.path().join("tokens");
    let tokens = format!("static:{STATIC_TOKEN}\nolga:{}:operator\nbob:{}:user\n", "o".repeat(32), "b".repeat(32));
    std::fs::write(file, tokens).unwrap();
    let known = |secret: &str| send(&service, secret, "GET", "/tools", "").status == 200;
    wait_until("the token file is read again", || known(&"b".repeat(32)).then_some(()));
    check(&service, &"o".repeat(32), "operator", false);
    check(&service, &"b".repeat(32), "user", false);
}

#[test]
fn roles_may_come_from_a_claim() {
    let adjust = |launch: testkit::Launch| launch.args(["--role-claim", "access.roles"]);
    let Some(service) = Protected::start_with(json!({}), adjust) else { return };
    let token = |claims: Value| service.token(&claims);
    let settings = |token: &str| send(&service, token, "PATCH", "/settings", "{}").status;
    assert_eq!(settings(&token(json!({"access": {"roles": ["staff", "admin"]}}))), 200);
    assert_eq!(settings(&token(json!({"access": {"roles": "operator"}}))), 403);
    assert_eq!(settings(&token(json!({"scope": "mcp:admin"}))), 403, "clients choose scopes");
    let (_, challenge) = service.enter("/mcp", None);
    assert!(!challenge.contains("scope="), "there is no use in asking for scopes: {challenge}");
}

#[test]
fn the_console_shows_a_role_what_it_may_use() {
    let Some(service) = Protected::start() else { return };
    let page = |token: &str, path: &str| service.with_token(token, &HttpRequest::new("GET", path));
    let user = service.token(&json!({"sub": "bob", "scope": "mcp:user"}));
    let tools = page(&user, "/tools");
    assert!(tools.status == 200 && tools.body.contains("fake"), "{tools:?}");
    for hidden in ["/servers/", "/settings", "/executions", "/add", "/audit", "name=\"action\" value=\"off\""] {
        assert!(!tools.body.contains(hidden), "{hidden}: {}", tools.body);
    }
    assert_eq!(page(&user, "/").headers["location"], "/tools");
    for path in ["/servers/fake", "/settings", "/executions", "/add", "/audit", "/system", "/clients"] {
        assert_eq!(page(&user, path).status, 403, "{path}");
    }
    let form = HttpRequest::new("POST", "/tools").header("Content-Type", "application/x-www-form-urlencoded");
    assert_eq!(service.with_token(&user, &form.body("action=off&tool=fake.echo")).status, 403);
    let operator = service.token(&json!({"sub": "olga", "scope": "mcp:operator"}));
    let overview = page(&operator, "/");
    assert!(overview.status == 200 && overview.body.contains("/servers/fake"), "{overview:?}");
    assert!(!overview.body.contains("href=\"/settings\"") && !overview.body.contains("href=\"/audit\""));
    for path in ["/settings", "/audit"] {
        assert_eq!(page(&operator, path).status, 403, "{path}");
        assert_eq!(page(STATIC_TOKEN, path).status, 200, "{path}");
    }
}
