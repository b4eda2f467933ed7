//! Server requests of a legacy server during a call, sent to a modern client; the call is parked.

use serde_json::{Value, json};
use testkit::puppet::Received;
use testkit::{ClientSession, ModernHttp, Puppet, Serve, Spec, raw};

use super::modern_over_stdio;
use crate::relay::{at, config, serving};

const ELICITATION: &str = r#"{"mode":"form", "message":"Who \u0041re you?","requestedSchema":{"type":"object","properties":{"n":{"default":1.0}}}}"#;
const SAMPLING: &str = r#"{"messages":[],"maxTokens":1e2, "x":1.0}"#;

/// An input request, as the client sees it.
struct Offer {
    key: String,
    method: String,
    params: Value,
    state: String,
}

/// Parses an `input_required` result with exactly one input request.
#[track_caller]
fn offer(answer: &Value) -> Offer {
    let result = &answer["result"];
    assert_eq!(result["resultType"], "input_required", "{answer}");
    let requests = result["inputRequests"].as_object().unwrap_or_else(|| panic!("no inputRequests in {answer}"));
    assert_eq!(requests.len(), 1, "{answer}");
    let (key, request) = requests.iter().next().expect("there is one");
    Offer {
        key: key.clone(),
        method: request["method"].as_str().expect("a method").to_owned(),
        params: request["params"].clone(),
        state: result["requestState"].as_str().expect("a state").to_owned(),
    }
}

/// The params of the original request, with the client's response.
fn with_response(params: &Value, offer: &Offer, response: &Value) -> Value {
    let mut params = params.clone();
    params["inputResponses"] = json!({&offer.key: response});
    params["requestState"] = json!(offer.state);
    params
}

fn original() -> Value {
    json!({"name": "s.t", "arguments": {"a": 1}})
}

/// A call during which the server sends an elicitation: the server's side, and what the client gets.
#[track_caller]
fn parked(client: &mut dyn ClientSession, puppet: &Puppet) -> (Received, Offer) {
    let id = client.begin("tools/call", original());
    let call = puppet.expect("tools/call");
    call.ask("\"q\"", "elicitation/create", ELICITATION);
    let answer = client.answer_to(id);
    (call, offer(&answer))
}

/// Sends a retry that must be refused: no response reaches the server, which still waits.
#[track_caller]
fn assert_refused(client: &mut dyn ClientSession, puppet: &Puppet, params: Value) {
    let answer = client.ask("tools/call", params);
    assert!(answer["error"]["code"].is_i64(), "{answer}");
    let is_answer = |line: &Vec<u8>| raw::at(line, &["id"]) == Some("\"q\"") && raw::at(line, &["result"]).is_some();
    assert!(!puppet.journal().iter().any(is_answer), "the server was answered");
}

#[test]
fn a_parked_call_continues_with_the_clients_answer() {
    for over_http in [false, true] {
        let spec = Spec::legacy().tool("t");
        let puppet = if over_http { Puppet::over_http(spec) } else { Puppet::new(spec) };
        let serve = serving(&[("s", &puppet)]);
        let mut remote = serve.modern("/mcp").interactive();
        let mut local = modern_over_stdio(&[("s", &puppet)]);
        for client in [&mut remote as &mut dyn ClientSession, &mut local] {
            let (call, offer) = parked(client, &puppet);
            assert_eq!(offer.method, "elicitation/create");
            assert_eq!(offer.params["message"], "[s] Who Are you?");
            assert_eq!(offer.params["requestedSchema"]["properties"]["n"]["default"], json!(1.0));
            let calls = puppet.count("tools/call");
            let response = json!({"action": "accept", "content": {"n": 2.5}});
            let id = client.begin("tools/call", with_response(&original(), &offer, &response));
            assert_eq!(puppet.response("q")["result"], response);
            call.answer(r#"{"content":[{"type":"text","text":"\u0041"}],"x":1.0}"#);
            let line = client.line_to(&id.to_string());
            assert_eq!(at(&line, &["result", "content"]), r#"[{"type":"text","text":"\u0041"}]"#);
            assert_eq!(at(&line, &["result", "resultType"]), "\"complete\"");
            // It is the same call that continued.
            assert_eq!(puppet.count("tools/call"), calls);
        }
    }
}

#[test]
fn consecutive_questions_each_have_their_own_request_state() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp").interactive();
    let (call, first) = parked(&mut client, &puppet);
    let id = client.begin("tools/call", with_response(&original(), &first, &json!({"action": "decline"})));
    assert_eq!(puppet.response("q")["result"]["action"], "decline");
    call.ask("2", "sampling/createMessage", SAMPLING);
    let second = offer(&client.answer_to(id));
    assert_eq!(second.method, "sampling/createMessage");
    assert_eq!(second.params["maxTokens"], json!(1e2));
    assert_ne!(second.state, first.state);
    let response = json!({"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"});
    let id = client.begin("tools/call", with_response(&original(), &second, &response));
    assert_eq!(puppet.response(2)["result"]["model"], "m");
    call.answer(r#"{"content":[]}"#);
    assert_eq!(client.answer_to(id)["result"]["resultType"], "complete");
}

#[test]
fn a_second_question_while_the_first_is_offered_is_not_lost() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp").interactive();
    let (call, first) = parked(&mut client, &puppet);
    call.ask("2", "sampling/createMessage", SAMPLING);
    let id = client.begin("tools/call", with_response(&original(), &first, &json!({"action": "cancel"})));
    assert_eq!(puppet.response("q")["result"]["action"], "cancel");
    let second = offer(&client.answer_to(id));
    assert_eq!(second.method, "sampling/createMessage");
    let response = json!({"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"});
    let id = client.begin("tools/call", with_response(&original(), &second, &response));
    assert_eq!(puppet.response(2)["result"]["model"], "m");
    call.answer(r#"{"content":[]}"#);
    assert_eq!(client.answer_to(id)["result"]["resultType"], "complete");
}

#[test]
fn a_state_that_was_tampered_with_or_belongs_to_other_params_is_refused() {
    let puppet = Puppet::new(Spec::legacy().tool("t").tool("u"));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp").interactive();
    let (call, offer) = parked(&mut client, &puppet);
    let accept = json!({"action": "accept", "content": {}});
    let good = with_response(&original(), &offer, &accept);

    // Every single character matters.
    for position in [0, offer.state.len() / 2, offer.state.len() - 1] {
        let mut forged = offer.state.clone().into_bytes();
        forged[position] = if forged[position] == b'A' { b'B' } else { b'A' };
        let mut params = good.clone();
        params["requestState"] = json!(String::from_utf8(forged).expect("a state is ASCII"));
        assert_refused(&mut client, &puppet, params);
    }
    for state in ["", "x", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
        let mut params = good.clone();
        params["requestState"] = json!(state);
        assert_refused(&mut client, &puppet, params);
    }
    let mut other_arguments = good.clone();
    other_arguments["arguments"] = json!({"a": 2});
    assert_refused(&mut client, &puppet, other_arguments);
    let mut other_tool = good.clone();
    other_tool["name"] = json!("s.u");
    assert_refused(&mut client, &puppet, other_tool);

    // The valid response still counts.
    let id = client.begin("tools/call", good.clone());
    assert_eq!(puppet.response("q")["result"], accept);
    call.answer(r#"{"content":[]}"#);
    assert_eq!(client.answer_to(id)["result"]["resultType"], "complete");
    // And only once.
    assert!(client.ask("tools/call", good)["error"].is_object());
    assert_eq!(puppet.count("tools/call"), 1);
}

#[test]
fn a_state_of_one_servers_call_is_refused_for_a_tool_of_the_same_name_at_another() {
    let (puppet, other) = (Puppet::new(Spec::legacy().tool("t")), Puppet::new(Spec::legacy().tool("t")));
    let serve = serving(&[("s", &puppet), ("other", &other)]);
    let mut client = serve.modern("/mcp").interactive();
    let (call, offer) = parked(&mut client, &puppet);
    let accept = json!({"action": "accept", "content": {}});
    let good = with_response(&original(), &offer, &accept);
    let mut elsewhere = good.clone();
    elsewhere["name"] = json!("other.t");
    assert_refused(&mut client, &puppet, elsewhere);
    assert_eq!(other.count("tools/call"), 0);
    let id = client.begin("tools/call", good);
    assert_eq!(puppet.response("q")["result"], accept);
    call.answer(r#"{"content":[]}"#);
    assert_eq!(client.answer_to(id)["result"]["resultType"], "complete");
}

#[test]
fn a_state_is_good_for_the_principal_it_was_given_to_only() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let tokens = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    std::fs::write(tokens.path(), "ann:secret-of-ann\nben:secret-of-ben\n").expect("it can be written");
    let serve = Serve::start_as(&config(&[("s", &puppet)]), |launch| launch.arg("--token-file").arg(tokens.path()));
    let mut ann = ModernHttp::new(serve.address(), "/mcp").interactive().with_token("secret-of-ann");
    let mut ben = ModernHttp::new(serve.address(), "/mcp").interactive().with_token("secret-of-ben");
    ann.ids("tools/list");
    let (call, offer) = parked(&mut ann, &puppet);
    let accept = json!({"action": "accept", "content": {}});
    assert_refused(&mut ben, &puppet, with_response(&original(), &offer, &accept));
    let id = ann.begin("tools/call", with_response(&original(), &offer, &accept));
    assert_eq!(puppet.response("q")["result"], accept);
    call.answer(r#"{"content":[]}"#);
    ann.answer_to(id);
}

#[test]
fn undeclared_server_requests_are_refused_and_the_call_continues() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp");
    let id = client.begin("tools/call", original());
    let call = puppet.expect("tools/call");
    call.ask("\"q\"", "elicitation/create", ELICITATION);
    assert!(puppet.response("q")["error"].is_object());
    call.answer(r#"{"content":[]}"#);
    assert_eq!(client.answer_to(id)["result"]["resultType"], "complete");
}

#[test]
fn a_client_that_gives_up_the_retry_cancels_the_call() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp").interactive();
    let (call, offer) = parked(&mut client, &puppet);
    let id = client.begin("tools/call", with_response(&original(), &offer, &json!({"action": "decline"})));
    puppet.response("q");
    client.abandon(id);
    assert_eq!(puppet.expect("notifications/cancelled").param(&["requestId"]), call.id());
}

#[test]
fn a_result_of_a_parked_call_arrives_on_the_retry() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp").interactive();
    let (call, offer) = parked(&mut client, &puppet);
    call.answer(r#"{"content":[{"type":"text","text":"never mind"}]}"#);
    let retry = client.ask("tools/call", with_response(&original(), &offer, &json!({"action": "decline"})));
    assert_eq!(retry["result"]["content"][0]["text"], "never mind", "{retry}");
    assert_eq!(puppet.count("tools/call"), 1);
}

#[test]
fn a_server_that_dies_while_a_call_is_parked_fails_the_retry() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp").interactive();
    let (_, offer) = parked(&mut client, &puppet);
    puppet.die();
    let retry = client.ask("tools/call", with_response(&original(), &offer, &json!({"action": "decline"})));
    assert!(retry["error"].is_object(), "{retry}");
}

#[test]
fn two_clients_each_get_the_server_requests_of_their_own_call() {
    let puppet = Puppet::over_http(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let [mut one, mut two] = [(); 2].map(|()| serve.modern("/mcp").interactive());
    let params = |who: &str| json!({"name": "s.t", "arguments": {"who": who}});
    let ids = [one.begin("tools/call", params("one")), two.begin("tools/call", params("two"))];
    let calls = [(); 2].map(|()| puppet.expect("tools/call"));
    for call in &calls {
        let who = call.text_param(&["arguments", "who"]).expect("the call says whose it is");
        let question =
            format!(r#"{{"message":"are you {who}?","requestedSchema":{{"type":"object","properties":{{}}}}}}"#);
        call.ask(&raw::quote(&who), "elicitation/create", &question);
    }
    for ((client, id), who) in [&mut one, &mut two].into_iter().zip(ids).zip(["one", "two"]) {
        let offer = offer(&client.answer_to(id));
        assert_eq!(offer.params["message"], format!("[s] are you {who}?"));
        client.begin(
            "tools/call",
            with_response(&params(who), &offer, &json!({"action": "accept", "content": {"who": who}})),
        );
        assert_eq!(puppet.response(who)["result"]["content"]["who"], who);
    }
}

#[test]
fn an_error_that_demands_a_visit_becomes_an_offer_to_visit() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp").interactive();
    let id = client.begin("tools/call", original());
    puppet.expect("tools/call").fail(
        r#"{"code":-32042,"message":"sign in first","data":{"elicitations":[{"mode":"url","elicitationId":"e-1","url":"https://x.example/?a=1","message":"Sign in"}]}}"#,
    );
    let offer = offer(&client.answer_to(id));
    assert_eq!(offer.method, "elicitation/create");
    assert_eq!(offer.params["mode"], "url");
    assert_eq!(offer.params["url"], "https://x.example/?a=1");
    assert_eq!(offer.params["message"], "[s] Sign in");
    assert_eq!(offer.params.get("elicitationId"), None);
    // The call had ended; after the visit, it is made again.
    let id = client.begin("tools/call", with_response(&original(), &offer, &json!({"action": "accept"})));
    let again = puppet.expect("tools/call");
    assert_eq!(again.param(&["arguments"]), Some(r#"{"a":1}"#));
    assert_eq!((again.param(&["inputResponses"]), again.param(&["requestState"])), (None, None));
    again.answer(r#"{"content":[]}"#);
    assert_eq!(client.answer_to(id)["result"]["resultType"], "complete");
}

#[test]
fn under_the_path_of_one_server_the_offer_is_not_labelled() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp/s").interactive();
    let id = client.begin("tools/call", json!({"name": "t"}));
    puppet.expect("tools/call").ask("1", "elicitation/create", ELICITATION);
    let answer = client.line_to(&id.to_string());
    let requests = raw::members(at(&answer, &["result", "inputRequests"]).as_bytes()).expect("an object");
    let request = requests.values().next().expect("one request");
    assert_eq!(at(request.as_bytes(), &["params"]), ELICITATION);
}

#[test]
fn an_abandoned_parked_call_is_cancelled_and_its_request_state_expires() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = Serve::start_as(&config(&[("s", &puppet)]), |launch| launch.env("MCP_AGGREGATOR_ANSWER_TIMEOUT", "1"));
    let mut client = serve.modern("/mcp").interactive();
    client.ids("tools/list");
    let (call, offer) = parked(&mut client, &puppet);
    assert_eq!(puppet.expect("notifications/cancelled").param(&["requestId"]), call.id());
    let question = puppet.response("q");
    assert!(question["error"].is_object(), "{question}");
    let late = with_response(&original(), &offer, &json!({"action": "accept", "content": {}}));
    assert_refused(&mut client, &puppet, late);
    assert_eq!(puppet.count("tools/call"), 1);
}

#[test]
fn an_abandoned_parked_call_soon_yields_its_turn_to_waiting_calls() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = Serve::start_as(&config(&[("s", &puppet)]), |launch| launch.env("MCP_AGGREGATOR_ANSWER_TIMEOUT", "40"));
    let mut client = serve.modern("/mcp").interactive();
    client.ids("tools/list");
    let (call, offer) = parked(&mut client, &puppet);
    // Of another client, and of the same one: each call of a modern client is self-contained.
    let mut other = serve.session("/mcp");
    let waiting = [other.begin("tools/call", original()), client.begin("tools/call", original())];
    assert_eq!(puppet.expect("notifications/cancelled").param(&["requestId"]), call.id());
    assert!(puppet.response("q")["error"].is_object());
    puppet.expect("tools/call").answer(r#"{"content":[]}"#);
    puppet.expect("tools/call").answer(r#"{"content":[]}"#);
    assert!(other.answer_to(waiting[0])["result"].is_object());
    assert!(client.answer_to(waiting[1])["result"].is_object());
    let late = with_response(&original(), &offer, &json!({"action": "accept", "content": {}}));
    let answer = client.ask("tools/call", late);
    assert_eq!(answer["error"]["data"]["reason"], "client_gone", "{answer}");
}
