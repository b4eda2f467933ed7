//! Results that are too long for a page, kept for a while as downloads.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The limit of all cached bytes; the newest result is kept whatever its size.
const MAX_CACHED_BYTES: usize = 64 * 1024 * 1024;

/// The last long result of every visitor, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct ResultCache(Mutex<VecDeque<(String, Arc<str>)>>);

impl ResultCache {
    /// Stores the last result of a visitor. May evict older ones of others.
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

    /// Removes the result of a visitor.
    pub(crate) fn forget(&self, visitor: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|(whose, _)| whose != visitor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_separate_results_and_the_oldest_are_evicted() {
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
