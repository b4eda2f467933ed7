//! Responses as events, and resuming a stream.

use serde_json::json;
use testkit::http_client::{Answer, Event};
use testkit::http_session::Hello;
use testkit::{ClientSession, HttpSession, Puppet, Spec};

use super::PING;
use crate::relay::serving;

const CALL: &str = r#"{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{"name":"s.t","arguments":{},"_meta":{"progressToken":"p"}}}"#;

fn puppet() -> Puppet {
    Puppet::new(Spec::legacy().tool("t"))
}

#[track_caller]
fn next_message(answer: &mut Answer<'_>) -> Event {
    answer.next_message().expect("the stream goes on")
}

#[test]
fn a_broken_stream_is_resumed_after_the_last_event_seen() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let mut connection = serve.connect();
    connection.send(&session.post(CALL));
    let call = puppet.expect("tools/call");
    call.progress(r#""progress":1"#);
    call.progress(r#""progress":2"#);
    let mut answer = connection.answer();
    let first = next_message(&mut answer);
    assert_eq!(first.json()["params"]["progress"], 1);
    let second = next_message(&mut answer);
    let first_id = first.id.expect("events have ids");
    assert_ne!(Some(&first_id), second.id.as_ref());
    drop(connection);

    call.progress(r#""progress":3"#);
    call.answer(r#"{"content":[ ],"x":1.0}"#);
    let mut again = serve.connect();
    let mut answer = again.ask(&session.get().header("Last-Event-ID", &first_id));
    assert_eq!(answer.status, 200);
    assert_eq!(next_message(&mut answer).data, second.data);
    assert_eq!(next_message(&mut answer).json()["params"]["progress"], 3);
    assert_eq!(next_message(&mut answer).data, r#"{"jsonrpc":"2.0","id":"c","result":{"content":[ ],"x":1.0}}"#);
    // The stream belonged to that request, and ends with its response.
    assert_eq!(answer.next_message(), None);
    // Disconnecting is not cancelling.
    assert_eq!(puppet.count("notifications/cancelled"), 0);
}

#[test]
fn a_response_without_a_listener_waits_for_a_resumed_stream() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let mut connection = serve.connect();
    connection.send(&session.post(CALL));
    let call = puppet.expect("tools/call");
    call.progress(r#""progress":1"#);
    let mut answer = connection.answer();
    let id = next_message(&mut answer).id.expect("events have ids");
    drop(connection);
    // The stream is resumed before the response exists, and waits for it.
    let mut again = serve.connect();
    again.send(&session.get().header("Last-Event-ID", &id));
    let mut answer = again.answer();
    call.answer(r#"{"content":[]}"#);
    assert_eq!(answer.message(None)["id"], "c");
    // And once more, because delivered events can be lost on the way.
    let mut more = serve.connect();
    let mut answer = more.ask(&session.get().header("Last-Event-ID", &id));
    assert_eq!(answer.message(None)["id"], "c");
}

#[test]
fn a_session_cannot_resume_the_stream_of_another() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let [session, thief] = [(); 2].map(|()| serve.session("/mcp"));
    let mut connection = serve.connect();
    connection.send(&session.post(CALL));
    let call = puppet.expect("tools/call");
    call.progress(r#""progress":1"#);
    let mut answer = connection.answer();
    let id = next_message(&mut answer).id.expect("events have ids");
    call.answer(r#"{"content":[{"type":"text","text":"secret"}]}"#);
    next_message(&mut answer);

    let mut stealing = serve.connect();
    stealing.send(&thief.get().header("Last-Event-ID", &id));
    let mut stolen = stealing.answer();
    if stolen.status == 200 {
        // An ordinary stream: it carries only messages of the other session.
        puppet.change(|spec| spec.tool("fence"));
        puppet.notify("notifications/tools/list_changed", &json!({}));
        assert_eq!(next_message(&mut stolen).json()["method"], "notifications/tools/list_changed");
    } else {
        let (status, body) = (stolen.status, stolen.bytes());
        assert!(status == 204 || (400..500).contains(&status), "{status}");
        assert!(!String::from_utf8_lossy(&body).contains("secret"));
    }
}

#[test]
fn streams_begin_with_an_event_to_resume_from_where_the_revision_has_that() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let mut connection = serve.connect();
    connection.send(&session.post(CALL));
    let call = puppet.expect("tools/call");
    call.progress(r#""progress":1"#);
    let mut answer = connection.answer();
    let priming = answer.next_event().expect("a first event");
    assert!(priming.id.is_some() && priming.data.is_empty(), "{priming:?}");
    assert!(answer.header("cache-control").is_some_and(|value| value.contains("no-")), "{:?}", answer.headers());
    assert_eq!(answer.header("x-accel-buffering"), Some("no"));
    let id = priming.id.expect("it has an id");
    call.answer("{}");
    let mut again = serve.connect();
    let mut resumed = again.ask(&session.get().header("Last-Event-ID", &id));
    assert_eq!(next_message(&mut resumed).json()["params"]["progress"], 1);

    // Older clients do not expect events without data.
    let hello = Hello { revision: "2025-06-18".to_owned(), ..Hello::default() };
    let older = HttpSession::introduce(serve.address(), "/mcp", &hello);
    let mut connection = serve.connect();
    connection.send(&older.post(CALL));
    let call = puppet.expect("tools/call");
    call.progress(r#""progress":1"#);
    let mut answer = connection.answer();
    let first = std::iter::from_fn(|| answer.next_event()).find(|event| event.comment.is_none());
    assert!(first.as_ref().is_some_and(|event| event.data.contains("progress")), "{first:?}");
    call.answer("{}");
}

#[test]
fn messages_about_no_request_go_to_one_stream_only() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let mut first = serve.connect();
    let mut older = first.ask(&session.get());
    assert_eq!(older.status, 200);
    let mut second = serve.connect();
    let mut newer = second.ask(&session.get());
    // Either refused, or it replaces the older one.
    assert!(newer.status == 200 || newer.status == 409, "{}", newer.status);
    puppet.change(|spec| spec.tool("new"));
    puppet.notify("notifications/tools/list_changed", &json!({}));
    if newer.status == 200 {
        assert_eq!(next_message(&mut newer).json()["method"], "notifications/tools/list_changed");
        assert_eq!(older.next_message(), None);
    } else {
        assert_eq!(next_message(&mut older).json()["method"], "notifications/tools/list_changed");
    }
}

#[test]
fn missed_notifications_arrive_after_reconnecting() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let mut session = serve.session("/mcp");
    let mut connection = serve.connect();
    let mut stream = connection.ask(&session.get());
    puppet.change(|spec| spec.tool("one"));
    puppet.notify("notifications/tools/list_changed", &json!({}));
    let seen = next_message(&mut stream).id.expect("events have ids");
    drop(connection);
    puppet.change(|spec| spec.prompt("two"));
    puppet.notify("notifications/prompts/list_changed", &json!({}));
    // The change is visible, so it was announced.
    while session.ids("prompts/list").is_empty() {}
    let mut again = serve.connect();
    let mut stream = again.ask(&session.get().header("Last-Event-ID", &seen));
    assert_eq!(next_message(&mut stream).json()["method"], "notifications/prompts/list_changed");
}

#[test]
fn a_legacy_client_that_vanishes_has_not_cancelled() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let mut connection = serve.connect();
    connection.send(&session.post(CALL));
    let call = puppet.expect("tools/call");
    drop(connection);
    // The next event at the server comes after it.
    let mut other = serve.session("/mcp");
    let id = other.begin_call("s.t", json!({}));
    puppet.expect("tools/call").answer("{}");
    other.answer_to(id);
    assert_eq!(puppet.count("notifications/cancelled"), 0);
    call.answer("{}");
    assert_eq!(serve.fetch(&session.post(PING)).status, 200);
}

#[test]
fn a_call_that_takes_long_becomes_a_stream_before_anybody_gives_up() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let mut connection = serve.connect();
    connection.send(&session.post(CALL));
    let call = puppet.expect("tools/call");
    // No message is sent, but keep-alive comments are, in time for impatient proxies.
    let mut answer = connection.answer();
    assert!(answer.is_stream());
    call.answer("{}");
    assert_eq!(answer.message(None)["id"], "c");
}

#[test]
fn a_missed_server_request_is_repeated_when_the_stream_resumes() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let mut session = serve.interactive_session("/mcp");
    let mut connection = serve.connect();
    connection.send(&session.post(CALL));
    let call = puppet.expect("tools/call");
    call.progress(r#""progress":1"#);
    let mut answer = connection.answer();
    let seen = next_message(&mut answer).id.expect("events have ids");
    drop(connection);
    call.ask("3", "elicitation/create", r#"{"message":"?","requestedSchema":{"type":"object","properties":{}}}"#);
    let mut again = serve.connect();
    let mut stream = again.ask(&session.get().header("Last-Event-ID", &seen));
    let question = stream.message(Some("elicitation/create"));
    session.reply(&question, json!({"action": "accept", "content": {}}));
    assert_eq!(puppet.response(3)["result"]["action"], "accept");
    call.answer(r#"{"content":[]}"#);
    assert_eq!(stream.message(None)["id"], "c");
}
