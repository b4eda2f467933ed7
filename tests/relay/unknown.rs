//! Unknown methods and notifications: routed if the target is known, otherwise refused.

use serde_json::json;
use testkit::{ClientSession, Puppet, Spec, raw};

use super::{at, code_of, connected, serving};

const PARAMS: &str = r#"{ "a":1.0,"b":"\u0041","_meta":{"n":1e400} }"#;

#[test]
fn an_unknown_method_is_refused_where_it_could_be_anybodys() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    assert_eq!(code_of(&client.ask("custom/thing", json!({}))), -32601);
    assert_eq!(puppet.count("custom/thing"), 0);
}

#[test]
fn under_the_path_of_one_server_unknown_methods_are_its_own_to_answer() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let other = Puppet::new(Spec::legacy());
    let serve = serving(&[("s", &puppet), ("other", &other)]);
    let mut client = serve.session("/mcp/s");
    client.send_line(&format!(r#"{{"jsonrpc":"2.0","id":"u","method":"custom/thing","params":{PARAMS}}}"#));
    let request = puppet.expect("custom/thing");
    assert_eq!(request.param(&[]), Some(PARAMS));
    request.answer(r#"{"x": 1.0}"#);
    assert_eq!(at(&client.line_to("\"u\""), &["result"]), r#"{"x": 1.0}"#);

    client.send_line(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/custom","params":{PARAMS}}}"#));
    let notification = puppet.expect("notifications/custom");
    assert_eq!(notification.param(&[]), Some(PARAMS));

    let id = client.begin("custom/other", json!({}));
    puppet.expect("custom/other").fail(r#"{"code":-32601,"message":"what?"}"#);
    assert_eq!(code_of(&client.answer_to(id)), -32601);
    assert_eq!(other.count("custom/thing") + other.count("notifications/custom"), 0);
}

#[test]
fn an_unknown_notification_of_a_server_reaches_the_one_client_there_is() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    puppet.say(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/custom","params":{PARAMS}}}"#));
    assert_eq!(at(&client.notice_line("notifications/custom"), &["params"]), PARAMS);
}

#[test]
fn an_unknown_request_of_a_server_is_refused_or_answered_but_never_left_hanging() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let _session = serve.session("/mcp");
    puppet.ask("u", "custom/question", &json!({}));
    assert_eq!(puppet.response("u")["error"]["code"], -32601);
}

#[test]
fn a_notification_about_no_request_of_anybody_changes_nothing() {
    let puppet = Puppet::new(Spec::legacy().tool("t").echoes());
    let mut client = connected(&[("s", &puppet)]);
    client.tell("notifications/cancelled", json!({"requestId": "nothing"}));
    client.tell("notifications/progress", json!({"progressToken": "nothing", "progress": 1}));
    client.tell("notifications/custom", json!({}));
    client.send_line(r#"{"jsonrpc":"2.0","id":"nobody asked","result":{}}"#);
    let id = client.begin_call("s.t", json!({"text": "still here"}));
    let line = client.line_to(&id.to_string());
    assert_eq!(raw::at(&line, &["result", "structuredContent"]), Some(r#"{"text":"still here"}"#));
    assert_eq!(puppet.count("notifications/cancelled"), 0);
}
