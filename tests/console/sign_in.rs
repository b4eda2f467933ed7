//! Signing in, and what a session allows.

use serde_json::json;
use testkit::http_client::HttpRequest;

use super::Visitor;
use crate::rest::{PREFIX, Rest};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn guarded() -> Rest {
    Rest::start_as(|launch| launch.env("MCP_AGGREGATOR_TOKEN", TOKEN))
}

#[test]
fn a_token_opens_the_console_until_its_owner_leaves() {
    let rest = guarded();
    let visitor = Visitor::new(&rest);
    let away = visitor.get("/tools");
    assert_eq!((away.status, away.headers["location"].as_str()), (303, "/login?next=%2Ftools"));
    let searched = visitor.get("/tools?q=mail").headers["location"].clone();
    assert_eq!(searched, "/login?next=%2Ftools%3Fq%3Dmail", "what was searched for is not lost");
    assert_eq!(visitor.submit("/login", &[("token", "wrong")]).status, 401);
    let inside = visitor.submit("/login", &[("token", TOKEN), ("next", "/tools")]);
    assert_eq!(inside.status, 200, "{inside:?}");
    assert!(inside.body.contains("Sign out") && !inside.body.contains(TOKEN));
    assert_eq!(Visitor::new(&rest).get("/tools").status, 303, "nobody else is let in");
    visitor.submit("/logout", &[]);
    assert_eq!(visitor.get("/tools").status, 303);
}

#[test]
fn client_snippets_contain_the_token_only_on_request() {
    let rest = guarded();
    let visitor = Visitor::new(&rest);
    visitor.submit("/login", &[("token", TOKEN)]);
    let page = visitor.page("/");
    assert!(page.contains("Bearer &lt;token&gt;") && !page.contains(TOKEN), "{page}");
    let shown = visitor.post("/connect", &[("csrf", &visitor.csrf())]);
    assert!(shown.body.contains(&format!("Bearer {TOKEN}")), "{}", shown.body);
    assert_eq!(shown.headers["cache-control"], "no-store");
    assert!(!visitor.page("/").contains(TOKEN), "only as long as it is looked at");
    assert_eq!(visitor.post("/connect", &[]).status, 403, "only from our own page");
    let stranger = Visitor::new(&rest);
    assert!(!stranger.post("/connect", &[("csrf", &stranger.csrf())]).body.contains(TOKEN));
}

#[test]
fn unknown_paths_return_html_to_browsers_and_json_to_programs() {
    let rest = Rest::start();
    let visitor = Visitor::new(&rest);
    let lost = visitor.send(HttpRequest::new("GET", "/nosuch").header("Accept", "text/html,*/*;q=0.8"));
    assert_eq!(lost.status, 404);
    assert!(lost.body.contains("Page not found"), "{}", lost.body);
    let program = visitor.send(HttpRequest::new("GET", "/nosuch"));
    assert!(program.status == 404 && program.body.starts_with('{'), "{}", program.body);
}

#[test]
fn a_session_speaks_for_its_owner_but_changes_need_the_secret() {
    let rest = guarded();
    let visitor = Visitor::new(&rest);
    visitor.submit("/login", &[("token", TOKEN)]);
    let csrf = visitor.csrf();
    assert_eq!(visitor.get(&format!("{PREFIX}/state")).status, 200, "scripts may look");
    let stop = || HttpRequest::new("POST", &format!("{PREFIX}/executions/reset")).header("Content-Length", "0");
    assert_eq!(visitor.send(stop()).status, 401, "without the secret it is nobody's");
    assert_eq!(visitor.send(stop().header("X-CSRF-Token", "wrong")).status, 401);
    assert_eq!(visitor.send(stop().header("X-CSRF-Token", &csrf)).status, 200);
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25",
        "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}});
    let hello = || HttpRequest::post("/mcp", hello.to_string());
    assert_eq!(visitor.send(hello()).status, 401);
    assert_eq!(visitor.send(hello().header("X-CSRF-Token", &csrf)).status, 200);
    let audit = visitor.get(&format!("{PREFIX}/audit?action=executions.reset")).json();
    assert_eq!(audit[0]["who"], "default", "it is done in the name of the token");
}

#[test]
fn requests_without_a_csrf_token_change_nothing() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    let (visitor, other) = (Visitor::new(&rest), Visitor::new(&rest));
    visitor.page("/");
    let foreign = other.csrf();
    for fields in [&[][..], &[("csrf", "")], &[("csrf", foreign.as_str())]] {
        assert_eq!(visitor.post("/servers/fake/remove", fields).status, 403, "{fields:?}");
    }
    let evil = HttpRequest::new("POST", "/servers/fake/remove").header("Origin", "http://evil.example").body("csrf=x");
    assert_eq!(rest.serve.fetch(&evil).status, 403);
    assert_eq!(rest.get("/servers/fake").status, 200);
}

#[test]
fn a_session_ends_at_once_when_its_token_has_another_secret() {
    let tokens = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(tokens.path(), "ann:the-old-secret-of-ann\n").unwrap();
    let rest = Rest::start_as(|launch| launch.arg("--token-file").arg(tokens.path()));
    let visitor = Visitor::new(&rest);
    visitor.submit("/login", &[("token", "the-old-secret-of-ann")]);
    assert_eq!(visitor.get("/tools").status, 200);
    let cookie = visitor.cookie.borrow().clone().expect("a session has a cookie");
    let mut connection = rest.serve.connect();
    let mut events = connection.ask(&HttpRequest::new("GET", &format!("{PREFIX}/events")).header("Cookie", &cookie));
    assert_eq!(events.status, 200);
    std::fs::write(tokens.path(), "ann:the-new-secret-of-ann\n").unwrap();
    let new =
        || HttpRequest::new("GET", &format!("{PREFIX}/state")).header("Authorization", "Bearer the-new-secret-of-ann");
    testkit::wait_until("the new secret opens", || (rest.serve.fetch(&new()).status == 200).then_some(()));
    // Immediately, without waiting for anything else.
    assert_eq!(visitor.get("/tools").status, 303);
    assert_eq!(visitor.get(&format!("{PREFIX}/state")).status, 401);
    while events.next_message().is_some() {}
    visitor.submit("/login", &[("token", "the-new-secret-of-ann")]);
    assert_eq!(visitor.get("/tools").status, 200);
}

#[test]
fn event_streams_end_on_sign_out() {
    let rest = guarded();
    let visitor = Visitor::new(&rest);
    visitor.submit("/login", &[("token", TOKEN)]);
    let cookie = visitor.cookie.borrow().clone().expect("a session has a cookie");
    let mut connection = rest.serve.connect();
    let mut events = connection.ask(&HttpRequest::new("GET", &format!("{PREFIX}/events")).header("Cookie", &cookie));
    assert_eq!(events.status, 200);
    visitor.submit("/logout", &[]);
    while events.next_message().is_some() {}
}
