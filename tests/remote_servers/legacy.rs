//! The older HTTP+SSE transport.

use serde_json::json;
use testkit::{HttpServer, Script};

use super::{assert_echoes, connected_to, count, count_http, wait_for_tool};
use crate::fixture::error_of;

#[test]
fn a_configured_sse_transport_is_used() {
    let server = HttpServer::start(Script::default().sse());
    let mut client = connected_to(&json!({"web": {"type": "sse", "url": server.url()}}));
    assert_echoes(&mut client);
    assert_eq!(server.requests()[0].method, "GET", "nothing else was tried first");
    assert!(server.requests()[1..].iter().all(|request| request.path.starts_with("/message?sessionId=")));
}

#[test]
fn the_legacy_lifecycle_is_used_if_the_server_supports_nothing_newer() {
    for status in [400, 404, 405] {
        let server = HttpServer::start(Script::default().sse().refuse_initialize(status));
        let mut client = connected_to(&json!({"web": {"url": server.url()}}));
        assert_echoes(&mut client);
        let requests = server.requests();
        assert!(requests[0].is("initialize") && requests[1].is("server/discover") && requests[2].method == "GET");
        assert_eq!(count(&requests, "initialize"), 2);
        assert_eq!(client.stderr_text(), "");
    }
}

#[test]
fn the_older_transport_is_not_tried_if_the_config_disables_it_or_the_server_fails() {
    let server = HttpServer::start(Script::default().sse());
    let mut client = connected_to(&json!({"web": {"type": "http", "url": server.url()}}));
    let answer = client.call("web.echo", json!({}));
    assert!(answer["error"]["data"]["detail"].as_str().unwrap().contains("405"), "{answer}");
    assert_eq!(count_http(&server.requests(), "GET"), 0);

    let server = HttpServer::start(Script::default().sse().refuse_initialize(500));
    let mut client = connected_to(&json!({"web": {"url": server.url()}}));
    let answer = client.call("web.echo", json!({}));
    assert!(answer["error"]["data"]["detail"].as_str().unwrap().contains("500"), "{answer}");
    assert_eq!(count_http(&server.requests(), "GET"), 0);
}

#[test]
fn the_initialized_notification_comes_before_anything_else() {
    let server = HttpServer::start(Script::default().sse().slow_headers(30));
    let mut client = connected_to(&json!({"web": {"type": "sse", "url": server.url()}}));
    assert_echoes(&mut client);
    let posted: Vec<String> = server.requests().iter().filter_map(testkit::http_server::Request::rpc_method).collect();
    assert_eq!(posted, ["initialize", "notifications/initialized", "tools/list", "tools/call"]);
}

#[test]
fn a_stream_that_ends_fails_the_calls_in_hand_and_the_server_is_there_for_the_next() {
    let server = HttpServer::start(Script::default().sse());
    let mut client = connected_to(&json!({"web": {"type": "sse", "url": server.url()}}));
    client.tool_names();
    client.drain();
    let calls: Vec<u64> = (0..3).map(|_| client.start_call("web.hang", json!({}))).collect();
    server.wait_for(|requests| count(requests, "tools/call") == 3);
    server.close_streams();
    for id in calls {
        let answer = client.response(id);
        let (_, message) = error_of(&answer);
        // A call that the server received but did not process yet finds no session any more.
        let is_told = message.contains("event stream ended") || message.contains("Session not found");
        assert!(message.contains("`web`") && is_told, "{message}");
    }
    assert_echoes(&mut client);
    let requests = server.wait_for(|requests| count(requests, "tools/list") == 2);
    assert_eq!((count(&requests, "initialize"), count(&requests, "notifications/initialized")), (2, 2));
    // Unrequested notifications arrive again as well, on whichever stream.
    client.call("web.change_tools", json!({"names": ["new"]}));
    wait_for_tool(&mut client, "web.new", true);
    assert_eq!(client.stderr_text(), "");
}

#[test]
fn a_stream_that_ends_is_opened_again_without_any_calls() {
    let server = HttpServer::start(Script::default().sse());
    let mut client = connected_to(&json!({"web": {"type": "sse", "url": server.url()}}));
    client.tool_names();
    server.close_streams();
    server.wait_for(|requests| count(requests, "initialize") == 2 && count(requests, "tools/list") == 2);
    assert_echoes(&mut client);
    assert_eq!(count_http(&server.requests(), "GET"), 2);
}
