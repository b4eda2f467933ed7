//! Progress and cancellation of a real long-running operation.

use std::fs;

use serde_json::{Value, json};

use super::clients::{session_and_session_through_us, session_through_us};
use super::parts::{Part, Parts};
use super::sandbox::Sandbox;
use super::servers::{self, Server};
use super::steps::{call, call_with_progress, cancelled_call};

const LONG_TOOL: &str = "trigger-long-running-operation";

#[test]
fn every_step_of_a_long_operation_is_reported() {
    let Some(parts) = Parts::with(&[Part::Npm, Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let everything = servers::everything(&parts);
    let step = |name: &str| vec![call_with_progress(name, &json!({"duration": 0.8, "steps": 4}))];
    let [direct, through_us] = session_and_session_through_us(
        &parts,
        &sandbox,
        (&everything, step(LONG_TOOL)),
        (&everything, step(&everything.name_of(LONG_TOOL))),
    );
    let done = "Long running operation completed. Duration: 0.8 seconds, Steps: 4.";
    let expected = json!({
        "result": {"content": [{"type": "text", "text": done}]},
        "progress": [[1.0, 4.0, null], [2.0, 4.0, null], [3.0, 4.0, null], [4.0, 4.0, null]],
    });
    assert_eq!(through_us.answers, [expected]);
    assert_eq!(through_us.answers, direct.answers);
}

#[test]
fn a_cancelled_operation_is_cancelled_at_its_server_and_the_session_goes_on() {
    let Some(parts) = Parts::with(&[Part::Npm, Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let (received, sent) = (sandbox.path("received.jsonl"), sandbox.path("sent.jsonl"));
    let recorded = Server { key: "everything", ..record(&servers::everything(&parts), &received, &sent) };

    // Twenty seconds: the session ends long before the operation would.
    let cancelled = cancelled_call(&recorded.name_of(LONG_TOOL), &json!({"duration": 20, "steps": 100}), 2);
    let echo = call(&recorded.name_of("echo"), &json!({"message": "still here"}));
    let session = session_through_us(&parts, &sandbox, &[&recorded], vec![cancelled, echo]);
    let echoed = json!({"result": {"content": [{"type": "text", "text": "Echo: still here"}]}});
    let given_up = json!({"cancelled": true, "progress": [[1.0, 100.0, null], [2.0, 100.0, null]]});
    assert_eq!(session.answers, [given_up, echoed]);

    let received = messages(&received);
    let id = &received.iter().find(|message| message["params"]["name"] == LONG_TOOL).unwrap()["id"];
    let cancellations: Vec<&Value> =
        received.iter().filter(|message| message["method"] == "notifications/cancelled").collect();
    assert_eq!(cancellations.len(), 1, "{received:?}");
    assert_eq!(&cancellations[0]["params"]["requestId"], id, "the server knows the call by the id we gave it");
    let answered: Vec<Value> = messages(&sent).iter().map(|message| message["id"].clone()).collect();
    assert!(!answered.contains(id), "the server gave the call up");
}

/// The server, with a copy of everything it receives and sends.
fn record(server: &Server, received: &std::path::Path, sent: &std::path::Path) -> Server {
    let script = r#"received=$1 sent=$2; shift 2; tee "$received" | "$@" | tee "$sent""#;
    let mut args = vec!["-c".to_owned(), script.to_owned(), "record".to_owned()];
    args.extend([received, sent].map(|path| path.display().to_string()));
    args.push(server.command.display().to_string());
    args.extend(server.args.clone());
    Server { command: "sh".into(), args, ..server.clone() }
}

fn messages(file: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("could not read {}: {error}", file.display()));
    text.lines().map(|line| serde_json::from_str(line).expect("a line is a message")).collect()
}
