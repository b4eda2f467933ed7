//! Servers that are unreachable, disappear, come back or never respond.

use std::time::Duration;

use serde_json::json;
use testkit::{HttpServer, Script, Signal};

use super::{assert_echoes, connected, connected_to, count, initialized, problem_of};
use crate::fixture::{START_TIMEOUT, text_of};

/// More than any shutdown takes, and much less than a hanging call.
const PROMPTLY: Duration = Duration::from_secs(45);

#[test]
fn a_server_that_is_not_there_fails_and_the_others_work() {
    let (server, gone) = (HttpServer::start(Script::default()), HttpServer::start(Script::default()));
    let address = gone.url();
    gone.stop();
    for dialect in ["http", "sse"] {
        let mut client =
            connected_to(&json!({"gone": {"type": dialect, "url": address}, "web": {"url": server.url()}}));
        assert_echoes(&mut client);
        assert!(client.tool_names().iter().all(|name| name.starts_with("web.")));
        let answer = client.call("gone.echo", json!({}));
        let detail = answer["error"]["data"]["detail"].as_str().unwrap();
        assert!(detail.contains("unreachable") && detail.contains("refused"), "{detail}");
        client.wait_for_stderr("server `gone` failed during initialization: it is unreachable");
    }
}

#[test]
fn a_server_that_does_not_answer_at_the_start_is_given_up() {
    let server = HttpServer::start(Script::default().slow_headers(60_000));
    for dialect in ["http", "sse"] {
        let servers = json!({"web": {"type": dialect, "url": server.url()}});
        let mut client = initialized(&servers, |launch| launch.env(START_TIMEOUT, "0.3"));
        let answer = client.call("web.echo", json!({}));
        let detail = answer["error"]["data"]["detail"].as_str().unwrap();
        assert!(detail.contains("did not answer `initialize`") || detail.contains("in time"), "{detail}");
    }
}

#[test]
fn a_server_that_becomes_unreachable_fails_its_calls_and_works_again_when_it_is_back() {
    for script in [Script::default(), Script::default().with_session().with_get_stream(), Script::default().sse()] {
        let server = HttpServer::start(script.clone());
        let mut client = connected(&server);
        assert_echoes(&mut client);
        let port = server.port();
        let hanging = client.start_call("web.hang", json!({}));
        server.wait_for(|requests| count(requests, "tools/call") == 2);
        server.stop();
        problem_of(&client.response(hanging));
        // A connection that was just being accepted is closed instead.
        problem_of(&client.call("web.echo", json!({})));
        for _ in 0..2 {
            let problem = problem_of(&client.call("web.echo", json!({})));
            assert!(problem.contains("unreachable"), "{problem}");
        }
        let back = HttpServer::start_on(port, script);
        assert_echoes(&mut client);
        assert_eq!(count(&back.requests(), "initialize"), usize::from(!back.sessions().is_empty()));
    }
}

#[test]
fn a_call_that_hangs_delays_no_other_server() {
    let (server, other) = (HttpServer::start(Script::default()), HttpServer::start(Script::default()));
    let mut client = connected_to(&json!({"other": {"url": other.url()}, "web": {"url": server.url()}}));
    client.start_call("web.hang", json!({}));
    server.wait_for(|requests| count(requests, "tools/call") == 1);
    assert_eq!(text_of(&client.call("other.echo", json!({"text": "quick"}))), "quick");
    assert_echoes(&mut client);
}

#[test]
fn a_call_that_hangs_does_not_keep_us() {
    for script in [Script::default().with_session(), Script::default().answers_as_sse(), Script::default().sse()] {
        for end in ["stdin", "signal"] {
            let server = HttpServer::start(script.clone());
            let mut client = connected(&server);
            let id = client.start_call("web.hang", json!({}));
            server.wait_for(|requests| count(requests, "tools/call") == 1);
            match end {
                "stdin" => client.close_stdin(),
                _ => client.signal(Signal::TERM),
            }
            problem_of(&client.response(id));
            assert!(client.exit_within(PROMPTLY).is_some(), "{end}");
            assert!(server.sessions().is_empty() || server.open_streams() > 0, "its session was ended");
        }
    }
}

#[test]
fn a_server_that_never_answers_a_farewell_does_not_keep_us() {
    let server = HttpServer::start(Script::default().with_session());
    let mut client = connected(&server);
    assert_echoes(&mut client);
    server.change(|script| script.slow_headers(60_000));
    client.close_stdin();
    assert!(client.exit_within(PROMPTLY).is_some_and(|status| status.success()));
}

#[test]
fn a_stop_during_a_handshake_is_prompt() {
    let server = HttpServer::start(Script::default().slow_headers(60_000));
    let mut client = connected(&server);
    server.wait_for(|requests| count(requests, "initialize") == 1);
    client.close_stdin();
    assert!(client.exit_within(PROMPTLY).is_some_and(|status| status.success()));
}

#[test]
fn a_machine_without_certificates_reaches_servers_that_need_none() {
    let server = HttpServer::start(Script::default());
    let servers = json!({"web": {"url": server.url()}, "safe": {"url": "https://192.0.2.1/mcp"}});
    let mut client =
        initialized(&servers, |launch| launch.env("SSL_CERT_FILE", "/nowhere").env("SSL_CERT_DIR", "/nowhere"));
    assert_echoes(&mut client);
    client.wait_for_stderr("server `safe` failed during initialization: no root certificates are available");
}
