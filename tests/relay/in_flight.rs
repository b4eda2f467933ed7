//! Pending requests: progress, cancellation and pings, in both directions.

use serde_json::json;
use testkit::{ClientSession, Puppet, Spec, raw};

use super::{at, connected, count_of, serving};

const PROGRESS: &str = "notifications/progress";
const CANCELLED: &str = "notifications/cancelled";

#[test]
fn progress_has_the_clients_token_and_is_otherwise_unchanged() {
    let puppet = Puppet::new(Spec::legacy().tool("t").prompt("p").resource("r://1"));
    let mut client = connected(&[("s", &puppet)]);
    for token in [r#""\u0041""#, "7", "1e2", "-0", r#""7""#] {
        for (method, target) in [
            ("tools/call", r#""name":"s.t""#),
            ("prompts/get", r#""name":"s.p""#),
            ("resources/read", r#""uri":"r://1""#),
        ] {
            client.send_line(&format!(
                r#"{{"jsonrpc":"2.0","id":"i","method":"{method}","params":{{{target},"_meta":{{"progressToken":{token},"k":1.0}}}}}}"#
            ));
            let request = puppet.expect(method);
            assert_eq!(request.param(&["_meta", "k"]), Some("1.0"));
            request.progress(r#""progress":0.10, "total":1e1,"message":"\u0041","x":[1.0]"#);
            request.progress(r#""progress":2"#);
            let line = client.notice_line(PROGRESS);
            let expected =
                format!(r#"{{"progressToken":{token},"progress":0.10, "total":1e1,"message":"\u0041","x":[1.0]}}"#);
            assert_eq!(at(&line, &["params"]), expected, "{method}");
            assert_eq!(at(&client.notice_line(PROGRESS), &["params", "progress"]), "2");
            request.answer("{}");
            client.line_to("\"i\"");
        }
    }
}

#[test]
fn progress_of_what_is_over_is_not_passed_on() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    let id = client.begin("tools/call", json!({"name": "s.t", "_meta": {"progressToken": 1}}));
    let call = puppet.expect("tools/call");
    call.answer("{}");
    call.progress(r#""progress":1"#);
    client.answer_to(id);
    // The server's next message comes after it.
    puppet.change(|spec| spec.tool("new"));
    puppet.notify("notifications/tools/list_changed", &json!({}));
    client.notice("notifications/tools/list_changed");
    assert_eq!(count_of(&client.take_all(), PROGRESS), 0);
}

#[test]
fn a_cancelled_request_of_any_kind_is_cancelled_at_its_server_and_never_answered() {
    let puppet = Puppet::new(Spec::legacy().tool("t").prompt("p").resource("r://1").template("r://{x}").echoes());
    puppet.change(|spec| spec.leaves("tools/call"));
    let mut client = connected(&[("s", &puppet)]);
    let requests = [
        ("tools/call", json!({"name": "s.t"})),
        ("prompts/get", json!({"name": "s.p"})),
        ("resources/read", json!({"uri": "r://1"})),
        ("completion/complete", json!({"ref": {"type": "ref/resource", "uri": "r://{x}"}, "argument": {}})),
    ];
    for (number, (method, params)) in requests.into_iter().enumerate() {
        let id = client.begin(method, params);
        let request = puppet.expect(method);
        client.tell(CANCELLED, json!({"requestId": id, "reason": "enough \u{e9}", "x": 1}));
        let cancelled = puppet.expect(CANCELLED);
        assert_eq!(cancelled.param(&["requestId"]), request.id(), "{method}");
        assert_eq!(cancelled.text_param(&["reason"]).as_deref(), Some("enough \u{e9}"));
        request.answer("{}");
        // The server's next message arrives, so the late response was read and dropped.
        puppet.change(|spec| spec.tool(&format!("new{number}")));
        puppet.notify("notifications/tools/list_changed", &json!({}));
        client.notice("notifications/tools/list_changed");
        let answers = client.take_all();
        assert!(answers.iter().all(|line| raw::at(line, &["id"]).is_none()), "{method} was answered");
    }
}

#[test]
fn a_question_that_the_server_takes_back_is_taken_back_from_the_client() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    let id = client.begin_call("s.t", json!({}));
    let call = puppet.expect("tools/call");
    call.ask("\"mine\"", "elicitation/create", r#"{"message":"?","requestedSchema":{"type":"object"}}"#);
    let question = client.question("elicitation/create");
    call.aside(&format!(
        r#"{{"jsonrpc":"2.0","method":"{CANCELLED}","params":{{"requestId":"mine","reason":"found it"}}}}"#
    ));
    let taken_back = client.notice(CANCELLED);
    assert_eq!(taken_back["params"]["requestId"], question["id"]);
    assert_eq!(taken_back["params"]["reason"], "found it");
    call.answer("{}");
    client.answer_to(id);
}

#[test]
fn a_question_ends_with_the_call_it_belongs_to() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    let id = client.begin_call("s.t", json!({}));
    let call = puppet.expect("tools/call");
    call.ask("1", "sampling/createMessage", r#"{"messages":[],"maxTokens":1}"#);
    let question = client.question("sampling/createMessage");
    client.cancel(id);
    puppet.expect(CANCELLED);
    // The response may arrive or not; neither is an error.
    client.reply(&question, json!({"role": "assistant", "content": {"type": "text", "text": "late"}, "model": "m"}));
    assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
    assert_eq!(client.ids("tools/list"), ["s.t"]);
}

#[test]
fn pings_are_answered_on_both_sides() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
    puppet.ask("p-1", "ping", &json!({}));
    assert_eq!(puppet.response("p-1")["result"], json!({}));
    puppet.say(r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#);
    assert_eq!(puppet.response(7)["result"], json!({}));
}

#[test]
fn over_http_progress_comes_on_the_stream_of_its_own_request() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let mut connection = serve.connect();
    connection.send(&session.post(
        r#"{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"s.t","_meta":{"progressToken":"tok"}}}"#,
    ));
    let call = puppet.expect("tools/call");
    call.progress(r#""progress":1"#);
    let mut answer = connection.answer();
    assert!(answer.is_stream());
    assert_eq!(answer.message(Some(PROGRESS))["params"]["progressToken"], "tok");
    call.answer(r#"{"content":[ ]}"#);
    let last = answer.next_message().expect("the answer comes on the stream");
    assert_eq!(last.data, r#"{"jsonrpc":"2.0","id":"x","result":{"content":[ ]}}"#);
    // A stream ends with its response.
    assert_eq!(answer.next_event(), None);
}

#[test]
fn several_messages_of_a_server_in_one_array_are_taken_one_by_one() {
    // Over a pipe, as JSON over HTTP, and as a stream.
    for (over_http, on_stream) in [(false, false), (true, false), (true, true)] {
        let spec = Spec::legacy().tool("t");
        let puppet = if over_http { Puppet::over_http(spec) } else { Puppet::new(spec) };
        let mut client = connected(&[("s", &puppet)]);
        let call =
            r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"s.t","_meta":{"progressToken":"p"}}}"#;
        client.send_line(call);
        let received = puppet.expect("tools/call");
        let (id, token) = (received.id().expect("a call has an id"), received.progress_token());
        let progress = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
        );
        let ping = r#"{"jsonrpc":"2.0","id":"are you there","method":"ping"}"#;
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"x":1.0}}}}"#);
        // Invalid messages are dropped, and affect nothing else.
        let junk = format!(r#"7, [{answer}], {{}}, [], null"#);
        if on_stream {
            received.aside("[]");
        }
        received.finish(&format!(r#" [{progress},{junk} , {ping},{answer} ] "#));
        assert_eq!(client.notice(PROGRESS)["params"]["progressToken"], "p");
        assert_eq!(at(&client.line_to("\"c\""), &["result"]), r#"{"content":[],"x":1.0}"#);
        assert_eq!(puppet.response("are you there")["result"], json!({}));
    }
}

#[test]
fn one_array_may_answer_several_calls_and_fail_some() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    let calls = [(); 3].map(|()| client.begin("tools/call", json!({"name": "s.t"})));
    let ids = [(); 3].map(|()| puppet.expect("tools/call").id().expect("a call has an id").to_owned());
    let [first, second, third] = ids;
    puppet.say(&format!(
        r#"[{{"jsonrpc":"2.0","id":{third},"result":{{"n":3}}}},{{"jsonrpc":"2.0","id":{second}}},{{"jsonrpc":"2.0","id":{first},"error":{{"code":1,"message":"no"}}}}]"#
    ));
    assert_eq!(client.answer_to(calls[0])["error"]["code"], 1);
    assert_eq!(client.answer_to(calls[1])["error"]["data"]["reason"], "unreadable_answer");
    assert_eq!(client.answer_to(calls[2])["result"]["n"], 3);
}
