//! From registration to removal, with restarts in between, on either database.

use serde_json::{Value, json};
use testkit::{Postgres, wait_until};

use super::{Rest, expect, expect_error, fake, names};

/// How often something was called.
#[track_caller]
fn wait_for_calls(rest: &Rest, query: &str, count: usize) {
    wait_until(&format!("{count} executions for `{query}`"), || {
        let listed = rest.get(&format!("/executions{query}"));
        (listed.headers["x-total-count"] == count.to_string()).then_some(())
    });
}

/// The kinds of a server's events, oldest first.
fn happened(rest: &Rest, server: &str) -> Vec<String> {
    let events = expect(200, &rest.get(&format!("/servers/{server}/history?limit=1000")));
    let kind = |event: &Value| event["event_type"].as_str().expect("an event has a type").to_owned();
    events.as_array().expect("a list").iter().rev().map(kind).collect()
}

/// Runs the scenario. `look` inspects the database directly, with all data and after the removal.
fn story(mut rest: Rest, look: impl Fn(&Rest, &str)) {
    let id = rest.register("one", &["--only-generated", "--tools", "2"])["id"].clone();
    let mut secret = fake("two", &[]);
    secret["connection_config"]["env"] = json!({"TOKEN": "swordfish"});
    expect(201, &rest.post("/servers", &secret));
    rest.wait_for_status("two", "connected");
    expect(200, &rest.patch("/settings", &json!({"timeout_ms": 12_345})));

    assert_eq!(names(&expect(200, &rest.get("/servers"))), ["one", "two"]);
    assert_eq!(names(&expect(200, &rest.get("/servers/one/tools"))), ["one.tool_0", "one.tool_1"]);
    assert_eq!(expect(200, &rest.call("one.tool_0", &json!({})))["metadata"]["server_id"], id);
    expect(200, &rest.patch("/servers/one", &json!({"name": "uno"})));
    expect_error(404, "TOOL_NOT_FOUND", &rest.call("one.tool_0", &json!({})));
    expect(200, &rest.call("uno.tool_1", &json!({})));
    expect(200, &rest.order("/servers/uno/disable"));
    expect_error(503, "SERVER_UNAVAILABLE", &rest.call("uno.tool_1", &json!({})));
    expect(200, &rest.order("/servers/uno/enable"));
    rest.wait_for_status("uno", "connected");
    expect(200, &rest.call("uno.tool_1", &json!({})));
    expect(200, &rest.order("/servers/uno/disable"));
    let before = happened(&rest, "uno");
    assert_eq!(before.iter().filter(|kind| *kind == "connected").count(), 2, "{before:?}");
    expect(200, &rest.call("two.echo", &json!({})));

    for (nth, kill) in [false, true].into_iter().enumerate() {
        wait_for_calls(&rest, "?status=success&server_id=two", nth + 1);
        if kill {
            // Calls are written soon afterwards, not immediately.
            written_soon(&rest);
        }
        rest = rest.restarted(kill);
        assert_eq!(names(&expect(200, &rest.get("/servers"))), ["two", "uno"]);
        let one = expect(200, &rest.get("/servers/uno"));
        assert_eq!((&one["id"], &one["status"]), (&id, &json!("disabled")));
        assert_eq!(names(&expect(200, &rest.get("/servers/uno/tools"))), ["uno.tool_0", "uno.tool_1"]);
        assert_eq!(happened(&rest, "uno")[..before.len()], before, "what happened stays");
        rest.wait_for_status("two", "connected");
        let reply = expect(200, &rest.call("two.env", &json!({"name": "TOKEN"})));
        assert!(reply.to_string().contains("swordfish"), "{reply}");
        assert_eq!(expect(200, &rest.get("/settings"))["timeout_ms"], 12_345);
        wait_for_calls(&rest, "?tool_name=echo", 1);
        wait_for_calls(&rest, &format!("?status=success&server_id={}", id.as_str().expect("an id is a text")), 3);
    }
    look(&rest, "kept");
    expect(204, &rest.delete("/servers/uno"));
    rest = rest.restarted(true);
    assert_eq!(names(&expect(200, &rest.get("/servers"))), ["two"]);
    expect_error(404, "SERVER_NOT_FOUND", &rest.get("/servers/uno/history"));
    wait_for_calls(&rest, "?tool_name=tool_1&status=success", 2);
    look(&rest, "gone");
}

/// Waits until no call record is queued.
#[track_caller]
fn written_soon(rest: &Rest) {
    wait_until("all records are written", || {
        let numbers = rest.serve.fetch(&testkit::http_client::HttpRequest::new("GET", "/metrics")).body;
        numbers.lines().any(|line| line == "mcp_history_waiting 0").then_some(())
    });
}

#[test]
fn everything_is_there_again_after_a_stop_and_after_a_kill() {
    story(Rest::start(), |_, _| {});
}

#[test]
fn the_same_with_postgresql() {
    let Some(postgres) = Postgres::shared() else { return };
    let url = postgres.database("rest_story");
    let ask = |sql: &str| postgres.psql("rest_story", sql);
    story(Rest::on_database(&url), |_, when| {
        let servers = || ask("SELECT name, transport_type, status FROM mcp.external_servers ORDER BY registered_at");
        let of_one = "SELECT count(*) FROM mcp.tools JOIN mcp.external_servers s ON s.id = source_server_id WHERE s.name = 'uno'";
        match when {
            "kept" => {
                let expected = "uno|STDIO|DISABLED\ntwo|STDIO|CONNECTED";
                wait_until("all of it is written", || (servers() == expected).then_some(()));
                assert_eq!(ask(of_one), "2");
                assert!(!ask("SELECT * FROM mcp.external_servers").contains("swordfish"), "it is kept encrypted");
            }
            _ => {
                assert!(servers().starts_with("two|STDIO|"));
                assert_eq!(ask("SELECT count(*) FROM mcp.tools WHERE original_name LIKE 'tool_%'"), "0");
                let strangers = "SELECT count(*) FROM mcp.server_connection_history h \
                    WHERE NOT EXISTS (SELECT 1 FROM mcp.external_servers s WHERE s.id = h.server_id)";
                assert_eq!(ask(strangers), "0", "its history went with it");
            }
        }
    });
}
