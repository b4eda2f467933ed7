//! Remembers the vectors of requests: clients often ask the same again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::embedder::{EmbedError, Embedder};
use crate::query::Query;

/// Requests that are remembered.
const MAX_ENTRIES: usize = 128;
/// Bytes of a request that is remembered.
const MAX_TEXT_LEN: usize = 512;

/// The vectors of the last requests of one model.
#[derive(Debug, Default)]
pub struct QueryCache(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    by_text: HashMap<String, Entry>,
    /// Counts uses, so that the entry that was not used for longest is replaced.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    vectors: Vec<Vec<f32>>,
    last_used: u64,
}

impl QueryCache {
    /// Gives a request its vectors, like [`Query::embed`].
    ///
    /// # Errors
    /// If the model cannot be asked now; the request is as it was.
    pub fn embed(&self, query: &mut Query, embedder: &dyn Embedder) -> Result<(), EmbedError> {
        let text = query.text().filter(|text| text.len() <= MAX_TEXT_LEN && !embedder.is_remote());
        let Some(text) = text.map(str::to_owned) else { return query.embed(embedder) };
        if let Some(vectors) = self.get(&text, embedder.dimension()) {
            query.set_vectors(vectors);
            return Ok(());
        }
        query.embed(embedder)?;
        if !query.vectors().is_empty() {
            self.put(text, query.vectors().to_vec());
        }
        Ok(())
    }

    /// What is remembered, unless the model makes vectors of another length now.
    fn get(&self, text: &str, dimension: usize) -> Option<Vec<Vec<f32>>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.clock += 1;
        let clock = entries.clock;
        let entry = entries.by_text.get_mut(text)?;
        entry.last_used = clock;
        entry.vectors.iter().all(|vector| vector.len() == dimension).then(|| entry.vectors.clone())
    }

    fn put(&self, text: String, vectors: Vec<Vec<f32>>) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.by_text.len() >= MAX_ENTRIES && !entries.by_text.contains_key(&text) {
            let oldest = entries.by_text.iter().min_by_key(|(_, entry)| entry.last_used);
            if let Some(oldest) = oldest.map(|(text, _)| text.clone()) {
                entries.by_text.remove(&oldest);
            }
        }
        let last_used = entries.clock;
        entries.by_text.insert(text, Entry { vectors, last_used });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts how often it is asked.
    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Embedder for Counting {
        fn id(&self) -> &'static str {
            "counting"
        }

        fn dimension(&self) -> usize {
            2
        }

        fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(vec![vec![1.0, 0.0]; texts.len()])
        }
    }

    #[test]
    fn the_model_reads_a_request_once_while_it_is_remembered() {
        let (cache, model) = (QueryCache::default(), Counting::default());
        let ask = |text: &str| {
            let mut query = Query::new(text);
            cache.embed(&mut query, &model).expect("it answers");
            assert_eq!(query.vectors(), [[1.0, 0.0]]);
            model.0.load(Ordering::Relaxed)
        };
        assert_eq!((ask("first"), ask("first")), (1, 1));
        for number in 0..MAX_ENTRIES {
            ask(&format!("other {number}"));
            ask("first");
        }
        assert_eq!(ask("first"), 1 + MAX_ENTRIES, "what is used stays");
        assert_eq!(ask("other 0"), 2 + MAX_ENTRIES, "what is not used goes");
        let long = "x".repeat(MAX_TEXT_LEN + 1);
        assert!(ask(&long) < ask(&long), "long requests are not remembered");
    }
}
