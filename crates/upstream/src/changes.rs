//! Collects the changes that a server reports until they are processed.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use catalog::{Kind, Offer};
use tokio::sync::Notify;

/// What may differ from what we know.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    kinds: AtomicU8,
    server_offer: Mutex<Option<Offer>>,
    changed: Notify,
}

/// The changes since the last look.
#[derive(Debug)]
pub(crate) struct ChangeSet {
    /// Lists of these kinds.
    pub(crate) kinds: Vec<Kind>,
    /// The result of a new handshake, if there was one.
    pub(crate) server_offer: Option<Offer>,
}

impl Changes {
    /// Records changed lists.
    pub(crate) fn note(&self, kinds: &[Kind]) {
        let bits = kinds.iter().fold(0, |bits, &kind| bits | bit(kind));
        self.kinds.fetch_or(bits, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Records a new handshake: the server's own description has changed, and any of its lists may have.
    pub(crate) fn note_server_offer(&self, server_offer: Offer) {
        *self.server_offer() = Some(server_offer);
        self.note(&Kind::ALL);
    }

    /// Waits until something has changed, and takes all changes.
    pub(crate) async fn next(&self) -> ChangeSet {
        loop {
            self.changed.notified().await;
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
    async fn a_change_before_the_first_wait_is_not_lost() {
        let changes = Changes::default();
        changes.note(&[Kind::Prompt]);
        changes.note(&[Kind::Resource, Kind::Template]);
        assert_eq!(changes.next().await.kinds, [Kind::Prompt, Kind::Resource, Kind::Template]);
        changes.note(&[Kind::Tool]);
        let changed = changes.next().await;
        assert_eq!((changed.kinds.as_slice(), changed.server_offer), ([Kind::Tool].as_slice(), None));
    }

    #[tokio::test]
    async fn after_a_new_handshake_every_list_counts_as_changed() {
        let changes = Changes::default();
        let mut server_offer = Offer::new(protocol::Lifecycle::Session);
        server_offer.instructions = Some("other".into());
        changes.note_server_offer(server_offer.clone());
        let changed = changes.next().await;
        assert_eq!((changed.kinds.as_slice(), changed.server_offer), (Kind::ALL.as_slice(), Some(server_offer)));
    }
}
