//! All servers, in memory: which place in the fleet each has, and how it stands.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use registry::{ServerId, Status, Timestamp};

/// How a server stands right now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServerEntry {
    /// Its id.
    pub(crate) id: ServerId,
    /// Its name.
    pub(crate) name: Arc<str>,
    /// Its place in the fleet.
    pub(crate) place: usize,
    /// Its state.
    pub(crate) status: Status,
    /// Since when it is in it.
    pub(crate) since: Timestamp,
    /// When the next attempt to connect is made, if one is.
    pub(crate) retry_at: Option<Timestamp>,
    /// What went wrong.
    pub(crate) why: Option<String>,
    /// It starts when it is needed.
    pub(crate) is_lazy: bool,
}

/// All servers.
#[derive(Debug, Default)]
pub(crate) struct ServerTable(RwLock<BTreeMap<usize, Arc<ServerEntry>>>);

impl ServerTable {
    /// How the server at that place stands.
    pub(crate) fn at(&self, place: usize) -> Option<Arc<ServerEntry>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&place).cloned()
    }

    /// The id and the name of the server at that place: what every call asks for.
    pub(crate) fn name_at(&self, place: usize) -> Option<(ServerId, Arc<str>)> {
        let servers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        servers.get(&place).map(|entry| (entry.id, Arc::clone(&entry.name)))
    }

    /// How the server with that id or name stands.
    pub(crate) fn find(&self, id_or_name: &str) -> Option<Arc<ServerEntry>> {
        let id: Option<ServerId> = id_or_name.parse().ok();
        let servers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |entry: &&Arc<ServerEntry>| Some(entry.id) == id || &*entry.name == id_or_name;
        servers.values().find(is_meant).cloned()
    }

    /// A server stands like this from now on.
    pub(crate) fn put(&self, entry: ServerEntry) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(entry.place, Arc::new(entry));
    }

    /// A server is gone.
    pub(crate) fn forget(&self, place: usize) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&place);
    }
}
