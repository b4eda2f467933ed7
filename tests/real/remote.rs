//! A real server that runs elsewhere, reached over both HTTP transports.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use testkit::{Config, Driver, Launch, program, raw, wait_until};

use super::parts::{Part, Parts};
use super::servers;
use crate::setting::text_of;

const TRANSPORTS: [Transport; 2] = [
    Transport { argument: "streamableHttp", path: "/mcp", kind: "http" },
    Transport { argument: "sse", path: "/sse", kind: "sse" },
];

/// A way to reach the server `everything`.
#[derive(Clone, Copy, Debug)]
struct Transport {
    /// What the server calls it.
    argument: &'static str,
    path: &'static str,
    /// What configs call it.
    kind: &'static str,
}

/// The server `everything` on a port of its own. It is killed and reaped when this is dropped.
struct Everything {
    child: Child,
    port: u16,
}

impl Everything {
    /// Starts it on a port and waits until it accepts connections.
    fn start_on(parts: &Parts, transport: Transport, port: u16) -> Self {
        let server = servers::everything(parts);
        let mut command = Command::new(&server.command);
        command.arg(&server.args[0]).arg(transport.argument).env("PORT", port.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut everything = Self { child: command.spawn().expect("node can be started"), port };
        wait_until("the server listens", || {
            assert!(everything.child.try_wait().expect("our own child can be waited for").is_none(), "it ended");
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()
        });
        everything
    }

    fn start(parts: &Parts, transport: Transport) -> Self {
        Self::start_on(parts, transport, free_port())
    }

    /// It in our config; with `kind`, if we are not to find out ourselves.
    fn entry(&self, transport: Transport, kind: Option<&str>) -> Value {
        let mut entry = json!({"url": format!("http://localhost:{}{}", self.port, transport.path)});
        if let Some(kind) = kind {
            entry["type"] = kind.into();
        }
        entry
    }
}

impl Drop for Everything {
    fn drop(&mut self) {
        // Both fail only if it has already ended and been reaped, which is what we want.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a test may listen on the loopback");
    listener.local_addr().expect("a bound listener has an address").port()
}

/// `mcp-aggregator` with this one server, called `everything`.
fn behind_us(entry: &Value) -> Driver {
    let config = Config::new().raw(json!({"mcpServers": {"everything": entry}}).to_string()).write();
    let launch = Launch::program(program("mcp-aggregator")).arg("stdio").arg("--config").arg(config.path());
    let mut client = launch.start();
    client.initialize();
    client
}

#[test]
fn its_tools_are_listed_as_the_same_server_lists_them_over_stdio() {
    let Some(parts) = Parts::with(&[Part::Npm]) else { return };
    let mut direct = servers::everything(&parts).launch().start();
    direct.initialize();
    let expected: Vec<String> =
        direct.list_raw_tools().iter().map(|tool| tool.replacen("\"name\":\"", "\"name\":\"everything.", 1)).collect();
    assert_eq!(expected.len(), 13, "the pinned release has these many tools");
    for transport in TRANSPORTS {
        let server = Everything::start(&parts, transport);
        for kind in [Some(transport.kind), None] {
            let mut client = behind_us(&server.entry(transport, kind));
            assert_eq!(client.list_raw_tools(), expected, "{transport:?} {kind:?}");
            client.close_stdin();
            assert!(client.wait_exit().success());
            assert_eq!(client.stderr_text(), "", "{transport:?} {kind:?}");
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
        let server = Everything::start(&parts, transport);
        let mut client = behind_us(&server.entry(transport, None));
        assert_eq!(outcome(&mut client, "everything."), expected, "{transport:?}");
    }
}

#[test]
fn a_long_operation_reports_every_step_and_delays_no_other_call() {
    let Some(parts) = Parts::with(&[Part::Npm]) else { return };
    for transport in TRANSPORTS {
        let server = Everything::start(&parts, transport);
        let mut client = behind_us(&server.entry(transport, Some(transport.kind)));
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
fn a_server_that_was_started_anew_is_met_anew() {
    let Some(parts) = Parts::with(&[Part::Npm]) else { return };
    let [streamable, _] = TRANSPORTS;
    let server = Everything::start(&parts, streamable);
    let port = server.port;
    let mut client = behind_us(&server.entry(streamable, None));
    assert_eq!(text_of(&client.call("everything.echo", json!({"message": "one"}))), "Echo: one");
    drop(server);
    let _again = Everything::start_on(&parts, streamable, port);
    // It does not know our session, and says so with 400.
    assert_eq!(text_of(&client.call("everything.echo", json!({"message": "two"}))), "Echo: two");
}
