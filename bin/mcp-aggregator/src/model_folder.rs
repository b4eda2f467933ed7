//! A sentence model from a folder of this machine, instead of the one that comes with the program.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use search::{Embedder, SentenceModel};

use crate::failure::Failure;
use crate::storage::with_causes;

/// No model of this kind is larger. What is larger is something else, and would take all memory.
const MAX_MODEL_FILE_BYTES: u64 = 2 << 30;

/// Reads a model. It is there before anything is served: who names a folder wants to know what is wrong with it.
pub(crate) fn open(folder: &Path) -> Result<Arc<dyn Embedder>, Failure> {
    let failed = |why: String| {
        Failure::new(format!("could not use the model in {}: {why}", folder.display())).with_hint(
            "--model-dir takes a sentence model of the BERT family as Hugging Face has them, such as all-MiniLM-L6-v2: \
             config.json, tokenizer.json or vocab.txt, model.safetensors",
        )
    };
    // Links and dots are no names.
    let whole = folder.canonicalize().map_err(|error| failed(error.to_string()))?;
    if !whole.is_dir() {
        return Err(failed("it is no folder".to_owned()));
    }
    let name = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let model =
        SentenceModel::read(&name, |file| Ok(read(&whole.join(file))?)).map_err(|error| failed(with_causes(&error)))?;
    tracing::info!(model = model.id(), dimension = model.dimension(), "vectors are made by a model of your own");
    Ok(Arc::new(model))
}

/// A file, or nothing if there is none.
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
