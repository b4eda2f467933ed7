//! What a restart leaves, on either database.

use serde_json::json;
use testkit::{Config, Postgres, Serve, wait_until};

use super::{Rest, expect, expect_error, fake, names};

/// From registration to removal, with restarts in between.
fn story(mut rest: Rest, mut again: impl FnMut(Rest, bool) -> Rest) {
    let id = rest.register("one", &["--only-generated", "--tools", "2"])["id"].clone();
    let mut secret = fake("two", &[]);
    secret["connection_config"]["env"] = json!({"TOKEN": "swordfish"});
    expect(201, &rest.post("/servers", &secret));
    rest.wait_for_status("two", "connected");
    expect(200, &rest.patch("/settings", &json!({"timeout_ms": 12_345})));
    expect(200, &rest.patch("/servers/one", &json!({"name": "uno"})));
    expect(200, &rest.order("/servers/uno/disable"));
    expect(200, &rest.call("two.echo", &json!({})));

    for kill in [false, true] {
        rest = again(rest, kill);
        assert_eq!(names(&expect(200, &rest.get("/servers"))), ["uno", "two"]);
        let one = expect(200, &rest.get("/servers/uno"));
        assert_eq!((&one["id"], &one["status"]), (&id, &json!("disabled")));
        assert_eq!(names(&expect(200, &rest.get("/servers/uno/tools"))), ["uno.tool_0", "uno.tool_1"]);
        rest.wait_for_status("two", "connected");
        let told = expect(200, &rest.call("two.env", &json!({"name": "TOKEN"})));
        assert!(told.to_string().contains("swordfish"), "{told}");
        assert_eq!(expect(200, &rest.get("/settings"))["timeout_ms"], 12_345);
        let echoes = rest.get("/executions?tool_name=echo");
        assert_eq!(echoes.headers["x-total-count"], "1");
    }
    expect(204, &rest.delete("/servers/uno"));
    rest = again(rest, true);
    assert_eq!(names(&expect(200, &rest.get("/servers"))), ["two"]);
}

#[test]
fn everything_is_there_again_after_a_stop_and_after_a_kill() {
    story(Rest::start(), Rest::restarted);
}

#[test]
fn the_same_with_postgresql() {
    let Some(postgres) = Postgres::start() else { return };
    let url = postgres.database("rest");
    let start =
        || Rest::start_as(|launch| launch.args(["--database", &url]).env("MCP_CREDENTIAL_KEY", "ab".repeat(32)));
    story(start(), |mut rest, kill| {
        rest.serve.signal(if kill { testkit::Signal::KILL } else { testkit::Signal::TERM });
        rest.serve.wait_exit();
        start()
    });
}

#[test]
fn what_the_config_file_says_is_changed_there_and_nowhere_else() {
    let serve = Serve::start(&Config::new().server("given", testkit::fake()));
    let rest = Rest { serve, folder: tempfile::tempdir().unwrap() };
    let given = rest.wait_for_status("given", "connected");
    assert_eq!(given["origin"], "config");
    expect_error(409, "SERVER_READ_ONLY", &rest.patch("/servers/given", &json!({"name": "mine"})));
    expect_error(409, "SERVER_READ_ONLY", &rest.delete("/servers/given"));
    expect_error(409, "SERVER_ALREADY_EXISTS", &rest.post("/servers", &fake("given", &[])));
    rest.register("mine", &[]);

    let file = rest.serve.folder().join("config.json");
    let two = Config::new().server("given", testkit::fake()).server("more", testkit::fake());
    std::fs::write(&file, two.text()).unwrap();
    rest.wait_for_status("more", "connected");
    std::fs::write(&file, Config::new().text()).unwrap();
    wait_until("what the file no longer names is gone", || {
        (names(&rest.get("/servers").json()) == ["mine"]).then_some(())
    });
}
