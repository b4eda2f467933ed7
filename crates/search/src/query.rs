//! What somebody looks for: the whole request, and its sentences if it has several.

use crate::document::NameMark;
use crate::embedder::{EmbedError, Embedder};
use crate::text::{self, Word};
use crate::vectors::normalized;

/// Bytes of a request that are looked at.
const MAX_QUERY_LEN: usize = 8192;
/// Words of a request, or of one of its sentences, that are looked at.
const MAX_WORDS: usize = 200;
/// Sentences that are looked at on their own. Each costs the model some milliseconds.
const MAX_SENTENCES: usize = 8;

/// Bytes of a request whose meaning is looked at; the sentence that goes beyond them is the last. Words are cheap and go
/// further.
const MAX_EMBEDDED_LEN: usize = 1600;

/// A request, read once.
#[derive(Clone, Debug)]
pub struct Query {
    /// The whole first, then the sentences.
    parts: Vec<Part>,
    vectors: Vec<Vec<f32>>,
    /// What it would be if it were the name of a tool.
    name: Option<NameMark>,
}

#[derive(Clone, Debug)]
struct Part {
    text: String,
    words: Vec<Word>,
}

impl Query {
    /// Reads a request. Without vectors it finds tools by words.
    pub fn new(text: &str) -> Self {
        let text = &text[..text.floor_char_boundary(MAX_QUERY_LEN)];
        let parts = std::iter::once(text).chain(text::sentences(text, MAX_SENTENCES));
        let parts = parts.map(|part| Part { text: part.to_owned(), words: text::words(part, MAX_WORDS) });
        Self { parts: parts.collect(), vectors: Vec::new(), name: NameMark::of(text) }
    }

    /// Gives it vectors, so that it finds tools by meaning as well. They must be of the model that the index was made
    /// for.
    ///
    /// # Errors
    /// If the model cannot be asked now; the request is as it was.
    pub fn embed(&mut self, embedder: &dyn Embedder) -> Result<(), EmbedError> {
        // What has no letters means nothing, but a model would find something near it.
        if !self.parts[0].text.contains(char::is_alphanumeric) {
            return Ok(());
        }
        // The middle of its sentences is as good as the vector of the whole, at half the cost.
        let sentences = if self.parts.len() > 1 { &self.parts[1..] } else { &self.parts[..] };
        let mut read = 0;
        let is_within = |part: &&Part| {
            let is_within = read < MAX_EMBEDDED_LEN;
            read += part.text.len();
            is_within
        };
        let texts: Vec<&str> = sentences.iter().take_while(is_within).map(|part| part.text.as_str()).collect();
        let vectors = embedder.embed(&texts)?;
        let parts: Option<Vec<Vec<f32>>> = vectors.iter().map(|vector| normalized(vector)).collect();
        self.vectors = parts.and_then(with_the_middle).unwrap_or_default();
        Ok(())
    }

    /// The stems of each part, the whole request first.
    pub(crate) fn stems(&self) -> impl Iterator<Item = impl Iterator<Item = &str>> {
        self.parts.iter().map(|part| part.words.iter().map(|word| word.stem.as_str()))
    }

    /// What it is if it is the name of a tool.
    pub(crate) fn name(&self) -> Option<NameMark> {
        self.name
    }

    /// The words of the whole request.
    pub(crate) fn words(&self) -> &[Word] {
        &self.parts[0].words
    }

    /// The vector of each part, the whole request first; none if it was not embedded.
    pub fn vectors(&self) -> &[Vec<f32>] {
        &self.vectors
    }
}

/// Puts the middle of several vectors before them; one is its own.
fn with_the_middle(mut parts: Vec<Vec<f32>>) -> Option<Vec<Vec<f32>>> {
    if parts.iter().any(|part| part.len() != parts[0].len()) {
        // Whoever made these is confused; words are enough.
        return None;
    }
    if parts.len() > 1 {
        let sum = (0..parts[0].len()).map(|place| parts.iter().map(|part| part[place]).sum()).collect::<Vec<f32>>();
        parts.insert(0, normalized(&sum)?);
    }
    Some(parts)
}

/// What a tool gets for a request: half for the whole of it, half for the sentence that fits best. A request for
/// several things is near none of the tools it needs, its sentences are.
pub(crate) fn whole_and_best(parts: &mut dyn Iterator<Item = f32>) -> f32 {
    let whole = parts.next().unwrap_or(0.0);
    let best = parts.fold(f32::NEG_INFINITY, f32::max);
    if best == f32::NEG_INFINITY { whole } else { 0.5 * whole + 0.5 * best }
}

/// How near a vector is to a request, from how near it is to each of its parts.
pub(crate) fn near(parts: &mut dyn Iterator<Item = f32>) -> f32 {
    whole_and_best(parts).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model that answers what it likes.
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
    fn the_middle_of_the_sentences_stands_for_the_whole() {
        let mut query = Query::new("Find it. Send it away.");
        query.embed(&Strange(vec![vec![2.0, 0.0], vec![0.0, 3.0]])).expect("it answers");
        let half = 0.5_f32.sqrt();
        assert_eq!(query.vectors()[1..], [[1.0, 0.0], [0.0, 1.0]]);
        assert!(query.vectors()[0].iter().all(|number| (number - half).abs() < 1e-6));
    }

    #[test]
    fn strange_answers_of_a_model_leave_the_words() {
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
