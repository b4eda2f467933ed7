//! Deletes what is too old or too much in the audit log and in the histories of servers, in the background.

use std::sync::Arc;
use std::time::Duration;

use registry::{RetentionPolicy, Store, Timestamp};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::Settings;
use crate::settings::LiveSettings;

/// How often it is looked for. Settings that change are heeded at once.
const INTERVAL: Duration = Duration::from_secs(300);

/// Deletes until everything is to end. The registry deletes in small transactions, so nobody who writes waits long.
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
    match store.prune_audit(policy(limits.keep_audit_days, limits.keep_audit)).await {
        Ok(0) => {}
        Ok(deleted) => tracing::debug!(deleted, "deleted old rows of the audit log"),
        Err(error) => tracing::warn!(%error, "could not delete old rows of the audit log; will try again"),
    }
    match store.prune_history(policy(limits.keep_history_days, limits.keep_history)).await {
        Ok(0) => {}
        Ok(deleted) => tracing::debug!(deleted, "deleted old events in the histories of servers"),
        Err(error) => tracing::warn!(%error, "could not delete old events in the histories of servers; will try again"),
    }
}

/// Neither older than so many days, nor more than so many.
pub(crate) fn policy(days: u32, newest: u32) -> RetentionPolicy {
    let age = Duration::from_secs(u64::from(days) * 24 * 3600);
    RetentionPolicy { since: Some(Timestamp::now().earlier_by(age)), newest: Some(newest) }
}
