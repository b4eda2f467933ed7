//! Several clients of one server are isolated.

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::puppet::Received;
use testkit::{ClientSession, Config, Puppet, Serve, Spec, raw, wait_until};

use super::{count_of, serving};

const ELICITATION: &str = r#"{"message":"?","requestedSchema":{"type":"object","properties":{}}}"#;

/// The call of this client, by its arguments.
#[track_caller]
fn call_of(puppet: &Puppet, who: &str) -> Received {
    puppet.expect_where(&format!("the call of {who}"), |message| {
        message.is("tools/call") && message.text_param(&["arguments", "who"]).as_deref() == Some(who)
    })
}

fn call(who: &str, id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"s.t","arguments":{{"who":"{who}"}},"_meta":{{"progressToken":"same"}}}}}}"#
    )
}

#[test]
fn equal_ids_and_tokens_of_two_clients_are_distinguished() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let [mut one, mut two] = [(); 2].map(|()| serve.session("/mcp"));
    one.send_line(&call("one", "\"same\""));
    two.send_line(&call("two", "\"same\""));
    let (of_one, of_two) = (call_of(&puppet, "one"), call_of(&puppet, "two"));
    assert_ne!(of_one.id(), of_two.id());
    assert_ne!(of_one.progress_token(), of_two.progress_token());
    for step in 1..=20 {
        of_one.progress(&format!(r#""progress":{step},"message":"one""#));
        of_two.progress(&format!(r#""progress":{step},"message":"two""#));
    }
    of_two.answer(r#"{"content":[{"type":"text","text":"two"}]}"#);
    of_one.answer(r#"{"content":[{"type":"text","text":"one"}]}"#);
    for (client, who) in [(&mut one, "one"), (&mut two, "two")] {
        let answer = client.line_to("\"same\"");
        assert_eq!(raw::at(&answer, &["result", "content"]).map(|content| content.contains(who)), Some(true));
        let progress = client.take_all();
        assert_eq!(progress.len(), 20);
        for (line, step) in progress.iter().zip(1..) {
            let params = format!(r#"{{"progressToken":"same","progress":{step},"message":"{who}"}}"#);
            assert_eq!(raw::at(line, &["params"]), Some(params.as_str()));
        }
    }
}

#[test]
fn a_client_cancels_its_own_request_only() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let [mut one, mut two, mut idle] = [(); 3].map(|()| serve.session("/mcp"));
    one.send_line(&call("one", "1"));
    two.send_line(&call("two", "1"));
    let (of_one, of_two) = (call_of(&puppet, "one"), call_of(&puppet, "two"));
    // For this client, the id belongs to no request.
    idle.tell("notifications/cancelled", json!({"requestId": 1}));
    two.tell("notifications/cancelled", json!({"requestId": 1}));
    let cancelled = puppet.expect("notifications/cancelled");
    assert_eq!(cancelled.param(&["requestId"]), of_two.id());
    of_one.answer(r#"{"content":[]}"#);
    assert!(raw::at(&one.line_to("1"), &["result"]).is_some());
    assert_eq!(puppet.count("notifications/cancelled"), 1);
}

#[test]
fn a_server_request_goes_to_the_only_client_with_a_running_call() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let [mut one, mut two] = [(); 2].map(|()| serve.interactive_session("/mcp"));
    two.listen();
    for (number, who) in [(1, "one"), (2, "again")] {
        one.send_line(&call(who, &number.to_string()));
        let under_way = call_of(&puppet, who);
        under_way.ask(&number.to_string(), "elicitation/create", ELICITATION);
        let question = one.question("elicitation/create");
        one.reply(&question, json!({"action": "accept", "content": {"who": "one"}}));
        assert_eq!(puppet.response(number)["result"]["content"]["who"], "one");
        under_way.answer("{}");
        one.line_to(&number.to_string());
    }
    puppet.change(|spec| spec.tool("fence"));
    puppet.notify("notifications/tools/list_changed", &json!({}));
    two.notice("notifications/tools/list_changed");
    assert_eq!(count_of(&two.take_all(), "elicitation/create"), 0);
}

#[test]
fn a_question_that_could_be_anybodys_is_refused() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let [mut one, mut two] = [(); 2].map(|()| serve.interactive_session("/mcp"));
    one.listen();
    two.listen();
    one.send_line(&call("one", "1"));
    two.send_line(&call("two", "1"));
    let (of_one, of_two) = (call_of(&puppet, "one"), call_of(&puppet, "two"));
    puppet.ask("q", "elicitation/create", &json!({"message": "?", "requestedSchema": {"type": "object"}}));
    let refusal = puppet.response("q");
    assert!(refusal["error"]["message"].is_string(), "{refusal}");
    of_one.answer("{}");
    of_two.answer("{}");
    for client in [&mut one, &mut two] {
        client.line_to("1");
        assert_eq!(count_of(&client.take_all(), "elicitation/create"), 0);
    }
}

#[test]
fn a_server_request_outside_any_call_reaches_no_client() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut session = serve.interactive_session("/mcp");
    session.listen();
    for (id, method) in [(1, "sampling/createMessage"), (2, "roots/list"), (3, "elicitation/create")] {
        puppet.ask(id, method, &json!({"messages": [], "maxTokens": 1, "message": "?", "requestedSchema": {}}));
        let answer = puppet.response(id);
        assert!(answer["error"].is_object(), "{method}: {answer}");
    }
}

#[test]
fn over_http_a_server_request_belongs_to_the_call_on_whose_stream_it_arrives() {
    let puppet = Puppet::over_http(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let [mut one, mut two] = [(); 2].map(|()| serve.interactive_session("/mcp"));
    one.send_line(&call("one", "1"));
    two.send_line(&call("two", "1"));
    let (of_one, of_two) = (call_of(&puppet, "one"), call_of(&puppet, "two"));
    of_two.ask("\"of two\"", "elicitation/create", ELICITATION);
    of_one.ask("\"of one\"", "elicitation/create", ELICITATION);
    for (client, who) in [(&mut one, "one"), (&mut two, "two")] {
        let question = client.question("elicitation/create");
        client.reply(&question, json!({"action": "accept", "content": {"who": who}}));
        assert_eq!(puppet.response(format!("of {who}"))["result"]["content"]["who"], who);
    }
    of_one.answer("{}");
    of_two.answer("{}");
    one.line_to("1");
    two.line_to("1");
}

#[test]
fn a_client_cannot_answer_a_request_to_another() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let [mut one, mut thief] = [(); 2].map(|()| serve.interactive_session("/mcp"));
    one.send_line(&call("one", "1"));
    let under_way = call_of(&puppet, "one");
    under_way.ask("7", "elicitation/create", ELICITATION);
    let question = one.question("elicitation/create");
    thief.reply(&question, json!({"action": "accept", "content": {"who": "thief"}}));
    one.reply(&question, json!({"action": "accept", "content": {"who": "one"}}));
    assert_eq!(puppet.response(7)["result"]["content"]["who"], "one");
    under_way.answer("{}");
    one.line_to("1");
}

#[test]
fn the_end_of_one_client_is_the_end_of_its_own_requests_only() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let [mut leaving, mut staying] = [(); 2].map(|()| serve.session("/mcp"));
    leaving.send_line(&call("leaving", "1"));
    staying.send_line(&call("staying", "1"));
    let (of_leaving, of_staying) = (call_of(&puppet, "leaving"), call_of(&puppet, "staying"));
    leaving.delete();
    assert_eq!(puppet.expect("notifications/cancelled").param(&["requestId"]), of_leaving.id());
    of_staying.answer(r#"{"content":[]}"#);
    assert!(raw::at(&staying.line_to("1"), &["result"]).is_some());
}

#[test]
fn a_question_whose_client_leaves_is_answered_with_an_error() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut leaving = serve.interactive_session("/mcp");
    leaving.send_line(&call("leaving", "1"));
    call_of(&puppet, "leaving").ask("9", "elicitation/create", ELICITATION);
    leaving.question("elicitation/create");
    leaving.delete();
    assert!(puppet.response(9)["error"].is_object());
}

#[test]
fn a_server_cannot_speak_for_another() {
    let (honest, lying) = (Puppet::new(Spec::legacy().tool("t")), Puppet::new(Spec::legacy().tool("t")));
    let serve = serving(&[("s", &honest), ("liar", &lying)]);
    let mut client = serve.session("/mcp");
    client.listen();
    client.send_line(&call("one", "1"));
    let under_way = call_of(&honest, "one");
    let (id, token) = (under_way.id().expect("a call has an id"), under_way.progress_token());
    lying.say(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":99}}}}"#
    ));
    lying.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[{{"type":"text","text":"a lie"}}]}}}}"#));
    lying.say(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#));
    lying.say(r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"r://of-the-honest"}}"#);
    lying.change(|spec| spec.tool("fence"));
    lying.notify("notifications/tools/list_changed", &json!({}));
    client.notice("notifications/tools/list_changed");
    under_way.answer(r#"{"content":[{"type":"text","text":"the truth"}]}"#);
    let answer = client.line_to("1");
    assert_eq!(raw::at(&answer, &["result", "content"]), Some(r#"[{"type":"text","text":"the truth"}]"#));
    let rest = client.take_all();
    for method in ["notifications/progress", "notifications/resources/updated", "notifications/cancelled"] {
        assert_eq!(count_of(&rest, method), 0, "{method}");
    }
}

#[test]
fn an_id_used_twice_at_once_mixes_nothing_up() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let [mut first, mut second] = [(); 2].map(|()| serve.connect());
    first.send(&session.post(&call("first", "7")));
    let of_first = call_of(&puppet, "first");
    second.send(&session.post(&call("second", "7")));
    // The second is refused, or sent to its own client.
    let answer_second = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| second.answer().json());
        while !waiting.is_finished() && puppet.count("tools/call") < 2 {
            std::thread::yield_now();
        }
        if puppet.count("tools/call") == 2 {
            call_of(&puppet, "second").answer(r#"{"content":[{"type":"text","text":"second"}]}"#);
        }
        waiting.join().expect("an answer came")
    });
    assert!(answer_second["error"].is_object() || answer_second["result"]["content"][0]["text"] == "second");
    of_first.answer(r#"{"content":[{"type":"text","text":"first"}]}"#);
    assert_eq!(first.answer().json()["result"]["content"][0]["text"], "first");
}

#[test]
fn a_client_that_vanished_in_the_middle_of_a_call_does_not_keep_its_turn() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let [mut vanishing, mut staying] = [(); 2].map(|()| serve.interactive_session("/mcp"));
    vanishing.send_line(&call("vanishing", "1"));
    let under_way = call_of(&puppet, "vanishing");
    // From now on the server serves one client at a time.
    under_way.ask("7", "elicitation/create", ELICITATION);
    let question = vanishing.question("elicitation/create");
    vanishing.reply(&question, json!({"action": "decline"}));
    puppet.response(7);
    // Its streams break, and nothing more is received from it.
    drop(vanishing);
    staying.send_line(&call("staying", "1"));
    assert_eq!(puppet.expect("notifications/cancelled").param(&["requestId"]), under_way.id());
    call_of(&puppet, "staying").answer("{}");
    assert!(raw::at(&staying.line_to("1"), &["result"]).is_some());
}

#[test]
fn calls_without_server_requests_do_not_wait_for_each_other() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let begin = |who: &str| {
        let body = json!({"name": "s.t", "arguments": {"who": who}}).to_string();
        let mut connection = serve.connect();
        connection.send(&HttpRequest::post("/api/v1/aggregator/execute", body));
        connection
    };
    let mut first = begin("first");
    let of_first = call_of(&puppet, "first");
    // A client with a session would now have the server to itself.
    of_first.ask("7", "elicitation/create", ELICITATION);
    assert!(puppet.response(7)["error"].is_object());
    let mut second = begin("second");
    call_of(&puppet, "second").answer("{}");
    assert_eq!(second.answer().status, 200);
    of_first.answer("{}");
    assert_eq!(first.answer().status, 200);
}

#[test]
fn a_client_that_still_listens_keeps_its_turn_although_others_wait() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let [mut one, mut other] = [(); 2].map(|()| serve.interactive_session("/mcp"));
    one.send_line(&call("one", "1"));
    let under_way = call_of(&puppet, "one");
    under_way.ask("7", "elicitation/create", ELICITATION);
    let question = one.question("elicitation/create");
    one.reply(&question, json!({"action": "decline"}));
    puppet.response(7);
    other.send_line(&call("other", "1"));
    // Longer than the wait for a disconnected client.
    std::thread::sleep(std::time::Duration::from_secs(12));
    assert_eq!(puppet.count("notifications/cancelled"), 0);
    under_way.answer("{}");
    assert!(raw::at(&one.line_to("1"), &["result"]).is_some());
    call_of(&puppet, "other").answer("{}");
    other.line_to("1");
}

#[test]
fn the_time_a_call_waits_for_its_turn_does_not_count_and_a_late_call_affects_no_other_call() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = Serve::start(&Config::new().server("s", puppet.entry().field("timeout", 10_000)));
    serve.session("/mcp").ids("tools/list");
    let [mut slow, mut other] = [(); 2].map(|()| serve.interactive_session("/mcp"));
    slow.send_line(&call("slow", "1"));
    let under_way = call_of(&puppet, "slow");
    under_way.ask("7", "elicitation/create", ELICITATION);
    let question = slow.question("elicitation/create");
    other.send_line(&call("other", "1"));
    // It times out before the response: the server request ends with it, and nothing is cancelled that was never sent.
    assert_eq!(puppet.expect("notifications/cancelled").param(&["requestId"]), under_way.id());
    assert!(puppet.response(7)["error"].is_object());
    slow.notice("notifications/cancelled");
    let failure = slow.line_to("1");
    assert_eq!(raw::at(&failure, &["error", "data", "reason"]), Some("\"server_too_slow\""));
    drop(question);
    // The other call's turn comes; and a server request now belongs to it, because the server has finished the first
    // call.
    let next = call_of(&puppet, "other");
    under_way.answer("{}");
    next.ask("8", "elicitation/create", ELICITATION);
    let question = other.question("elicitation/create");
    other.reply(&question, json!({"action": "decline"}));
    puppet.response(8);
    next.answer("{}");
    assert!(raw::at(&other.line_to("1"), &["result"]).is_some());
    assert_eq!(puppet.count("notifications/cancelled"), 1);
}

#[test]
fn a_call_that_waits_for_another_turn_is_pending_and_the_wait_is_not_server_time() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let [mut one, mut other] = [(); 2].map(|()| serve.interactive_session("/mcp"));
    let execution = |request: &str, status: &str| {
        wait_until(&format!("call {request} is {status}"), || {
            let all = serve.fetch(&HttpRequest::new("GET", "/api/v1/aggregator/executions")).json();
            let is_it = |it: &&Value| it["request_id"] == request && it["status"] == status;
            all.as_array().expect("a list").iter().find(is_it).cloned()
        })
    };
    one.send_line(&call("one", "1"));
    let under_way = call_of(&puppet, "one");
    under_way.ask("7", "elicitation/create", ELICITATION);
    let question = one.question("elicitation/create");
    other.send_line(&call("other", "2"));
    assert_eq!(execution("2", "pending")["started_at"], Value::Null);
    one.reply(&question, json!({"action": "decline"}));
    puppet.response(7);
    under_way.answer("{}");
    one.line_to("1");
    let next = call_of(&puppet, "other");
    execution("2", "executing");
    next.answer("{}");
    other.line_to("2");
    // Timestamps of equal length can be compared as text.
    let moment = |execution: &Value, key: &str| execution[key].as_str().expect("a moment").to_owned();
    let (first, second) = (execution("1", "success"), execution("2", "success"));
    assert!(moment(&second, "submitted_at") < moment(&first, "completed_at"), "{first} {second}");
    assert!(moment(&second, "started_at") >= moment(&first, "completed_at"), "{first} {second}");
}
