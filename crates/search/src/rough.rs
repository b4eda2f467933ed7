//! Vectors of the table for the tools of an index: they are compared where there is no vector of the model.

use std::collections::BTreeSet;

use crate::document::Document;
use crate::lexical::Slot;
use crate::vectors::Vectors;

/// A vector of the table for each tool. It stays when the tool has one of the model, too, because that may be forgotten,
/// and because a request may have none.
pub(crate) struct RoughVectors<K> {
    vectors: Vectors,
    is_made_at_once: bool,
    /// Tools whose vectors the caller has still to make.
    missing: BTreeSet<K>,
}

impl<K: Clone + Ord> RoughVectors<K> {
    /// Vectors are made when tools are inserted. None if the table is not compiled in.
    pub(crate) fn made_at_once() -> Option<Self> {
        crate::HAS_TABLE.then(|| Self { vectors: Vectors::new(0), is_made_at_once: true, missing: BTreeSet::new() })
    }

    /// The caller makes them.
    pub(crate) fn made_later() -> Option<Self> {
        Self::made_at_once().map(|it| Self { is_made_at_once: false, ..it })
    }

    /// Adds a tool that is new, or whose text is.
    pub(crate) fn insert(&mut self, key: &K, slot: Slot, document: &Document) {
        self.vectors.clear(slot);
        if !self.is_made_at_once {
            self.missing.insert(key.clone());
        } else if let Some(vector) = document.rough_vector() {
            self.vectors.set(slot, &vector);
        }
    }

    pub(crate) fn remove(&mut self, key: &K, slot: Slot) {
        self.missing.remove(key);
        self.vectors.clear(slot);
    }

    pub(crate) fn is_missing(&self, key: &K) -> bool {
        self.missing.contains(key)
    }

    pub(crate) fn missing(&self) -> impl Iterator<Item = &K> {
        self.missing.iter()
    }

    /// Sets the vector of a tool. One without a direction is not asked for again either.
    pub(crate) fn set(&mut self, key: &K, slot: Slot, vector: &[f32]) {
        self.missing.remove(key);
        self.vectors.set(slot, vector);
    }

    /// How near each tool is to a request, by slot.
    pub(crate) fn nearness(&self, request: &[Vec<f32>]) -> Vec<Option<f32>> {
        self.vectors.nearness(request)
    }
}
