//! The HTTP front of `mcp-aggregator serve`: sessions, streams, limits and who is let in.
//!
//! - [`sessions`]: from `initialize` to DELETE; [`requests`]: what a POST may be, and what it gets
//! - [`streams`]: answers as events, and coming back for them
//! - [`modern`]: 2026-07-28: headers that mirror the body; [`older`]: HTTP+SSE of 2024-11-05
//! - [`guard`]: Host, Origin and tokens; [`access`]: users of this machine, without tokens; [`attempts`]: wrong tokens
//! - [`limits`]: too much, too slow, too many
//! - [`crowds`]: many clients, slow ones and ones that vanish; [`endings`]: servers that die, and the drain

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

/// A message that asks for something and needs nothing.
pub(crate) const PING: &str = r#"{"jsonrpc":"2.0","id":"ping","method":"ping"}"#;

/// The tool `s.t` echoes.
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
