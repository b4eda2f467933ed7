//! What a server says has changed, until somebody looks.

use std::sync::atomic::{AtomicU8, Ordering};

use catalog::Kind;
use tokio::sync::Notify;

/// Kinds of things that are no longer what we know of them.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    kinds: AtomicU8,
    news: Notify,
}

impl Changes {
    /// These have changed.
    pub(crate) fn note(&self, kinds: &[Kind]) {
        let bits = kinds.iter().fold(0, |bits, &kind| bits | bit(kind));
        self.kinds.fetch_or(bits, Ordering::Relaxed);
        self.news.notify_one();
    }

    /// Waits until something has changed, and takes note of all that has.
    pub(crate) async fn next(&self) -> Vec<Kind> {
        loop {
            self.news.notified().await;
            let bits = self.kinds.swap(0, Ordering::Relaxed);
            if bits != 0 {
                return Kind::ALL.into_iter().filter(|&kind| bits & bit(kind) != 0).collect();
            }
        }
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
        assert_eq!(changes.next().await, [Kind::Prompt, Kind::Resource, Kind::Template]);
        changes.note(&[Kind::Tool]);
        assert_eq!(changes.next().await, [Kind::Tool]);
    }
}
