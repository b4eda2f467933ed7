//! What a server says has changed, until somebody looks.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use catalog::{Kind, Offer};
use tokio::sync::Notify;

/// What is no longer as we know it.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    kinds: AtomicU8,
    introduction: Mutex<Option<Offer>>,
    news: Notify,
}

/// What has changed since somebody looked.
#[derive(Debug)]
pub(crate) struct News {
    /// Lists of these kinds.
    pub(crate) kinds: Vec<Kind>,
    /// What the server says of itself, if we were introduced to it anew.
    pub(crate) introduction: Option<Offer>,
}

impl Changes {
    /// These have changed.
    pub(crate) fn note(&self, kinds: &[Kind]) {
        let bits = kinds.iter().fold(0, |bits, &kind| bits | bit(kind));
        self.kinds.fetch_or(bits, Ordering::Relaxed);
        self.news.notify_one();
    }

    /// We were introduced anew: what the server says of itself has changed, and any of its lists may have.
    pub(crate) fn note_introduction(&self, introduction: Offer) {
        *self.introduction() = Some(introduction);
        self.note(&Kind::ALL);
    }

    /// Waits until something has changed, and takes note of all that has.
    pub(crate) async fn next(&self) -> News {
        loop {
            self.news.notified().await;
            let bits = self.kinds.swap(0, Ordering::Relaxed);
            if bits != 0 {
                let kinds = Kind::ALL.into_iter().filter(|&kind| bits & bit(kind) != 0).collect();
                return News { kinds, introduction: self.introduction().take() };
            }
        }
    }

    fn introduction(&self) -> MutexGuard<'_, Option<Offer>> {
        self.introduction.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert_eq!((news.kinds.as_slice(), news.introduction), ([Kind::Tool].as_slice(), None));
    }

    #[tokio::test]
    async fn after_a_new_introduction_every_list_is_in_doubt() {
        let changes = Changes::default();
        let mut introduction = Offer::new(protocol::Era::Legacy);
        introduction.instructions = Some("other".into());
        changes.note_introduction(introduction.clone());
        let news = changes.next().await;
        assert_eq!((news.kinds.as_slice(), news.introduction), (Kind::ALL.as_slice(), Some(introduction)));
    }
}
