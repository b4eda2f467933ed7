//! Picks the best tools: the first ones varied, the others by score.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::lexical::Slot;

/// So many results are varied: of tools that do the same, as those of two servers of one kind do, there are at most so
/// many among them.
const FIRST: usize = 10;
const MAX_OF_KIND: usize = 3;

/// A tool that may be among the best.
pub(crate) struct Found<'a, K> {
    pub(crate) score: f32,
    pub(crate) vector: Option<f32>,
    pub(crate) slot: Slot,
    pub(crate) key: &'a K,
}

/// The best of the admitted candidates. The first ten are the best without tools that are too much alike; after them
/// come all others, by score.
pub(crate) fn ranked<'a, K: Ord>(
    candidates: Vec<Found<'a, K>>,
    count: usize,
    admits: impl Fn(&K) -> bool,
    are_alike: impl Fn(Slot, Slot) -> bool,
) -> Vec<Found<'a, K>> {
    let varied = count.min(FIRST);
    let (mut first, mut rest): (Vec<Found<'a, K>>, Vec<Found<'a, K>>) = (Vec::new(), Vec::new());
    // Only as many are sorted as are needed.
    let mut candidates = BinaryHeap::from(candidates);
    while first.len() < varied || first.len() + rest.len() < count {
        let Some(found) = candidates.pop() else { break };
        if !admits(found.key) {
            continue;
        }
        let mut like_it = first.iter().filter(|other| are_alike(found.slot, other.slot));
        if first.len() < varied && like_it.nth(MAX_OF_KIND - 1).is_none() {
            first.push(found);
        } else {
            rest.push(found);
        }
    }
    first.extend(rest);
    first.truncate(count);
    first
}

/// Better tools are greater. Of equal ones, that with the smaller key is better.
impl<K: Ord> Ord for Found<'_, K> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.key.cmp(self.key))
    }
}

impl<K: Ord> PartialOrd for Found<'_, K> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<K: Ord> PartialEq for Found<'_, K> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<K: Ord> Eq for Found<'_, K> {}
