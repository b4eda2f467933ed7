//! Clients that get no server requests: those of the small program over every transport, and those that have closed
//! their input.

use serde_json::json;
use testkit::http_session::all_capabilities;
use testkit::{ClientSession, Launch, ModernStdio, Puppet, Spec};

use super::CAPABILITIES;
use crate::relay::{config, connected, introduce};

const WANTS: &str = r#"{"resultType":"input_required","inputRequests":{"e":{"method":"elicitation/create","params":{"mode":"form","message":"?","requestedSchema":{"type":"object","properties":{}}}}}}"#;
const FORM: &str = r#"{"mode":"form","message":"?","requestedSchema":{"type":"object","properties":{}}}"#;

#[test]
fn the_small_program_forwards_no_server_requests_whatever_the_revisions() {
    let (legacy, modern) = (Puppet::new(Spec::legacy().tool("t")), Puppet::new(Spec::modern().tool("t")));
    let config = config(&[("legacy", &legacy), ("modern", &modern)]);
    let mut older = Launch::aggregator(&config).start();
    introduce(&mut older, &all_capabilities());
    older.ids("tools/list");
    let mut newer = ModernStdio::new(Launch::aggregator(&config).start()).interactive();
    newer.ids("tools/list");

    for client in [&mut older as &mut dyn ClientSession, &mut newer] {
        let id = client.begin_call("legacy:t", json!({}));
        let call = legacy.expect("tools/call");
        call.ask("\"q\"", "elicitation/create", FORM);
        assert_eq!(legacy.response("q")["error"]["code"], -32601);
        call.answer(r#"{"content":[]}"#);
        assert_eq!(client.answer_to(id)["result"]["content"], json!([]));
    }
    let id = older.begin_call("modern:t", json!({}));
    let call = modern.expect("tools/call");
    assert_eq!(call.param(&["_meta", CAPABILITIES]), Some("{}"), "so a server that asks all the same knows better");
    call.answer(WANTS);
    assert!(older.answer_to(id)["error"]["message"].as_str().is_some_and(|text| text.contains("`modern`")));
}

#[test]
fn a_call_that_needs_an_answer_ends_when_the_client_disconnects() {
    let (legacy, modern) = (Puppet::new(Spec::legacy().tool("t")), Puppet::new(Spec::modern().tool("t")));
    let mut client = connected(&[("legacy", &legacy), ("modern", &modern)]);
    let asked = client.begin_call("modern.t", json!({}));
    modern.expect("tools/call").answer(WANTS);
    client.question("elicitation/create");
    let asking = client.begin_call("legacy.t", json!({}));
    let call = legacy.expect("tools/call");
    call.ask("\"q\"", "elicitation/create", FORM);
    client.question("elicitation/create");
    client.close_stdin();
    assert!(client.answer_to(asked)["error"].is_object());
    assert!(legacy.response("q")["error"].is_object());
    call.answer(r#"{"content":[]}"#);
    assert!(client.answer_to(asking)["result"].is_object());
    assert!(client.wait_exit().success());
}
