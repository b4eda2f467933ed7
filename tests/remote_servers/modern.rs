//! Servers of 2026-07-28: no sessions, no separate stream, and headers that repeat the body.

use serde_json::json;
use testkit::{ClientSession, Config, HttpServer, Launch, ModernStdio, Script, program, raw, wait_until};

use super::{assert_echoes, connected, connected_to, count, count_http, problem_of, wait_for_tool};
use crate::fixture::{error_of, text_of};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

#[test]
fn the_modern_lifecycle_is_used_if_the_server_supports_nothing_older() {
    let script = Script::default().modern();
    let refusals = [400, 404, 405].map(|status| script.clone().refuse_initialize(status));
    for script in refusals.into_iter().chain([script]) {
        for dialect in [json!({}), json!({"type": "http"})] {
            let server = HttpServer::start(script.clone());
            let mut entry = dialect.clone();
            entry["url"] = server.url().into();
            let mut client = connected_to(&json!({"web": entry}));
            assert_echoes(&mut client);
            let requests = server.requests();
            assert!(requests[0].is("initialize") && requests[1].is("server/discover"), "{requests:#?}");
            assert_eq!(count(&requests, "initialize"), 1);
            assert_eq!(count(&requests, "notifications/initialized"), 0);
        }
    }
}

#[test]
fn a_configured_modern_lifecycle_is_used_immediately() {
    let server = HttpServer::start(Script::default().modern());
    let mut client = connected_to(&json!({"web": {"url": server.url(), "era": "modern"}}));
    assert_echoes(&mut client);
    assert!(server.requests()[0].is("server/discover"), "nothing else was tried first");
}

#[test]
fn the_modern_revision_is_not_used_if_the_config_disables_it() {
    let server = HttpServer::start(Script::default().modern());
    let mut client = connected_to(&json!({"web": {"type": "http", "url": server.url(), "era": "legacy"}}));
    let answer = client.call("web.echo", json!({}));
    assert!(answer["error"]["data"]["detail"].as_str().unwrap().contains("initialize"), "{answer}");
    assert_eq!(count(&server.requests(), "server/discover"), 0);
}

#[test]
fn a_server_that_refuses_both_handshakes_is_reported_with_its_first_error() {
    let server = HttpServer::start(Script::default().refuse_initialize(418));
    let mut client = connected_to(&json!({"web": {"type": "http", "url": server.url()}}));
    let answer = client.call("web.echo", json!({}));
    assert!(answer["error"]["data"]["detail"].as_str().unwrap().contains("418"), "{answer}");
}

#[test]
fn every_request_has_headers_with_the_names_of_the_server() {
    let server = HttpServer::start(Script::default().modern());
    let mut client = connected(&server);
    assert_echoes(&mut client);
    assert_eq!(text_of(&client.call("web.region", json!({"region": "us-west1", "text": "x"}))), "x");
    client.close_stdin();
    assert!(client.wait_exit().success());
    let requests = server.requests();
    for request in requests.iter().filter(|request| !request.is("initialize")) {
        assert_eq!(request.method, "POST", "no stream is opened, no session is ended");
        assert_eq!(request.header("mcp-protocol-version"), Some("2026-07-28"));
        assert_eq!(request.header("mcp-method"), request.rpc_method().as_deref());
        assert_eq!(request.header("mcp-session-id"), None);
    }
    let call = requests.iter().rfind(|request| request.is("tools/call")).unwrap();
    assert_eq!(call.header("mcp-name"), Some("region"));
    assert_eq!(call.header("mcp-param-region"), Some("us-west1"));
}

#[test]
fn a_tool_with_an_invalid_header_annotation_is_omitted_and_reported() {
    let server = HttpServer::start(Script::default().modern());
    let mut client = connected(&server);
    let names = client.tool_names();
    assert!(names.contains(&"web.region".to_owned()) && !names.contains(&"web.wrong".to_owned()), "{names:?}");
    client.wait_for_stderr("wrong");
    assert_echoes(&mut client);
}

#[test]
fn a_call_whose_headers_no_longer_fit_is_sent_again_once_the_tools_are_known_again() {
    let server = HttpServer::start(Script::default().modern());
    let mut client = connected(&server);
    client.tool_names();
    let listed = count(&server.requests(), "tools/list");
    server.change(|script| script.region_header("Zone"));
    assert_eq!(text_of(&client.call("web.region", json!({"region": "eu", "text": "x"}))), "x");
    let requests = server.requests();
    let calls: Vec<_> = requests.iter().filter(|request| request.is("tools/call")).collect();
    assert_eq!(calls.len(), 2);
    assert_eq!((calls[0].header("mcp-param-region"), calls[0].header("mcp-param-zone")), (Some("eu"), None));
    assert_eq!((calls[1].header("mcp-param-region"), calls[1].header("mcp-param-zone")), (None, Some("eu")));
    assert_eq!(count(&requests, "tools/list"), listed + 1);
}

#[test]
fn a_call_whose_headers_never_fit_is_tried_twice_and_then_fails() {
    let server = HttpServer::start(Script::default().modern());
    let mut client = connected(&server);
    // A number is repeated as a number, but this server requires text.
    let answer = client.call("web.region", json!({"region": 5}));
    assert_eq!(error_of(&answer).0, -32020, "{answer}");
    assert_eq!(count(&server.requests(), "tools/call"), 2);
    assert_echoes(&mut client);
}

#[test]
fn an_unknown_method_is_answered_and_not_taken_for_a_lost_session() {
    let server = HttpServer::start(Script::default().modern());
    let mut client = connected(&server);
    assert_echoes(&mut client);
    let answer = client.call("web.nonsense", json!({}));
    assert_eq!(error_of(&answer).0, -32601, "{answer}");
    assert_eq!(count(&server.requests(), "initialize"), 1);
}

#[test]
fn a_call_is_cancelled_by_closing_its_connection() {
    for script in [Script::default().modern(), Script::default().modern().answers_as_sse()] {
        let server = HttpServer::start(script);
        let mut client = connected(&server);
        assert_echoes(&mut client);
        let id = client.start_call("web.hang", json!({}));
        let requests = server.wait_for(|requests| count(requests, "tools/call") == 2);
        let connection = requests.iter().rfind(|request| request.is("tools/call")).unwrap().connection;
        assert!(server.is_connected(connection));
        client.notify("notifications/cancelled", json!({"requestId": id}));
        wait_until("the connection is closed", || (!server.is_connected(connection)).then_some(()));
        assert_echoes(&mut client);
        assert_eq!(count(&server.requests(), "notifications/cancelled"), 0);
    }
}

#[test]
fn a_change_of_tools_arrives_on_a_requested_stream() {
    let server = HttpServer::start(Script::default().modern());
    let mut client = connected(&server);
    client.tool_names();
    server.wait_for(|requests| count(requests, "subscriptions/listen") == 1);
    wait_until("the stream is open", || (server.open_streams() > 0).then_some(()));
    client.call("web.change_tools", json!({"names": ["new"]}));
    wait_for_tool(&mut client, "web.new", true);
    assert_eq!(text_of(&client.call("web.new", json!({"text": "x"}))), "x");

    server.close_streams();
    server.wait_for(|requests| count(requests, "subscriptions/listen") >= 2);
    wait_until("the stream is open", || (server.open_streams() > 0).then_some(()));
    client.call("web.change_tools", json!({"names": []}));
    wait_for_tool(&mut client, "web.new", false);
    assert_eq!(count_http(&server.requests(), "GET"), 0);
}

#[test]
fn progress_and_answers_come_on_the_stream_of_the_call() {
    let server = HttpServer::start(Script::default().modern().answers_as_sse());
    let mut client = connected(&server);
    let params =
        json!({"_meta": {"progressToken": "mine"}, "name": "web.progress", "arguments": {"steps": 2, "ms": 5}});
    let id = client.request("tools/call", params);
    for step in [1, 2] {
        let notice = client.notification("notifications/progress");
        assert_eq!((&notice["params"]["progressToken"], &notice["params"]["progress"]), (&json!("mine"), &json!(step)));
    }
    assert_eq!(text_of(&client.response(id)), "progressed");
}

#[test]
fn an_incomplete_answer_is_lost_and_not_requested_again() {
    for script in [Script::default().modern(), Script::default().modern().answers_as_sse()] {
        let server = HttpServer::start(script);
        let mut client = connected(&server);
        assert_echoes(&mut client);
        server.change(Script::close_after_headers);
        problem_of(&client.call("web.echo", json!({})));
        server.change(Script::healed);
        assert_echoes(&mut client);
        let requests = server.requests();
        assert_eq!(count(&requests, "tools/call"), 3);
        assert_eq!(count_http(&requests, "GET"), 0);
    }
}

#[test]
fn a_busy_modern_server_is_retried() {
    let server = HttpServer::start(Script::default().modern().status_once(429, Some(0)).status_once(503, Some(0)));
    let mut client = connected(&server);
    assert_echoes(&mut client);
    assert_eq!(count(&server.requests(), "tools/call"), 3);
}

#[test]
fn a_modern_client_reaches_it_with_every_byte_in_place() {
    let server = HttpServer::start(Script::default().modern());
    let config = Config::new().raw(json!({"mcpServers": {"web": {"url": server.url()}}}).to_string()).write();
    let launch = Launch::program(program("mcp-aggregator")).arg("stdio").arg("--config").arg(config.path());
    let mut client = ModernStdio::new(launch.start());
    client.ids("tools/list");
    let meta = format!(r#"{{ "{VERSION}":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}, "k":1.0}}"#);
    let arguments = r#"{"text":"\u0041","n":1e2, "region":"r"}"#;
    let params = format!(r#"{{"_meta":{meta},"name":"web.region","arguments":{arguments}}}"#);
    client.send_line(&format!(r#"{{"jsonrpc":"2.0","id":"c","method":"tools/call","params":{params}}}"#));
    let answer = client.driver.response_line("c");
    assert_eq!(raw::at(&answer, &["result", "structuredContent"]), Some(arguments));
    let requests = server.requests();
    let call = requests.iter().find(|request| request.is("tools/call")).unwrap();
    assert_eq!(raw::at(&call.body, &["params", "_meta"]), Some(meta.as_str()));
    assert_eq!(call.header("mcp-param-region"), Some("r"));
}
