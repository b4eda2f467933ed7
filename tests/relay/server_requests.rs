//! Server requests: roots, sampling and elicitation, and which client gets them.

use serde_json::{Value, json};
use testkit::{ClientSession, Launch, Puppet, Spec, raw};

use super::{at, config, connected, connected_with, count_of, introduce, serving};

const ELICITATION: &str = r#"{"mode":"form", "message":"Who \u0041re you?","requestedSchema":{"type":"object","properties":{"n":{"type":"number","default":1.0}}},"_meta":{"k":1e2}}"#;
const SAMPLING: &str =
    r#"{"messages":[{"role":"user","content":{"type":"text","text":"\u0041"}}], "maxTokens":1e2,"_meta":{"n":1.0}}"#;

/// The members of an object except one, each as it was written.
fn without(object: &str, member: &str) -> Vec<(String, String)> {
    let members = raw::members(object.as_bytes()).expect("it is an object");
    let members = members.into_iter().filter(|(key, _)| key != member);
    members.map(|(key, value)| (key, value.to_owned())).collect()
}

/// A running call, the server request during it, and the response: returns what the server receives.
#[track_caller]
fn asked(
    client: &mut dyn ClientSession,
    puppet: &Puppet,
    tool: &str,
    method: &str,
    params: &str,
    reply: &str,
) -> Vec<u8> {
    let id = client.begin_call(tool, json!({}));
    let call = puppet.expect("tools/call");
    call.ask("\"q-1\"", method, params);
    let question = client.question_line(method);
    client.send_line(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{reply}}}"#, at(&question, &["id"])));
    let answer = puppet
        .expect_where("the answer to `q-1`", |message| message.method().is_none() && message.id() == Some("\"q-1\""));
    assert_eq!(raw::at(answer.line(), &["result"]), Some(reply));
    call.answer("{}");
    client.answer_to(id);
    question
}

#[test]
fn elicitation_is_labelled_with_its_server_and_otherwise_unchanged() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    let reply = r#"{"action":"accept", "content":{"n":1.0,"s":"\u0041"},"x":[]}"#;
    let question = asked(&mut client, &puppet, "s.t", "elicitation/create", ELICITATION, reply);
    let params = at(&question, &["params"]);
    assert_eq!(raw::text(at(params.as_bytes(), &["message"])).as_deref(), Some("[s] Who Are you?"));
    assert_eq!(without(params, "message"), without(ELICITATION, "message"));
}

#[test]
fn under_the_path_of_one_server_elicitation_is_exact() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.interactive_session("/mcp/s");
    let reply = r#"{"action":"decline"}"#;
    let question = asked(&mut client, &puppet, "t", "elicitation/create", ELICITATION, reply);
    assert_eq!(at(&question, &["params"]), ELICITATION);
    let mut client = serve.interactive_session("/mcp");
    let question = asked(&mut client, &puppet, "s.t", "elicitation/create", ELICITATION, reply);
    assert!(at(&question, &["params", "message"]).starts_with("\"[s] "));
}

#[test]
fn elicitation_by_url_is_labelled_too_and_its_completion_is_reported() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    let params = r#"{"mode":"url","elicitationId":"e-1","url":"https://x.example/?a=1","message":"Sign in"}"#;
    let question = asked(&mut client, &puppet, "s.t", "elicitation/create", params, r#"{"action":"accept"}"#);
    assert_eq!(at(&question, &["params", "message"]), "\"[s] Sign in\"");
    assert_eq!(without(at(&question, &["params"]), "message"), without(params, "message"));
    puppet.notify("notifications/elicitation/complete", &json!({"elicitationId": "e-1"}));
    assert_eq!(client.notice("notifications/elicitation/complete")["params"]["elicitationId"], "e-1");
}

#[test]
fn a_url_in_an_error_is_labelled_and_its_completion_goes_to_that_client() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let [mut one, mut other] = [(); 2].map(|()| serve.interactive_session("/mcp"));
    let mut alone = serve.interactive_session("/mcp/s");
    let error = |id: &str| {
        let visit = format!(r#"{{"mode":"url","elicitationId":"{id}","url":"https://x","message":"Sign \u0069n"}}"#);
        format!(r#"{{"code":-32042,"message":"first","data":{{"elicitations":[{visit}],"n":1.0}}}}"#)
    };
    for client in [&mut one, &mut other, &mut alone] {
        client.listen();
    }
    for (client, tool, id) in [(&mut one, "s.t", "e-1"), (&mut alone, "t", "e-2")] {
        let call = client.begin_call(tool, json!({}));
        puppet.expect("tools/call").fail(&error(id));
        let line = client.line_to(&call.to_string());
        let expected = if tool == "t" { error(id) } else { error(id).replace("Sign", "[s] Sign") };
        assert_eq!(at(&line, &["error"]), expected);
        puppet.notify("notifications/elicitation/complete", &json!({"elicitationId": id}));
        assert_eq!(client.notice("notifications/elicitation/complete")["params"]["elicitationId"], id);
    }
    // No other client received it before this.
    puppet.change(|spec| spec.tool("fence"));
    puppet.notify("notifications/tools/list_changed", &json!({}));
    other.notice("notifications/tools/list_changed");
    assert_eq!(count_of(&other.take_all(), "notifications/elicitation/complete"), 0);
}

#[test]
fn sampling_is_passed_on_and_answered_byte_for_byte() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    let reply = r#"{"role":"assistant","content":{"type":"text","text":"\ud800"},"model":"m", "n":1e400}"#;
    let question = asked(&mut client, &puppet, "s.t", "sampling/createMessage", SAMPLING, reply);
    assert_eq!(at(&question, &["params"]), SAMPLING);
}

#[test]
fn roots_are_those_of_the_client() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    puppet.ask(1, "roots/list", &json!({}));
    let question = client.question("roots/list");
    client.reply(&question, json!({"roots": [{"uri": "file:///home", "name": "home"}]}));
    assert_eq!(puppet.response(1)["result"]["roots"][0]["uri"], "file:///home");

    client.tell("notifications/roots/list_changed", json!({}));
    puppet.expect("notifications/roots/list_changed");
}

#[test]
fn roots_requested_before_a_client_connects_are_answered_when_one_does() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut client = Launch::service(&config(&[("s", &puppet)])).start();
    puppet.expect("notifications/initialized");
    puppet.ask("early", "roots/list", &json!({}));
    introduce(&mut client, &json!({"roots": {}}));
    client.ids("tools/list");
    // Sent to the client, or refused, but never left pending and never answered with an empty result.
    let answer = loop {
        let lines = client.take_all();
        let question = lines.iter().find(|line| raw::at(line, &["method"]) == Some("\"roots/list\""));
        if let Some(line) = question {
            let question: Value = serde_json::from_slice(line).expect("it is JSON");
            client.reply(&question, json!({"roots": [{"uri": "file:///home"}]}));
            break puppet.response("early");
        }
        if puppet.journal().iter().any(|line| raw::at(line, &["id"]) == Some("\"early\"")) {
            break puppet.response("early");
        }
        std::thread::yield_now();
    };
    assert!(answer["error"].is_object() || answer["result"]["roots"][0]["uri"] == "file:///home", "{answer}");
}

#[test]
fn undeclared_server_requests_are_refused_and_never_sent() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut client = connected_with(&[("s", &puppet)], &json!({"elicitation": {}}));
    let id = client.begin_call("s.t", json!({}));
    let call = puppet.expect("tools/call");
    call.ask("1", "sampling/createMessage", SAMPLING);
    assert!(puppet.response(1)["error"]["code"].is_i64());
    call.ask("2", "roots/list", "{}");
    assert!(puppet.response(2)["error"]["code"].is_i64());
    // `elicitation: {}` is forms only.
    call.ask("3", "elicitation/create", r#"{"mode":"url","elicitationId":"e","url":"https://x","message":"m"}"#);
    assert!(puppet.response(3)["error"]["code"].is_i64());
    call.ask("4", "elicitation/create", ELICITATION);
    let question = client.question("elicitation/create");
    client.reply(&question, json!({"action": "cancel"}));
    assert_eq!(puppet.response(4)["result"]["action"], "cancel");
    call.answer("{}");
    client.answer_to(id);
    let asked: Vec<_> = client.take_all().into_iter().filter(|line| raw::at(line, &["method"]).is_some()).collect();
    assert!(asked.is_empty(), "{asked:?}");
}

#[test]
fn a_clients_refusal_reaches_the_server_whole() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    client.begin_call("s.t", json!({}));
    let call = puppet.expect("tools/call");
    call.ask("1", "sampling/createMessage", SAMPLING);
    let question = client.question_line("sampling/createMessage");
    let error = r#"{"code":-1, "message":"User rejected \u0041","data":{"n":1.0}}"#;
    client.send_line(&format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, at(&question, &["id"])));
    let answer = puppet.expect_where("the refusal", |message| message.method().is_none() && message.id() == Some("1"));
    assert_eq!(raw::at(answer.line(), &["error"]), Some(error));
}

#[test]
fn questions_of_two_servers_with_the_same_id_are_distinguished() {
    let (first, second) = (Puppet::new(Spec::legacy().tool("t")), Puppet::new(Spec::legacy().tool("t")));
    let mut client = connected(&[("first", &first), ("second", &second)]);
    for (puppet, tool) in [(&first, "first.t"), (&second, "second.t")] {
        client.begin_call(tool, json!({}));
        puppet.expect("tools/call").ask("1", "elicitation/create", ELICITATION);
    }
    let questions = [client.question("elicitation/create"), client.question("elicitation/create")];
    assert_ne!(questions[0]["id"], questions[1]["id"]);
    for question in &questions {
        let message = question["params"]["message"].as_str().expect("there is a message");
        let who = message.split(']').next().unwrap_or_default().trim_start_matches('[').to_owned();
        client.reply(question, json!({"action": "accept", "content": {"who": who}}));
    }
    assert_eq!(first.response(1)["result"]["content"]["who"], "first");
    assert_eq!(second.response(1)["result"]["content"]["who"], "second");
}

#[test]
fn over_http_a_server_request_arrives_on_the_stream_of_its_call_and_is_answered_by_a_post() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut session = serve.interactive_session("/mcp");
    let mut connection = serve.connect();
    connection.send(
        &session.post(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"s.t","arguments":{}}}"#),
    );
    let call = puppet.expect("tools/call");
    call.ask("1", "elicitation/create", ELICITATION);
    let mut answer = connection.answer();
    let question = answer.message(Some("elicitation/create"));
    session.reply(&question, json!({"action": "accept", "content": {}}));
    assert_eq!(puppet.response(1)["result"]["action"], "accept");
    call.answer("{}");
    assert_eq!(answer.message(None)["id"], 5);
}

#[test]
fn a_client_of_2024_supports_sampling() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let hello = testkit::http_session::Hello {
        revision: "2024-11-05".to_owned(),
        capabilities: json!({"sampling": {}, "roots": {}}),
        token: None,
        name: testkit::client::CLIENT_NAME.to_owned(),
    };
    let mut client = testkit::SseClient::introduce(serve.address(), "/sse", &hello);
    let reply = r#"{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}"#;
    let question = asked(&mut client, &puppet, "s.t", "sampling/createMessage", SAMPLING, reply);
    assert_eq!(at(&question, &["params"]), SAMPLING);
}

#[test]
fn a_label_is_text_whatever_the_name_of_the_server() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let name = "we\"ird\\\u{e9}\u{1}";
    let mut client = connected(&[(name, &puppet)]);
    let question =
        asked(&mut client, &puppet, &format!("{name}.t"), "elicitation/create", ELICITATION, r#"{"action":"decline"}"#);
    let message = raw::text(at(&question, &["params", "message"]));
    assert_eq!(message, Some(format!("[{name}] Who Are you?")));
}
