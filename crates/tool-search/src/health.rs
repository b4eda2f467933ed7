//! Whether the embedding model is reachable. While it is not, search compares words only, and an operator must see
//! that.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use super::Finder;

/// The result of the last request to the model, whoever made it.
#[derive(Debug, Default)]
pub(super) struct EmbedderHealth {
    last_error: Mutex<Option<String>>,
    /// Notified when the health changes.
    turned: Notify,
}

impl EmbedderHealth {
    /// Records that the model was unreachable.
    pub(super) fn failed(&self, why: String) {
        let before = self.last_error.lock().unwrap_or_else(PoisonError::into_inner).replace(why);
        if before.is_none() {
            self.turned.notify_one();
        }
    }

    /// Records that the model answered.
    pub(super) fn worked(&self) {
        if self.last_error.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            self.turned.notify_one();
        }
    }

    /// Why the model is unreachable, if it is.
    pub(super) fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until the health changes.
    pub(super) async fn turned(&self) {
        self.turned.notified().await;
    }
}

impl Finder {
    /// Why the embedding model is unreachable, if it is; search then compares words only.
    pub fn embedding_error(&self) -> Option<String> {
        self.embedder_health.last_error()
    }
}
