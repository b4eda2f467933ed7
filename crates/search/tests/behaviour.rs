//! Behaviour of the index when tools are added, changed and removed, with the built-in model.
#![cfg(feature = "builtin-model")]

#[path = "behaviour/hostile.rs"]
mod hostile;
#[path = "behaviour/index.rs"]
mod index;
#[path = "behaviour/near_duplicates.rs"]
mod near_duplicates;
#[path = "behaviour/own_model.rs"]
mod own_model;
#[path = "behaviour/quality.rs"]
mod quality;
#[path = "behaviour/scale.rs"]
mod scale;
#[path = "behaviour/skills.rs"]
mod skills;
#[path = "behaviour/tiny_model.rs"]
mod tiny_model;
#[path = "behaviour/uses.rs"]
mod uses;
#[path = "behaviour/vector_store.rs"]
mod vector_store;

use std::collections::BTreeMap;
use std::sync::Mutex;

use search::{Document, Embedder, Hit, Index, Limits, MiniLm, Query, TextHash, embed_documents};

/// Why embedding cannot fail.
const ALWAYS: &str = "the built-in model always answers";

const TEN: Limits = Limits { count: 10, least_score: 0.0 };

fn document(server: &str, name: &str, description: &str) -> Document {
    Document { server: server.into(), name: name.into(), description: description.into(), ..Document::default() }
}

/// An index without vectors.
fn by_words(documents: &[Document]) -> Index<usize> {
    let mut index = Index::new(MiniLm::shared().dimension());
    for (key, document) in documents.iter().enumerate() {
        index.insert(key, document.clone());
    }
    index
}

/// Computes the missing vectors of an index. The same text is embedded once for all tests.
fn embed_lacking(index: &mut Index<usize>) {
    static KNOWN: Mutex<BTreeMap<TextHash, Vec<f32>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().expect("no test fails while it embeds");
    let missing_vectors: Vec<_> =
        index.missing_vectors(usize::MAX).iter().map(|tool| (*tool.key, tool.hash, tool.document.clone())).collect();
    let (hashes, documents): (Vec<TextHash>, Vec<&Document>) = missing_vectors
        .iter()
        .filter(|(_, hash, _)| !known.contains_key(hash))
        .map(|(_, hash, document)| (*hash, document))
        .unzip();
    known.extend(hashes.into_iter().zip(embed_documents(MiniLm::shared(), &documents).expect(ALWAYS)));
    for (key, hash, _) in missing_vectors {
        assert!(index.set_vector(&key, hash, &known[&hash]));
    }
    let servers: Vec<_> = index
        .servers_missing_vectors(usize::MAX)
        .iter()
        .map(|server| (server.key.clone(), server.hash, server.document.clone()))
        .collect();
    for (server, hash, document) in servers {
        let vector = embed_documents(MiniLm::shared(), &[&document]).expect(ALWAYS).remove(0);
        assert!(index.set_server_vector(&server, hash, &vector));
    }
}

fn by_meaning(documents: &[Document]) -> Index<usize> {
    let mut index = by_words(documents);
    embed_lacking(&mut index);
    index
}

fn embedded(request: &str) -> Query {
    let mut query = Query::new(request);
    query.embed(MiniLm::shared()).expect(ALWAYS);
    query
}

fn find(index: &Index<usize>, request: &str) -> Vec<Hit<usize>> {
    index.search(&embedded(request), TEN, |_| true)
}

fn keys(hits: &[Hit<usize>]) -> Vec<usize> {
    hits.iter().map(|hit| hit.key).collect()
}
