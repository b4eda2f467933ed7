//! Stores sign-ins in the registry.

use std::cell::RefCell;
use std::error::Error as _;
use std::fmt;

use oauth::{Grant, GrantStore, Replaced, StoreError, StoreFuture, Version};
use registry::{AuditNote, GrantReplaced, Store};

tokio::task_local! {
    /// The audit row of the sign-in or sign-out that this task carries out. It is committed together with the change.
    static NOTE: RefCell<Option<AuditNote>>;
}

/// The sign-ins of a registry.
pub struct RegistryGrants {
    store: Store,
}

impl RegistryGrants {
    /// Those of this registry.
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    async fn find(&self, key: &str) -> Result<Option<(Version, Grant)>, StoreError> {
        let Some(stored) = self.store.oauth_grant(key).await.map_err(described)? else { return Ok(None) };
        let grant = Grant::from_json(&stored.value)
            .map_err(|error| StoreError(format!("{error}; sign in again with a version that knows it")))?;
        Ok(Some((Version(version_of(stored.version)), grant)))
    }

    async fn swap(&self, key: &str, expected: Option<Version>, grant: Option<Grant>) -> Result<Replaced, StoreError> {
        let expected = expected.map(|Version(version)| u64::try_from(version).unwrap_or_default());
        let value = grant.as_ref().map(Grant::to_json);
        let mut change = self.store.transaction("store a sign-in").await.map_err(described)?;
        let replaced = change.replace_oauth_grant(key, expected, value.as_deref()).await.map_err(described)?;
        let stored = match replaced {
            GrantReplaced::Conflict => return Ok(Replaced::Conflict),
            GrantReplaced::Stored(version) => Some(Version(version_of(version))),
            GrantReplaced::Removed => None,
        };
        match NOTE.try_with(|note| note.borrow().clone()).ok().flatten() {
            Some(note) => change.commit_audited(note).await.map_err(described)?,
            None => change.commit().await.map_err(described)?,
        }
        take_note();
        Ok(Replaced::Stored(stored))
    }
}

impl GrantStore for RegistryGrants {
    fn load<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Option<(Version, Grant)>> {
        Box::pin(self.find(key))
    }

    fn replace<'a>(
        &'a self,
        key: &'a str,
        expected: Option<Version>,
        grant: Option<Grant>,
    ) -> StoreFuture<'a, Replaced> {
        Box::pin(self.swap(key, expected, grant))
    }
}

impl fmt::Debug for RegistryGrants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryGrants").finish_non_exhaustive()
    }
}

/// Carries out a sign-in or sign-out. Its audit row is committed with the change that it makes; returned if it made
/// none.
pub(crate) async fn audited<T>(note: AuditNote, work: impl Future<Output = T>) -> (T, Option<AuditNote>) {
    NOTE.scope(RefCell::new(Some(note)), async {
        let done = work.await;
        (done, take_note())
    })
    .await
}

/// What is still to be recorded.
fn take_note() -> Option<AuditNote> {
    NOTE.try_with(RefCell::take).ok().flatten()
}

fn version_of(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` calls it")]
fn described(error: registry::Error) -> StoreError {
    match error.source() {
        Some(cause) => StoreError(format!("{error}: {cause}")),
        None => StoreError(error.to_string()),
    }
}
