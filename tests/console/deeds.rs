//! What can be done on the pages.

use serde_json::json;
use testkit::program;

use super::Visitor;
use crate::rest::Rest;

#[test]
fn a_server_is_tried_added_changed_and_removed() {
    let rest = Rest::start();
    let visitor = Visitor::new(&rest);
    let command = program("fake-server").display().to_string();
    let new = [("name", "fake"), ("kind", "stdio"), ("command", command.as_str())];
    let with = |deed| [("deed", deed)].into_iter().chain(new).collect::<Vec<_>>();
    let tried = visitor.submit("/add", &with("test"));
    assert!(tried.status == 200 && tried.body.contains("The test worked"), "{tried:?}");
    assert_eq!(rest.get("/servers/fake").status, 404, "nothing is kept of a test");
    let wrong =
        visitor.submit("/add", &[("deed", "save"), ("name", "fake"), ("kind", "stdio"), ("command", "/no/such")]);
    assert!(
        wrong.status == 422 && wrong.body.contains("value=\"/no/such\""),
        "what was written is still there: {wrong:?}"
    );
    let added = visitor.submit("/add", &with("save"));
    assert!(added.body.contains("fake is added."), "{added:?}");

    let broken =
        visitor.submit("/servers/fake/edit", &[("deed", "save"), ("transport", "stdio"), ("config", "{\"command\":")]);
    assert!(broken.status == 422 && broken.body.contains("no JSON"), "{broken:?}");
    let failing = visitor.submit(
        "/servers/fake/edit",
        &[("deed", "save"), ("transport", "stdio"), ("config", "{\"command\":\"/no/such\"}")],
    );
    assert!(failing.status == 422 && failing.body.contains("The test failed"), "{failing:?}");
    let config = json!({"command": command, "env": {"API_TOKEN": "hunter2-hunter2"}}).to_string();
    let saved = visitor.submit(
        "/servers/fake/edit",
        &[("deed", "save"), ("transport", "stdio"), ("description", "mine"), ("config", &config)],
    );
    assert!(
        saved.body.contains("Saved.") && saved.body.contains("mine") && !saved.body.contains("hunter2"),
        "{saved:?}"
    );

    for (deed, said) in [
        ("disconnect", "disconnected"),
        ("connect", "It is connected"),
        ("test", "The test worked"),
        ("disable", "It is disabled"),
        ("enable", "It is enabled"),
    ] {
        let done = visitor.submit(&format!("/servers/fake/{deed}"), &[]);
        assert!(done.body.contains(said), "{deed}: {done:?}");
    }
    assert!(visitor.submit("/servers/fake/remove", &[]).body.contains("fake is removed."));
    assert_eq!(visitor.get("/servers/fake").status, 404);
}

#[test]
fn the_config_of_a_client_is_pasted_ticked_and_taken_over() {
    let rest = Rest::start();
    let visitor = Visitor::new(&rest);
    let config =
        json!({"mcpServers": {"One": {"command": program("fake-server")}, "two": {"command": "/no/such"}}}).to_string();
    let shown = visitor.submit("/add", &[("deed", "paste"), ("pasted", &config)]);
    assert!(shown.body.contains("<strong>one</strong>") && shown.body.contains("<strong>two</strong>"), "{shown:?}");
    let taken = visitor
        .submit("/add", &[("deed", "take"), ("from", "paste"), ("pasted", &config), ("pick", "0"), ("pick", "1")]);
    assert!(taken.body.contains("one: added") && taken.body.contains("two: not added"), "{taken:?}");
    assert_eq!(rest.get("/servers/one").status, 200);
    let nonsense = visitor.submit("/add", &[("deed", "paste"), ("pasted", "{{")]);
    assert_eq!(nonsense.status, 422);
}

#[test]
fn a_tool_that_is_switched_off_is_neither_listed_nor_called_not_even_after_a_restart() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    let before = rest.get("/state").json()["total_tools"].as_u64().expect("a number");
    let visitor = Visitor::new(&rest);
    let off = visitor.submit("/tools", &[("deed", "off"), ("tool", "fake.echo"), ("back", "/tools")]);
    assert!(off.body.contains("Switched off: 1 tool."), "{off:?}");
    let is_off = |rest: &Rest| {
        let session = rest.serve.session("/mcp");
        let listed = rest.serve.fetch(&session.post(r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#)).body;
        assert!(listed.contains("hang"), "{listed}");
        assert!(!listed.contains("fake.echo") && !listed.contains("fake:echo"), "{listed}");
        assert_eq!(rest.get("/state").json()["total_tools"], before - 1);
        assert_ne!(rest.call("fake.echo", &json!({"text": "x"})).status, 200);
    };
    is_off(&rest);
    let rest = rest.restarted(false);
    rest.wait_for_status("fake", "connected");
    is_off(&rest);
    let visitor = Visitor::new(&rest);
    visitor.submit("/tools", &[("deed", "on-all"), ("server", "fake")]);
    assert_eq!(rest.call("fake.echo", &json!({"text": "x"})).status, 200);
    assert!(visitor.page("/audit").contains("tool.disable"));
}

#[test]
fn calls_are_run_looked_at_cancelled_stopped_and_exported() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    let visitor = Visitor::new(&rest);
    let ran = visitor.submit("/playground", &[("tool", "fake.echo"), ("arguments", "{\"text\": \"hello there\"}")]);
    assert!(ran.body.contains("hello there") && ran.body.contains("at the server"), "{ran:?}");
    assert!(visitor.submit("/playground", &[("tool", "fake.echo"), ("arguments", "{")]).body.contains("no JSON"));
    let (id, mut hanging) = rest.begin_to_hang("fake");
    assert!(visitor.page(&format!("/executions/{id}")).contains("executing"));
    let cancelled = visitor.submit(&format!("/executions/{id}/cancel"), &[]);
    assert!(cancelled.body.contains("hang is cancelled."), "{cancelled:?}");
    assert_eq!(hanging.answer().status, 409);
    assert!(visitor.submit("/executions/stop", &[]).body.contains("All calls are stopped."));
    assert_eq!(rest.call("fake.echo", &json!({"text": "x"})).status, 409);
    visitor.submit("/executions/reset", &[]);
    let filtered = visitor.page("/executions?status=cancelled");
    assert!(filtered.contains(">hang<") && !filtered.contains(">echo<"), "{filtered}");
    let table = visitor.get("/executions/export.csv");
    assert!(
        table.headers["content-disposition"].contains("executions.csv") && table.body.lines().count() >= 3,
        "{table:?}"
    );
    assert!(visitor.get("/executions/export.json?tool=echo").json().as_array().is_some_and(|calls| !calls.is_empty()));
}

#[test]
fn settings_are_changed_and_everything_goes_out_and_comes_in() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    let visitor = Visitor::new(&rest);
    let saved = visitor
        .submit("/settings", &[("timeout_ms", "1234"), ("retry_backoff_ms", "10, 20"), ("store_payloads", "on")]);
    assert!(saved.body.contains("Saved.") && saved.body.contains("value=\"1234\""), "{saved:?}");
    let settings = rest.get("/settings").json();
    assert_eq!((&settings["store_payloads"], &settings["retry_backoff_ms"]), (&json!(true), &json!([10, 20])));
    assert!(visitor.submit("/settings", &[("timeout_ms", "0")]).body.contains("timeout_ms"), "what is wrong is told");
    let exported = visitor.submit("/export", &[("secrets", "masked")]);
    assert_eq!(exported.json()["servers"][0]["name"], "fake", "{exported:?}");
    let other = Rest::start();
    let taken = Visitor::new(&other).submit("/import", &[("backup", &exported.body)]);
    assert!(taken.body.contains("1 new server"), "{taken:?}");
    assert!(visitor.page("/audit?action=registry.export").contains("registry.export"));
}
