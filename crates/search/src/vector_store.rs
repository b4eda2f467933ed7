//! The interface between the index and a store that keeps vectors outside the program and compares them there.
//!
//! Ranking stays here. The store returns the nearest vectors, and the scores of those that match best by words;
//! [`NearestAnswers`] decides whether that suffices to know the best results, whatever the scores of the others are.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;
use std::future::Future;
use std::pin::Pin;

use crate::index::{Limits, most};
use crate::query::near;

/// The id of a vector in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PointId(pub u128);

/// The metadata of a vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The id of its server.
    pub source_server_id: String,
    /// The name of its server.
    pub source_server_name: String,
    /// The name that its server uses.
    pub original_name: String,
    /// Whether it belongs to a server.
    pub is_external: bool,
    /// Whether its skills are known.
    pub is_classified: bool,
    /// Its skills.
    pub skill_ids: Vec<String>,
    /// Its best skill.
    pub primary_skill_id: Option<String>,
    /// The hash of the text of the vector.
    pub text_hash: String,
}

/// A vector to store.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Its id.
    pub id: PointId,
    /// Its numbers, normalized.
    pub vector: Vec<f32>,
    /// Its metadata.
    pub payload: Payload,
}

/// Which vectors are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreFilter {
    /// Only tools of these servers, by id.
    pub servers: Vec<String>,
    /// Only tools with one of these skills; all tools if empty.
    pub skills: Vec<String>,
    /// Only tools with one of these skills, and unclassified ones.
    pub by_skills: Option<Vec<String>>,
    /// Only these.
    pub among: Option<Vec<PointId>>,
}

/// A request to the store.
pub type Request<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Stores vectors of one model outside the program. The caller sets timeouts.
pub trait VectorStore: Send + Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// Its address, for people.
    fn address(&self) -> &str;
    /// Creates the collection if it is missing.
    fn prepare(&self) -> Request<'_, ()>;
    /// The metadata of all stored vectors.
    fn list(&self) -> Request<'_, Vec<(PointId, Payload)>>;
    /// The number of stored vectors.
    fn count(&self) -> Request<'_, usize>;
    /// Stores vectors, and replaces those with the same ids.
    fn put(&self, points: Vec<Point>) -> Request<'_, ()>;
    /// Replaces the metadata of stored vectors.
    fn relabel(&self, payloads: Vec<(PointId, Payload)>) -> Request<'_, ()>;
    /// Deletes vectors.
    fn delete(&self, points: Vec<PointId>) -> Request<'_, ()>;
    /// Records that the collection is complete, so that other programs can use it.
    fn publish(&self) -> Request<'_, ()>;
    /// The nearest vectors to each of some vectors, nearest first, by their exact scalar products.
    fn nearest(&self, to: Vec<Vec<f32>>, within: StoreFilter, count: usize) -> Request<'_, Vec<Vec<(PointId, f32)>>>;
}

/// Why a store failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct StoreError {
    /// The operation.
    pub what: String,
    /// The cause, if it is known.
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

/// The scores that a vector store returned.
pub struct StoredScores<'a, K> {
    /// The similarities of some tools.
    pub near: HashMap<K, f32>,
    /// Whether the store has the vector of a tool.
    pub is_kept: &'a dyn Fn(&K) -> bool,
}

/// The answers to a query for the nearest vectors.
#[derive(Debug, Default)]
pub struct NearestAnswers {
    /// The similarity of each vector to each part of the query, as far as it was returned.
    stored: BTreeMap<PointId, Vec<Option<f32>>>,
    /// The maximum similarity of the other vectors to each part.
    rest: Vec<f32>,
    /// Whether one of the parts was compared with all vectors.
    is_everything: bool,
}

impl NearestAnswers {
    /// Adds the nearest vectors to each part of a query.
    pub fn of_nearest(nearest: &[Vec<(PointId, f32)>], count: usize) -> Self {
        let mut answers = Self {
            rest: nearest.iter().map(|part| part.last().map_or(f32::NEG_INFINITY, |(_, score)| *score)).collect(),
            is_everything: nearest.iter().any(|part| part.len() < count),
            ..Self::default()
        };
        answers.add(nearest);
        answers
    }

    /// Adds further scores.
    pub fn add(&mut self, answers: &[Vec<(PointId, f32)>]) {
        let parts = self.rest.len();
        for (place, part) in answers.iter().enumerate().take(parts) {
            for (point, score) in part {
                self.stored.entry(*point).or_insert_with(|| vec![None; parts])[place] = Some(*score);
            }
        }
    }

    /// The vectors whose scores are still needed: these, and those with scores for only some parts.
    pub fn missing(&self, wanted: impl Iterator<Item = PointId>) -> Vec<PointId> {
        let in_part = self.stored.iter().filter(|(_, parts)| parts.contains(&None)).map(|(point, _)| *point);
        let unknown = wanted.filter(|point| !self.stored.contains_key(point));
        in_part.chain(unknown).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The similarities of vectors with scores for all parts.
    pub fn near(&self) -> impl Iterator<Item = (PointId, f32)> {
        self.stored.iter().filter_map(|(point, parts)| {
            let parts: Option<Vec<f32>> = parts.iter().copied().collect();
            Some((*point, near(parts?.into_iter())))
        })
    }

    /// Whether no vector without scores can be among the best, given the score of the last of these and the maximum
    /// word score of the others.
    pub fn are_sufficient(&self, scores: &[f32], limits: Limits, rest_by_words: f32) -> bool {
        // The first are varied, so the last need not be the worst.
        let worst = scores.iter().copied().fold(f32::INFINITY, f32::min);
        let least = if scores.len() < limits.count || scores.is_empty() { limits.least_score } else { worst };
        self.is_everything || most(rest_by_words, near(self.rest.iter().copied())) < least
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Limits = Limits { count: 2, least_score: 0.0 };

    fn points(scores: &[(u128, f32)]) -> Vec<(PointId, f32)> {
        scores.iter().map(|(id, score)| (PointId(*id), *score)).collect()
    }

    #[test]
    fn missing_scores_and_best_word_matches_are_requested() {
        let mut answers =
            NearestAnswers::of_nearest(&[points(&[(1, 0.9), (2, 0.8)]), points(&[(1, 0.7), (3, 0.6)])], 2);
        let missing = answers.missing([PointId(1), PointId(4)].into_iter());
        assert_eq!(missing, [PointId(2), PointId(3), PointId(4)]);
        answers.add(&[points(&[(3, 0.2), (4, 0.1)]), points(&[(2, 0.4), (4, 0.1)])]);
        assert!(answers.missing([PointId(4)].into_iter()).is_empty());
        let near: Vec<(PointId, f32)> = answers.near().collect();
        assert_eq!(near.len(), 4);
        assert!((near[1].1 - 0.6).abs() < 1e-6, "half the whole, half the best sentence");
    }

    #[test]
    fn scores_suffice_if_the_others_cannot_be_among_the_best() {
        let answers = NearestAnswers::of_nearest(&[points(&[(1, 0.9), (2, 0.5)])], 2);
        assert!(answers.are_sufficient(&[0.6, 0.4], TWO, 0.1), "0.7 · 0.5 + 0.3 · 0.1 is less than 0.4");
        assert!(!answers.are_sufficient(&[0.6, 0.4], TWO, 0.3), "another one may score 0.44");
        assert!(!answers.are_sufficient(&[0.6], TWO, 0.2), "there may be a second one");
        let everything = NearestAnswers::of_nearest(&[points(&[(1, 0.9)])], 2);
        assert!(everything.are_sufficient(&[0.6], TWO, 0.9));
    }
}
