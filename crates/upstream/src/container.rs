//! The container that a server runs in, for inspection.

use std::fmt::Debug;
use std::pin::Pin;

/// The properties of a container that do not change while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerInfo {
    /// Its id at the engine.
    pub id: String,
    /// Its name at the engine.
    pub name: String,
    /// The image as it was configured.
    pub image: String,
    /// The exact digest of that image.
    pub digest: String,
}

/// The current resource usage of a container.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// Of one processor, in percent.
    pub cpu_percent: f64,
    /// Bytes of memory in use.
    pub memory: u64,
    /// Bytes of memory it may use.
    pub memory_limit: u64,
}

/// A container that can be inspected.
pub trait ContainerHandle: Debug + Send + Sync {
    /// The properties that do not change.
    fn info(&self) -> &ContainerInfo;
    /// Its resource usage; `None` if the engine does not report it.
    fn usage(&self) -> Pin<Box<dyn Future<Output = Option<Usage>> + Send + '_>>;
}
