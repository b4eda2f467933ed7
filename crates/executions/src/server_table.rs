//! The table of all servers, in memory: the slot index and the status of each.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use registry::{ServerId, Status, Timestamp};

/// The current status of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerEntry {
    /// Its id.
    pub id: ServerId,
    /// Its name.
    pub name: Arc<str>,
    /// Its slot index.
    pub slot_index: usize,
    /// Its status.
    pub status: Status,
    /// Since when it has this status.
    pub since: Timestamp,
    /// When the next attempt to connect is made, if one is.
    pub retry_at: Option<Timestamp>,
    /// What went wrong.
    pub why: Option<String>,
    /// It starts when it is needed.
    pub is_lazy: bool,
}

/// All servers.
#[derive(Debug, Default)]
pub struct ServerTable(RwLock<BTreeMap<usize, Arc<ServerEntry>>>);

impl ServerTable {
    /// The status of the server in that slot.
    pub fn at(&self, slot_index: usize) -> Option<Arc<ServerEntry>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&slot_index).cloned()
    }

    /// The id and the name of the server in that slot: what every call needs.
    pub(crate) fn name_at(&self, slot_index: usize) -> Option<(ServerId, Arc<str>)> {
        let servers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        servers.get(&slot_index).map(|entry| (entry.id, Arc::clone(&entry.name)))
    }

    /// The status of the server with that id or name.
    pub fn find(&self, id_or_name: &str) -> Option<Arc<ServerEntry>> {
        let id: Option<ServerId> = id_or_name.parse().ok();
        let servers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |entry: &&Arc<ServerEntry>| Some(entry.id) == id || &*entry.name == id_or_name;
        servers.values().find(is_meant).cloned()
    }

    /// Sets the status of a server.
    pub fn put(&self, entry: ServerEntry) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(entry.slot_index, Arc::new(entry));
    }

    /// Removes a server.
    pub fn forget(&self, slot_index: usize) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&slot_index);
    }
}
