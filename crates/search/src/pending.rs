//! Which tools wait for their vectors, and which the model has none for.

use std::collections::{BTreeSet, HashSet};
use std::hash::Hash;

/// Tools without a vector of their own.
pub(crate) struct Pending<K> {
    /// In order, so that the next ones are found without a look at all.
    waiting: BTreeSet<K>,
    given_up: HashSet<K>,
}

impl<K: Clone + Eq + Hash + Ord> Pending<K> {
    /// Adds a tool that is new, or whose text is.
    pub(crate) fn insert(&mut self, key: K) {
        self.given_up.remove(&key);
        self.waiting.insert(key);
    }

    /// Removes a tool: it has its vector, or is no more.
    pub(crate) fn remove(&mut self, key: &K) {
        self.waiting.remove(key);
        self.given_up.remove(key);
    }

    pub(crate) fn give_up(&mut self, key: &K) {
        if let Some(key) = self.waiting.take(key) {
            self.given_up.insert(key);
        }
    }

    pub(crate) fn has_given_up(&self, key: &K) -> bool {
        self.given_up.contains(key)
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.waiting.contains(key)
    }

    /// Those that wait, the smallest keys first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &K> {
        self.waiting.iter()
    }
}

impl<K> Default for Pending<K> {
    fn default() -> Self {
        Self { waiting: BTreeSet::new(), given_up: HashSet::new() }
    }
}

impl<K: Ord> FromIterator<K> for Pending<K> {
    fn from_iter<I: IntoIterator<Item = K>>(keys: I) -> Self {
        Self { waiting: keys.into_iter().collect(), given_up: HashSet::new() }
    }
}
