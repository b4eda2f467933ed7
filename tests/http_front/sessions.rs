//! Sessions: from `initialize` to DELETE, and requests without one.

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::http_session::Hello;
use testkit::{ClientSession, HttpSession, Puppet, Spec};

use super::{PING, assert_echoes, initialize};
use crate::relay::serving;

fn puppet() -> Puppet {
    Puppet::new(Spec::legacy().tool("t").echoes())
}

#[test]
fn a_session_begins_with_initialize_and_ends_with_delete() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let mut session = serve.session("/mcp");
    assert!(session.id().len() >= 22, "128 bits need as much: {}", session.id());
    assert!(session.id().bytes().all(|byte| byte.is_ascii_graphic()), "{}", session.id());
    assert_ne!(session.id(), serve.session("/mcp").id());
    assert_echoes(&mut session, "s.t");

    let status = session.delete();
    assert!(status == 200 || status == 204, "{status}");
    let ended = serve.fetch(&session.post(PING));
    assert_eq!(ended.status, 404, "{ended:?}");
    assert_eq!(serve.fetch(&session.get()).status, 404);
    assert_eq!(session.delete(), 404);
}

#[test]
fn without_a_session_only_initialize_is_answered() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    for ask in [session.post(PING), session.get(), session.dressed(HttpRequest::new("DELETE", "/mcp"))] {
        assert_eq!(serve.fetch(&ask.clone().without("Mcp-Session-Id")).status, 400, "{ask:?}");
        assert_eq!(serve.fetch(&ask.clone().header("Mcp-Session-Id", "nobody")).status, 404, "{ask:?}");
    }
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    assert_eq!(serve.fetch(&session.post(notification).without("Mcp-Session-Id")).status, 400);
    assert_eq!(serve.fetch(&session.post(PING)).status, 200);
}

#[test]
fn a_session_belongs_to_the_path_it_was_opened_at() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp/s");
    let elsewhere = HttpRequest::post("/mcp", PING).header("Mcp-Session-Id", session.id());
    assert_eq!(serve.fetch(&elsewhere).status, 404);
}

#[test]
fn every_legacy_revision_is_supported_and_an_unknown_one_gets_our_latest() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let hello = Hello { revision: revision.to_owned(), ..Hello::default() };
        let mut session = HttpSession::introduce(serve.address(), "/mcp", &hello);
        assert_eq!(session.welcome["result"]["protocolVersion"], revision);
        assert_echoes(&mut session, "s.t");
    }
    for unknown in ["1999-01-01", "2026-07-28", "nonsense"] {
        let answer = serve.fetch(&HttpRequest::post("/mcp", initialize(unknown)));
        assert_eq!(answer.status, 200, "{unknown}: {answer:?}");
        assert!(answer.body.contains(r#""protocolVersion":"2025-11-25""#), "{unknown}: {answer:?}");
    }
}

#[test]
fn the_revision_in_the_header_must_be_one_that_exists() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    assert_eq!(serve.fetch(&session.post(PING).without("MCP-Protocol-Version")).status, 200);
    for bad in ["1999-01-01", "nonsense", ""] {
        assert_eq!(serve.fetch(&session.post(PING).header("MCP-Protocol-Version", bad)).status, 400, "{bad:?}");
    }
}

#[test]
fn one_server_alone_is_offered_under_its_own_path_whatever_its_name() {
    let puppet = puppet();
    let config = testkit::Config::new().server("a b/é%", puppet.entry()).server("other", self::puppet().entry());
    let serve = testkit::Serve::start(&config);
    let mut session = serve.session("/mcp/a%20b%2F%C3%A9%25");
    assert_eq!(session.ids("tools/list"), ["t"]);
    assert_echoes(&mut session, "t");
    let mut older = serve.sse("/sse/a%20b%2F%C3%A9%25");
    assert_echoes(&mut older, "t");

    let nobody = serve.fetch(&HttpRequest::post("/mcp/nobody", initialize("2025-11-25")));
    assert_eq!(nobody.status, 404);
    assert!(nobody.json()["error"]["message"].as_str().is_some_and(|text| text.contains("nobody")), "{nobody:?}");
}

#[test]
fn a_failed_server_reports_why_under_its_own_path() {
    let config = testkit::Config::new().server("s", testkit::fake().args(["--fail-at", "initialize"]));
    let serve = testkit::Serve::start(&config);
    let assert_told = |error: &Value| {
        let data = &error["data"];
        // It has failed, and a moment later the time of the next attempt is known.
        assert!(data["reason"] == "server_failed" || data["reason"] == "server_unavailable", "{error}");
        assert_eq!(data["server"], "s", "{error}");
        assert!(data["detail"].as_str().is_some_and(|detail| detail.contains("exited with status 3")), "{error}");
    };
    let refused = serve.fetch(&HttpRequest::post("/mcp/s", initialize("2025-11-25")));
    assert_told(&refused.json()["error"]);
    assert_eq!(refused.headers.get("mcp-session-id"), None, "a session nobody was let into");
    assert_told(&serve.modern("/mcp/s").ask("server/discover", json!({}))["error"]);
    // Among other servers, it is just missing.
    assert_eq!(serve.session("/mcp").ids("tools/list"), [""; 0]);
}

#[test]
fn too_many_sessions_end_the_one_that_was_left_alone_the_longest() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let mut held = serve.session("/mcp");
    held.listen();
    let idle = serve.session("/mcp");
    let used = serve.session("/mcp");
    let open = |count: usize| {
        let mut connection = serve.connect();
        for _ in 0..count {
            let mut answer = connection.ask(&HttpRequest::post("/mcp", initialize("2025-11-25")));
            assert_eq!(answer.status, 200);
            answer.bytes();
        }
    };
    // A session that is used from time to time is kept longer than an idle one, and an open stream counts as use.
    for _ in 0..11 {
        open(100);
        assert_eq!(serve.fetch(&used.post(PING)).status, 200);
    }
    assert_eq!(serve.fetch(&idle.post(PING)).status, 404);
    assert_eq!(serve.fetch(&held.post(PING)).status, 200);
}
