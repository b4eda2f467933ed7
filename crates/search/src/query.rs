//! A query: the whole text, and its sentences if it has several.

use std::sync::Arc;

use crate::document::NameMark;
use crate::embedder::{EmbedError, Embedder};
use crate::text::{self, Word};
use crate::vectors::normalized;

/// The maximum length of a query in bytes.
const MAX_QUERY_LEN: usize = 8192;
/// The maximum number of words of a query, or of one of its sentences.
const MAX_WORDS: usize = 200;
/// The maximum number of sentences that are compared on their own. Each costs the model some milliseconds.
const MAX_SENTENCES: usize = 8;

/// The maximum length in bytes of embedded text; the sentence that exceeds it is the last. Words are cheap, so more of
/// them are used.
const MAX_EMBEDDED_LEN: usize = 1600;

/// A parsed query.
#[derive(Clone, Debug)]
pub struct Query {
    /// The whole query first, then its sentences.
    parts: Vec<Part>,
    vectors: Vec<Vec<f32>>,
    /// The same of the table.
    rough_vectors: Vec<Vec<f32>>,
    /// What it would be if it were the name of a tool.
    name: Option<NameMark>,
    /// Whose it is, if uses of tools count.
    user: Option<Arc<str>>,
}

#[derive(Clone, Debug)]
struct Part {
    text: String,
    words: Vec<Word>,
}

impl Query {
    /// Parses a query. Without vectors it finds tools by words.
    pub fn new(text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(MAX_QUERY_LEN)];
        let parts = std::iter::once(text).chain(text::sentences(text, MAX_SENTENCES));
        let parts = parts.map(|part| Part { text: part.to_owned(), words: text::words(part, MAX_WORDS) });
        Self {
            parts: parts.collect(),
            vectors: Vec::new(),
            rough_vectors: Vec::new(),
            name: NameMark::of(text),
            user: None,
        }
    }

    /// Embeds the query, so that it finds tools by meaning as well. The model must be that of the index.
    ///
    /// # Errors
    ///
    /// If the model is unreachable; the query stays unchanged.
    pub fn embed(&mut self, embedder: &dyn Embedder) -> Result<(), EmbedError> {
        if !self.means_something() {
            return Ok(());
        }
        let vectors = embedder.embed(&self.embedded_texts())?;
        let parts: Option<Vec<Vec<f32>>> = vectors.iter().map(|vector| normalized(vector)).collect();
        self.vectors = parts.and_then(with_the_middle).unwrap_or_default();
        Ok(())
    }

    /// Gives it vectors of the table, if that is compiled in, so that it finds tools without vectors by meaning, too.
    #[must_use]
    pub fn with_rough_vectors(mut self) -> Self {
        if self.means_something() {
            let parts = self.embedded_texts().into_iter().map(|text| normalized(&crate::rough_vector(text)?));
            self.rough_vectors = parts.collect::<Option<_>>().and_then(with_the_middle).unwrap_or_default();
        }
        self
    }

    /// Lets it count what tools were used for, by this user and by others. The name is empty where there is only one.
    #[must_use]
    pub fn by_user(self, user: Arc<str>) -> Self {
        Self { user: Some(user), ..self }
    }

    /// Whose it is, if uses of tools count.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// What has no letters means nothing, but a model would find something near it.
    fn means_something(&self) -> bool {
        self.parts[0].text.contains(char::is_alphanumeric)
    }

    fn embedded_texts(&self) -> Vec<&str> {
        // The middle of its sentences is as good as the vector of the whole, at half the cost.
        let sentences = if self.parts.len() > 1 { &self.parts[1..] } else { &self.parts[..] };
        let mut read = 0;
        let is_within = |part: &&Part| {
            let is_within = read < MAX_EMBEDDED_LEN;
            read += part.text.len();
            is_within
        };
        sentences.iter().take_while(is_within).map(|part| part.text.as_str()).collect()
    }

    /// The whole request as it was read; none if only a part of it was.
    pub(crate) fn text(&self) -> Option<&str> {
        self.parts.first().map(|part| part.text.as_str()).filter(|text| text.len() < MAX_QUERY_LEN)
    }

    /// The same of the table; none if it was not read by it.
    pub(crate) fn rough_vectors(&self) -> &[Vec<f32>] {
        &self.rough_vectors
    }

    pub(crate) fn set_vectors(&mut self, vectors: Vec<Vec<f32>>) {
        self.vectors = vectors;
    }

    /// The stems of each part, the whole query first.
    pub(crate) fn stems(&self) -> impl Iterator<Item = impl Iterator<Item = &str>> {
        self.parts.iter().map(|part| part.words.iter().map(|word| word.stem.as_str()))
    }

    /// The query as the name of a tool.
    pub(crate) fn name(&self) -> Option<NameMark> {
        self.name
    }

    /// The words of the whole query.
    pub(crate) fn words(&self) -> &[Word] {
        &self.parts[0].words
    }

    /// The vector of each part, the whole query first; empty if it was not embedded.
    pub fn vectors(&self) -> &[Vec<f32>] {
        &self.vectors
    }
}

/// Inserts the mean of several vectors before them; a single one stays alone.
fn with_the_middle(mut parts: Vec<Vec<f32>>) -> Option<Vec<Vec<f32>>> {
    if parts.iter().any(|part| part.len() != parts[0].len()) {
        // The model returned invalid vectors, so only words are used.
        return None;
    }
    if parts.len() > 1 {
        let sum = (0..parts[0].len()).map(|place| parts.iter().map(|part| part[place]).sum()).collect::<Vec<f32>>();
        parts.insert(0, normalized(&sum)?);
    }
    Some(parts)
}

/// The score of a tool: half for the whole query, half for the best sentence. A query for several things is similar to
/// none of the tools it needs, but its sentences are.
pub(crate) fn whole_and_best(mut parts: impl Iterator<Item = f32>) -> f32 {
    let whole = parts.next().unwrap_or(0.0);
    let best = parts.fold(f32::NEG_INFINITY, f32::max);
    if best == f32::NEG_INFINITY { whole } else { 0.5 * whole + 0.5 * best }
}

/// The similarity of a vector to a query, from its similarity to each part.
pub(crate) fn near(parts: impl Iterator<Item = f32>) -> f32 {
    whole_and_best(parts).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model that returns arbitrary vectors.
    struct Strange(Vec<Vec<f32>>);

    impl Embedder for Strange {
        fn id(&self) -> &'static str {
            "strange"
        }

        fn dimension(&self) -> usize {
            2
        }

        fn embed(&self, _: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
            Ok(self.0.clone())
        }
    }

    #[test]
    fn the_mean_of_the_sentences_represents_the_whole_query() {
        let mut query = Query::new("Find it. Send it away.");
        query.embed(&Strange(vec![vec![2.0, 0.0], vec![0.0, 3.0]])).expect("it answers");
        let half = 0.5_f32.sqrt();
        assert_eq!(query.vectors()[1..], [[1.0, 0.0], [0.0, 1.0]]);
        assert!(query.vectors()[0].iter().all(|number| (number - half).abs() < 1e-6));
    }

    #[test]
    fn invalid_vectors_of_a_model_leave_search_by_words() {
        for strange in
            [vec![], vec![vec![]], vec![vec![1.0, 0.0], vec![1.0]], vec![vec![f32::NAN, 0.0], vec![1.0, 0.0]]]
        {
            let mut query = Query::new("Find it. Send it away.");
            query.embed(&Strange(strange)).expect("it answers");
            assert!(query.vectors().is_empty());
            assert!(!query.words().is_empty());
        }
    }
}
