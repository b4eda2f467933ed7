//! The connected MCP clients.

use std::time::UNIX_EPOCH;

use registry::Timestamp;
use serde::Serialize;

use crate::Service;

/// A client that is connected.
#[derive(Debug, Clone, Serialize)]
pub struct ClientView {
    /// Its declared name.
    pub name: Option<String>,
    /// Its declared version.
    pub version: Option<String>,
    /// The revision of the protocol it speaks.
    pub revision: String,
    /// When it connected; without a session, when it sent its first request.
    pub since: Timestamp,
    /// How many tools it has called since.
    pub calls: u64,
    /// The name of its token, where there are tokens.
    pub caller: Option<String>,
}

impl Service {
    /// The connected MCP clients, in the order in which they connected.
    pub fn clients(&self) -> Vec<ClientView> {
        let connected = self.aggregator.connected_clients();
        let view = |client: &std::sync::Arc<aggregator::ConnectedClient>| {
            let since = client.since().duration_since(UNIX_EPOCH).unwrap_or_default();
            let principal = client.principal();
            ClientView {
                name: client.name().map(|name| name.to_string()),
                version: client.version().map(str::to_owned),
                revision: client.revision().to_owned(),
                since: Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX)),
                calls: client.calls(),
                caller: (!principal.is_local()).then(|| principal.to_string()),
            }
        };
        connected.iter().map(view).collect()
    }
}
