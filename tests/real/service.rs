//! `mcp-aggregator` as real clients reach it: over HTTP, or as a command line.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value, json};
use testkit::config::ConfigFile;
use testkit::{Config, Driver, Launch, program};

/// `mcp-aggregator serve` on a port of its own. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Service {
    /// Locked, because several tests may read it.
    process: Mutex<Driver>,
    address: String,
    /// Its config and its registry.
    _folder: ConfigFile,
}

impl Service {
    /// Starts it in front of these servers, and waits until it listens.
    #[track_caller]
    pub(super) fn start(servers: &[(&str, Value)], home: &Path) -> Self {
        let config = config_of(servers).write();
        let launch = Launch::program(program("mcp-aggregator")).arg("serve").arg("--config").arg(config.path());
        let launch = launch.arg("--data-dir").arg(config.folder().join("data"));
        let process = launch.args(["--listen", "127.0.0.1:0"]).env("HOME", home).start();
        let reported = "listening on ";
        process.wait_for_stderr(reported);
        // Whole lines are written at once.
        let stderr = process.stderr_text();
        let address = stderr.split(reported).nth(1).and_then(|rest| rest.lines().next()).expect("it was just seen");
        Self { address: address.to_owned(), process: Mutex::new(process), _folder: config }
    }

    /// The Streamable HTTP endpoint of all servers, for a client.
    pub(super) fn mcp(&self) -> Value {
        json!({"type": "http", "url": format!("{}/mcp", self.address)})
    }

    /// The HTTP+SSE endpoint of all servers, for a client.
    pub(super) fn sse(&self) -> Value {
        json!({"type": "sse", "url": format!("{}/sse", self.address)})
    }

    /// The Streamable HTTP endpoint of one server, for a client.
    pub(super) fn mcp_of(&self, server: &str) -> Value {
        json!({"type": "http", "url": format!("{}/mcp/{server}", self.address)})
    }

    /// The HTTP+SSE endpoint of one server, for a client.
    pub(super) fn sse_of(&self, server: &str) -> Value {
        json!({"type": "sse", "url": format!("{}/sse/{server}", self.address)})
    }

    /// Its stderr so far.
    pub(super) fn stderr_text(&self) -> String {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).stderr_text()
    }
}

/// `mcp-aggregator stdio` in front of these servers, for a client to start.
#[track_caller]
pub(super) fn over_stdio(config: &Path) -> Value {
    json!({"command": program("mcp-aggregator"), "args": ["stdio", "--config", config], "env": {}})
}

/// Our config of these servers, in this order.
pub(super) fn config_of(servers: &[(&str, Value)]) -> Config {
    let servers: Map<String, Value> = servers.iter().map(|(key, entry)| ((*key).to_owned(), entry.clone())).collect();
    Config::new().raw(json!({"mcpServers": servers}).to_string())
}
