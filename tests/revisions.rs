//! Clients and servers of different eras understand each other; of the same era, nothing is translated.
//!
//! - [`legacy_client`]: a client with `initialize` in front of a server of 2026-07-28
//! - [`rounds`]: what that server wants to know before it answers, asked of that client
//! - [`modern_client`]: a client of 2026-07-28 in front of a server with `initialize`
//! - [`parked`]: what that server asks in the middle of a call, offered to that client
//! - [`last_word`]: clients that are not asked, or not any more
//! - [`listening`]: `subscriptions/listen` on either side
//! - [`dual`]: servers that speak both eras, each client in its own
//! - [`same_era`]: modern on both sides; [`discovery`]: what a modern client is told of all servers at once

mod closed_clients;
mod discovery;
mod dual;
mod input_rounds;
mod legacy_client;
mod listen_streams;
mod modern_client;
mod parked;
mod same_era;

use testkit::{ClientSession, Launch, ModernStdio, Puppet};

use crate::relay::config;

pub(crate) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(crate) const INFO: &str = "io.modelcontextprotocol/clientInfo";
pub(crate) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub(crate) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// `mcp-aggregator stdio` with these servers, all up, and a modern client that answers questions of every kind.
#[track_caller]
pub(crate) fn modern_over_stdio(servers: &[(&str, &Puppet)]) -> ModernStdio {
    let mut client = ModernStdio::new(Launch::service(&config(servers)).start()).interactive();
    // All servers are up when this is answered.
    client.ids("tools/list");
    client
}
