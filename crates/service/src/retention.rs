//! Deletes old and surplus rows of the audit log and of the histories of servers, in the background.

use std::sync::Arc;
use std::time::Duration;

use registry::{RetentionPolicy, Store};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::Settings;
use crate::settings::LiveSettings;

/// How often rows are deleted. Changed settings take effect at once.
const INTERVAL: Duration = Duration::from_secs(300);

/// Deletes until the service stops. The registry deletes in small transactions, so writers do not wait long.
pub(crate) async fn run(store: Store, settings: LiveSettings, mut stopping: watch::Receiver<bool>) {
    loop {
        let limits = settings.now();
        tokio::select! {
            () = prune(&store, &limits) => {}
            _ = stopping.wait_for(|&is_stopping| is_stopping) => return,
        }
        if !Arc::ptr_eq(&limits, &settings.now()) {
            continue;
        }
        tokio::select! {
            () = sleep(INTERVAL) => {}
            () = settings.changed() => {}
            _ = stopping.wait_for(|&is_stopping| is_stopping) => return,
        }
    }
}

async fn prune(store: &Store, limits: &Settings) {
    match store.prune_audit(RetentionPolicy::of(limits.keep_audit_days, limits.keep_audit)).await {
        Ok(0) => {}
        Ok(deleted) => tracing::debug!(deleted, "deleted old entries of the audit log"),
        Err(error) => tracing::warn!(%error, "failed to delete old entries of the audit log; will retry"),
    }
    match store.prune_history(RetentionPolicy::of(limits.keep_history_days, limits.keep_history)).await {
        Ok(0) => {}
        Ok(deleted) => tracing::debug!(deleted, "deleted old events of server histories"),
        Err(error) => tracing::warn!(%error, "failed to delete old events of server histories; will retry"),
    }
}
