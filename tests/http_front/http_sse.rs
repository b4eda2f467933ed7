//! HTTP+SSE of 2024-11-05: a stream for everything received, an endpoint for everything sent.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::http_client::HttpRequest;
use testkit::{ClientSession, Puppet, Spec, takes_less_than};

use super::{PING, assert_echoes};
use crate::relay::serving;

#[test]
fn answers_come_on_the_stream_and_posts_get_202() {
    let puppet = Puppet::new(Spec::legacy().tool("t").echoes().resource("r://1"));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.sse("/sse");
    assert_eq!(client.welcome["result"]["protocolVersion"], "2024-11-05");
    assert_eq!(client.ids("tools/list"), ["s.t"]);
    assert_echoes(&mut client, "s.t");
    assert_eq!(client.ids("resources/list"), ["r://1"]);
    let posted = serve.fetch(&HttpRequest::post(&client.endpoint, PING));
    assert_eq!(posted.status, 202);
    client.line_to("\"ping\"");

    let mut alone = serve.sse("/sse/s");
    assert_eq!(alone.ids("tools/list"), ["t"]);
    assert_echoes(&mut alone, "t");
}

#[test]
fn an_answer_is_one_event_to_the_byte() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.sse("/sse");
    client.send_line(r#"{"jsonrpc":"2.0","id":1e2,"method":"tools/call","params":{"name":"s.t"}}"#);
    puppet.expect("tools/call").answer("{ \"content\":[ ],\"x\":\"\\u2028\u{2028}\" }");
    let expected = "{\"jsonrpc\":\"2.0\",\"id\":1e2,\"result\":{ \"content\":[ ],\"x\":\"\\u2028\u{2028}\" }}";
    assert_eq!(String::from_utf8(client.line_to("1e2")).expect("UTF-8"), expected);
}

#[test]
fn closing_the_stream_ends_the_session_and_its_calls() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.sse("/sse");
    client.begin_call("s.t", json!({}));
    let call = puppet.expect("tools/call");
    client.close();
    assert_eq!(puppet.expect("notifications/cancelled").param(&["requestId"]), call.id());
    testkit::wait_until("the endpoint is gone", || {
        (serve.fetch(&HttpRequest::post(&client.endpoint, PING)).status == 404).then_some(())
    });
}

#[test]
fn an_unknown_session_is_not_found() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let client = serve.sse("/sse");
    let (path, _) = client.endpoint.split_once('?').expect("the endpoint names its session");
    assert_eq!(serve.fetch(&HttpRequest::post(&format!("{path}?sessionId=nobody"), PING)).status, 404);
    assert_eq!(serve.fetch(&HttpRequest::post(path, PING)).status, 400);
    assert_eq!(serve.fetch(&HttpRequest::post("/sse", PING)).status, 405);
    assert_eq!(serve.fetch(&HttpRequest::stream("/sse/nobody")).status, 404);
}

#[test]
fn our_responses_do_not_wait_for_the_next_keep_alive() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    // Streams send a keep-alive comment every 15 s.
    takes_less_than(Duration::from_secs(10), || {
        let begun = Instant::now();
        let mut client = serve.sse("/sse");
        client.ask("ping", json!({}));
        client.ids("tools/list");
        begun.elapsed()
    });
}
