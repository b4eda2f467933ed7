//! A remote real server over both HTTP transports.

use serde_json::{Value, json};
use testkit::{Config, Driver, Launch, program, raw};

use super::http_servers::{HttpServer, TRANSPORTS};
use super::parts::{Part, Parts};
use super::servers;
use crate::fixture::text_of;

/// `mcp-aggregator` with this one server, called `everything`.
fn behind_us(entry: &Value) -> Driver {
    let config = Config::new().raw(json!({"mcpServers": {"everything": entry}}).to_string()).write();
    let launch = Launch::program(program("mcp-aggregator")).arg("stdio").arg("--config").arg(config.path());
    let mut client = launch.start();
    client.initialize();
    client
}

/// Servers list more tools to clients with capabilities, which we have.
fn initialize_with_all_we_offer(server: &mut Driver) {
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {}, "sampling": {}, "elicitation": {"form": {}, "url": {}}},
        "clientInfo": {"name": "test", "version": "1.0.0"},
    });
    let id = server.request("initialize", params);
    server.response(id);
    server.notify("notifications/initialized", json!({}));
}

#[test]
fn its_tools_are_listed_as_the_same_server_lists_them_over_stdio() {
    let Some(parts) = Parts::with(&[Part::Npm]) else { return };
    let mut direct = servers::everything(&parts).launch().start();
    initialize_with_all_we_offer(&mut direct);
    let expected: Vec<String> =
        direct.list_raw_tools().iter().map(|tool| tool.replacen("\"name\":\"", "\"name\":\"everything.", 1)).collect();
    assert_eq!(expected.len(), 17, "the pinned release has these many tools for clients that can be asked");
    for transport in TRANSPORTS {
        let server = HttpServer::everything(&parts, transport);
        for entry in [server.entry(), server.bare_entry()] {
            let mut client = behind_us(&entry);
            assert_eq!(client.list_raw_tools(), expected, "{transport:?} {entry}");
            client.close_stdin();
            assert!(client.wait_exit().success());
            assert_eq!(client.stderr_text(), "", "{transport:?} {entry}");
        }
    }
}

#[test]
fn its_tools_are_called_as_over_stdio() {
    let Some(parts) = Parts::with(&[Part::Npm]) else { return };
    let calls = [
        ("echo", json!({"message": "grüße 😀 \u{2028}"})),
        ("get-sum", json!({"a": 1, "b": 2.5})),
        ("get-tiny-image", json!({})),
        ("get-structured-content", json!({"location": "Chicago"})),
        ("echo", json!({"message": 5})),
    ];
    let mut direct = servers::everything(&parts).launch().start();
    direct.initialize();
    let outcome = |client: &mut Driver, prefix: &str| -> Vec<Vec<String>> {
        let ask = |(tool, arguments): &(&str, Value)| {
            let id = client.start_call(&format!("{prefix}{tool}"), arguments.clone());
            let line = client.response_line(id);
            ["result", "error"].iter().filter_map(|member| raw::at(&line, &[member]).map(str::to_owned)).collect()
        };
        calls.iter().map(ask).collect()
    };
    let expected = outcome(&mut direct, "");
    assert!(expected[0][0].contains("Echo: grüße"), "{expected:?}");
    for transport in TRANSPORTS {
        let server = HttpServer::everything(&parts, transport);
        let mut client = behind_us(&server.bare_entry());
        assert_eq!(outcome(&mut client, "everything."), expected, "{transport:?}");
    }
}

#[test]
fn a_long_operation_reports_every_step_and_delays_no_other_call() {
    let Some(parts) = Parts::with(&[Part::Npm]) else { return };
    for transport in TRANSPORTS {
        let server = HttpServer::everything(&parts, transport);
        let mut client = behind_us(&server.entry());
        let long = json!({
            "name": "everything.trigger-long-running-operation",
            "arguments": {"duration": 0.8, "steps": 4},
            "_meta": {"progressToken": "mine"},
        });
        let id = client.request("tools/call", long);
        assert_eq!(text_of(&client.call("everything.echo", json!({"message": "meanwhile"}))), "Echo: meanwhile");
        for step in 1..=4 {
            let progress = client.notification("notifications/progress");
            assert_eq!(progress["params"]["progressToken"], "mine");
            assert_eq!((&progress["params"]["progress"], &progress["params"]["total"]), (&json!(step), &json!(4)));
        }
        let answer = client.response(id);
        let done = "Long running operation completed. Duration: 0.8 seconds, Steps: 4.";
        assert_eq!(text_of(&answer), done, "{transport:?}");
    }
}

#[test]
fn a_restarted_server_gets_a_new_handshake() {
    let Some(parts) = Parts::with(&[Part::Npm]) else { return };
    let [streamable, _] = TRANSPORTS;
    let server = HttpServer::everything(&parts, streamable);
    let port = server.port;
    let mut client = behind_us(&server.bare_entry());
    assert_eq!(text_of(&client.call("everything.echo", json!({"message": "one"}))), "Echo: one");
    drop(server);
    let _again = HttpServer::everything_on(&parts, streamable, port);
    // It does not know our session, and reports that with 400.
    assert_eq!(text_of(&client.call("everything.echo", json!({"message": "two"}))), "Echo: two");
}
