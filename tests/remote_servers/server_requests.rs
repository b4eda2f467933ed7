//! Requests of a legacy server on the stream of a call belong to that call and end with it.

use serde_json::json;
use testkit::{ClientSession, Puppet, Spec};

use crate::fixture::error_of;
use crate::relay::serving;

const ELICITATION: &str = r#"{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}"#;

#[test]
fn it_reaches_the_client_whose_call_it_is_while_others_call_the_same_server() {
    let puppet = Puppet::over_http(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let (mut one, mut two) = (serve.interactive_session("/mcp"), serve.interactive_session("/mcp"));
    let ids = [one.begin_call("s.t", json!({"of": 1})), two.begin_call("s.t", json!({"of": 2}))];
    let mut calls = [puppet.expect("tools/call"), puppet.expect("tools/call")];
    calls.sort_by_key(|call| call.param(&["arguments", "of"]).map(str::to_owned));
    for (number, call) in calls.iter().enumerate() {
        let asked = format!("\"q{number}\"");
        call.ask(&asked, "elicitation/create", ELICITATION);
    }
    for (client, name) in [(&mut two, "two"), (&mut one, "one")] {
        let question = client.question("elicitation/create");
        client.reply(&question, json!({"action": "accept", "content": {"name": name}}));
    }
    assert_eq!(puppet.response("q0")["result"]["content"]["name"], "one");
    assert_eq!(puppet.response("q1")["result"]["content"]["name"], "two");
    calls.iter().for_each(|call| call.answer("{}"));
    assert!(one.answer_to(ids[0])["result"].is_object() && two.answer_to(ids[1])["result"].is_object());
}

#[test]
fn a_call_whose_stream_breaks_while_its_question_is_open_fails_and_the_next_works() {
    let puppet = Puppet::over_http(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.interactive_session("/mcp");
    let id = client.begin_call("s.t", json!({}));
    let call = puppet.expect("tools/call");
    call.ask("\"q\"", "elicitation/create", ELICITATION);
    client.question("elicitation/create");
    call.break_off();
    let answer = client.answer_to(id);
    assert!(error_of(&answer).1.contains("`s`"), "{answer}");

    let id = client.begin_call("s.t", json!({}));
    puppet.expect("tools/call").answer("{}");
    assert!(client.answer_to(id)["result"].is_object());
    assert_eq!(puppet.count("tools/call"), 2, "no call was sent twice");
}

#[test]
fn a_parked_call_whose_stream_breaks_fails_when_the_client_comes_back() {
    let puppet = Puppet::over_http(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp").interactive();
    let params = json!({"name": "s.t", "arguments": {}});
    let id = client.begin("tools/call", params.clone());
    let call = puppet.expect("tools/call");
    call.ask("\"q\"", "elicitation/create", ELICITATION);
    let offered = client.answer_to(id);
    let (key, _) = offered["result"]["inputRequests"].as_object().and_then(|wanted| wanted.iter().next()).unwrap();
    call.break_off();
    let mut retry = params;
    retry["inputResponses"] = json!({key: {"action": "decline"}});
    retry["requestState"] = offered["result"]["requestState"].clone();
    let answer = client.ask("tools/call", retry);
    assert!(answer["error"]["code"].is_i64(), "{answer}");
    assert_eq!(puppet.count("tools/call"), 1, "no call was sent twice");
}
