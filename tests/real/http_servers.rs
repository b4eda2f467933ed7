//! Real servers that run on their own and are reached over HTTP.

use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use testkit::{free_port, wait_until};

use super::parts::Parts;
use super::sandbox::Sandbox;
use super::servers::{self, Server};

/// The transports of the server `everything`.
pub(super) const TRANSPORTS: [Transport; 2] = [
    Transport { argument: "streamableHttp", path: "/mcp", kind: "http" },
    Transport { argument: "sse", path: "/sse", kind: "sse" },
];

/// A way to reach a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transport {
    /// The option of the server `everything`.
    argument: &'static str,
    path: &'static str,
    /// The value in configs.
    pub(super) kind: &'static str,
}

/// A server on a port of its own. It is killed and reaped when this is dropped.
#[derive(Debug)]
pub(super) struct HttpServer {
    child: Child,
    pub(super) port: u16,
    transport: Transport,
}

impl HttpServer {
    pub(super) fn everything(parts: &Parts, transport: Transport) -> Self {
        Self::everything_on(parts, transport, free_port())
    }

    pub(super) fn everything_on(parts: &Parts, transport: Transport, port: u16) -> Self {
        let Server { command, args, .. } = servers::everything(parts);
        let mut node = Command::new(command);
        node.arg(&args[0]).arg(transport.argument).env("PORT", port.to_string());
        Self::start(node, port, transport)
    }

    /// Our own server on FastMCP 4; see `fm.py`.
    pub(super) fn fastmcp(parts: &Parts, sandbox: &Sandbox) -> Self {
        let port = free_port();
        let Server { command, args, env, .. } = servers::fastmcp(parts, sandbox);
        let mut python = Command::new(command);
        python.args(args).args(["http", &port.to_string()]).envs(env);
        Self::start(python, port, TRANSPORTS[0])
    }

    /// Starts it and waits until it accepts connections.
    fn start(mut command: Command, port: u16, transport: Transport) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Self { child: command.spawn().expect("a real server can be started"), port, transport };
        wait_until("the server listens", || {
            assert!(server.child.try_wait().expect("our own child can be waited for").is_none(), "it ended");
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()
        });
        server
    }

    /// Its config entry with the transport.
    pub(super) fn entry(&self) -> Value {
        let mut entry = self.bare_entry();
        entry["type"] = self.transport.kind.into();
        entry
    }

    /// Its config entry without the transport, which is then detected.
    pub(super) fn bare_entry(&self) -> Value {
        json!({"url": format!("http://localhost:{}{}", self.port, self.transport.path)})
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // Both fail only if it has already ended and been reaped, which is fine.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
