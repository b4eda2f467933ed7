//! Servers that die in the middle, and the orderly end of the service itself.

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
fn told_to_stop_it_lets_what_runs_finish() {
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
    // A listen ends with a result, nobody new is let in; and the call is still heard.
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
fn told_to_stop_it_ends_streams_that_wait_for_news_though_a_call_still_runs() {
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
    // There was time enough left for the call.
    call.answer(r#"{"content":[]}"#);
    assert_eq!(running.answer().status, 200);
}

#[test]
fn a_call_that_is_cut_off_is_told_that_the_service_ends() {
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
        let told = answer.json().to_string();
        assert!(told.contains("The service is ending"), "{told}");
    }
    serve.wait_exit();
}

#[test]
fn told_twice_it_does_not_wait() {
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
fn a_port_that_is_taken_is_told_kindly() {
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
