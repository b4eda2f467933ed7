//! Compares whole scores with those of an independent implementation: both models together and words.

use serde::Deserialize;

use crate::document::{Document, embed_documents};
use crate::embedder::{EmbedError, Embedder};
use crate::index::{Index, Limits};
use crate::minilm::MiniLm;
use crate::query::Query;
use crate::vectors::normalized;
use crate::word_table::WordTable;

/// The share of the table in the expected nearness.
const TABLE: f32 = 0.35;
const MOST: f32 = 5e-3;

#[derive(Deserialize)]
struct Parity {
    tools: Vec<Tool>,
    pairs: Vec<Pair>,
}

#[derive(Deserialize)]
struct Tool {
    server: String,
    name: String,
    description: String,
    parameters: Vec<String>,
}

#[derive(Deserialize)]
struct Pair {
    query: String,
    tool: usize,
    score: f32,
    vector: f32,
    lexical: f32,
    rank: usize,
}

/// Both vectors of a text side by side: a product of two is the weighted sum of their products.
struct Joint;

impl Embedder for Joint {
    fn id(&self) -> &'static str {
        "joint"
    }

    fn dimension(&self) -> usize {
        640
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let joined = |(encoder, text): (Vec<f32>, &&str)| {
            let encoder = normalized(&encoder).unwrap_or(encoder);
            let table = WordTable::shared().embed(text);
            let encoder = encoder.iter().map(|number| number * (1.0 - TABLE).sqrt());
            encoder.chain(table.iter().map(|number| number * TABLE.sqrt())).collect()
        };
        Ok(MiniLm::shared().embed(texts)?.into_iter().zip(texts).map(joined).collect())
    }
}

#[test]
fn scores_are_those_of_an_independent_implementation() {
    let Parity { tools, pairs } =
        serde_json::from_str(include_str!("../tests/quality/parity.json")).expect("the file has this form");
    // It knows nothing of servers' relevance.
    let mut index = Index::without_servers(Joint.dimension());
    let documents: Vec<Document> = tools
        .into_iter()
        .map(|Tool { server, name, description, parameters }| Document {
            server,
            name,
            description,
            parameters,
            ..Document::default()
        })
        .collect();
    let vectors = embed_documents(&Joint, &documents.iter().collect::<Vec<_>>()).expect("it always answers");
    for (key, (document, vector)) in documents.iter().zip(&vectors).enumerate() {
        index.insert(key, document.clone());
        assert!(index.set_vector(&key, document.text_hash(), vector));
    }
    assert_eq!(pairs.len(), 20);
    for Pair { query: text, tool, score, vector, lexical, rank } in pairs {
        let mut query = Query::new(&text);
        query.embed(&Joint).expect("it always answers");
        let hits = index.search(&query, Limits { count: 100, least_score: 0.0 }, |_| true);
        let place = hits.iter().position(|hit| hit.key == tool).unwrap_or_else(|| panic!("{text}: it is not found"));
        let hit = &hits[place];
        let expected_lexical = if hit.lexical >= 1.0 { 1.0 } else { lexical };
        let parts = [(hit.score, score), (hit.vector.unwrap_or(0.0), vector), (hit.lexical, expected_lexical)];
        for (name, (mine, expected)) in ["score", "nearness", "lexical"].iter().zip(parts) {
            assert!((mine - expected).abs() < MOST, "{text}: {name} {mine} instead of {expected}");
        }
        assert_eq!(place + 1, rank, "{text}");
    }
}
