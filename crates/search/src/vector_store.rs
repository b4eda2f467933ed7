//! The seam between the index and whatever keeps vectors elsewhere and compares them there.
//!
//! Ranking stays here. Whoever keeps the vectors is asked for the nearest, and for those that fit best by words; an
//! [`NearestAnswers`] says when that is enough to know the best of all, whatever the rest may be.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error;
use std::future::Future;
use std::pin::Pin;

use crate::index::{Limits, most};
use crate::query::near;

/// Names a vector elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PointId(pub u128);

/// What is kept with a vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The id of its server.
    pub source_server_id: String,
    /// The name of its server.
    pub source_server_name: String,
    /// What its server calls it.
    pub original_name: String,
    /// Whether it is a server's.
    pub is_external: bool,
    /// Whether its skills are known.
    pub is_classified: bool,
    /// What it is good for.
    pub skill_ids: Vec<String>,
    /// What it is best at.
    pub primary_skill_id: Option<String>,
    /// Names the text that the vector was made from.
    pub text_hash: String,
}

/// A vector to be kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Which one.
    pub id: PointId,
    /// Its numbers, of length one together.
    pub vector: Vec<f32>,
    /// What is kept with it.
    pub payload: Payload,
}

/// What is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreFilter {
    /// Only tools of these servers, by id.
    pub servers: Vec<String>,
    /// Only tools with one of these skills; with any or none, if none are named.
    pub skills: Vec<String>,
    /// Only tools with one of these skills, and those whose skills are not known.
    pub by_skills: Option<Vec<String>>,
    /// Only these.
    pub among: Option<Vec<PointId>>,
}

/// Something that is being done elsewhere.
pub type Request<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Keeps vectors of one model elsewhere. Whoever asks sees to it that nothing takes for ever.
pub trait VectorStore: Send + Sync {
    /// What it is called.
    fn name(&self) -> &'static str;
    /// Where it is, for people.
    fn address(&self) -> &str;
    /// Makes ready what vectors are kept in.
    fn prepare(&self) -> Request<'_, ()>;
    /// Everything that is kept, without the vectors.
    fn list(&self) -> Request<'_, Vec<(PointId, Payload)>>;
    /// How much is kept.
    fn count(&self) -> Request<'_, usize>;
    /// Keeps these, in place of others with the same ids.
    fn put(&self, points: Vec<Point>) -> Request<'_, ()>;
    /// Keeps something else with vectors that are there.
    fn relabel(&self, payloads: Vec<(PointId, Payload)>) -> Request<'_, ()>;
    /// Keeps these no longer.
    fn delete(&self, points: Vec<PointId>) -> Request<'_, ()>;
    /// Everything is there: others may go by it.
    fn publish(&self) -> Request<'_, ()>;
    /// The nearest to each of some vectors, nearest first: the scalar product, exactly.
    fn nearest(&self, to: Vec<Vec<f32>>, within: StoreFilter, count: usize) -> Request<'_, Vec<Vec<(PointId, f32)>>>;
}

/// Why somebody who keeps vectors did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct StoreError {
    /// What could not be done.
    pub what: String,
    /// Why, if that is known.
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

/// What is known of vectors that are kept elsewhere.
pub struct StoredScores<'a, K> {
    /// How near some of them are.
    pub near: HashMap<K, f32>,
    /// Whether the vector of a tool is kept there.
    pub is_kept: &'a dyn Fn(&K) -> bool,
}

/// The answers to a request for the nearest vectors.
#[derive(Debug, Default)]
pub struct NearestAnswers {
    /// How near each is to each part of the request, as far as that was told.
    told: BTreeMap<PointId, Vec<Option<f32>>>,
    /// How near the others are to each part at most.
    rest: Vec<f32>,
    /// One of the parts was compared with everything.
    is_everything: bool,
}

impl NearestAnswers {
    /// Takes the so many nearest to each part of a request.
    pub fn of_nearest(nearest: &[Vec<(PointId, f32)>], count: usize) -> Self {
        let mut answers = Self {
            rest: nearest.iter().map(|part| part.last().map_or(f32::NEG_INFINITY, |(_, score)| *score)).collect(),
            is_everything: nearest.iter().any(|part| part.len() < count),
            ..Self::default()
        };
        answers.add(nearest);
        answers
    }

    /// Takes what else was told.
    pub fn add(&mut self, answers: &[Vec<(PointId, f32)>]) {
        let parts = self.rest.len();
        for (place, part) in answers.iter().enumerate().take(parts) {
            for (point, score) in part {
                self.told.entry(*point).or_insert_with(|| vec![None; parts])[place] = Some(*score);
            }
        }
    }

    /// What has to be asked for besides: these, and what was told of in part.
    pub fn missing(&self, wanted: impl Iterator<Item = PointId>) -> Vec<PointId> {
        let in_part = self.told.iter().filter(|(_, parts)| parts.contains(&None)).map(|(point, _)| *point);
        let unknown = wanted.filter(|point| !self.told.contains_key(point));
        in_part.chain(unknown).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// How near those are of which all was told.
    pub fn near(&self) -> impl Iterator<Item = (PointId, f32)> {
        self.told.iter().filter_map(|(point, parts)| {
            let parts: Option<Vec<f32>> = parts.iter().copied().collect();
            Some((*point, near(&mut parts?.into_iter())))
        })
    }

    /// Whether nothing of which nothing was told can be among the best, if the last of these scores so much and the
    /// others fit no better than so by words.
    pub fn are_sufficient(&self, scores: &[f32], limits: Limits, rest_by_words: f32) -> bool {
        let least =
            if scores.len() < limits.count { limits.least_score } else { scores.last().copied().unwrap_or(0.0) };
        self.is_everything || most(rest_by_words, near(&mut self.rest.iter().copied())) < least
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
    fn what_was_told_in_part_and_what_fits_by_words_is_asked_for_besides() {
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
    fn enough_was_told_if_the_rest_cannot_be_among_the_best() {
        let answers = NearestAnswers::of_nearest(&[points(&[(1, 0.9), (2, 0.5)])], 2);
        assert!(answers.are_sufficient(&[0.6, 0.4], TWO, 0.2), "0.6 · 0.5 + 0.4 · 0.2 is less than 0.4");
        assert!(!answers.are_sufficient(&[0.6, 0.4], TWO, 0.3), "another one may score 0.42");
        assert!(!answers.are_sufficient(&[0.6], TWO, 0.2), "there may be a second one");
        let everything = NearestAnswers::of_nearest(&[points(&[(1, 0.9)])], 2);
        assert!(everything.are_sufficient(&[0.6], TWO, 0.9));
    }
}
