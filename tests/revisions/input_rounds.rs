//! Input that a modern server requires, requested from a legacy client: rounds, up to a limit.

use serde_json::{Value, json};
use testkit::http_session::all_capabilities;
use testkit::puppet::Received;
use testkit::{ClientSession, Config, Launch, Puppet, Spec, raw};

use crate::relay::{at, connected, connected_with, introduce, serving};

const FORM: &str = r#"{"method":"elicitation/create","params":{"mode":"form","message":"Who \u0041re you?","requestedSchema":{"type":"object","properties":{"n":{"type":"number","default":1.0}}}}}"#;
const SAMPLING: &str = r#"{"method":"sampling/createMessage","params":{"messages":[], "maxTokens":1e2}}"#;
const ROOTS: &str = r#"{"method":"roots/list"}"#;
/// A state that a parser would change; it must be returned to the byte.
const STATE: &str = r#""st\u0061te\/\ud800 \"é""#;

fn wants(requests: &str, state: Option<&str>) -> String {
    let state = state.map_or_else(String::new, |state| format!(r#","requestState":{state}"#));
    format!(r#"{{"resultType":"input_required","inputRequests":{requests}{state}}}"#)
}

#[track_caller]
fn responses(retry: &Received) -> Value {
    serde_json::from_str(retry.param(&["inputResponses"]).expect("the retry carries responses")).expect("JSON")
}

#[test]
fn a_required_elicitation_is_sent_and_the_call_retried_with_the_answer() {
    for puppet in [Puppet::new(Spec::modern().tool("t")), Puppet::over_http(Spec::modern().tool("t"))] {
        let mut client = connected(&[("s", &puppet)]);
        client.send_line(
            r#"{"jsonrpc":"2.0","id":"i","method":"tools/call","params":{"name":"s.t","arguments":{"a":1.0},"_meta":{"k":1e2}}}"#,
        );
        let first = puppet.expect("tools/call");
        assert_eq!(first.param(&["inputResponses"]), None);
        first.answer(&wants(&format!(r#"{{"who\u0061":{FORM}}}"#), Some(STATE)));

        let question = client.question_line("elicitation/create");
        assert_eq!(at(&question, &["params", "message"]).replace("\\u0041", "A"), "\"[s] Who Are you?\"");
        assert_eq!(
            at(&question, &["params", "requestedSchema"]),
            r#"{"type":"object","properties":{"n":{"type":"number","default":1.0}}}"#
        );
        let reply = r#"{"action":"accept","content":{"n":1.0}, "x":"\u0041"}"#;
        client.send_line(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{reply}}}"#, at(&question, &["id"])));

        let retry = puppet.expect("tools/call");
        assert_ne!(retry.id(), first.id());
        assert_eq!(retry.param(&["name"]), Some("\"t\""));
        assert_eq!(retry.param(&["arguments"]), Some(r#"{"a":1.0}"#));
        assert_eq!(retry.param(&["_meta", "k"]), Some("1e2"));
        assert_eq!(retry.param(&["requestState"]), Some(STATE));
        assert_eq!(retry.param(&["inputResponses", "whoa"]), Some(reply));
        retry.answer(r#"{"resultType":"complete","content":[ ]}"#);
        assert_eq!(at(&client.line_to("\"i\""), &["result"]), r#"{"content":[ ]}"#);
    }
}

#[test]
fn all_required_inputs_are_requested_before_the_call_is_retried() {
    let puppet = Puppet::new(Spec::modern().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    let id = client.begin_call("s.t", json!({}));
    let requests = format!(r#"{{"e":{FORM},"s":{SAMPLING},"r":{ROOTS}}}"#);
    puppet.expect("tools/call").answer(&wants(&requests, None));
    // Concurrently or one after the other, in any order.
    for _ in 0..3 {
        let line = client
            .find("a question", &mut |line| raw::at(line, &["id"]).is_some() && raw::at(line, &["method"]).is_some());
        let question: Value = serde_json::from_slice(&line).expect("JSON");
        let reply = match question["method"].as_str() {
            Some("roots/list") => json!({"roots": []}),
            Some("elicitation/create") => json!({"action": "decline"}),
            _ => json!({"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}),
        };
        client.reply(&question, reply);
    }
    let retry = puppet.expect("tools/call");
    assert_eq!(retry.param(&["requestState"]), None);
    let given = responses(&retry);
    assert_eq!(given["e"]["action"], "decline");
    assert_eq!(given["s"]["model"], "m");
    assert_eq!(given["r"], json!({"roots": []}));
    retry.answer(r#"{"resultType":"complete","content":[]}"#);
    assert!(client.answer_to(id)["result"].is_object());
}

#[test]
fn prompts_and_resources_may_require_input_too() {
    let puppet = Puppet::new(Spec::modern().prompt("p").resource("r://1"));
    let mut client = connected(&[("s", &puppet)]);
    for (method, params) in [("prompts/get", json!({"name": "s.p"})), ("resources/read", json!({"uri": "r://1"}))] {
        let id = client.begin(method, params);
        puppet.expect(method).answer(&wants(&format!(r#"{{"e":{FORM}}}"#), Some("\"s\"")));
        let question = client.question("elicitation/create");
        client.reply(&question, json!({"action": "cancel"}));
        let retry = puppet.expect(method);
        assert_eq!(responses(&retry)["e"]["action"], "cancel");
        retry.answer(r#"{"resultType":"complete","messages":[],"contents":[],"ttlMs":0,"cacheScope":"private"}"#);
        assert!(client.answer_to(id)["result"].is_object(), "{method}");
    }
}

#[test]
fn a_state_alone_is_given_back_without_asking_anybody() {
    let puppet = Puppet::new(Spec::modern().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    let id = client.begin_call("s.t", json!({}));
    puppet.expect("tools/call").answer(r#"{"resultType":"input_required","requestState":"later"}"#);
    let retry = puppet.expect("tools/call");
    assert_eq!(retry.param(&["requestState"]), Some("\"later\""));
    retry.answer(r#"{"resultType":"complete","content":[]}"#);
    assert!(client.answer_to(id)["result"].is_object());
}

#[test]
fn a_server_that_never_has_enough_is_stopped_after_ten_rounds() {
    let puppet = Puppet::new(Spec::modern().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    let id = client.begin_call("s.t", json!({}));
    let mut rounds = 0;
    let answer = loop {
        let call = puppet.expect("tools/call");
        call.answer(&wants(&format!(r#"{{"e":{FORM}}}"#), None));
        let line = client.find("a question, or the end", &mut |line| raw::at(line, &["id"]).is_some());
        let message: Value = serde_json::from_slice(&line).expect("JSON");
        if message.get("method").is_none() {
            break message;
        }
        rounds += 1;
        assert!(rounds <= 10, "round {rounds} was asked");
        client.reply(&message, json!({"action": "accept", "content": {}}));
    };
    assert_eq!(rounds, 10);
    assert_eq!(answer["id"], id);
    let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("expected an error, got {answer}"));
    assert!(message.contains("`s`"), "{message}");
}

#[test]
fn unsupported_server_requests_are_not_sent_and_the_call_fails() {
    let puppet = Puppet::new(Spec::modern().tool("t"));
    let mut client = connected_with(&[("s", &puppet)], &json!({"roots": {}}));
    for want in [FORM, SAMPLING, r#"{"method":"custom/thing","params":{}}"#] {
        let id = client.begin_call("s.t", json!({}));
        puppet.expect("tools/call").answer(&wants(&format!(r#"{{"e":{want}}}"#), None));
        let line = client.find("an answer or a question", &mut |line| raw::at(line, &["id"]).is_some());
        let message: Value = serde_json::from_slice(&line).expect("JSON");
        assert_eq!(message["id"], id, "{message}");
        assert!(message["error"].is_object(), "{message}");
    }
}

#[test]
fn a_client_that_refuses_to_answer_has_its_call_failed() {
    let puppet = Puppet::new(Spec::modern().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    let id = client.begin_call("s.t", json!({}));
    puppet.expect("tools/call").answer(&wants(&format!(r#"{{"s":{SAMPLING}}}"#), None));
    let question = client.question("sampling/createMessage");
    client.refuse(&question, -1, "User rejected");
    assert!(client.answer_to(id)["error"].is_object());
    assert_eq!(puppet.count("tools/call"), 1);
}

#[test]
fn a_call_cancelled_during_a_server_request_ends() {
    let puppet = Puppet::new(Spec::modern().tool("t").echoes());
    puppet.change(|spec| spec.leaves("tools/call"));
    let mut client = connected(&[("s", &puppet)]);
    let id = client.begin_call("s.t", json!({}));
    puppet.expect("tools/call").answer(&wants(&format!(r#"{{"e":{FORM}}}"#), None));
    let question = client.question("elicitation/create");
    client.cancel(id);
    assert_eq!(client.notice("notifications/cancelled")["params"]["requestId"], question["id"]);
    // The messages crossed.
    client.reply(&question, json!({"action": "accept", "content": {}}));
    puppet.change(|spec| spec.leaves_no_more("tools/call"));
    let after = client.ask("tools/call", json!({"name": "s.t", "arguments": {"text": "next"}}));
    assert_eq!(after["result"]["content"][0]["text"], "next");
    // The cancelled one, and the one after it.
    assert_eq!(puppet.count("tools/call"), 2);
}

#[test]
fn over_http_a_question_is_taken_back_before_the_stream_of_its_call_ends() {
    let puppet = Puppet::new(Spec::modern().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.interactive_session("/mcp");
    let id = client.begin_call("s.t", json!({}));
    puppet.expect("tools/call").answer(&wants(&format!(r#"{{"e":{FORM}}}"#), None));
    let question = client.question("elicitation/create");
    client.cancel(id);
    assert_eq!(client.notice("notifications/cancelled")["params"]["requestId"], question["id"]);
}

#[test]
fn a_question_is_withdrawn_when_its_call_times_out() {
    let puppet = Puppet::new(Spec::modern().tool("t"));
    let config = Config::new().server("s", puppet.entry().field("timeout", 8000));
    let mut client = Launch::service(&config).start();
    introduce(&mut client, &all_capabilities());
    let id = client.begin_call("s.t", json!({}));
    puppet.expect("tools/call").answer(&wants(&format!(r#"{{"e":{FORM}}}"#), None));
    let question = client.question("elicitation/create");
    assert_eq!(client.notice("notifications/cancelled")["params"]["requestId"], question["id"]);
    let answer = client.answer_to(id);
    assert_eq!(answer["error"]["data"]["reason"], "server_too_slow", "{answer}");
}

#[test]
fn one_that_is_declined_takes_the_other_questions_with_it() {
    let puppet = Puppet::new(Spec::modern().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    let id = client.begin_call("s.t", json!({}));
    puppet.expect("tools/call").answer(&wants(&format!(r#"{{"a":{SAMPLING},"e":{FORM}}}"#), None));
    let (sampling, form) = (client.question("sampling/createMessage"), client.question("elicitation/create"));
    client.refuse(&sampling, -1, "User rejected");
    assert_eq!(client.notice("notifications/cancelled")["params"]["requestId"], form["id"]);
    assert!(client.answer_to(id)["error"].is_object());
}

#[test]
fn invalid_input_requests_fail_the_call() {
    let puppet = Puppet::new(Spec::modern().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    for nonsense in [
        r#"{"resultType":"input_required"}"#,
        r#"{"resultType":"input_required","inputRequests":[]}"#,
        r#"{"resultType":"input_required","inputRequests":{"a":1}}"#,
        r#"{"resultType":"input_required","inputRequests":{"a":{}}}"#,
        r#"{"resultType":"later"}"#,
    ] {
        let id = client.begin_call("s.t", json!({}));
        puppet.expect("tools/call").answer(nonsense);
        assert!(client.answer_to(id)["error"].is_object(), "{nonsense}");
    }
}

#[test]
fn url_elicitation_has_the_id_that_legacy_clients_need() {
    let puppet = Puppet::new(Spec::modern().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    let id = client.begin_call("s.t", json!({}));
    let url =
        r#"{"method":"elicitation/create","params":{"mode":"url","url":"https://x.example/","message":"Sign in"}}"#;
    puppet.expect("tools/call").answer(&wants(&format!(r#"{{"u":{url}}}"#), None));
    let question = client.question("elicitation/create");
    assert_eq!(question["params"]["message"], "[s] Sign in");
    assert_eq!(question["params"]["url"], "https://x.example/");
    assert!(question["params"]["elicitationId"].is_string(), "{question}");
    client.reply(&question, json!({"action": "accept"}));
    let retry = puppet.expect("tools/call");
    assert_eq!(responses(&retry)["u"], json!({"action": "accept"}));
    retry.answer(r#"{"resultType":"complete","content":[]}"#);
    client.answer_to(id);
}

#[test]
fn over_http_server_requests_arrive_on_the_stream_of_their_call() {
    let puppet = Puppet::new(Spec::modern().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let [mut one, mut two] = [(); 2].map(|()| serve.interactive_session("/mcp"));
    // Both at once: input requests are part of results, so their owners are known.
    let ids = [one.begin_call("s.t", json!({"who": "one"})), two.begin_call("s.t", json!({"who": "two"}))];
    for _ in 0..2 {
        let call = puppet.expect("tools/call");
        let who = call.param(&["arguments", "who"]).expect("the call says whose it is").to_owned();
        call.answer(&wants(&format!(r#"{{"e":{FORM}}}"#), Some(&who)));
    }
    for (client, who) in [(&mut one, "one"), (&mut two, "two")] {
        let question = client.question("elicitation/create");
        client.reply(&question, json!({"action": "accept", "content": {"who": who}}));
    }
    for _ in 0..2 {
        let retry = puppet.expect("tools/call");
        let who = retry.text_param(&["requestState"]).expect("a state");
        assert_eq!(retry.text_param(&["arguments", "who"]).as_deref(), Some(who.as_str()));
        assert_eq!(responses(&retry)["e"]["content"]["who"], who.as_str());
        retry.answer(&format!(r#"{{"resultType":"complete","content":[{{"type":"text","text":"{who}"}}]}}"#));
    }
    for ((client, id), who) in [&mut one, &mut two].into_iter().zip(ids).zip(["one", "two"]) {
        assert_eq!(client.answer_to(id)["result"]["content"][0]["text"], who);
    }
}
