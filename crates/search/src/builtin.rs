//! The model that comes with the program, read when it is first needed: who never searches does not pay for it.

use crate::embedder::{EmbedError, Embedder};
use crate::minilm::{self, MiniLm};

/// The built-in sentence model.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuiltIn;

impl Embedder for BuiltIn {
    fn id(&self) -> &'static str {
        minilm::ID
    }

    fn dimension(&self) -> usize {
        minilm::HIDDEN
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        MiniLm::shared().embed(texts)
    }
}
