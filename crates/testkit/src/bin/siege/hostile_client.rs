//! Clients, documents and bare sockets that ask for too much.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::http_client::{Ask, Connection};

use crate::hostile_server::Kind;
use crate::{ATTACKER_TOKEN, is_over};

/// Something that is done to the service again and again.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// The pause after each time.
    pause: Duration,
    /// Does it once; what came of it, in a word.
    act: fn(SocketAddr) -> Option<String>,
}

/// What came of an attack, and how often.
pub(crate) struct Tally {
    name: &'static str,
    outcomes: BTreeMap<String, u64>,
}

const fn attack(name: &'static str, pause_ms: u64, act: fn(SocketAddr) -> Option<String>) -> Attack {
    Attack { name, pause: Duration::from_millis(pause_ms), act }
}

pub(crate) const ATTACKS: [Attack; 15] = [
    attack("huge-client-name", 500, huge_client_name),
    attack("many-sessions", 5, many_sessions),
    attack("many-connections", 1_000, many_connections),
    attack("slow-body", 1_000, slow_body),
    attack("wrong-token", 5, wrong_token),
    attack("dry-run-doubling-schema", 200, dry_run_doubling_schema),
    attack("large-yaml", 500, large_yaml),
    attack("deep-json", 100, deep_json),
    attack("deep-markdown", 500, deep_markdown),
    attack("cancelled-calls", 20, cancelled_calls),
    attack("crashing-calls", 1_000, crashing_calls),
    attack("progress-calls", 2_000, progress_calls),
    attack("long-search", 200, long_search),
    attack("reconnect-servers", 3_000, reconnect_servers),
    attack("assistant-tools", 2_000, assistant_tools),
];

impl Attack {
    /// Repeats it until the siege is over.
    pub(crate) fn repeat(&self, address: SocketAddr) -> Tally {
        let mut outcomes = BTreeMap::new();
        while !is_over() {
            let outcome = (self.act)(address).unwrap_or_else(|| "closed".to_owned());
            *outcomes.entry(outcome).or_default() += 1;
            thread::sleep(self.pause);
        }
        Tally { name: self.name, outcomes }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:<24}", self.name)?;
        for (outcome, count) in &self.outcomes {
            write!(formatter, " {outcome}: {count}")?;
        }
        Ok(())
    }
}

fn authorized(ask: Ask) -> Ask {
    ask.header("Authorization", &format!("Bearer {ATTACKER_TOKEN}"))
}

/// Sends a request on a connection of its own; the status.
fn status(address: SocketAddr, ask: &Ask) -> Option<String> {
    let mut connection = Connection::try_open(address).ok()?;
    connection.try_fetch(ask).map(|(status, _)| status.to_string())
}

fn mcp(message: &Value) -> Ask {
    authorized(Ask::post("/mcp", message.to_string()))
}

fn rest(path: &str, body: &Value) -> Ask {
    authorized(Ask::post(&format!("/api/v1/aggregator{path}"), body.to_string())).header("Accept", "application/json")
}

fn hello(name: &str) -> Value {
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": name, "version": "1"},
        },
    })
}

/// A modern call, which stands for itself.
fn call(tool: &str) -> Ask {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "siege", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": 1,
    });
    let params = json!({"name": tool, "arguments": {}, "_meta": meta});
    mcp(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))
        .header("MCP-Protocol-Version", "2026-07-28")
        .header("Mcp-Method", "tools/call")
        .header("Mcp-Name", tool)
}

fn huge_client_name(address: SocketAddr) -> Option<String> {
    status(address, &mcp(&hello(&"n".repeat(60 << 20))))
}

fn many_sessions(address: SocketAddr) -> Option<String> {
    status(address, &mcp(&hello("siege")))
}

/// Opens connections that say nothing, and closes them after a while.
fn many_connections(address: SocketAddr) -> Option<String> {
    let connections: Vec<_> = (0..200).map_while(|_| Connection::try_open(address).ok()).collect();
    thread::sleep(Duration::from_secs(2));
    Some(format!("opened {}", connections.len() / 100 * 100))
}

/// Sends one byte a second of a body that never ends.
fn slow_body(address: SocketAddr) -> Option<String> {
    let mut connection = Connection::try_open(address).ok()?;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {ATTACKER_TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
    );
    connection.write(head.as_bytes()).ok()?;
    while !is_over() {
        connection.write(b" ").ok()?;
        thread::sleep(Duration::from_secs(1));
    }
    Some("still open at the end".to_owned())
}

fn wrong_token(address: SocketAddr) -> Option<String> {
    status(address, &Ask::post("/mcp", hello("siege").to_string()).header("Authorization", "Bearer wrong"))
}

fn document(block: &str) -> Value {
    json!({"text": block, "dry_run": true})
}

fn dry_run_doubling_schema(address: SocketAddr) -> Option<String> {
    let block = format!("# A\n\n```{}\ntool: t\nc: x\n```\n", Kind::DoublingSchema.name());
    status(address, &rest("/documents/run", &document(&block)))
}

fn large_yaml(address: SocketAddr) -> Option<String> {
    let mut block = "# A\n\n```good\ntool: echo\n".to_owned();
    for key in 0..40_000 {
        writeln!(block, "k{key}: v").expect("a string can be written");
    }
    block.push_str("```\n");
    status(address, &rest("/documents/run", &document(&block)))
}

fn deep_json(address: SocketAddr) -> Option<String> {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let body = format!(r#"{{"name":"good.echo","arguments":{deep}}}"#);
    let ask = Ask::post("/api/v1/aggregator/tools/call", body).header("Accept", "application/json");
    status(address, &authorized(ask))
}

fn deep_markdown(address: SocketAddr) -> Option<String> {
    status(address, &rest("/documents/map", &json!({"text": "> ".repeat(50_000) + &"[".repeat(50_000)})))
}

/// Calls a server that never answers, and hangs up.
fn cancelled_calls(address: SocketAddr) -> Option<String> {
    let mut connection = Connection::try_open(address).ok()?;
    connection.send(&call("silent.t"));
    thread::sleep(Duration::from_millis(50));
    Some("hung up".to_owned())
}

fn crashing_calls(address: SocketAddr) -> Option<String> {
    status(address, &call("crash.t"))
}

fn progress_calls(address: SocketAddr) -> Option<String> {
    status(address, &call("huge-progress.t"))
}

fn long_search(address: SocketAddr) -> Option<String> {
    status(address, &rest("/search", &json!({"query": "find a word ".repeat(5_000)})))
}

/// Servers that failed are disabled after some attempts: they are enabled again, to fail again.
fn reconnect_servers(address: SocketAddr) -> Option<String> {
    for kind in Kind::ALL {
        for verb in ["enable", "connect", "tools/refresh"] {
            if is_over() {
                return Some("interrupted".to_owned());
            }
            status(address, &rest(&format!("/servers/{}/{verb}", kind.name()), &json!({})));
        }
    }
    Some("done".to_owned())
}

fn assistant_tools(address: SocketAddr) -> Option<String> {
    let ask = Ask::new("GET", "/api/v1/aggregator/assistant/tools?format=openai");
    status(address, &authorized(ask))
}
