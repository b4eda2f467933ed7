//! Credentials go to the server and nowhere else.

use serde_json::{Value, json};
use testkit::{HttpServer, Script};

use super::{assert_echoes, connected_to, count, initialized, problem_of};
use crate::fixture::error_of;

const SECRET: &str = "hunter2-correct-horse";

fn guarded() -> Script {
    let script = Script::default().with_session().with_get_stream();
    script.require_header("authorization", &format!("Bearer {SECRET}")).require_header("x-team", "blue")
}

fn entry(server: &HttpServer) -> Value {
    let headers = json!({"Authorization": "Bearer ${WEB_TOKEN}", "X-Team": "blue"});
    json!({"web": {"url": format!("{}?key=${{WEB_TOKEN}}", server.url()), "headers": headers}})
}

#[test]
fn headers_reach_the_server_with_every_request_and_appear_nowhere() {
    let server = HttpServer::start(guarded());
    let mut client = initialized(&entry(&server), |launch| launch.arg("--debug").env("WEB_TOKEN", SECRET));
    assert_echoes(&mut client);
    server.wait_for(|requests| requests.iter().any(|request| request.method == "GET"));
    // Now every kind of failure, checking the messages.
    let mut words = String::new();
    for status in [400, 401, 403, 404, 418, 500] {
        server.change(|script| script.status_once(status, None));
        words.push_str(&client.call("web.echo", json!({})).to_string());
    }
    server.change(|script| script.redirect_once(307, "http://192.0.2.1/elsewhere"));
    words.push_str(&client.call("web.echo", json!({})).to_string());
    server.change(Script::garbage);
    words.push_str(&client.call("web.echo", json!({})).to_string());
    server.change(Script::healed);
    assert_echoes(&mut client);
    client.close_stdin();
    assert!(client.wait_exit().success());

    let requests = server.requests();
    assert!(requests.iter().any(|request| request.method == "DELETE"));
    for request in requests {
        assert_eq!(request.header("authorization"), Some(format!("Bearer {SECRET}").as_str()));
        assert_eq!(request.header("x-team"), Some("blue"));
        assert!(request.path.ends_with(&format!("?key={SECRET}")), "{}", request.path);
    }
    let log = client.stderr_text();
    assert!(log.contains("server is running"), "{log}");
    assert!(!log.contains(SECRET), "{log}");
    assert!(!words.contains(SECRET), "{words}");
}

#[test]
fn an_unreachable_server_is_reported_without_its_secrets() {
    let server = HttpServer::start(Script::default());
    let servers = entry(&server);
    server.stop();
    let mut client = initialized(&servers, |launch| launch.arg("--debug").env("WEB_TOKEN", SECRET));
    let answer = client.call("web.echo", json!({})).to_string();
    client.wait_for_stderr("unreachable");
    assert!(!answer.contains(SECRET) && !client.stderr_text().contains(SECRET), "{answer}\n{}", client.stderr_text());
}

#[test]
fn wrong_credentials_at_the_start_cost_one_request_and_are_reported() {
    let server = HttpServer::start(guarded());
    let mut client = initialized(&entry(&server), |launch| launch.env("WEB_TOKEN", "wrong"));
    assert_eq!(client.tool_names(), [""; 0]);
    let answer = client.call("web.echo", json!({}));
    let detail = answer["error"]["data"]["detail"].as_str().unwrap().to_owned();
    for words in ["credentials", "401", "realm=\"fake-http-server\""] {
        assert!(detail.contains(words), "{words} in {detail}");
    }
    client.wait_for_stderr("server `web` failed during initialization: it requires other credentials (HTTP 401");
    client.close_stdin();
    client.wait_exit();
    assert_eq!(server.requests().len(), 1);
    assert!(!client.stderr_text().contains("wrong"));
}

#[test]
fn wrong_credentials_at_a_call_fail_it_without_a_second_try() {
    let server = HttpServer::start(Script::default().status_once(401, None).status_once(403, None));
    let mut client = connected_to(&json!({"web": {"url": server.url()}}));
    for status in ["401", "403"] {
        let problem = problem_of(&client.call("web.echo", json!({})));
        assert!(problem.contains(status), "{problem}");
    }
    assert_eq!(count(&server.requests(), "tools/call"), 2);
    assert_echoes(&mut client);
}

#[test]
fn a_server_whose_variable_is_not_set_fails_alone_and_nothing_is_sent_to_it() {
    let server = HttpServer::start(Script::default());
    let config = testkit::Config::new().raw(json!({"mcpServers": entry(&server)}).to_string()).write();
    let output = testkit::run(
        testkit::program("mcp-aggregator"),
        ["stdio".as_ref(), "--config".as_ref(), config.path().as_os_str()],
    );
    assert_eq!(output.status.code(), Some(0));
    assert!(
        output
            .stderr
            .contains("server `web` failed during startup: WEB_TOKEN is not set; used at $.mcpServers.web.url, $.mcpServers.web.headers.Authorization"),
        "{}",
        output.stderr
    );
    assert_eq!(server.connections(), 0);
}

#[test]
fn the_error_of_a_server_that_failed_names_it() {
    let server = HttpServer::start(guarded());
    let mut client = connected_to(&json!({"web": {"url": server.url()}}));
    let answer = client.call("web.echo", json!({}));
    let message = error_of(&answer).1;
    assert!(message.starts_with("Server `web` requires a sign-in"), "{message}");
    assert!(message.contains("run `mcp-aggregator login web --config "), "{message}");
    assert_eq!(answer["error"]["data"]["server"], "web");
    assert_eq!(answer["error"]["data"]["reason"], "sign_in_required");
}
