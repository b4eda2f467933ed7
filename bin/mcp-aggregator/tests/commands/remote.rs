//! Every verb with servers that run elsewhere.

use serde_json::json;
use testkit::config::ConfigFile;
use testkit::{Config, HttpServer, Launch, Script};

use crate::{PROGRAM, Run, expect, json, run};

/// A config with one server `web`, beside whatever else an entry has.
fn web(server: &HttpServer, more: &serde_json::Value) -> ConfigFile {
    let mut entry = json!({"url": server.url()});
    for (key, value) in more.as_object().into_iter().flatten() {
        entry[key] = value.clone();
    }
    Config::new().raw(json!({"mcpServers": {"web": entry}}).to_string()).write()
}

#[test]
fn an_address_is_displayed_without_secrets_and_without_a_request() {
    let server = HttpServer::start(Script::default());
    let address = format!("{}?key=${{KEY}}", server.url());
    let config = web(&server, &json!({"url": address, "headers": {"Authorization": "Bearer ${KEY}"}}));
    for arguments in [&[][..], &["--json"]] {
        let output = Run::new("check", config.path()).args(arguments).env("KEY", "hunter2").output();
        expect(&output, 0);
        assert!(output.stdout.contains(&server.url()), "{}", output.stdout);
        assert!(!output.stdout.contains("hunter2") && !output.stderr.contains("hunter2"));
        assert!(!output.stdout.contains("Authorization"));
    }
    let plan = json(&Run::new("check", config.path()).args(&["--json"]).env("KEY", "hunter2").output());
    assert_eq!(plan["servers"][0], json!({"server": "web", "url": server.url()}));
    assert_eq!(server.connections(), 0);
}

#[test]
fn servers_in_every_dialect_are_connected_counted_and_disconnected() {
    let (newer, older) =
        (HttpServer::start(Script::default().with_session()), HttpServer::start(Script::default().sse()));
    let servers = json!({
        "plain": {"url": newer.url()},
        "http": {"type": "http", "url": newer.url()},
        "sse": {"type": "sse", "url": older.url()},
        "guessed": {"url": older.url()},
        "off": {"url": "http://192.0.2.1/", "disabled": true},
    });
    // As VS Code writes it, too.
    for key in ["mcpServers", "servers"] {
        let mut whole = json!({});
        whole[key] = servers.clone();
        let config = Config::new().raw(whole.to_string()).write();
        let output = run("check", &config, &["--start"]);
        expect(&output, 0);
        assert_eq!(output.stdout.lines().filter(|line| line.contains(" running   6 ")).count(), 4, "{}", output.stdout);
        assert_eq!(output.stderr, "all 4 servers work\n");
        assert!(newer.sessions().is_empty(), "every session was ended");
    }
}

#[test]
fn a_server_that_fails_is_reported_with_why() {
    let guarded = HttpServer::start(Script::default().require_header("authorization", "Bearer right"));
    let gone = HttpServer::start(Script::default());
    let page = HttpServer::start(Script::default().garbage());
    let servers = json!({
        "guarded": {"url": guarded.url(), "headers": {"Authorization": "Bearer hunter2"}},
        "gone": {"url": gone.url()},
        "page": {"url": page.url()},
    });
    gone.stop();
    let config = Config::new().raw(json!({"mcpServers": servers}).to_string()).write();
    let output = run("check", &config, &["--start"]);
    expect(&output, 1);
    for needed in [
        "why: initialization: it requires other credentials (HTTP 401 Unauthorized, Bearer realm=",
        "why: initialization: it is unreachable: Connection refused",
        "why: initialization: it supports neither Streamable HTTP (it answered with text/html",
    ] {
        assert!(output.stdout.contains(needed), "{needed:?} in\n{}", output.stdout);
    }
    assert_eq!(output.stderr, "error: 3 of 3 servers failed\n");
    assert!(!output.stdout.contains("hunter2"));
    assert_eq!(guarded.requests().len(), 1);

    let reply = json(&run("check", &config, &["--start", "--json"]));
    assert_eq!((&reply["ok"], &reply["servers"][0]["state"]), (&json!(false), &json!("failed")));
}

#[test]
fn tools_are_listed_and_one_is_called() {
    for script in [Script::default().with_session(), Script::default().answers_as_sse(), Script::default().sse()] {
        let server = HttpServer::start(script);
        let config = web(&server, &json!({}));
        let output = run("tools", &config, &[]);
        expect(&output, 0);
        let names: Vec<&str> = output.stdout.lines().map(str::trim_end).collect();
        assert_eq!(names, ["web.echo", "web.raw", "web.sleep", "web.progress", "web.hang", "web.change_tools"]);

        let output = run("call", &config, &["web.echo", "text=hello"]);
        expect(&output, 0);
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("hello\n", ""));
        let result = r#"{"content":[],"x":1e2,"isError":true}"#;
        let output = run("call", &config, &["web.raw", "--json", &json!({"result": result}).to_string()]);
        expect(&output, 3);
        assert_eq!(output.stdout, format!("{result}\n"));
    }
}

#[test]
fn an_http_error_of_a_server_fails_the_call() {
    let server = HttpServer::start(Script::default().status_once(500, None));
    let config = web(&server, &json!({}));
    let output = run("call", &config, &["web.echo"]);
    expect(&output, 1);
    assert_eq!(output.stdout, "");
    assert!(output.stderr.starts_with("error: "), "{}", output.stderr);
    assert!(output.stderr.contains("`web`") && output.stderr.contains("HTTP 500"), "{}", output.stderr);
}

#[test]
fn it_serves_them_over_stdio() {
    let server = HttpServer::start(Script::default());
    let config = web(&server, &json!({}));
    let mut client = Launch::program(PROGRAM).arg("stdio").arg("--config").arg(config.path()).start();
    client.initialize();
    let answer = client.call("web.echo", json!({"text": "hello"}));
    assert_eq!(answer["result"]["content"][0]["text"], "hello");
}

#[test]
fn an_address_that_is_none_is_named_by_every_verb() {
    let config = Config::new().raw(r#"{"mcpServers": {"web": {"url": "ftp://example.com/mcp"}}}"#).write();
    for (verb, more) in [("check", None), ("tools", None), ("call", Some("web.x")), ("stdio", None)] {
        let output = run(verb, &config, more.as_slice());
        expect(&output, 1);
        assert!(
            output.stderr.contains("$.mcpServers.web.url  must start with http:// or https://"),
            "{}",
            output.stderr
        );
    }
}
