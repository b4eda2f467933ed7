//! What a server says has changed, until somebody looks.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use catalog::{Kind, Offer};
use tokio::sync::Notify;

/// What is no longer as we know it.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    kinds: AtomicU8,
    server_offer: Mutex<Option<Offer>>,
    news: Notify,
}

/// What has changed since somebody looked.
#[derive(Debug)]
pub(crate) struct ChangeSet {
    /// Lists of these kinds.
    pub(crate) kinds: Vec<Kind>,
    /// What the server says of itself, if we were introduced to it anew.
    pub(crate) server_offer: Option<Offer>,
}

impl Changes {
    /// These have changed.
    pub(crate) fn note(&self, kinds: &[Kind]) {
        let bits = kinds.iter().fold(0, |bits, &kind| bits | bit(kind));
        self.kinds.fetch_or(bits, Ordering::Relaxed);
        self.news.notify_one();
    }

    /// We were introduced anew: what the server says of itself has changed, and any of its lists may have.
    pub(crate) fn note_server_offer(&self, server_offer: Offer) {
        *self.server_offer() = Some(server_offer);
        self.note(&Kind::ALL);
    }

    /// Waits until something has changed, and takes note of all that has.
    pub(crate) async fn next(&self) -> ChangeSet {
        loop {
            self.news.notified().await;
            let bits = self.kinds.swap(0, Ordering::Relaxed);
            if bits != 0 {
                let kinds = Kind::ALL.into_iter().filter(|&kind| bits & bit(kind) != 0).collect();
                return ChangeSet { kinds, server_offer: self.server_offer().take() };
            }
        }
    }

    fn server_offer(&self) -> MutexGuard<'_, Option<Offer>> {
        self.server_offer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bit(kind: Kind) -> u8 {
    1 << kind as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_changed_before_somebody_looked_is_not_lost() {
        let changes = Changes::default();
        changes.note(&[Kind::Prompt]);
        changes.note(&[Kind::Resource, Kind::Template]);
        assert_eq!(changes.next().await.kinds, [Kind::Prompt, Kind::Resource, Kind::Template]);
        changes.note(&[Kind::Tool]);
        let news = changes.next().await;
        assert_eq!((news.kinds.as_slice(), news.server_offer), ([Kind::Tool].as_slice(), None));
    }

    #[tokio::test]
    async fn after_a_new_handshake_every_list_counts_as_changed() {
        let changes = Changes::default();
        let mut server_offer = Offer::new(protocol::Lifecycle::Session);
        server_offer.instructions = Some("other".into());
        changes.note_server_offer(server_offer.clone());
        let news = changes.next().await;
        assert_eq!((news.kinds.as_slice(), news.server_offer), (Kind::ALL.as_slice(), Some(server_offer)));
    }
}
