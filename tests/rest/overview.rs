//! The service itself: state, settings, audit log, metrics.

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;

use super::{Rest, expect, expect_error, expect_problems, fake};

const NUMBERS: [&str; 5] =
    ["total_servers", "connected_servers", "disconnected_servers", "error_servers", "total_tools"];

#[test]
fn state_and_health_carry_the_same_numbers() {
    let rest = Rest::start();
    rest.register("one", &["--only-generated", "--tools", "3"]);
    let mut off = fake("off", &[]);
    off["enabled"] = false.into();
    rest.post("/servers", &off);
    let (state, health) = (expect(200, &rest.get("/state")), expect(200, &rest.get("/health")));
    let numbers = |entry: &Value| NUMBERS.map(|name| entry[name].as_u64());
    assert_eq!(numbers(&state), [2, 1, 1, 0, 3].map(Some), "{state}");
    assert_eq!(numbers(&health), numbers(&state));
    for entry in [&state, &health] {
        // Tools are classified in the background.
        let parts = ["classified_tools", "unclassified_tools"].map(|name| entry[name].as_u64().unwrap());
        assert_eq!(parts[0] + parts[1], 3, "{entry}");
        assert!(entry["last_sync"].is_string() && entry["uptime_seconds"].as_f64().unwrap() > 0.0, "{entry}");
    }
    assert_eq!((&health["status"], &health["issues"]), (&json!("healthy"), &json!([])));
    assert_eq!(health["checks"]["database"]["status"], "ok");
}

#[test]
fn that_executions_are_stopped_is_seen_until_they_are_allowed_again() {
    let rest = Rest::start();
    expect(200, &rest.order("/executions/stop"));
    let (state, health) = (expect(200, &rest.get("/state")), expect(200, &rest.get("/health")));
    assert_eq!((&state["executions_stopped"], &health["executions_stopped"]), (&json!(true), &json!(true)));
    assert_eq!((&health["status"], &health["issues"][0]["component"]), (&json!("degraded"), &json!("executions")));
    expect(200, &rest.order("/executions/reset"));
    assert_eq!(expect(200, &rest.get("/health"))["status"], "healthy");
}

#[test]
fn what_the_database_refuses_is_reported_until_it_is_written() {
    let rest = Rest::start();
    rest.register("one", &[]);
    let database = rusqlite::Connection::open(rest.registry()).unwrap();
    let complaint = || {
        let issues = rest.get("/health").json()["issues"].clone();
        let of_database = issues.as_array().unwrap().iter().find(|issue| issue["component"] == "database").cloned();
        of_database.map(|issue| issue["message"].as_str().unwrap().to_owned())
    };
    for (table, why) in [("tools", "could not store the tools of a server"), ("executions", "an execution is lost")] {
        let refuse = format!("CREATE TRIGGER refuse BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'no'); END");
        database.execute_batch(&refuse).unwrap();
        expect(200, &rest.call("one.change_tools", &json!({"names": [format!("before-{table}")]})));
        testkit::wait_until("the loss is reported", || complaint().filter(|complaint| complaint.contains(why)));
        database.execute_batch("DROP TRIGGER refuse").unwrap();
        expect(200, &rest.call("one.change_tools", &json!({"names": [format!("after-{table}")]})));
        testkit::wait_until("nothing is missing any more", || complaint().is_none().then_some(()));
    }
}

#[test]
fn a_server_that_fails_makes_the_whole_degraded_and_is_named() {
    let rest = Rest::start();
    rest.register("one", &[]);
    expect(201, &rest.post("/servers", &fake("broken", &["--fail-at", "initialize"])));
    // Seen once: it is retried, and for a moment it has not failed.
    let health = testkit::wait_until("the failure is seen", || {
        let health = expect(200, &rest.get("/health"));
        (health["status"] == "degraded").then_some(health)
    });
    assert_eq!(health["issues"][0]["server_name"], "broken", "{health}");
    expect(200, &rest.call("one.echo", &json!({})));
}

#[test]
fn metrics_distinguish_failed_servers_from_those_asleep() {
    let rest = Rest::start();
    rest.register("one", &[]);
    rest.register("off", &[]);
    expect(200, &rest.order("/servers/off/disable"));
    // It would be starting again.
    expect(200, &rest.patch("/settings", &json!({"retry_backoff_ms": [600_000]})));
    expect(201, &rest.post("/servers", &fake("broken", &["--fail-at", "initialize"])));
    rest.wait_for_status("broken", "error");
    let entry = expect(200, &rest.serve.fetch(&HttpRequest::new("GET", "/health")));
    assert_eq!(entry["servers"], json!({"running": 1, "starting": 0, "failed": 1, "stopped": 1}));
}

#[test]
fn settings_are_read_changed_and_checked() {
    let rest = Rest::start();
    let before = expect(200, &rest.get("/settings"));
    assert_eq!((&before["timeout_ms"], &before["concurrent_limit"]), (&json!(30_000), &json!(25)));
    assert_eq!(before["retry_backoff_ms"], json!([1000, 5000, 15_000]));
    let changed = expect(200, &rest.patch("/settings", &json!({"timeout_ms": 100, "mcp_timeout_ms": 5})));
    assert_eq!((&changed["timeout_ms"], &changed["mcp_timeout_ms"]), (&json!(100), &json!(5)));
    assert_eq!(expect(200, &rest.get("/settings")), changed);
    rest.register("one", &[]);
    expect_error(504, "EXECUTION_TIMEOUT", &rest.call("one.hang", &json!({})));
    let back = expect(200, &rest.patch("/settings", &json!({"timeout_ms": null, "mcp_timeout_ms": null})));
    assert_eq!(back, before);

    let wrong = json!({"timeout_ms": 0, "concurrent_limit": "many", "colour": "red", "session_limit": -2});
    let mut problems = expect_problems(&rest.patch("/settings", &wrong));
    problems.sort();
    let places: Vec<&str> = problems.iter().map(|(place, _)| place.as_str()).collect();
    assert_eq!(places, ["body.colour", "body.concurrent_limit", "body.session_limit", "body.timeout_ms"]);
    assert_eq!(expect(200, &rest.get("/settings")), before, "then nothing is changed");
    let nobodys = json!({"pinned_tools": ["echo"]});
    assert_eq!(expect_problems(&rest.patch("/settings", &nobodys))[0].0, "body.pinned_tools");
    assert_eq!(
        expect(200, &rest.patch("/settings", &json!({"pinned_tools": ["one.echo"]})))["pinned_tools"],
        json!(["one.echo"])
    );
}

#[test]
fn every_change_is_noted_with_the_name_of_the_token() {
    let tokens = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(tokens.path(), "ann:secret-1\nbob:secret-2\n").unwrap();
    let rest = Rest::start_as(|launch| launch.arg("--token-file").arg(tokens.path()));
    let ask = |method: &str, path: &str, token: &str| {
        let ask =
            HttpRequest::new(method, &format!("/api/v1/aggregator{path}")).header("Content-Type", "application/json");
        ask.header("Authorization", &format!("Bearer {token}"))
    };
    let registered = rest.serve.fetch(&ask("POST", "/servers", "secret-1").body(fake("one", &[]).to_string()));
    expect(201, &registered);
    let changed = ask("PATCH", "/settings", "secret-2").body(r#"{"timeout_ms":5000}"#);
    expect(200, &rest.serve.fetch(&changed));
    let noted = testkit::wait_until("both are noted", || {
        let noted = rest.serve.fetch(&ask("GET", "/audit", "secret-1"));
        (noted.headers.get("x-total-count").map(String::as_str) == Some("2")).then(|| noted.json())
    });
    let entry = |at: usize| (noted[at]["who"].as_str().unwrap(), noted[at]["action"].as_str().unwrap());
    let mut all = [entry(0), entry(1)];
    all.sort_unstable();
    assert_eq!(all[0], ("ann", "server.register"));
    assert_eq!(all[1].0, "bob");
    let of_bob = rest.serve.fetch(&ask("GET", "/audit?who=bob&limit=1", "secret-1"));
    assert_eq!(expect(200, &of_bob).as_array().unwrap().len(), 1);
}

#[test]
fn numbers_for_prometheus_are_well_formed_and_count() {
    let rest = Rest::start();
    rest.register("one", &["--tools", "1"]);
    expect(200, &rest.call("one.echo", &json!({})));
    expect_error(502, "EXECUTION_FAILED", &rest.call("one.raw_error", &json!({"error": r#"{"code":1,"message":""}"#})));
    let answer = rest.serve.fetch(&HttpRequest::new("GET", "/metrics"));
    assert_eq!(answer.status, 200);
    assert!(answer.headers["content-type"].starts_with("text/plain; version=0.0.4"));
    for line in [
        r#"mcp_servers{status="connected"} 1"#,
        r#"mcp_calls_total{server="one",outcome="success"} 1"#,
        r#"mcp_calls_total{server="one",outcome="error"} 1"#,
        r#"mcp_execution_seconds_count{server="one"} 2"#,
        r#"mcp_routing_seconds_bucket{server="one",le="+Inf"} 2"#,
    ] {
        assert!(answer.body.lines().any(|known| known == line), "{line} is not in\n{}", answer.body);
    }
    let mut families = std::collections::HashSet::new();
    for line in answer.body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(families.insert(rest.split(' ').next().unwrap()), "{line} is there twice");
        } else if !line.starts_with('#') {
            let (_, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(families.contains("process_resident_memory_bytes"));
}
