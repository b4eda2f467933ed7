//! Results that are too long for a page, kept for a while for who wants to save them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// So many bytes are kept for everybody together; the newest is kept whatever its length.
const MOST: usize = 64 * 1024 * 1024;

/// The last long result of every visitor, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<VecDeque<(String, Arc<str>)>>);

impl Kept {
    /// Keeps the last result of a visitor. Older ones of others may have to go.
    pub(crate) fn keep(&self, visitor: &str, result: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(whose, _)| whose != visitor);
        all.push_back((visitor.to_owned(), Arc::from(result)));
        while all.len() > 1 && all.iter().map(|(_, result)| result.len()).sum::<usize>() > MOST {
            all.pop_front();
        }
    }

    /// The last long result of a visitor.
    pub(crate) fn of(&self, visitor: &str) -> Option<Arc<str>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(whose, _)| whose == visitor).map(|(_, result)| Arc::clone(result))
    }

    /// Nothing of a visitor is kept any longer.
    pub(crate) fn forget(&self, visitor: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(whose, _)| whose != visitor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_their_own_and_the_oldest_go_when_there_is_too_much() {
        let kept = Kept::default();
        kept.keep("ann", "1");
        kept.keep("bob", "2");
        kept.keep("ann", "3");
        assert_eq!((kept.of("ann").as_deref(), kept.of("bob").as_deref()), (Some("3"), Some("2")));
        kept.keep("cid", &"x".repeat(MOST));
        assert_eq!((kept.of("ann"), kept.of("cid").map(|text| text.len())), (None, Some(MOST)));
        kept.forget("cid");
        assert_eq!(kept.of("cid"), None);
    }
}
