//! Servers: registered, listed, changed, connected, tested, removed.

use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use testkit::{HttpServer, Script, wait_until};

use super::{Rest, expect, expect_error, expect_problems, fake, names};

#[test]
fn a_server_is_registered_with_its_tools_listed_and_removed() {
    let rest = Rest::start();
    let registered = expect(201, &rest.post("/servers", &fake("one", &["--tools", "2"])));
    assert_eq!(registered["name"], "one");
    // A registration waits for the connection, but only for a moment.
    let server = rest.wait_for_status("one", "connected");
    assert_eq!(server["id"], registered["id"]);
    assert_eq!(server["transport_type"], "stdio");
    assert_eq!(server["server_info"]["name"], "fake-server");
    let tools = expect(200, &rest.get("/servers/one/tools"));
    assert!(names(&tools).contains(&"one.tool_1"), "{tools}");
    assert_eq!(server["tool_count"], tools.as_array().unwrap().len());
    if registered["status"] == "connected" {
        assert_eq!(names(&registered["tools"]), names(&tools));
    }

    let id = server["id"].as_str().unwrap();
    for key in [id, "one"] {
        assert_eq!(expect(200, &rest.get(&format!("/servers/{key}")))["id"], server["id"]);
    }
    assert_eq!(expect(204, &rest.delete(&format!("/servers/{id}"))), Value::Null);
    expect_error(404, "SERVER_NOT_FOUND", &rest.get("/servers/one"));
    assert_eq!(expect(200, &rest.get("/servers")), json!([]));
    assert_eq!(expect(200, &rest.get("/tools")), json!([]));
    expect_error(404, "TOOL_NOT_FOUND", &rest.call("one.echo", &json!({})));
}

#[test]
fn a_name_is_taken_once() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let context = expect_error(409, "SERVER_ALREADY_EXISTS", &rest.post("/servers", &fake("one", &[])));
    assert_eq!(context["name"], "one");
    rest.register("two", &[]);
    expect_error(409, "SERVER_ALREADY_EXISTS", &rest.patch("/servers/two", &json!({"name": "one"})));
}

#[test]
fn a_slow_server_is_answered_as_connecting_and_is_connected_later() {
    let rest = Rest::start();
    let may_start = rest.folder.path().join("may-start");
    let script = "while ! test -e \"$0\"; do sleep 0.05; done; exec \"$1\"";
    let args = json!(["-c", script, may_start, testkit::program("fake-server")]);
    let slow = json!({"name": "slow", "transport_type": "stdio", "connection_config": {"command": "sh", "args": args}});
    let server = expect(201, &rest.post("/servers", &slow));
    assert_eq!(server["status"], "connecting", "{server}");
    assert!(server.get("tools").is_none_or(Value::is_null), "{server}");
    std::fs::write(may_start, "").unwrap();
    rest.wait_for_status("slow", "connected");
    assert_eq!(rest.call("slow.echo", &json!({})).status, 200);
}

#[test]
fn a_server_may_be_registered_without_being_connected() {
    let rest = Rest::start();
    let mut waiting = fake("waiting", &[]);
    waiting["auto_connect"] = false.into();
    assert_eq!(expect(201, &rest.post("/servers", &waiting))["status"], "disconnected");
    let mut off = fake("off", &[]);
    off["enabled"] = false.into();
    assert_eq!(expect(201, &rest.post("/servers", &off))["status"], "disabled");

    assert_eq!(expect(200, &rest.order("/servers/waiting/connect"))["status"], "connected");
    let tools = testkit::wait_until("its tools are stored", || {
        let tools = expect(200, &rest.get("/servers/waiting/tools"));
        (!names(&tools).is_empty()).then_some(tools)
    });
    let again = expect(200, &rest.order("/servers/waiting/restart"));
    assert_eq!((&again["status"], names(&again["tools"])), (&json!("connected"), names(&tools)));
    assert_eq!(expect(200, &rest.order("/servers/off/enable"))["enabled"], true);
    rest.wait_for_status("off", "connected");
}

#[test]
fn every_mistake_in_a_registration_is_reported_with_its_place() {
    let rest = Rest::start();
    for (body, expected) in [
        (json!({}), vec![("name", "missing"), ("transport_type", "missing"), ("connection_config", "missing")]),
        (
            json!({"name": "Bad Name", "transport_type": "pigeon", "connection_config": []}),
            vec![("name", "string_pattern_mismatch"), ("transport_type", "enum"), ("connection_config", "dict_type")],
        ),
        (
            json!({"name": "a".repeat(256), "transport_type": "stdio", "connection_config": {}, "auto_connect": "no"}),
            vec![
                ("name", "string_too_long"),
                ("auto_connect", "bool_type"),
                // A problem with one part does not hide problems with another.
                ("connection_config.command", "missing"),
            ],
        ),
    ] {
        let problems = expect_problems(&rest.post("/servers", &body));
        let expected: Vec<_> =
            expected.into_iter().map(|(place, kind)| (format!("body.{place}"), kind.to_owned())).collect();
        assert_eq!(problems, expected);
    }
    for (transport, config, place) in [
        ("stdio", json!({}), "command"),
        ("stdio", json!({"command": "x", "args": "y"}), "args"),
        ("sse", json!({"command": "x"}), "url"),
        ("http", json!({}), "url"),
    ] {
        let body = json!({"name": "a", "transport_type": transport, "connection_config": config});
        let problems = expect_problems(&rest.post("/servers", &body));
        assert!(problems.iter().any(|(loc, _)| loc.contains(place)), "{transport} {config}: {problems:?}");
    }
    assert_eq!(expect(200, &rest.get("/servers")), json!([]), "nothing of that was kept");
}

#[test]
fn enum_values_parse_in_any_case_and_print_in_lower_case() {
    let rest = Rest::start();
    let mut loud = fake("one", &[]);
    loud["transport_type"] = "STDIO".into();
    assert_eq!(expect(201, &rest.post("/servers", &loud))["transport_type"], "stdio");
    rest.wait_for_status("one", "connected");
    assert_eq!(names(&expect(200, &rest.get("/servers?status=CONNECTED"))), ["one"]);
    assert_eq!(names(&expect(200, &rest.get("/servers?status=error"))), [""; 0]);
}

#[test]
fn a_list_is_paginated_and_has_its_total() {
    let rest = Rest::start();
    for name in ["c", "a", "b"] {
        rest.register(name, &["--only-generated", "--tools", "1"]);
    }
    let part = rest.get("/servers?limit=1&offset=1");
    assert_eq!(names(&expect(200, &part)), ["b"], "in the order of their names");
    assert_eq!(part.headers["x-total-count"], "3");
    let with_tools = expect(200, &rest.get("/servers?include_tools=true"));
    assert_eq!(names(&with_tools[0]["tools"]), ["a.tool_0"]);
    assert!(expect(200, &rest.get("/servers"))[0].get("tools").is_none());
    for wrong in ["limit=0", "limit=1001", "limit=x", "offset=-1", "status=fine", "include_tools=perhaps"] {
        let problems = expect_problems(&rest.get(&format!("/servers?{wrong}")));
        assert_eq!(problems[0].0, format!("query.{}", wrong.split('=').next().unwrap()));
    }
}

#[test]
fn a_server_that_is_renamed_takes_its_tools_along() {
    let rest = Rest::start();
    let id = rest.register("old", &[])["id"].clone();
    expect(200, &rest.call("old.echo", &json!({})));
    expect(200, &rest.patch("/settings", &json!({"pinned_tools": ["old.echo", "older.echo"]})));
    let renamed = expect(200, &rest.patch("/servers/old", &json!({"name": "new", "description": "Better."})));
    assert_eq!((&renamed["id"], &renamed["name"], &renamed["description"]), (&id, &json!("new"), &json!("Better.")));
    expect_error(404, "TOOL_NOT_FOUND", &rest.call("old.echo", &json!({})));
    assert_eq!(expect(200, &rest.call("new.echo", &json!({})))["metadata"]["routed_to"], "new");
    assert!(names(&expect(200, &rest.get("/tools"))).iter().all(|name| name.starts_with("new.")));
    assert_eq!(expect(200, &rest.get("/settings"))["pinned_tools"], json!(["new.echo", "older.echo"]));
    let calls = expect(200, &rest.get("/executions?server_id=new"));
    assert_eq!(calls.as_array().map(Vec::len), Some(2), "those under its old name as well: {calls}");
    let without = expect(200, &rest.patch("/servers/new", &json!({"description": null})));
    assert_eq!(without["description"], Value::Null);
    assert_eq!(without["name"], "new", "what is not named stays");
    expect_problems(&rest.patch("/servers/new", &json!({"name": "Not this"})));
}

#[test]
fn secrets_are_masked_and_survive_an_update_of_the_masked_config() {
    let rest = Rest::start();
    let mut server = fake("one", &[]);
    server["connection_config"]["env"] = json!({"TOKEN": "swordfish"});
    let shown = expect(201, &rest.post("/servers", &server));
    assert_eq!(shown["connection_config"]["env"]["TOKEN"], "***");
    rest.wait_for_status("one", "connected");
    let mut config = shown["connection_config"].clone();
    config["env"]["OTHER"] = "${HOME}".into();
    expect(200, &rest.patch("/servers/one", &json!({"connection_config": config})));
    rest.wait_for_status("one", "connected");
    let reply = expect(200, &rest.call("one.env", &json!({"name": "TOKEN"})));
    assert!(reply.to_string().contains("swordfish"), "{reply}");
    for path in ["/servers", "/servers/one", "/audit", "/servers/one/history"] {
        assert!(!rest.get(path).body.contains("swordfish"), "{path}");
    }
    assert!(!rest.serve.stderr_text().contains("swordfish"));
}

#[test]
fn disconnecting_twice_is_fine_and_calls_are_refused_in_between() {
    let rest = Rest::start();
    rest.register("one", &[]);
    for _ in 0..2 {
        assert_eq!(expect(200, &rest.order("/servers/one/disconnect"))["status"], "disconnected");
    }
    let context = expect_error(503, "SERVER_UNAVAILABLE", &rest.call("one.echo", &json!({})));
    assert_eq!((&context["server_name"], &context["status"]), (&json!("one"), &json!("disconnected")));
    assert!(context["server_id"].is_string());
    assert_eq!(expect(200, &rest.get("/tools")), json!([]), "what cannot be called is not listed");
    assert!(!expect(200, &rest.get("/servers/one/tools")).as_array().unwrap().is_empty(), "but it is known");
    let connected = expect(200, &rest.order("/servers/one/connect"));
    assert_eq!(connected["status"], "connected");
    expect(200, &rest.call("one.echo", &json!({})));
}

#[test]
fn disconnecting_by_force_cancels_calls_in_flight() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let (_, mut call) = rest.begin_to_hang("one");
    assert_eq!(expect(200, &rest.order("/servers/one/disconnect?force=true"))["status"], "disconnected");
    let answer = call.answer();
    assert!([409, 502, 503].contains(&answer.status), "{answer:?}");
}

#[test]
fn a_server_that_is_disabled_stays_so_until_it_is_enabled() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let off = expect(200, &rest.order("/servers/one/disable"));
    assert_eq!((&off["status"], &off["enabled"]), (&json!("disabled"), &json!(false)));
    expect_error(503, "SERVER_UNAVAILABLE", &rest.call("one.echo", &json!({})));
    assert!([503].contains(&rest.order("/servers/one/connect").status));
    expect(200, &rest.order("/servers/one/enable"));
    rest.wait_for_status("one", "connected");
    // Each of these steps is in its history, and each starts where the one before ended.
    let history = expect(200, &rest.get("/servers/one/history"));
    let steps: Vec<_> = history.as_array().unwrap().iter().rev().map(|event| &event["details"]).collect();
    assert!(steps.iter().any(|step| step["to"] == "disabled"), "{history}");
    assert!(steps.iter().any(|step| step["from"] == "disabled"), "{history}");
    assert!(steps.is_sorted_by(|before, after| before["to"] == after["from"]), "{history}");
}

#[test]
fn a_server_that_cannot_be_connected_says_why() {
    let rest = Rest::start();
    let mut broken = fake("broken", &["--fail-at", "initialize"]);
    broken["auto_connect"] = false.into();
    expect(201, &rest.post("/servers", &broken));
    let answer = rest.order("/servers/broken/connect");
    let context = expect_error(503, "SERVER_CONNECTION_FAILED", &answer);
    assert_eq!(context["server_name"], "broken");
    assert!(answer.json()["detail"].as_str().unwrap().contains("giving up at Initialize"), "{}", answer.body);
    assert!(rest.get("/servers/broken").body.contains("giving up at Initialize"));
}

#[test]
fn a_connection_can_be_tried_registered_or_not() {
    let rest = Rest::start();
    rest.register("one", &["--only-generated", "--tools", "1"]);
    let report = expect(200, &rest.order("/servers/one/test"));
    assert_eq!((&report["success"], &report["tools"]), (&json!(true), &json!(["tool_0"])));
    assert_eq!(rest.get("/servers/one").json()["status"], "connected");

    let mut other = fake("other", &[]);
    other.as_object_mut().unwrap().remove("name");
    let report = expect(200, &rest.post("/servers/test", &other));
    assert_eq!((&report["success"], &report["server_info"]["name"]), (&json!(true), &json!("fake-server")));
    other["connection_config"]["args"] = json!(["--fail-at", "initialize", "--stderr-line", "what a pity"]);
    let report = expect(200, &rest.post("/servers/test", &other));
    assert_eq!(report["success"], false);
    assert!(report["error"].as_str().unwrap().contains("what a pity"), "{report}");
    expect_problems(&rest.post("/servers/test", &json!({"transport_type": "stdio", "connection_config": {}})));
    assert_eq!(names(&expect(200, &rest.get("/servers"))), ["one"], "nothing is kept of a try");
}

#[test]
fn a_server_over_http_is_reached_by_either_name_for_its_address() {
    let rest = Rest::start();
    let server = HttpServer::start(Script::default());
    for (name, key) in [("url", "url"), ("base", "base_url")] {
        let body = json!({"name": name, "transport_type": "http", "connection_config": {key: server.url()}});
        expect(201, &rest.post("/servers", &body));
        rest.wait_for_status(name, "connected");
    }
}

#[test]
fn health_and_history_report_the_state_of_a_server() {
    let rest = Rest::start();
    let id = rest.register("one", &[])["id"].clone();
    let health = expect(200, &rest.get("/servers/one/health"));
    assert_eq!((&health["server_id"], &health["is_healthy"]), (&id, &json!(true)));
    rest.order("/servers/one/disconnect");
    assert_eq!(expect(200, &rest.get("/servers/one/health"))["is_healthy"], false);
    let history = rest.get("/servers/one/history?limit=2");
    let events = expect(200, &history);
    assert_eq!(events[0]["event_type"], "disconnected");
    assert_eq!(events[1]["event_type"], "connected");
    assert!(history.headers["x-total-count"].parse::<u32>().unwrap() >= 2);
}

#[test]
fn tools_are_listed_again_on_demand() {
    let rest = Rest::start();
    rest.register("one", &[]);
    assert_eq!(expect(202, &rest.order("/servers/one/tools/refresh"))["status"], "refreshing");
    rest.order("/servers/one/disconnect");
    expect_error(503, "SERVER_UNAVAILABLE", &rest.order("/servers/one/tools/refresh"));
}

#[test]
fn unknown_servers_are_not_found_by_any_operation() {
    let rest = Rest::start();
    for action in ["connect", "disconnect", "enable", "disable", "test", "tools/refresh"] {
        let context = expect_error(404, "SERVER_NOT_FOUND", &rest.order(&format!("/servers/nobody/{action}")));
        assert_eq!(context["server"], "nobody");
    }
    for look in ["", "/tools", "/health", "/history"] {
        expect_error(404, "SERVER_NOT_FOUND", &rest.get(&format!("/servers/nobody{look}")));
    }
    expect_error(404, "SERVER_NOT_FOUND", &rest.patch("/servers/nobody", &json!({})));
    expect_error(404, "SERVER_NOT_FOUND", &rest.delete("/servers/nobody"));
    expect_error(404, "SERVER_NOT_FOUND", &rest.get("/tools?server_id=nobody"));
}

#[test]
fn a_server_that_is_asleep_is_distinguished_from_one_that_is_disabled_or_starting() {
    let rest = Rest::start();
    expect(200, &rest.patch("/settings", &json!({"idle_timeout_s": 1})));
    let mut lazy = fake("lazy", &[]);
    lazy["connection_config"]["lazy"] = true.into();
    expect(201, &rest.post("/servers", &lazy));
    let asleep = rest.wait_for_status("lazy", "disconnected");
    assert_eq!(asleep["asleep"], true, "{asleep}");
    rest.register("off", &[]);
    expect(200, &rest.order("/servers/off/disable"));
    expect(201, &rest.post("/servers", &fake("slow", &["--start-delay-ms", "60000"])));
    let state = expect(200, &rest.get("/state"));
    let count = |key: &str| state[key].as_u64().unwrap();
    assert_eq!((count("asleep_servers"), count("disabled_servers"), count("connecting_servers")), (1, 1, 1), "{state}");
    assert_eq!(count("disconnected_servers"), 3, "{state}");
    expect(200, &rest.patch("/settings", &json!({"idle_timeout_s": 300})));
    assert_eq!(rest.call("lazy.echo", &json!({})).status, 200);
    assert_eq!(rest.wait_for_status("lazy", "connected")["asleep"], false);
    let record = expect(200, &rest.get("/executions"))[0].clone();
    let digits = record["duration_ms"].to_string();
    assert!(digits.split_once('.').is_none_or(|(_, rest)| rest.len() <= 3), "{record}");
}

/// A program that works until a file appears, and then crashes whenever it is started. Each start leaves a file.
fn breakable(folder: &Path) -> Value {
    let script = "cd \"$0\" && : > \"start.$$\"; test -e broken && { echo 'no licence' >&2; exit 7; }; exec \"$1\"";
    let args = json!(["-c", script, folder, testkit::program("fake-server")]);
    // Otherwise a program that exits immediately is started again with the legacy handshake.
    let config = json!({"command": "sh", "args": args, "era": "legacy"});
    json!({"name": "moody", "transport_type": "stdio", "connection_config": config})
}

/// The times between the starts of such a program.
fn pauses(folder: &Path) -> Vec<Duration> {
    let files = std::fs::read_dir(folder).expect("it is there").map(|file| file.expect("it can be read"));
    let starts = files.filter(|file| file.file_name().to_string_lossy().starts_with("start."));
    let mut starts: Vec<SystemTime> =
        starts.map(|file| file.metadata().and_then(|file| file.modified()).expect("it has a time")).collect();
    starts.sort_unstable();
    starts.windows(2).map(|pair| pair[1].duration_since(pair[0]).expect("they are sorted")).collect()
}

#[test]
fn a_program_that_has_worked_is_retried_ever_later_when_it_crashes_at_start_and_recovers_by_itself() {
    let rest = Rest::start();
    // One that never worked would be disabled after its second failure.
    let settings = json!({"retry_backoff_ms": [100, 400, 1600], "failure_threshold": 1});
    expect(200, &rest.patch("/settings", &settings));
    expect(201, &rest.post("/servers", &breakable(rest.folder.path())));
    rest.wait_for_status("moody", "connected");
    wait_until("its connection has been stable, so that it has worked", || {
        let database = rusqlite::Connection::open(rest.registry()).unwrap();
        let sql = "SELECT worked_at IS NOT NULL FROM external_servers";
        database.query_row(sql, [], |row| row.get::<_, bool>(0)).ok().filter(|has_worked| *has_worked)
    });
    let broken = rest.folder.path().join("broken");
    std::fs::write(&broken, "").unwrap();
    rest.call("moody.crash", &json!({"code": 3}));
    let down = wait_until("it failed four times", || {
        let server = expect(200, &rest.get("/servers/moody"));
        let is_waiting = server["status"] == "error" && server["next_retry_at"].is_string();
        (is_waiting && server["failure_count"].as_u64() >= Some(4)).then_some(server)
    });
    assert_eq!((&down["enabled"], &down["auto_disabled"]), (&json!(true), &json!(false)), "{down}");
    assert!(down["error_message"].as_str().unwrap().contains("no licence"), "{down}");
    // After a stable connection it is restarted at once, and then later each time. A busy machine only adds to that.
    let pauses = pauses(rest.folder.path());
    for (pause, least) in pauses[1..].iter().zip([85, 350, 1430]) {
        assert!(*pause >= Duration::from_millis(least), "{pauses:?}");
    }

    std::fs::remove_file(&broken).unwrap();
    let up = rest.wait_for_status("moody", "connected");
    assert_eq!((&up["retry_count"], &up["next_retry_at"]), (&json!(0), &json!(null)), "{up}");
}
