//! Results that are too long for a page, kept for a while for who wants to save them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// So many bytes are kept for everybody together; the newest is kept whatever its length.
const MAX_CACHED_BYTES: usize = 64 * 1024 * 1024;

/// The last long result of every visitor, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct ResultCache(Mutex<VecDeque<(String, Arc<str>)>>);

impl ResultCache {
    /// Keeps the last result of a visitor. Older ones of others may have to go.
    pub(crate) fn put(&self, visitor: &str, result: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(whose, _)| whose != visitor);
        all.push_back((visitor.to_owned(), Arc::from(result)));
        while all.len() > 1 && all.iter().map(|(_, result)| result.len()).sum::<usize>() > MAX_CACHED_BYTES {
            all.pop_front();
        }
    }

    /// The last long result of a visitor.
    pub(crate) fn get(&self, visitor: &str) -> Option<Arc<str>> {
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
        let cache = ResultCache::default();
        cache.put("ann", "1");
        cache.put("bob", "2");
        cache.put("ann", "3");
        assert_eq!((cache.get("ann").as_deref(), cache.get("bob").as_deref()), (Some("3"), Some("2")));
        cache.put("cid", &"x".repeat(MAX_CACHED_BYTES));
        assert_eq!((cache.get("ann"), cache.get("cid").map(|text| text.len())), (None, Some(MAX_CACHED_BYTES)));
        cache.forget("cid");
        assert_eq!(cache.get("cid"), None);
    }
}
