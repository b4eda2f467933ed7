//! The HTTP server of `mcp-aggregator serve`: sessions, streams, limits and access.
//!
//! - [`sessions`]: from `initialize` to DELETE; [`requests`]: valid and invalid POST requests
//! - [`streams`]: responses as events, and resuming a stream
//! - [`modern`]: 2026-07-28: headers that mirror the body; [`http_sse`]: HTTP+SSE of 2024-11-05
//! - [`admission`]: Host, Origin and tokens; [`access`]: local users, without tokens; [`refused_requests`]: wrong tokens;
//!   [`rotation`]: replaced tokens
//! - [`limits`]: too much, too slow, too many
//! - [`many_clients`]: many, slow and disappearing clients; [`shutdown`]: servers that exit, and graceful shutdown

mod access;
mod admission;
mod http_sse;
mod limits;
mod many_clients;
mod modern;
mod refused_requests;
mod requests;
mod rotation;
mod sessions;
mod shutdown;
mod streams;

use serde_json::{Value, json};
use testkit::ClientSession;

/// A request without parameters.
pub(crate) const PING: &str = r#"{"jsonrpc":"2.0","id":"ping","method":"ping"}"#;

/// The tool `s.t` echoes its arguments.
#[track_caller]
pub(crate) fn assert_echoes(client: &mut dyn ClientSession, tool: &str) {
    let answer = client.ask("tools/call", json!({"name": tool, "arguments": {"text": "still here"}}));
    assert_eq!(answer["result"]["content"][0]["text"], "still here", "{answer}");
}

/// The message of `initialize` for this revision.
pub(crate) fn initialize(revision: &str) -> String {
    let info: Value = json!({"name": testkit::client::CLIENT_NAME, "version": "1.0.0"});
    let params = json!({"protocolVersion": revision, "capabilities": {}, "clientInfo": info});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string()
}
