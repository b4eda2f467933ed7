//! Stores the calls of the day, so that a restart does not begin the day again. Calls never wait for it: after
//! `kill -9`, those of the last moments are not counted.

use std::sync::{Arc, Weak};
use std::time::Duration;

use registry::Store;
use tokio::time::{sleep, timeout};

use super::CallLimits;

/// How long the first call that is not stored waits for others.
const DELAY: Duration = Duration::from_secs(1);
/// How long storing may take at shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Stores counts until nobody has the limits any more.
pub(crate) async fn keep_stored(limits: Weak<CallLimits>, store: Store) {
    let mut pruned = 0;
    let mut has_failed = false;
    while let Some(limits) = limits.upgrade() {
        let today = limits.now().day();
        let stored = limits.store_counts(&store).await;
        let is_pruned = pruned == today || stored.is_err() || store.prune_limit_counts(today).await.is_ok();
        if stored.is_ok() && is_pruned {
            pruned = today;
        }
        if let Err(error) = &stored
            && !has_failed
        {
            tracing::warn!(%error, "failed to store the calls of the day; will retry");
        }
        has_failed = stored.is_err();
        if !has_failed {
            let unsaved = Arc::clone(&limits.unsaved);
            drop(limits);
            unsaved.notified().await;
        }
        sleep(DELAY).await;
    }
}

impl CallLimits {
    /// Stores what was counted. What cannot be stored is stored with the next attempt.
    pub(super) async fn store_counts(&self, store: &Store) -> Result<(), registry::Error> {
        let _turn = self.storing.lock().await;
        let counts = self.lock().take_unsaved();
        if counts.is_empty() {
            return Ok(());
        }
        let stored = store.put_limit_counts(&counts).await;
        if stored.is_err() {
            self.lock().put_back(&counts);
        }
        stored
    }

    /// Stores what was counted before the service ends, within a limited time.
    pub(crate) async fn close(&self, store: &Store) {
        match timeout(CLOSE_TIMEOUT, self.store_counts(store)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last calls of the day were not stored"),
            Err(_) => tracing::warn!("the last calls of the day were not stored: the database does not respond"),
        }
    }
}
