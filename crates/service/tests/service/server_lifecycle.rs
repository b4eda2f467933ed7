//! Servers are added, called, changed and removed while the service runs.

use std::time::Duration;

use executions::Error as CallError;
use registry::{Page, Status};
use serde_json::json;
use service::{Error, Event, Registration, Update};

use crate::fixture::{FixtureOptions, ServiceFixture, fake, registration, somebody};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_registered_called_and_removed_while_the_service_runs() {
    let fixture = ServiceFixture::new().await;
    let view = fixture.register(fake("one", &["--tools", "2", "--only-generated"])).await;
    assert_eq!((view.record.tool_count, fixture.service.tools(Some("one")).await.unwrap().len()), (2, 2));
    assert_eq!(fixture.listed().await, ["one.tool_0", "one.tool_1"]);
    let state = fixture.service.state();
    assert_eq!((state.total_servers, state.connected_servers, state.total_tools), (1, 1, 2));
    assert!(state.last_sync.is_some());

    fixture.service.remove(&somebody(), "one", false).await.unwrap();
    assert_eq!(fixture.listed().await, [""; 0]);
    assert!(matches!(fixture.service.server("one").await, Err(Error::Call(CallError::ServerNotFound { .. }))));
    let kept = fixture.store.servers(&registry::ServerFilter::default(), Page::ALL).await.unwrap();
    assert_eq!(kept.total, 0);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_belongs_to_one_server_and_must_be_a_good_one() {
    let fixture = ServiceFixture::new().await;
    fixture.register(fake("one", &[])).await;
    let twice = fixture.service.register(&somebody(), fake("one", &[])).await;
    assert!(matches!(twice, Err(Error::ServerAlreadyExists { .. })), "{twice:?}");
    let bad = registration("Not Good", "stdio", json!({ "args": "x" }));
    let Err(Error::Validation { problems }) = fixture.service.register(&somebody(), bad).await else {
        panic!("it has three mistakes")
    };
    let places: Vec<_> = problems.iter().map(|problem| problem.loc.join(".")).collect();
    assert_eq!(places, ["body.name", "body.connection_config.command", "body.connection_config.args"]);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_registered_is_there_after_a_restart_with_its_history() {
    let fixture = ServiceFixture::new().await;
    fixture.register(fake("one", &["--tools", "1"])).await;
    fixture.register(fake("off", &[])).await;
    fixture.service.disable(&somebody(), "off").await.unwrap();
    let fixture = fixture.again().await;
    fixture.until("one", Status::Connected).await;
    assert_eq!(fixture.history("one").await, ["connecting", "connected", "disconnected", "connecting", "connected"]);
    assert_eq!(fixture.service.server("off").await.unwrap().record.status, Status::Disabled);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_disconnected_and_connected_on_command() {
    let fixture = ServiceFixture::new().await;
    fixture.register(fake("one", &[])).await;
    for _ in 0..2 {
        let view = fixture.service.disconnect(&somebody(), "one", false).await.unwrap();
        assert_eq!(view.record.status, Status::Disconnected);
    }
    let answer = fixture.call("one.echo", json!({})).await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("Server `one` is not connected: disconnected"), "{message}");
    let view = fixture.service.connect(&somebody(), "one").await.unwrap();
    assert_eq!(view.record.status, Status::Connected);
    assert_eq!(fixture.call("one.echo", json!({ "text": "hi" })).await["result"]["content"][0]["text"], "hi");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_flight_may_finish_before_its_server_is_disconnected() {
    let fixture = ServiceFixture::new().await;
    fixture.register(fake("one", &[])).await;
    let (answer, view) = tokio::join!(fixture.call("one.sleep", json!({ "ms": 2500 })), async {
        in_flight(&fixture, "one").await;
        fixture.service.disconnect(&somebody(), "one", false).await.unwrap()
    });
    assert_eq!(answer["result"]["content"][0]["text"], "slept", "{answer}");
    assert_eq!(view.record.status, Status::Disconnected);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_waits_for_a_reconnect_is_not_started_during_shutdown() {
    let fixture = ServiceFixture::new().await;
    fixture.register(fake("one", &[])).await;
    let Registration { connection_config, .. } = fake("one", &["--tools", "3"]);
    let update = Update { connection_config: Some(connection_config), ..Update::default() };
    let stopping = async {
        in_flight(&fixture, "one").await;
        let actor = somebody();
        let updating = fixture.service.update(&actor, "one", update);
        let stopping = async {
            // The call keeps the old connection busy, so the new one has to wait.
            let is_new =
                |view: &service::ServerView| view.record.connection_config.reveal()["args"] == json!(["--tools", "3"]);
            fixture.until_it("one", "configured otherwise", is_new).await;
            fixture.end().await;
        };
        tokio::join!(updating, stopping).0.ok();
    };
    tokio::join!(fixture.call("one.hang", json!({})), stopping);
    let fixture = fixture.again().await;
    fixture.until("one", Status::Connected).await;
    assert_eq!(fixture.history("one").await, ["connecting", "connected", "disconnected", "connecting", "connected"]);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn force_cancels_calls_in_flight_with_a_reason() {
    let fixture = ServiceFixture::new().await;
    fixture.register(fake("one", &[])).await;
    let (answer, _) = tokio::join!(fixture.call("one.hang", json!({})), async {
        in_flight(&fixture, "one").await;
        fixture.service.disconnect(&somebody(), "one", true).await.unwrap()
    });
    assert!(answer["error"]["message"].as_str().unwrap().contains("one"), "{answer}");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_renamed_keeps_its_connection_and_its_tools_are_renamed_with_it() {
    let fixture = ServiceFixture::new().await;
    fixture.register(fake("one", &[])).await;
    let pid = fixture.call("one.pid", json!({})).await["result"]["structuredContent"]["pid"].clone();
    let update = Update { name: Some("two".to_owned()), description: Some(Some("x".to_owned())), ..Update::default() };
    let view = fixture.service.update(&somebody(), "one", update).await.unwrap();
    assert_eq!((view.record.name.as_str(), view.record.status), ("two", Status::Connected));
    assert_eq!(fixture.call("two.pid", json!({})).await["result"]["structuredContent"]["pid"], pid);
    assert!(fixture.service.tools(Some("two")).await.unwrap().iter().all(|tool| tool.name.starts_with("two.")));
    assert!(fixture.call("one.pid", json!({})).await["error"].is_object());
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_reconnected_when_its_connection_config_changes() {
    let fixture = ServiceFixture::new().await;
    fixture.register(fake("one", &["--tools", "1", "--only-generated"])).await;
    let Registration { connection_config, .. } = fake("one", &["--tools", "3", "--only-generated"]);
    let update = Update { connection_config: Some(connection_config), ..Update::default() };
    fixture.service.update(&somebody(), "one", update).await.unwrap();
    fixture.until_it("one", "one with three tools", |view| view.record.tool_count == 3).await;
    fixture.until("one", Status::Connected).await;
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_flight_may_finish_and_a_new_one_waits_while_its_server_is_reconnected() {
    let fixture = ServiceFixture::new().await;
    fixture.register(fake("one", &[])).await;
    let Registration { connection_config, .. } = fake("one", &["--tools", "1"]);
    let update = Update { connection_config: Some(connection_config), ..Update::default() };
    let (before, ()) = tokio::join!(fixture.call("one.sleep", json!({ "ms": 2500 })), async {
        in_flight(&fixture, "one").await;
        fixture.service.update(&somebody(), "one", update).await.unwrap();
    });
    assert_eq!(before["result"]["content"][0]["text"], "slept", "{before}");
    let after = fixture.call("one.tool_0", json!({})).await;
    assert!(after["result"].is_object(), "{after}");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_is_connected_again() {
    let fixture = ServiceFixture::new().await;
    fixture.register(fake("one", &[])).await;
    let mut events = fixture.service.events().listen();
    fixture.call("one.crash", json!({ "code": 3 })).await;
    // It may be over before anybody looks.
    let error = loop {
        if let Event::ServerStatusChanged { status: Status::Error, error_message, .. } = events.recv().await.unwrap() {
            break error_message.unwrap();
        }
    };
    assert!(error.contains("status 3"), "{error}");
    fixture.until("one", Status::Connected).await;
    assert_eq!(fixture.history("one").await, ["connecting", "connected", "error", "connecting", "connected"]);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_start_delays_no_other() {
    let fixture = ServiceFixture::new().await;
    // It would be given up after its start timeout.
    let slow = fixture.service.register(&somebody(), fake("slow", &["--hang-at", "initialize"])).await.unwrap();
    assert_eq!(slow.record.status, Status::Connecting);
    fixture.register(fake("one", &[])).await;
    assert_eq!(fixture.service.server("slow").await.unwrap().record.status, Status::Connecting);
    fixture.service.remove(&somebody(), "slow", true).await.unwrap();
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_test_reports_tools_or_stderr_and_leaves_nothing() {
    let fixture = ServiceFixture::new().await;
    fixture.register(fake("one", &["--tools", "1", "--only-generated"])).await;
    let report = fixture.service.test("one").await.unwrap();
    assert_eq!((report.success, report.tools), (true, vec!["tool_0".to_owned()]));
    let bad = fake("bad", &["--fail-at", "initialize", "--stderr-line", "no licence found"]);
    let report = fixture.service.test_unregistered(bad).await.unwrap();
    assert!(!report.success);
    assert!(report.error.as_ref().unwrap().contains("no licence found"), "{report:?}");
    assert_eq!(fixture.service.state().total_servers, 1);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_reported_with_the_line_that_states_its_cause() {
    let fixture = ServiceFixture::new().await;
    let script = "echo \"npm error 404  'x@*' is not in this registry.\" >&2
        echo 'npm error A complete log of this run can be found in: /x.log' >&2
        exit 1";
    let bad = registration("bad", "stdio", json!({ "command": "sh", "args": ["-c", script] }));
    fixture.service.register(&somebody(), bad).await.unwrap();
    let view = fixture.until_it("bad", "one that failed", |view| view.record.error_message.is_some()).await;
    let error = view.record.error_message.expect("it cannot start");
    assert!(error.ends_with("it said: npm error 404  'x@*' is not in this registry."), "{error}");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stderr_from_before_a_crash_is_in_the_log_after_the_restart() {
    let fixture = ServiceFixture::new().await;
    let marker = fixture.folder.path().join("crashed");
    let script = format!(
        "test -e {0} && exec {1}; touch {0}; echo 'Error: the disk is full' >&2; exit 3",
        marker.display(),
        testkit::program("fake-server").display()
    );
    let crashing = registration("crashing", "stdio", json!({ "command": "sh", "args": ["-c", script] }));
    fixture.service.register(&somebody(), crashing).await.unwrap();
    fixture.until("crashing", Status::Connected).await;
    let log = fixture.service.log("crashing").unwrap().now();
    assert!(log.lines.iter().any(|line| line.contains("the disk is full")), "{log:?}");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_that_is_not_set_parks_the_server_with_its_name() {
    let fixture = ServiceFixture::new().await;
    let new = registration("one", "stdio", json!({ "command": "${NOBODY_HAS_SET_THIS}" }));
    fixture.service.register(&somebody(), new).await.unwrap();
    let view = fixture.until("one", Status::Error).await;
    assert_eq!(view.next_retry_at, None);
    assert!(view.record.error_message.unwrap().contains("NOBODY_HAS_SET_THIS is not set"));
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_rediscovered_on_request() {
    let fixture = ServiceFixture::new().await;
    let file = fixture.folder.path().join("tools.jsonl");
    std::fs::write(&file, "{\"name\":\"a\",\"inputSchema\":{\"type\":\"object\"}}\n").unwrap();
    let new = fake("one", &["--only-generated", "--tool-file", file.to_str().unwrap()]);
    fixture.register(new).await;
    let before = fixture.service.state().last_sync;
    fixture.service.refresh_tools(&somebody(), "one").await.unwrap();
    testkit_wait(|| fixture.service.state().last_sync != before).await;
    fixture.service.disconnect(&somebody(), "one", false).await.unwrap();
    let refused = fixture.service.refresh_tools(&somebody(), "one").await;
    assert!(matches!(refused, Err(Error::Call(CallError::ServerUnavailable { .. }))), "{refused:?}");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_servers_are_connected_at_once_after_a_restart() {
    let fixture = ServiceFixture::new().await;
    let registering = (0..50).map(|n| {
        let (service, new) = (fixture.service.clone(), fake(&format!("s{n}"), &["--tools", "20", "--only-generated"]));
        tokio::spawn(async move { service.register(&somebody(), new).await.map(drop) })
    });
    for registered in registering.collect::<Vec<_>>() {
        registered.await.unwrap().unwrap();
    }
    let fixture = fixture.again().await;
    for n in 0..50 {
        fixture.until(&format!("s{n}"), Status::Connected).await;
    }
    assert_eq!(fixture.service.state().total_tools, 1000);
    // They are written in the background.
    let all_listed = async { while fixture.service.tools(None).await.unwrap().len() < 1000 {} };
    tokio::time::timeout(testkit::DEADLINE, all_listed).await.expect("all tools are in the registry");
    fixture.end().await;
}

/// Waits until the server has a running call.
async fn in_flight(fixture: &ServiceFixture, server: &str) {
    let view = fixture.service.aggregator().fleet.view();
    let slot_index = view.snapshot.server_named(server).unwrap();
    let connection = view.connections[slot_index].clone().unwrap();
    testkit_wait(|| connection.open_calls() > 0).await;
}

async fn testkit_wait(holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(testkit::DEADLINE, waiting).await.expect("it never came to that");
}

#[tokio::test(flavor = "multi_thread")]
async fn executions_that_were_stopped_are_stopped_after_a_restart_until_they_are_allowed_again() {
    let fixture = ServiceFixture::new().await;
    fixture.register(fake("halted", &[])).await;
    fixture.until("halted", Status::Connected).await;
    fixture.service.stop_executions(&somebody()).await;
    let fixture = fixture.again().await;
    assert!(fixture.service.state().executions_stopped);
    fixture.until("halted", Status::Connected).await;
    let answer = fixture.call("halted.echo", json!({})).await;
    assert_eq!(answer["error"]["data"]["reason"], "executions_stopped", "{answer}");
    fixture.service.reset_executions(&somebody()).await;
    let fixture = fixture.again().await;
    assert!(!fixture.service.state().executions_stopped);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_event_precedes_all_other_events_of_the_server() {
    let fixture = ServiceFixture::new().await;
    for number in 0..20 {
        let mut events = fixture.service.events().listen();
        let name = format!("s{number}");
        fixture.service.register(&somebody(), fake(&name, &[])).await.unwrap();
        // Others may still be running.
        let first = loop {
            let event = events.recv().await.unwrap();
            if json!(event)["name"] == name {
                break event;
            }
        };
        assert_eq!(first.name(), "server.registered", "{first:?}");
    }
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_connection_is_no_reconnection_and_the_next_one_is() {
    let fixture = ServiceFixture::new().await;
    fixture.register(fake("one", &[])).await;
    fixture.until("one", Status::Connected).await;
    fixture.service.disconnect(&somebody(), "one", true).await.unwrap();
    fixture.service.connect(&somebody(), "one").await.unwrap();
    let history = fixture.service.history("one", registry::Page::ALL).await.unwrap();
    let kinds: Vec<_> = history.items.iter().rev().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["connect", "connected", "disconnected", "reconnect", "connected"]);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_that_makes_no_sense_any_more_is_reported_until_settings_are_changed() {
    let settings = json!({ "timeout_ms": "long", "queue_limit": 5 });
    let fixture = ServiceFixture::with(FixtureOptions { settings, ..FixtureOptions::default() }).await;
    assert_eq!((fixture.service.settings().timeout_ms, fixture.service.settings().queue_limit), (30_000, 5));
    let reported = fixture.service.settings_error().unwrap();
    assert!(reported.contains("`timeout_ms`"), "{reported}");
    fixture.service.change_settings(&somebody(), json!({ "queue_limit": 6 })).await.unwrap();
    assert_eq!(fixture.service.settings_error(), None);
    let fixture = fixture.again().await;
    assert_eq!(fixture.service.settings_error(), None);
    fixture.end().await;
}
