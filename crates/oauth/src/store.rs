//! Where grants are stored: compare-and-swap, and nothing else.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use crate::grant::Grant;

/// The version of a stored grant. A store never uses one twice for the same key, not even after a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version(pub i64);

/// The outcome of a compare-and-swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// It is stored, durably. The new version; `None` after a removal.
    Stored(Option<Version>),
    /// The stored version is another one; nothing was changed.
    Conflict,
}

/// A store that cannot be used right now. The message names the store and the cause, and contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(pub String);

/// What a store returns.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Stores grants by key. Several processes may share one store.
pub trait GrantStore: Send + Sync + fmt::Debug {
    /// The grant of a key, if there is one.
    fn load<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Option<(Version, Grant)>>;

    /// Replaces the grant of a key if its version is `expected` (`None`: there is none); `None` removes it. Whatever
    /// is stored is durable when this returns.
    fn replace<'a>(
        &'a self,
        key: &'a str,
        expected: Option<Version>,
        grant: Option<Grant>,
    ) -> StoreFuture<'a, Replaced>;
}

/// A store in memory, for tests and for programs that have no other.
#[derive(Debug, Default)]
pub struct MemoryStore {
    grants: Mutex<HashMap<String, (Version, Grant)>>,
    last: std::sync::atomic::AtomicI64,
}

impl GrantStore for MemoryStore {
    fn load<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Option<(Version, Grant)>> {
        let found = self.grants.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        Box::pin(std::future::ready(Ok(found)))
    }

    fn replace<'a>(
        &'a self,
        key: &'a str,
        expected: Option<Version>,
        grant: Option<Grant>,
    ) -> StoreFuture<'a, Replaced> {
        let mut grants = self.grants.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = if grants.get(key).map(|(version, _)| *version) == expected {
            let version = Version(self.last.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1);
            let stored = grant.is_some().then_some(version);
            match grant {
                Some(grant) => drop(grants.insert(key.to_owned(), (version, grant))),
                None => drop(grants.remove(key)),
            }
            Replaced::Stored(stored)
        } else {
            Replaced::Conflict
        };
        Box::pin(std::future::ready(Ok(replaced)))
    }
}
