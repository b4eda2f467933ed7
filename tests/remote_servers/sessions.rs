//! The session with a server, from start to end.

use serde_json::json;
use testkit::{HttpServer, Script, Signal, client::REVISION};

use super::{assert_echoes, connected, count, problem_of, wait_for_tool};
use crate::fixture::text_of;

#[test]
fn every_request_after_the_first_carries_the_session_and_the_revision() {
    let server = HttpServer::start(Script::default().with_session().with_get_stream());
    let mut client = connected(&server);
    assert_echoes(&mut client);
    let requests = server.wait_for(|requests| requests.iter().any(|request| request.method == "GET"));
    // Probing for the modern revision happens outside of the session.
    let requests: Vec<_> = requests.into_iter().filter(|request| !request.is("server/discover")).collect();
    let (first, later) = requests.split_first().unwrap();
    assert!(first.is("initialize"));
    assert_eq!((first.header("mcp-session-id"), first.header("mcp-protocol-version")), (None, None));
    assert!(later.len() >= 4);
    for request in later {
        assert_eq!(request.header("mcp-session-id"), Some("session-1"), "{request:?}");
        assert_eq!(request.header("mcp-protocol-version"), Some(REVISION), "{request:?}");
    }
    for request in &requests {
        let (accepted, content) = match request.method.as_str() {
            "GET" => ("text/event-stream", None),
            _ => ("application/json, text/event-stream", Some("application/json")),
        };
        assert_eq!((request.header("accept"), request.header("content-type")), (Some(accepted), content));
    }
}

#[test]
fn a_session_is_ended_when_we_end() {
    for end in ["stdin", "signal"] {
        let server = HttpServer::start(Script::default().with_session().with_get_stream());
        let mut client = connected(&server);
        assert_echoes(&mut client);
        match end {
            "stdin" => client.close_stdin(),
            _ => client.signal(Signal::TERM),
        }
        client.wait_exit();
        let requests = server.requests();
        let last = requests.last().unwrap();
        assert_eq!((last.method.as_str(), last.header("mcp-session-id")), ("DELETE", Some("session-1")), "{end}");
        assert!(server.sessions().is_empty());
    }
}

#[test]
fn without_a_session_there_is_nothing_to_end() {
    let server = HttpServer::start(Script::default());
    let mut client = connected(&server);
    assert_echoes(&mut client);
    client.close_stdin();
    assert!(client.wait_exit().success());
    let requests = server.requests();
    assert!(requests.iter().all(|request| request.method != "DELETE" && request.header("mcp-session-id").is_none()));
}

#[test]
fn a_forgotten_session_is_renewed_once_for_all_calls_and_they_are_answered() {
    let server = HttpServer::start(Script::default().with_session());
    let mut client = connected(&server);
    assert_echoes(&mut client);
    server.forget_sessions();
    let calls: Vec<u64> = (0..8).map(|_| client.start_call("web.sleep", json!({"ms": 20}))).collect();
    for id in calls {
        assert_eq!(text_of(&client.response(id)), "slept");
    }
    let requests = server.requests();
    assert_eq!(count(&requests, "initialize"), 2);
    assert_eq!(count(&requests, "notifications/initialized"), 2);
    let renewal = requests.iter().rfind(|request| request.is("initialize")).unwrap();
    assert_eq!(renewal.header("mcp-session-id"), None);
    assert_eq!(server.sessions().len(), 1);
    assert_eq!(client.stderr_text(), "");
}

#[test]
fn a_server_that_keeps_losing_sessions_is_not_retried_forever() {
    let server = HttpServer::start(Script::default().with_session().status_once(404, None).status_once(404, None));
    let mut client = connected(&server);
    let problem = problem_of(&client.call("web.echo", json!({})));
    assert!(problem.contains("404"), "{problem}");
    let requests = server.requests();
    assert_eq!((count(&requests, "tools/call"), count(&requests, "initialize")), (2, 2));
    assert_echoes(&mut client);
}

#[test]
fn the_next_call_retries_a_failed_session_renewal() {
    let server = HttpServer::start(Script::default().with_session());
    let mut client = connected(&server);
    assert_echoes(&mut client);
    server.forget_sessions();
    server.change(|script| script.refuse_initialize(500));
    let problem = problem_of(&client.call("web.echo", json!({})));
    assert!(problem.contains("500"), "{problem}");
    server.change(Script::healed);
    assert_echoes(&mut client);
}

#[test]
fn after_a_session_renewal_changes_arrive_again() {
    let server = HttpServer::start(Script::default().with_session().with_get_stream());
    let mut client = connected(&server);
    assert_echoes(&mut client);
    server.wait_for(|requests| requests.iter().any(|request| request.method == "GET"));
    server.forget_sessions();
    server.close_streams();
    // The stream is requested again, in a session that has ended.
    server.wait_for(|requests| requests.iter().filter(|request| request.method == "GET").count() >= 2);
    assert_eq!(text_of(&client.call("web.change_tools", json!({"names": ["new"]}))), "done");
    wait_for_tool(&mut client, "web.new", true);
    client.call("web.change_tools", json!({"names": []}));
    wait_for_tool(&mut client, "web.new", false);
}

#[test]
fn after_a_renewal_tools_are_listed_again_for_it_may_be_another_server() {
    let server = HttpServer::start(Script::default().with_session());
    let mut client = connected(&server);
    // No notification is sent, because there is no stream.
    client.call("web.change_tools", json!({"names": ["new"]}));
    assert!(!client.tool_names().contains(&"web.new".to_owned()));
    server.forget_sessions();
    assert_echoes(&mut client);
    wait_for_tool(&mut client, "web.new", true);
}
