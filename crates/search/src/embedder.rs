//! The seam between the index and whatever turns texts into vectors.
//!
//! The index never calls a model by itself: it says which texts it lacks vectors for, and is given vectors. So a model
//! may be compiled in, read from a file or asked over the network, now or later, on any thread.

use std::error::Error;

/// Turns texts into vectors in which texts of like meaning are near each other.
pub trait Embedder: Send + Sync {
    /// Names the model and everything else that shapes its vectors. Vectors of different ids are not comparable, so it
    /// is stored with them.
    fn id(&self) -> &str;

    /// How many numbers a vector has.
    fn dimension(&self) -> usize;

    /// One vector per text, in order. Vectors need not be of length one; the index sees to that.
    ///
    /// # Errors
    /// If there are no vectors to be had now. The index goes on with words alone.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError>;

    /// The vectors of a skill with this fingerprint, if they were made beforehand: what never changes need not be made at
    /// every start. The first is that of all its words together, the others are those of its examples.
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
    /// Whether these texts are the reason: the model is there, but wants none of them, or not all.
    pub is_about_the_texts: bool,
    /// What was wrong.
    #[source]
    pub source: Box<dyn Error + Send + Sync>,
}
