//! Whom the run of a server serves: everybody, or one identity or session.

use std::sync::Arc;

/// The clients that the run of a server serves.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Audience {
    /// All clients.
    Everybody,
    /// None: the run provides the catalog of a server whose instances serve the clients.
    Nobody,
    /// An instance: all clients of the principal with this id.
    Identity(Arc<str>),
    /// An instance: the session of the client with this number.
    Session(u64),
}

impl Audience {
    /// Whether all its clients act for the same person.
    pub fn is_one_person(&self) -> bool {
        matches!(self, Self::Identity(_) | Self::Session(_))
    }
}

/// Identifies one of the runs of a server. The next run for the same audience has the same key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamKey {
    /// The slot index of the server.
    pub server: usize,
    /// Whom the run serves.
    pub audience: Audience,
}

impl UpstreamKey {
    /// The run of a server that serves everybody.
    pub fn of_all(server: usize) -> Self {
        Self { server, audience: Audience::Everybody }
    }
}
