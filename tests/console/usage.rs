//! CPU and memory of servers, and their stderr.

use std::fs;

use serde_json::{Value, json};
use testkit::{program, wait_until};

use super::Visitor;
use crate::rest::{Rest, expect};

/// Registers a fake server that is started by a shell, which also runs another program.
pub(crate) fn register_beside(rest: &Rest, name: &str, beside: &str) {
    let script = format!("{beside} exec {}", program("fake-server").display());
    let config = json!({"command": "sh", "args": ["-c", script]});
    expect(201, &rest.post("/servers", &json!({"name": name, "transport_type": "stdio", "connection_config": config})));
    rest.wait_for_status(name, "connected");
}

#[test]
fn a_child_that_burns_a_processor_is_seen_doing_so() {
    let rest = Rest::start();
    register_beside(&rest, "busy", "(while :; do :; done) &");
    rest.register("calm", &[]);
    let usage = wait_until("its child is seen at work", || {
        let usage = rest.get("/servers/busy").json()["usage"].clone();
        // A busy machine gives it little CPU time.
        (usage["cpu_percent"].as_f64()? > 1.0).then_some(usage)
    });
    assert!(usage["processes"].as_u64().is_some_and(|count| count >= 2), "{usage}");
    assert!(usage["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 100_000), "{usage}");
    let listed = rest.get("/servers?include_usage=true").json();
    assert!(listed[1]["usage"]["memory_bytes"].is_number(), "{listed}");
    assert_eq!(rest.get("/servers").json()[0]["usage"], Value::Null, "nobody asked");
    let visitor = Visitor::new(&rest);
    assert!(visitor.page("/").contains("data-name=\"Memory\">"));
    assert!(visitor.page("/servers/busy").contains("of one CPU"));
    rest.order("/servers/busy/disconnect");
    assert_eq!(rest.wait_for_status("busy", "disconnected")["usage"], Value::Null);
}

#[test]
fn stderr_of_a_server_is_displayed_and_escaped() {
    let rest = Rest::start();
    let file = rest.folder.path().join("said");
    fs::write(&file, "ready\n<img src=x onerror=alert(1)>\u{202e}\n").expect("the test can write there");
    register_beside(&rest, "loud", &format!("tail -n +1 -f {} >&2 &", file.display()));
    let said = wait_until("it has spoken", || {
        let said = rest.get("/servers/loud/log").json();
        (said["lines"].as_array()?.len() == 2).then_some(said)
    });
    assert_eq!((&said["lines"][0], &said["missed"]), (&json!("ready"), &json!(0)));
    let page = Visitor::new(&rest).page("/servers/loud");
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;⟨U+202E⟩"), "{page}");
    assert!(!page.contains("<img src=x"));
    assert_eq!(rest.get("/servers/nobody/log").status, 404);
}
