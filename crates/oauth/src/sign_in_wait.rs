//! Servers that wait for a person to sign in. The person may do so in another process, so the store is read from time
//! to time for as long as there is such a server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::sleep;

use crate::grant::Grant;
use crate::shared::Shared;
use crate::sign_in::ChangeKind;
use crate::source::TokenSource;
use crate::store::Version;

/// How often the store is read.
const WATCH_INTERVAL: Duration = Duration::from_secs(2);

/// The servers that wait, by key.
#[derive(Debug, Default)]
pub(crate) struct WaitingServers(Mutex<Watch>);

#[derive(Debug, Default)]
struct Watch {
    servers: HashMap<String, WaitingServer>,
    /// Whether the task is running.
    is_running: bool,
}

#[derive(Debug)]
struct WaitingServer {
    /// What was stored when the server was found to need a sign-in.
    seen: Option<Version>,
    /// Whoever still makes requests to the server.
    source: Weak<TokenSource>,
}

impl WaitingServers {
    /// Whether any server waits.
    #[cfg(test)]
    pub(crate) fn is_watched(&self) -> bool {
        !self.lock().servers.is_empty()
    }

    /// The server of a key no longer waits.
    pub(crate) fn remove(&self, key: &str) {
        self.lock().servers.remove(key);
    }

    /// The same, unless it has been found to need a sign-in again. Returns the server if it waited.
    fn remove_if_seen(&self, key: &str, seen: Option<Version>) -> Option<WaitingServer> {
        let mut watch = self.lock();
        if watch.servers.get(key)?.seen != seen {
            return None;
        }
        watch.servers.remove(key)
    }

    fn lock(&self) -> MutexGuard<'_, Watch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Reports a sign-in to the server of a key as soon as another version than `seen` is stored.
    pub(crate) fn watch_for_sign_in(self: &Arc<Self>, key: &str, seen: Option<Version>, source: Weak<TokenSource>) {
        let mut watch = self.waiting.lock();
        watch.servers.insert(key.to_owned(), WaitingServer { seen, source });
        if !std::mem::replace(&mut watch.is_running, true) {
            tokio::spawn(look_for_sign_ins(Arc::downgrade(self)));
        }
    }

    /// Reads what is stored for the servers that wait. Returns whether any still does.
    async fn look_for_sign_ins(&self) -> bool {
        let servers: Vec<_> =
            self.waiting.lock().servers.iter().map(|(key, server)| (key.clone(), server.seen)).collect();
        for (key, seen) in servers {
            match self.store.load(&key).await {
                Ok(Some((version, grant))) if Some(version) != seen && is_usable(&grant) => {
                    let Some(server) = self.waiting.remove_if_seen(&key, seen) else { continue };
                    if let Some(source) = server.source.upgrade() {
                        source.take_up_stored().await;
                    }
                    self.report(&key, ChangeKind::SignedIn);
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "failed to look for a sign-in of another process"),
            }
        }
        let mut watch = self.waiting.lock();
        watch.is_running = !watch.servers.is_empty();
        watch.is_running
    }
}

/// Whether it is worth to connect with it. While it is refreshed, it may still turn out to have ended.
fn is_usable(grant: &Grant) -> bool {
    grant.sign_in_required.is_none() && grant.refresh.is_none()
}

/// Runs until no server waits any more.
async fn look_for_sign_ins(shared: Weak<Shared>) {
    loop {
        sleep(WATCH_INTERVAL).await;
        let Some(shared) = shared.upgrade() else { return };
        if !shared.look_for_sign_ins().await {
            return;
        }
    }
}
