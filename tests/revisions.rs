//! Clients and servers with different lifecycles work together; between equal lifecycles, nothing is translated.
//!
//! - [`legacy_client`]: a client with `initialize` in front of a server of 2026-07-28
//! - [`input_rounds`]: input requests of that server, sent to that client
//! - [`modern_client`]: a client of 2026-07-28 in front of a server with `initialize`
//! - [`parked`]: requests of that server during a call, sent to that client
//! - [`closed_clients`]: clients that cannot be asked, or not any more
//! - [`listen_streams`]: `subscriptions/listen` on either side
//! - [`dual`]: servers with both lifecycles, each client in its own
//! - [`same_lifecycle`]: modern on both sides; [`discovery`]: `server/discover` for all servers at once

mod closed_clients;
mod discovery;
mod dual;
mod input_rounds;
mod legacy_client;
mod listen_streams;
mod modern_client;
mod parked;
mod same_lifecycle;

use testkit::{ClientSession, Launch, ModernStdio, Puppet};

use crate::relay::config;

pub(crate) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(crate) const INFO: &str = "io.modelcontextprotocol/clientInfo";
pub(crate) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub(crate) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// `mcp-aggregator stdio` with these servers, all connected, and a modern client that supports every kind of server
/// request.
#[track_caller]
pub(crate) fn modern_over_stdio(servers: &[(&str, &Puppet)]) -> ModernStdio {
    let mut client = ModernStdio::new(Launch::service(&config(servers)).start()).interactive();
    // When this is answered, all servers are connected.
    client.ids("tools/list");
    client
}
