//! Executions: the records of all calls, from every source.

use serde_json::{Value, json};
use testkit::{ClientSession, wait_until};

use super::{Rest, expect, expect_error, expect_problems};

/// The executions of a query, once there are this many.
#[track_caller]
fn wait_for(rest: &Rest, query: &str, count: usize) -> Vec<Value> {
    wait_until(&format!("{count} executions for `{query}`"), || {
        let listed = rest.get(&format!("/executions{query}")).json();
        listed.as_array().filter(|listed| listed.len() == count).cloned()
    })
}

#[test]
fn every_call_is_an_execution_however_it_arrived() {
    let rest = Rest::start();
    let id = rest.register("one", &[])["id"].clone();
    expect(200, &rest.call("one.echo", &json!({})));
    let body = json!({"name": "one.size", "source": "user-codeblock", "document_path": "notes.md", "section_line": 7});
    expect(200, &rest.post("/execute", &body));
    rest.serve.session("/mcp").ask("tools/call", json!({"name": "one.pid", "arguments": {}}));

    let listed = wait_for(&rest, "", 3);
    let reported: Vec<_> = listed.iter().map(|one| (one["tool_name"].as_str(), one["source"].as_str())).collect();
    let expected =
        [("pid", "mcp"), ("size", "user-codeblock"), ("echo", "rest")].map(|(tool, way)| (Some(tool), Some(way)));
    assert_eq!(reported, expected, "newest first");
    assert!(listed.iter().all(|one| one["status"] == "success" && one["server_id"] == id));
    assert_eq!((&listed[1]["document_path"], &listed[1]["section_line"]), (&json!("notes.md"), &json!(7)));
    assert_eq!((&listed[2]["arguments"], &listed[2]["result"]), (&Value::Null, &Value::Null), "nobody's business");
    assert!(
        listed.iter().all(|one| one["request_bytes"].as_u64() > Some(30) && one["response_bytes"].as_u64() > Some(30))
    );
    assert!(listed[0]["request_id"].is_string() && listed[1]["request_id"].is_null(), "what its client calls it");

    for (query, count) in [
        ("?source=mcp", 1),
        ("?tool_name=echo", 1),
        ("?status=SUCCESS", 3),
        ("?status=error", 0),
        ("?server_id=one", 3),
        ("?document_path=notes.md", 1),
        ("?until=2020-01-01T00:00:00Z", 0),
        ("?since=2020-01-01T00:00:00%2B02:00&limit=2", 2),
    ] {
        wait_for(&rest, query, count);
    }
    assert_eq!(wait_for(&rest, &format!("?server_id={}", id.as_str().unwrap()), 3).len(), 3);
    assert_eq!(rest.get("/executions?limit=1").headers["x-total-count"], "3");
    assert_eq!(expect_problems(&rest.get("/executions?since=yesterday"))[0].0, "query.since");
    assert_eq!(expect_problems(&rest.get("/executions?status=fine"))[0].0, "query.status");
}

#[test]
fn a_call_that_is_refused_because_its_server_is_off_is_an_execution_too() {
    let rest = Rest::start();
    let id = rest.register("one", &[])["id"].clone();
    let mut alone = rest.serve.session("/mcp/one");
    expect(200, &rest.order("/servers/one/disconnect"));
    rest.call("one.echo", &json!({}));
    rest.post("/execute", &json!({"name": "size", "server_id": id}));
    rest.serve.session("/mcp").ask("tools/call", json!({"name": "one.pid", "arguments": {}}));
    alone.ask("tools/call", json!({"name": "env", "arguments": {}}));

    let listed = wait_for(&rest, "?status=error", 4);
    let reported: Vec<_> = listed.iter().map(|one| (one["tool_name"].as_str(), one["source"].as_str())).collect();
    let expected = [("env", "mcp"), ("pid", "mcp"), ("size", "rest"), ("echo", "rest")];
    assert_eq!(reported, expected.map(|(tool, way)| (Some(tool), Some(way))), "newest first");
    for one in &listed {
        assert_eq!((&one["server_id"], &one["server_name"]), (&id, &json!("one")), "{one}");
        assert!(one["error_message"].as_str().is_some_and(|why| !why.is_empty()), "{one}");
    }
    // An execution of another client is not found.
    expect(200, &rest.order("/servers/one/connect"));
    rest.call("one.nothing", &json!({}));
    rest.serve.session("/mcp").ask("tools/call", json!({"name": "two.pid", "arguments": {}}));
    wait_for(&rest, "", 4);
}

#[test]
fn a_tool_that_its_server_does_not_list_is_still_an_execution_when_it_is_called() {
    let rest = Rest::start();
    rest.register("one", &[]);
    rest.serve.session("/mcp/one").ask("tools/call", json!({"name": "hidden", "arguments": {}}));
    let listed = wait_for(&rest, "", 1);
    assert_eq!((&listed[0]["tool_name"], &listed[0]["status"]), (&json!("hidden"), &json!("error")));
}

#[test]
fn a_running_call_is_listed_and_can_be_cancelled() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let (id, mut call) = rest.begin_to_hang("one");
    assert_eq!(expect(200, &rest.delete(&format!("/executions/{id}")))["status"], "cancelled");
    expect_error(409, "EXECUTION_CANCELLED", &call.answer());
    // A finished execution stays unchanged.
    assert_eq!(expect(200, &rest.delete(&format!("/executions/{id}")))["status"], "cancelled");
    assert_eq!(expect(200, &rest.get(&format!("/executions/{id}")))["status"], "cancelled");
}

#[test]
fn a_client_that_disconnects_cancels_its_call() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let (_, call) = rest.begin_to_hang("one");
    drop(call);
    wait_for(&rest, "?status=cancelled", 1);
}

#[test]
fn everything_can_be_stopped_and_allowed_again() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let (_, mut call) = rest.begin_to_hang("one");
    let stopped = expect(200, &rest.order("/executions/stop"));
    assert_eq!((&stopped["stopped"], &stopped["cancelled"]), (&json!(true), &json!(1)));
    assert_eq!(call.answer().status, 409);
    expect_error(409, "EXECUTION_STOPPED", &rest.call("one.echo", &json!({})));
    assert_eq!(expect(200, &rest.order("/executions/reset"))["stopped"], false);
    expect(200, &rest.call("one.echo", &json!({})));
}

#[test]
fn limits_are_reported_as_limits() {
    let rest = Rest::start();
    rest.register("one", &[]);
    expect(200, &rest.patch("/settings", &json!({"concurrent_limit": 1, "queue_limit": 0})));
    let (id, mut call) = rest.begin_to_hang("one");
    let refused = rest.call("one.echo", &json!({}));
    expect_error(429, "LIMIT_REACHED", &refused);
    assert!(refused.headers.contains_key("retry-after"));
    rest.delete(&format!("/executions/{id}"));
    call.answer();
    expect(200, &rest.call("one.echo", &json!({})));
}

#[test]
fn an_execution_that_is_not_there_is_not_found() {
    let rest = Rest::start();
    for id in ["01a1e0bf-01ef-7e04-9588-257765870c66", "nonsense", "%00"] {
        let path = format!("/executions/{id}");
        assert_eq!(rest.get(&path).status, 404);
        assert_eq!(rest.delete(&path).status, 404);
    }
    expect_error(404, "EXECUTION_NOT_FOUND", &rest.get("/executions/nonsense"));
}
