//! A server that fails is retried after delays, disabled with a notice, and starts over when it is enabled.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use testkit::http_client::{Event, HttpRequest};
use testkit::program;

use crate::rest::{PREFIX, Rest, expect};

/// A server that can be started once a file exists; every attempt adds a line to another file.
fn moody(name: &str, folder: &Path) -> Value {
    let script = r#"echo x >> "$1/attempts"; test -e "$1/well" && exec "$2"; echo "out of order" >&2; exit 3"#;
    let args = json!(["-c", script, "sh", folder, program("fake-server")]);
    // Otherwise a server that exits immediately is started again with the legacy handshake.
    let config = json!({"command": "sh", "args": args, "era": "legacy"});
    json!({"name": name, "transport_type": "stdio", "connection_config": config})
}

fn attempts(folder: &Path) -> usize {
    fs::read_to_string(folder.join("attempts")).unwrap_or_default().lines().count()
}

/// The announced statuses of a server, in order.
fn states(events: &[Event]) -> Vec<String> {
    let changes = events.iter().filter(|event| event.kind.as_deref() == Some("server.status_changed"));
    changes.map(|event| event.json()["status"].as_str().expect("a status is a word").to_owned()).collect()
}

#[test]
fn a_server_that_fails_is_tried_three_more_times_disabled_and_on_again() {
    let mut rest = Rest::start();
    let folder = tempfile::tempdir().unwrap();
    expect(200, &rest.patch("/settings", &json!({"retry_backoff_ms": [20, 40, 80]})));
    let mut connection = rest.serve.connect();
    let mut stream = connection.ask(&HttpRequest::stream(&format!("{PREFIX}/events")));
    expect(201, &rest.post("/servers", &moody("moody", folder.path())));

    let mut seen: Vec<Event> = Vec::new();
    while seen.last().and_then(|event| event.kind.as_deref()) != Some("notice") {
        seen.push(stream.next_message().expect("the stream goes on"));
    }
    let notice = seen.last().unwrap().json()["message"].as_str().unwrap().to_owned();
    for part in ["`moody`", "4 failed attempts", "enable it"] {
        assert!(notice.contains(part), "{part} is not in: {notice}");
    }
    let reported = states(&seen);
    let expected: Vec<&str> = ["connecting", "error"].repeat(3).into_iter().chain(["connecting", "disabled"]).collect();
    assert_eq!(reported, expected);
    let off = rest.wait_for_status("moody", "disabled");
    assert_eq!((&off["enabled"], &off["auto_disabled"]), (&json!(false), &json!(true)));
    assert_eq!((&off["failure_count"], &off["next_retry_at"]), (&json!(4), &Value::Null));
    assert!(off["error_message"].as_str().unwrap().contains("out of order"), "{off}");
    assert_eq!(attempts(folder.path()), 4);

    drop(connection);
    rest = rest.restarted(false);
    let off = expect(200, &rest.get("/servers/moody"));
    assert_eq!((&off["status"], &off["auto_disabled"]), (&json!("disabled"), &json!(true)), "{off}");
    assert!(off["error_message"].as_str().unwrap().contains("out of order"), "why it is off is still known");
    assert_eq!(attempts(folder.path()), 4, "what is switched off is left alone");

    fs::write(folder.path().join("well"), "").unwrap();
    let on = expect(200, &rest.order("/servers/moody/enable"));
    assert_eq!((&on["enabled"], &on["auto_disabled"]), (&json!(true), &json!(false)), "{on}");
    let on = rest.wait_for_status("moody", "connected");
    assert_eq!((&on["failure_count"], &on["error_message"]), (&json!(0), &Value::Null));
    expect(200, &rest.call("moody.echo", &json!({})));

    let history = expect(200, &rest.get("/servers/moody/history?limit=100"));
    let kinds: Vec<&str> =
        history.as_array().unwrap().iter().filter_map(|event| event["event_type"].as_str()).collect();
    assert_eq!(kinds[0], "connected", "{kinds:?}");
    assert!(kinds.iter().filter(|kind| **kind == "error").count() >= 3, "{history:#}");
    let switched_off = history.as_array().unwrap().iter().find(|event| event["details"]["auto_disabled"] == true);
    assert_eq!(switched_off.expect("that it was switched off is kept")["details"]["failures"], 4);
}

#[test]
fn the_threshold_limits_reconnect_attempts() {
    let rest = Rest::start();
    for (threshold, expected) in [(1, 2), (5, 6)] {
        let folder = tempfile::tempdir().unwrap();
        expect(200, &rest.patch("/settings", &json!({"retry_backoff_ms": [1], "failure_threshold": threshold})));
        let name = format!("moody-{threshold}");
        expect(201, &rest.post("/servers", &moody(&name, folder.path())));
        rest.wait_for_status(&name, "disabled");
        assert_eq!(attempts(folder.path()), expected);
    }
}
