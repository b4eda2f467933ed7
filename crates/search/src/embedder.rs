//! The interface between the index and embedding models.
//!
//! The index never calls a model: it reports which texts lack vectors, and is given vectors. So a model may be compiled
//! in, loaded from a file or called over the network, now or later, on any thread.

use std::error::Error;

/// Turns texts into vectors in which texts of like meaning are near each other.
pub trait Embedder: Send + Sync {
    /// Identifies the model and everything else that affects its vectors. Vectors of different ids are not comparable,
    /// so it is stored with them.
    fn id(&self) -> &str;

    /// Earlier models whose stored vectors are close enough to this one's to search with until they are replaced.
    fn earlier_ids(&self) -> &[&str] {
        &[]
    }

    /// Whether the model is asked over the network. Its answers are not cached: only asking shows whether it is reachable.
    fn is_remote(&self) -> bool {
        false
    }

    /// How many numbers a vector has.
    fn dimension(&self) -> usize;

    /// Whether the model can read a request: it is in a language that the model was trained with. `is_known` says of a
    /// word whether a tool that was found has it. True if nothing is known about the model's languages.
    fn reads(&self, request: &str, is_known: &dyn Fn(&str) -> bool) -> bool {
        let _of_any_language = (request, is_known);
        true
    }

    /// One vector per text, in order. Vectors need not have length one; the index normalizes them.
    ///
    /// # Errors
    /// If the model is unreachable. The index then uses words only.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// The vectors of a skill with this fingerprint, if they are precomputed, which saves work at every start. The
    /// first is that of its whole text, the others are those of its examples.
    fn known_skill(&self, fingerprint: &str) -> Option<Vec<Vec<f32>>> {
        let _unknown = fingerprint;
        None
    }
}

/// Why there are no vectors.
#[derive(Debug, thiserror::Error)]
#[error("could not embed with the model `{model}`")]
pub struct EmbedError {
    /// Which model failed.
    pub model: String,
    /// Whether the texts are the reason: the model is reachable, but refuses some of them.
    pub is_about_the_texts: bool,
    /// The cause.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}
