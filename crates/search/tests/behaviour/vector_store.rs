//! Vectors in a vector store: the same tools are found, however few of the nearest are requested.

use search::{Document, Index, NearestAnswers, PointId, Query, StoredScores};

use crate::{TEN, by_meaning, embedded, keys, quality};

/// The nearest vectors to each part of a query, as a store would return them.
fn nearest(index: &Index<usize>, query: &Query, among: &[usize], count: usize) -> Vec<Vec<(PointId, f32)>> {
    let product = |one: &[f32], other: &[f32]| one.iter().zip(other).map(|(one, other)| one * other).sum::<f32>();
    let compare = |part: &Vec<f32>| {
        let vector = |key: &usize| index.vector(key).expect("every tool has one");
        let mut near: Vec<_> = among.iter().map(|key| (PointId(*key as u128), product(part, &vector(key)))).collect();
        near.sort_by(|one, other| other.1.total_cmp(&one.1));
        near.truncate(count);
        near
    };
    query.vectors().iter().map(compare).collect()
}

#[test]
fn the_best_are_the_same_whenever_the_answers_suffice() {
    let documents: Vec<Document> = quality::tools().into_iter().map(|(_, document)| document).collect();
    let (index, all) = (by_meaning(&documents), (0..documents.len()).collect::<Vec<_>>());
    let requests =
        ["show me what is inside config.yaml", "Find the weather. Then send it by email. Open an issue.", "x"];
    let mut sufficed = 0;
    for (request, count) in requests.iter().flat_map(|request| [5, 20, 40, 1000].map(|count| (request, count))) {
        let query = embedded(request);
        let (by_words, rest) = index.best_by_words(&query, count, |_| true);
        let mut answers = NearestAnswers::of_nearest(&nearest(&index, &query, &all, count), count);
        let missing = answers.missing(by_words.iter().map(|key| PointId(*key as u128)));
        let missing: Vec<usize> = missing.into_iter().map(|point| point.0 as usize).collect();
        answers.add(&nearest(&index, &query, &missing, missing.len()));
        let near = answers.near().map(|(point, near)| (point.0 as usize, near)).collect();
        let hits = index.search_with_scores(&query, TEN, |_| true, &StoredScores { near, is_kept: &|_| true });
        let scores: Vec<f32> = hits.iter().map(|hit| hit.score).collect();
        if answers.are_sufficient(&scores, TEN, rest) {
            assert_eq!(keys(&hits), keys(&index.search(&query, TEN, |_| true)), "{request}, {count}");
            sufficed += 1;
        }
    }
    assert!(sufficed >= 5, "that much is told: {sufficed}");
}

#[test]
fn what_is_not_in_the_vector_store_is_compared_locally() {
    let documents: Vec<Document> = quality::tools().into_iter().map(|(_, document)| document).collect();
    let index = by_meaning(&documents);
    let query = embedded("show me what is inside config.yaml");
    let reported = StoredScores { near: std::collections::HashMap::new(), is_kept: &|_| false };
    let hits = index.search_with_scores(&query, TEN, |_| true, &reported);
    assert_eq!(keys(&hits), keys(&index.search(&query, TEN, |_| true)));
}
