//! Clients of others that sign in: the official SDKs, `mcp-remote`, and the Inspector.

use std::process::{Command, Stdio};

use serde_json::json;
use testkit::run::run_command;
use testkit::{ClientSession as _, Driver, Launch, free_port};

use super::Protected;
use crate::real::inspector::result;
use crate::real::oauth::person::{Person, Say};
use crate::real::parts::{Part, Parts};

/// Signs in with a client that prints the address to open, reads the one it leads to, and calls a tool twice.
#[track_caller]
fn sign_in_and_call(client: Launch, name: &str) {
    let mut client = client.start();
    let line = |client: &mut Driver| String::from_utf8(client.next_line()).expect("it prints text");
    let address = line(&mut client);
    let address = address.trim().strip_prefix("open ").unwrap_or_else(|| panic!("{name}: {address}"));
    assert!(address.contains("mcp%3Auser") && !address.contains("admin"), "{name}: {address}");
    let redirect = Person::new("bob").open_until(address, "/redirect");
    client.send_raw(format!("{redirect}\n").as_bytes());
    for _ in 0..2 {
        let called = line(&mut client);
        assert!(called.starts_with("called ") && called.contains("hello"), "{name}: {called}");
    }
    assert!(client.wait_exit().success(), "{name}: {}", client.stderr_text());
}

#[test]
fn clients_of_the_typescript_sdk_sign_in_and_go_on_after_a_refresh() {
    let Some(service) = Protected::start() else { return };
    let script = service.script("identity_client.mjs", include_str!("../../identity_client.mjs"));
    for version in ["v1", "v2"] {
        let client = service.node().arg(&script).args([version, &format!("{}/mcp", service.url)]);
        sign_in_and_call(client.args(["http://127.0.0.1:1/redirect", "fake.echo"]), version);
    }
}

#[test]
fn a_client_of_the_python_sdk_signs_in_and_goes_on_after_a_refresh() {
    let Some(parts) = Parts::with(&[Part::Python]) else { return };
    let Some(service) = Protected::start() else { return };
    let script = service.sandbox.script("identity_client.py", include_str!("../../identity_client.py"));
    let client = Launch::program(parts.python()).arg(script).arg(format!("{}/mcp", service.url));
    sign_in_and_call(client.args(["http://127.0.0.1:1/redirect", "fake.echo"]), "python");
}

#[test]
fn mcp_remote_signs_in_for_a_client_over_stdio() {
    const HELLO: &str = "Please authorize this client by visiting:\n";
    let Some(parts) = Parts::with(&[Part::Identity]) else { return };
    let Some(service) = Protected::start() else { return };
    let port = free_port().to_string();
    let mut remote = service.node().arg(parts.identity_file("mcp-remote/dist/proxy.js"));
    remote = remote.arg(format!("{}/mcp", service.url)).args([&port, "--host", "127.0.0.1"]);
    remote = remote.env("MCP_REMOTE_CONFIG_DIR", service.sandbox.path("mcp-remote")).env("BROWSER", "true");
    let mut remote = ["DISPLAY", "WAYLAND_DISPLAY"].into_iter().fold(remote, Launch::env_remove).start();
    let hello =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
    let id = remote.begin("initialize", hello);
    remote.wait_for_stderr(HELLO);
    remote.wait_for_stderr("&resource=");
    let text = remote.stderr_text();
    let address = text.split_once(HELLO).and_then(|(_, rest)| rest.lines().next()).expect("an address").to_owned();
    let page = Person::new("bob").open(&address, Say::Yes);
    assert_eq!(page.status, 200, "{page:?}");
    let answer = remote.answer_to(id);
    assert_eq!(answer["result"]["serverInfo"]["name"], "mcp-aggregator", "{answer}");
    remote.send_line(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let called = remote.ask("tools/call", json!({"name": "fake.echo", "arguments": {"text": "hello"}}));
    assert!(called["result"]["content"].to_string().contains("hello"), "{called}");
}

#[test]
fn the_inspector_calls_with_the_token_of_an_identity() {
    let Some(service) = Protected::start() else { return };
    let inspect = |token: &str| {
        let mut inspector = Command::new(service.parts.node());
        inspector.arg(service.parts.npm_file(".bin/mcp-inspector")).args(["--cli", &format!("{}/mcp", service.url)]);
        inspector.args(["--transport", "http", "--header", &format!("Authorization: Bearer {token}")]);
        inspector.args([
            "--method",
            "tools/call",
            "--tool-name",
            "fake.echo",
            "--tool-args-json",
            r#"{"text":"hello"}"#,
        ]);
        inspector.args(["--format", "json", "--quiet"]).env("HOME", service.sandbox.home()).stdin(Stdio::null());
        run_command(&mut inspector)
    };
    let called = result(&inspect(&service.token(&json!({"sub": "bob"}))));
    assert!(called["content"].to_string().contains("hello"), "{called}");
    let refused = inspect(&service.mint(&json!({"claims": {"sub": "bob"}, "by": "stranger"})));
    assert!(!refused.status.success(), "{refused:?}");
}
