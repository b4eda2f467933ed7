//! Servers that exit during a call, and the graceful shutdown of the service.

use std::process::{Command, Stdio};

use serde_json::json;
use testkit::http_client::{Connection, HttpRequest};
use testkit::run::run_command;
use testkit::{ClientSession, Puppet, Signal, Spec, process_exists, program, wait_until};

use super::assert_echoes;
use crate::relay::{config, serving};

const CALL: &str = r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"dying.t","arguments":{},"_meta":{"progressToken":"p"}}}"#;

#[test]
fn a_server_that_dies_in_the_middle_of_a_stream_fails_that_call_and_no_other() {
    for over_http in [false, true] {
        let spec = Spec::legacy().tool("t");
        let dying = if over_http { Puppet::over_http(spec) } else { Puppet::new(spec) };
        let well = Puppet::new(Spec::legacy().tool("t").echoes());
        let serve = serving(&[("dying", &dying), ("well", &well)]);
        let mut session = serve.session("/mcp");
        let mut connection = serve.connect();
        connection.send(&session.post(CALL));
        let call = dying.expect("tools/call");
        call.progress(r#""progress":1"#);
        let mut answer = connection.answer();
        answer.message(Some("notifications/progress"));
        dying.die();
        let end = answer.message(None);
        assert_eq!(end["id"], "c");
        assert!(end["error"]["message"].as_str().is_some_and(|text| text.contains("`dying`")), "{end}");
        assert_eq!(answer.next_message(), None, "the stream ends in good order");
        assert_echoes(&mut session, "well.t");
    }
}

#[test]
fn shutdown_lets_running_calls_finish() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut serve = serving(&[("dying", &puppet)]);
    let session = serve.session("/mcp");
    let mut running = serve.connect();
    running.send(&session.post(CALL));
    let call = puppet.expect("tools/call");
    let mut modern = serve.modern("/mcp");
    let listen = modern.begin("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    modern.notice("notifications/subscriptions/acknowledged");

    serve.signal(Signal::TERM);
    // A subscription ends with a result, no new client is accepted, and the call still gets its response.
    assert!(modern.answer_to(listen)["result"].is_object());
    wait_until("nobody listens any more", || Connection::try_open(serve.address()).is_err().then_some(()));
    call.answer(r#"{"content":[]}"#);
    let mut answer = running.answer();
    let answer = if answer.is_stream() { answer.message(None) } else { answer.json() };
    assert_eq!((&answer["id"], &answer["result"]["content"]), (&json!("c"), &json!([])));
    let status = serve.wait_exit();
    assert_eq!(status.code(), Some(0), "{}", serve.stderr_text());
    let pid = puppet.wait_for_instance(1).pid;
    wait_until("its servers are gone", || (!process_exists(pid)).then_some(()));
}

#[test]
fn shutdown_ends_idle_streams_while_a_call_still_runs() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("dying", &puppet)]);
    let session = serve.session("/mcp");
    let mut running = serve.connect();
    running.send(&session.post(CALL));
    let call = puppet.expect("tools/call");
    let mut waiting = serve.connect();
    let mut stream = waiting.ask(&session.get());
    assert_eq!(stream.status, 200);
    serve.signal(Signal::TERM);
    assert_eq!(stream.next_message(), None);
    // There was enough time left for the call.
    call.answer(r#"{"content":[]}"#);
    assert_eq!(running.answer().status, 200);
}

#[test]
fn an_interrupted_call_reports_that_the_service_shuts_down() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut serve = serving(&[("dying", &puppet)]);
    let session = serve.session("/mcp");
    let mut running = serve.connect();
    running.send(&session.post(CALL));
    puppet.expect("tools/call");
    let mut rest = serve.connect();
    rest.send(&HttpRequest::post("/api/v1/aggregator/execute", json!({"name": "dying.t"}).to_string()));
    puppet.expect("tools/call");
    serve.signal(Signal::TERM);
    for connection in [&mut running, &mut rest] {
        let mut answer = connection.answer();
        assert_eq!(answer.status, 503);
        let reply = answer.json().to_string();
        assert!(reply.contains("The service is shutting down"), "{reply}");
    }
    serve.wait_exit();
}

#[test]
fn a_second_signal_ends_calls_immediately() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut serve = serving(&[("dying", &puppet)]);
    let session = serve.session("/mcp");
    let mut running = serve.connect();
    running.send(&session.post(CALL));
    puppet.expect("tools/call");
    serve.signal(Signal::INT);
    wait_until("nobody listens any more", || Connection::try_open(serve.address()).is_err().then_some(()));
    serve.signal(Signal::INT);
    serve.wait_exit();
    let pid = puppet.wait_for_instance(1).pid;
    wait_until("its servers are gone", || (!process_exists(pid)).then_some(()));
}

#[test]
fn a_port_in_use_is_reported_with_a_hint() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let file = config(&[("s", &puppet)]).write();
    let mut command = Command::new(program("mcp-aggregator"));
    let address = serve.address().to_string();
    command.args(["serve", "--listen", &address, "--config"]).arg(file.path()).stdin(Stdio::null());
    command.arg("--data-dir").arg(file.folder().join("data"));
    let output = run_command(&mut command);
    assert!(!output.status.success());
    assert!(output.stderr.contains(&address) && output.stderr.contains("hint:"), "{}", output.stderr);
    assert!(!output.stderr.contains("Os {"), "{}", output.stderr);
}

#[test]
fn connections_that_have_sent_nothing_are_not_waited_for() {
    let mut serve = serving(&[]);
    let silent = serve.connect();
    // One more request: when it is answered, the silent connection was accepted long ago.
    assert_eq!(serve.fetch(&HttpRequest::new("GET", "/health")).status, 200);
    serve.signal(Signal::TERM);
    assert_eq!(serve.wait_exit().code(), Some(0));
    let stderr = serve.stderr_text();
    assert!(!stderr.contains("aborted requests"), "it waited as long as for a request: {stderr}");
    drop(silent);
}
