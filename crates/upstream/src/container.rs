//! The container a server lives in, for who wants to look at it.

use std::fmt::Debug;
use std::pin::Pin;

/// What is known of a container for as long as it lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerInfo {
    /// Its id at the engine.
    pub id: String,
    /// Its name at the engine.
    pub name: String,
    /// The image as it was asked for.
    pub image: String,
    /// Which image exactly that was.
    pub digest: String,
}

/// What a container uses right now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// Of one processor, in percent.
    pub cpu_percent: f64,
    /// Bytes of memory in use.
    pub memory: u64,
    /// Bytes of memory it may use.
    pub memory_limit: u64,
}

/// A container that can be looked at.
pub trait ContainerHandle: Debug + Send + Sync {
    /// What does not change.
    fn info(&self) -> &ContainerInfo;
    /// What it uses; nothing if the engine does not say.
    fn usage(&self) -> Pin<Box<dyn Future<Output = Option<Usage>> + Send + '_>>;
}
