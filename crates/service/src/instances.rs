//! The instances of servers that not everybody shares, for people.

use std::time::UNIX_EPOCH;

use registry::Timestamp;
use serde::Serialize;

use crate::Service;
use crate::supervisor::SupervisorHandle;

/// An instance of a server: a process or an HTTP session for one identity or one client session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InstanceView {
    /// The name of the identity; `None` for the local user.
    pub identity: Option<String>,
    /// The name of the client whose session it belongs to, if it belongs to one.
    pub client: Option<String>,
    /// `starting`, `running`, `stopping` or `failed`.
    pub status: &'static str,
    /// Since when.
    pub since: Timestamp,
    /// How many requests are in progress.
    pub running_calls: u64,
    /// Its process, if it is one of ours.
    pub pid: Option<u32>,
    /// Why it failed.
    pub error: Option<String>,
}

impl Service {
    /// The instances of a server, by identity.
    pub(crate) fn instances(&self, handle: &SupervisorHandle) -> Vec<InstanceView> {
        self.fleet.instance_views(handle.slot_index).into_iter().map(InstanceView::from).collect()
    }
}

impl From<aggregator::InstanceView> for InstanceView {
    fn from(instance: aggregator::InstanceView) -> Self {
        let since = instance.since.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            identity: instance.identity.map(|name| name.to_string()),
            client: instance.client.map(String::from),
            status: instance.status,
            since: Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX)),
            running_calls: instance.calls as u64,
            pid: instance.process,
            error: instance.error.map(String::from),
        }
    }
}
