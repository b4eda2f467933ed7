//! Prompts, resources, connected clients and restarts over REST.

use serde_json::json;
use testkit::client_session::ClientSession;
use testkit::puppet::{Puppet, Spec};

use super::{Rest, expect};

#[track_caller]
fn register(rest: &Rest, name: &str, puppet: &Puppet) {
    let config = json!({"url": format!("http://{}/mcp", puppet.address())});
    expect(201, &rest.post("/servers", &json!({"name": name, "transport_type": "http", "connection_config": config})));
    rest.wait_for_status(name, "connected");
}

#[test]
fn prompts_and_resources_are_listed_in_parts_and_what_is_missing_is_reported_with_its_code() {
    let rest = Rest::start();
    let one = Puppet::over_http(Spec::legacy().prompt("p").prompt("q").resource("r://1").template("r://{n}"));
    let other = Puppet::over_http(Spec::legacy().prompt("p"));
    register(&rest, "one", &one);
    register(&rest, "other", &other);
    let listed = rest.get("/prompts?limit=2&offset=1");
    let prompts = expect(200, &listed);
    assert_eq!(
        (prompts[0]["name"].clone(), prompts[1]["name"].clone()),
        (json!("one.q"), json!("other.p")),
        "{prompts}"
    );
    assert_eq!(listed.headers["x-total-count"], "3");
    assert_eq!(expect(200, &rest.get("/prompts?server_id=other")).as_array().unwrap().len(), 1);
    assert_eq!(expect(200, &rest.get("/resources"))[0]["uri"], "r://1");
    assert_eq!(expect(200, &rest.get("/resources/templates"))[0]["uri"], "r://{n}");

    for (path, body, status, code) in [
        ("/prompts/get", json!({"name": "one.nothing"}), 404, "PROMPT_NOT_FOUND"),
        ("/prompts/get", json!({"name": "p"}), 400, "PROMPT_AMBIGUOUS"),
        ("/prompts/get", json!({"name": "one.p", "argments": {}}), 422, "VALIDATION_ERROR"),
        ("/resources/read", json!({"uri": "r://1", "server_id": "nobody"}), 404, "SERVER_NOT_FOUND"),
    ] {
        let answer = expect(status, &rest.post(path, &body));
        assert_eq!(answer["error_code"], code, "{body}: {answer}");
    }
    expect(200, &rest.order("/servers/one/disconnect"));
    let answer = expect(503, &rest.post("/prompts/get", &json!({"name": "one.p"})));
    assert_eq!(answer["error_code"], "SERVER_UNAVAILABLE", "{answer}");
}

#[test]
fn a_restart_is_another_connection_and_is_in_the_audit_log() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    let before = rest.get("/servers/fake").json()["connected_at"].clone();
    let restarted = expect(200, &rest.order("/servers/fake/restart?force=true"));
    assert_eq!(restarted["status"], "connected", "{restarted}");
    assert_ne!(restarted["connected_at"], before);
    let audit = rest.get("/audit?action=server.restart").json();
    assert_eq!((&audit[0]["target"], &audit[0]["details"]), (&json!("fake"), &json!({"force": true})), "{audit}");
    expect(404, &rest.order("/servers/nobody/restart"));
}

#[test]
fn each_client_is_listed_with_its_own_calls() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    let mut sessions = [rest.serve.session("/mcp"), rest.serve.session("/mcp/fake")];
    sessions[1].ask("tools/call", json!({"name": "echo", "arguments": {"text": "hi"}}));
    let clients = expect(200, &rest.get("/clients"));
    let calls: Vec<_> = clients.as_array().unwrap().iter().map(|client| client["calls"].clone()).collect();
    assert_eq!(calls, [json!(0), json!(1)], "{clients}");
    assert_eq!(clients[0]["caller"], json!(null), "there are no tokens");
}
