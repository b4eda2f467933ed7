//! Failed requests, and what a client gets.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::{Driver, HttpServer, Script};

use super::{assert_echoes, connected, connected_to, count, problem_of};

#[test]
fn a_busy_server_is_retried_after_the_pause_it_requests() {
    for script in [Script::default(), Script::default().sse()] {
        let server = HttpServer::start(script.status_once(429, Some(1)).status_once(503, Some(0)));
        let mut client = connected(&server);
        assert_echoes(&mut client);
        assert_eq!(count(&server.requests(), "tools/call"), 3);
        assert_eq!(client.stderr_text(), "");
    }
}

#[test]
fn a_server_that_stays_busy_or_demands_a_long_pause_fails_the_call() {
    let always = (0..10).fold(Script::default(), |script, _| script.status_once(503, Some(0)));
    for (script, most) in [(always, 5), (Script::default().status_once(429, Some(3600)), 1)] {
        let server = HttpServer::start(script);
        let mut client = connected(&server);
        let answer = client.call("web.echo", json!({}));
        let problem = problem_of(&answer);
        let [why, how_long] = if most == 1 { ["429", "3600 s"] } else { ["503", "4 attempts failed"] };
        assert!([why, how_long, "overloaded"].iter().all(|word| problem.contains(word)), "{problem}");
        assert_eq!(answer["error"]["data"]["reason"], "server_busy");
        assert!(count(&server.requests(), "tools/call") <= most);
        server.change(Script::healed);
        assert_echoes(&mut client);
    }
}

#[test]
fn a_retry_waits_at_least_a_second_even_if_the_server_demands_no_pause() {
    let server = HttpServer::start(Script::default().status_once(429, Some(0)));
    let mut client = connected(&server);
    let begin = Instant::now();
    assert_echoes(&mut client);
    assert!(begin.elapsed() >= Duration::from_secs(1), "{:?}", begin.elapsed());
}

#[test]
fn http_503_without_retry_after_is_retried_only_for_idempotent_requests() {
    let server = HttpServer::start(Script::default());
    let mut client = connected(&server);
    // It may come from a proxy that lost the server during the call.
    server.change(|script| script.status_once(503, None));
    let answer = client.call("web.echo", json!({}));
    assert!(problem_of(&answer).contains("503"), "{answer}");
    assert_eq!(answer["error"]["data"]["safeToRetry"], false);
    assert_eq!(count(&server.requests(), "tools/call"), 1);
    // "Too many requests" must name the server.
    server.change(|script| script.status_once(429, None));
    assert_echoes(&mut client);
}

#[test]
fn a_refused_call_is_not_reported_as_safe_to_retry() {
    let server = HttpServer::start(Script::default());
    let mut client = connected(&server);
    let assert_refused = |client: &mut Driver| {
        let data = &client.call("web.echo", json!({}))["error"]["data"];
        assert_eq!((&data["reason"], &data["safeToRetry"]), (&json!("server_refused"), &json!(false)));
    };
    for status in [401, 403, 404, 500] {
        server.change(|script| script.status_once(status, None));
        assert_refused(&mut client);
    }
    server.change(|script| script.redirect_once(307, "http://elsewhere.example/"));
    assert_refused(&mut client);
    server.change(Script::garbage);
    assert_refused(&mut client);
}

#[test]
fn a_status_that_is_no_success_fails_the_call_and_no_other() {
    for (script, statuses) in
        [(Script::default(), &[400, 404, 405, 418, 500, 502][..]), (Script::default().sse(), &[400, 500])]
    {
        let server = HttpServer::start(script);
        let mut client = connected(&server);
        for status in statuses {
            server.change(|script| script.status_once(*status, None));
            let problem = problem_of(&client.call("web.echo", json!({})));
            assert!(problem.contains(&status.to_string()), "{problem}");
            assert!(problem.contains("As the script says"), "what the server said is told: {problem}");
            assert_echoes(&mut client);
        }
        assert_eq!(count(&server.requests(), "tools/call"), 2 * statuses.len(), "nothing was tried twice");
    }
}

#[test]
fn a_redirect_within_the_same_origin_is_followed_with_the_whole_request() {
    let server = HttpServer::start(Script::default().with_session());
    let mut client = connected(&server);
    for location in ["/mcp?again", &format!("{}/mcp?again", server.origin()), "mcp?again"] {
        for status in [307, 308] {
            server.change(|script| script.redirect_once(status, location));
            assert_echoes(&mut client);
            let requests = server.requests();
            let [.., first, second] = &requests[..] else { panic!("two requests") };
            assert_eq!((first.path.as_str(), second.path.as_str()), ("/mcp", "/mcp?again"));
            assert_eq!(first.body, second.body);
            assert_eq!(second.header("mcp-session-id"), Some("session-1"));
        }
    }
}

#[test]
fn a_redirect_to_another_origin_is_refused_without_a_request_there() {
    let (server, elsewhere) = (HttpServer::start(Script::default()), HttpServer::start(Script::default()));
    let mut client = connected(&server);
    server.change(|script| script.redirect_once(307, format!("{}?code=hunter2", elsewhere.url())));
    let problem = problem_of(&client.call("web.echo", json!({})));
    assert!(problem.contains(&elsewhere.url()) && problem.contains("not followed"), "{problem}");
    assert!(!problem.contains("hunter2"), "{problem}");
    assert_eq!(elsewhere.connections(), 0);
    assert_echoes(&mut client);
}

#[test]
fn a_redirect_that_goes_round_in_a_loop_ends() {
    let circle = (0..20).fold(Script::default(), |script, _| script.redirect_once(307, "/mcp"));
    let server = HttpServer::start(circle);
    let mut client = connected(&server);
    let problem = problem_of(&client.call("web.echo", json!({})));
    assert!(problem.contains("307"), "{problem}");
    assert!(count(&server.requests(), "tools/call") < 10);
}

#[test]
fn a_web_page_instead_of_an_answer_is_named() {
    let server = HttpServer::start(Script::default());
    let mut client = connected(&server);
    assert_echoes(&mut client);
    server.change(Script::garbage);
    let problem = problem_of(&client.call("web.echo", json!({})));
    assert!(problem.contains("text/html instead of JSON"), "{problem}");
    server.change(Script::healed);
    assert_echoes(&mut client);
}

#[test]
fn a_web_page_at_the_start_fails_the_server_with_a_clear_cause() {
    let server = HttpServer::start(Script::default().garbage());
    for entry in [
        json!({"url": server.url()}),
        json!({"type": "http", "url": server.url()}),
        json!({"type": "sse", "url": server.url()}),
    ] {
        let mut client = connected_to(&json!({"web": entry}));
        let answer = client.call("web.echo", json!({}));
        let detail = answer["error"]["data"]["detail"].as_str().unwrap();
        let expected = match entry["type"].as_str() {
            None => "neither Streamable HTTP",
            Some("sse") => "405",
            Some(_) => "text/html",
        };
        assert!(detail.contains(expected), "{entry}: {detail}");
    }
}

#[test]
fn an_answer_that_breaks_off_fails_the_call_which_is_not_sent_again() {
    for script in [Script::default(), Script::default().answers_as_sse()] {
        let server = HttpServer::start(script);
        let mut client = connected(&server);
        assert_echoes(&mut client);
        server.change(Script::close_after_headers);
        let problem = problem_of(&client.call("web.echo", json!({})));
        assert!(problem.contains("ended early") || problem.contains("did not answer"), "{problem}");
        server.change(Script::healed);
        assert_echoes(&mut client);
        assert_eq!(count(&server.requests(), "tools/call"), 3);
    }
}

#[test]
fn a_late_response_is_awaited() {
    let server = HttpServer::start(Script::default().slow_headers(300));
    let mut client = connected(&server);
    assert_echoes(&mut client);
    assert_eq!(client.stderr_text(), "");
}
