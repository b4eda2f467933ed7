//! Loads a sentence model from a local folder, instead of the built-in one.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use search::{Embedder, SentenceModel};

use crate::failure::Failure;
use crate::storage::with_causes;

/// No model of this kind is larger. A larger file is something else, and would use up the memory.
const MAX_MODEL_FILE_BYTES: u64 = 2 << 30;

/// Loads a model before anything is served, so that errors are reported at the start.
pub(crate) fn open(folder: &Path) -> Result<Arc<dyn Embedder>, Failure> {
    let failed = |why: String| {
        Failure::new(format!("could not use the model in {}: {why}", folder.display())).with_hint(
            "--model-dir expects a sentence model of the BERT family in the format of Hugging Face, such as all-MiniLM-L6-v2: \
             config.json, tokenizer.json or vocab.txt, model.safetensors",
        )
    };
    // Links and dots are not names.
    let whole = folder.canonicalize().map_err(|error| failed(error.to_string()))?;
    if !whole.is_dir() {
        return Err(failed("it is not a folder".to_owned()));
    }
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let model =
        SentenceModel::read(&name, |file| Ok(read(&whole.join(file))?)).map_err(|error| failed(with_causes(&error)))?;
    tracing::info!(
        model = model.id(),
        dimension = model.dimension(),
        "computing embeddings with the model in a folder"
    );
    Ok(Arc::new(model))
}

/// The content of a file; `None` if it does not exist.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(MAX_MODEL_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_MODEL_FILE_BYTES {
        return Err(io::Error::other("it is larger than 2 GB"));
    }
    Ok(Some(bytes))
}
