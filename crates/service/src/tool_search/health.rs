//! Whether the model that makes vectors can be asked: an operator must see that tools are found by words alone.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::Service;

/// How it was with the model when it was last asked, by whomever.
#[derive(Debug, Default)]
pub(super) struct EmbedderHealth {
    last_error: Mutex<Option<String>>,
    /// It is otherwise than it was.
    turned: Notify,
}

impl EmbedderHealth {
    /// It could not be asked.
    pub(super) fn failed(&self, why: String) {
        let before = self.last_error.lock().unwrap_or_else(PoisonError::into_inner).replace(why);
        if before.is_none() {
            self.turned.notify_one();
        }
    }

    /// It was asked.
    pub(super) fn worked(&self) {
        if self.last_error.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            self.turned.notify_one();
        }
    }

    /// Why it cannot be asked, if it cannot.
    pub(super) fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until it is otherwise.
    pub(super) async fn turned(&self) {
        self.turned.notified().await;
    }
}

impl Service {
    /// Why the model that makes vectors cannot be asked, if it cannot: tools are then found by words alone.
    pub fn embedding_error(&self) -> Option<String> {
        self.finder.embedder_health.last_error()
    }
}
