//! A sentence model that the user provides, from its published files: MiniLM and similar ones.
//!
//! The layout is that of Hugging Face: `config.json`, `tokenizer.json` or `vocab.txt`, `model.safetensors`. Other files
//! that affect vectors are used, too, or the model is refused. The caller reads the files.

mod config;

use std::error::Error;

use sha2::{Digest, Sha256};

use crate::bert::{Bert, Plain, WordPiece};
use crate::embedder::{EmbedError, Embedder};
use crate::vectors::normalized;

const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const VOCABULARY: &str = "vocab.txt";
const WEIGHTS: &str = "model.safetensors";
const MODULES: &str = "modules.json";
const POOLING: &str = "1_Pooling/config.json";
const LENGTH: &str = "sentence_bert_config.json";
/// The number of digits of a digest in a model's id.
const DIGITS: usize = 16;

/// Why a file could not be read, in the words of the caller.
pub type FileError = Box<dyn Error + Send + Sync>;

/// Why a model cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// A file is missing.
    #[error("it has no `{0}`")]
    Missing(&'static str),
    /// A file cannot be read.
    #[error("its `{file}` cannot be read")]
    Unreadable {
        /// The file.
        file: &'static str,
        /// The cause.
        #[source]
        source: FileError,
    },
    /// A file requires something that is not supported.
    #[error("its `{file}` cannot be used: {why}")]
    Odd {
        /// The file.
        file: &'static str,
        /// What is not supported.
        why: String,
    },
}

/// A model that was loaded from files.
pub struct SentenceModel {
    id: String,
    model: Bert,
}

impl SentenceModel {
    /// Loads a model; `read` returns a file by name, or `None` if it does not exist. Its `name` is for people: models
    /// with different files are distinguished by a digest.
    ///
    /// # Errors
    ///
    /// If a file is missing, or requires something that is not supported.
    pub fn read(name: &str, file: impl Fn(&str) -> Result<Option<Vec<u8>>, FileError>) -> Result<Self, ModelError> {
        let mut files = Files { file, digest: Sha256::new() };
        let config = files.needed(CONFIG)?;
        let mut shape = config::shape(&config).map_err(|why| odd(CONFIG, why))?;
        files.check(MODULES, config::check_modules)?;
        files.check(POOLING, config::check_pooling)?;
        if let Some(longest) = files.check(LENGTH, config::longest_text)?.flatten() {
            shape.longest_text = longest.min(shape.positions);
        }
        let pieces = files.pieces(shape.words)?;
        let weights = files.needed(WEIGHTS)?;
        let read = Plain::read(&weights).and_then(|weights| Bert::read(shape, pieces, &weights));
        let model = read.map_err(|error| odd(WEIGHTS, error.to_string()))?;
        let digest: String = files.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { id: format!("{}/{}", plain(name), &digest[..DIGITS]), model })
    }
}

impl Embedder for SentenceModel {
    fn id(&self) -> &str {
        &self.id
    }

    fn dimension(&self) -> usize {
        self.model.dimension()
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let vectors = self.model.embed(texts).into_iter();
        Ok(vectors.map(|vector| normalized(&vector).unwrap_or(vector)).collect())
    }
}

/// The files of a model, and a digest of those that were read.
struct Files<F> {
    file: F,
    digest: Sha256,
}

impl<F: Fn(&str) -> Result<Option<Vec<u8>>, FileError>> Files<F> {
    fn get(&mut self, name: &'static str) -> Result<Option<Vec<u8>>, ModelError> {
        let bytes = (self.file)(name).map_err(|source| ModelError::Unreadable { file: name, source })?;
        if let Some(bytes) = &bytes {
            // With names and lengths, two different sets of files never have the same input.
            self.digest.update(format!("{name} {}\n", bytes.len()));
            self.digest.update(bytes);
        }
        Ok(bytes)
    }

    fn needed(&mut self, name: &'static str) -> Result<Vec<u8>, ModelError> {
        self.get(name)?.ok_or(ModelError::Missing(name))
    }

    /// The content of a file, if it exists.
    fn check<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Option<T>, ModelError> {
        let Some(bytes) = self.get(name)? else { return Ok(None) };
        read(&bytes).map(Some).map_err(|why| odd(name, why))
    }

    /// The tokenizer: `tokenizer.json` describes it completely, `vocab.txt` has only the pieces.
    fn pieces(&mut self, words: usize) -> Result<WordPiece, ModelError> {
        if let Some(bytes) = self.get(TOKENIZER)? {
            return config::tokenizer(&bytes, words).map_err(|why| odd(TOKENIZER, why));
        }
        let folding = self.check(TOKENIZER_CONFIG, config::folding)?.unwrap_or(config::DEFAULT_FOLDING);
        let Some(bytes) = self.get(VOCABULARY)? else {
            return Err(ModelError::Missing("tokenizer.json` or `vocab.txt"));
        };
        config::vocabulary(&bytes, folding, words).map_err(|why| odd(VOCABULARY, why))
    }
}

fn odd(file: &'static str, why: String) -> ModelError {
    ModelError::Odd { file, why }
}

/// A name that can be part of others: of a collection in a vector store, of a line in a log.
fn plain(name: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.');
    let plain: String = name.chars().map(|character| if is_plain(character) { character } else { '-' }).collect();
    if plain.is_empty() { "model".to_owned() } else { plain }
}
