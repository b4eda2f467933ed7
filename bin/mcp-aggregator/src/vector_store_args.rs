//! The vector store that options and the environment define.

use std::sync::Arc;

use search::{Embedder, VectorStore};

use crate::environment;
use crate::failure::Failure;

/// The variable with the address, unless the option is given.
const VARIABLE: &str = "MCP_VECTORS";
/// The variable with the key. Never an option, because all users of a machine can read command lines.
#[cfg(feature = "qdrant")]
const KEY_VARIABLE: &str = "QDRANT_API_KEY";

/// The value of the option or the variable.
pub(crate) fn from(
    option: Option<String>,
    embedder: Option<&dyn Embedder>,
) -> Result<Option<Arc<dyn VectorStore>>, Failure> {
    let said = match option {
        Some(address) => Some(address),
        None => variable(VARIABLE)?,
    };
    let Some(address) = said else { return Ok(None) };
    let Some(embedder) = embedder else {
        return Err(Failure::new("--vectors needs an embedding model")
            .with_hint("this program was built without one; build it with the feature `builtin-model`"));
    };
    // The dimension of a remote model is known after its first vector.
    if embedder.dimension() == 0 {
        embedder.embed(&["tool"]).map_err(|error| {
            let why = crate::storage::with_causes(&error);
            Failure::new(format!("--vectors needs the length of embeddings: {why}"))
                .with_hint("start the server of --embeddings-url first")
        })?;
    }
    store(&address, embedder).map(Some)
}

/// Whether an option or the environment defines a vector store.
pub(crate) fn is_wanted(option: Option<&str>) -> bool {
    // A variable that cannot be read counts: `from` reports it.
    option.is_some() || !matches!(variable(VARIABLE), Ok(None))
}

/// The value of a variable that is not empty.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    Ok(environment::text(name)?.filter(|value| !value.trim().is_empty()))
}

#[cfg(feature = "qdrant")]
fn store(address: &str, embedder: &dyn Embedder) -> Result<Arc<dyn VectorStore>, Failure> {
    let address: vectors::Address = address.parse().map_err(|error| Failure::new(format!("{error}")))?;
    let key = variable(KEY_VARIABLE)?;
    let collection = vectors::Collection::new(address, key, embedder.id(), embedder.dimension());
    let collection = collection.map_err(|error| Failure::new(crate::storage::with_causes(&error)))?;
    Ok(Arc::new(collection))
}

#[cfg(not(feature = "qdrant"))]
fn store(_: &str, _: &dyn Embedder) -> Result<Arc<dyn VectorStore>, Failure> {
    Err(Failure::new("this program was built without Qdrant")
        .with_hint("do not set --vectors or MCP_VECTORS, or build it with the feature `qdrant`"))
}
