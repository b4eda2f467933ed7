//! Where vectors are kept besides, if anywhere: from what was said to what can be used.

use std::sync::Arc;

use search::{Embedder, VectorStore};

use crate::environment;
use crate::failure::Failure;

/// Says where, unless the option does.
const VARIABLE: &str = "MCP_VECTORS";
/// Lets us in there. Never an option: those are for everybody on the machine to read.
#[cfg(feature = "qdrant")]
const KEY_VARIABLE: &str = "QDRANT_API_KEY";

/// What was said by an option, or by the environment.
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
        return Err(Failure::new("--vectors needs a model that makes them")
            .with_hint("this program was built without one; build it with the feature `builtin-model`"));
    };
    // A model elsewhere says how long its vectors are by the first that it makes.
    if embedder.dimension() == 0 {
        embedder.embed(&["tool"]).map_err(|error| {
            let why = crate::storage::with_causes(&error);
            Failure::new(format!("--vectors needs to know how long vectors are: {why}"))
                .with_hint("start the server of --embeddings-url first")
        })?;
    }
    store(&address, embedder).map(Some)
}

/// Whether vectors are to be kept elsewhere, by an option or by the environment.
pub(crate) fn is_wanted(option: Option<&str>) -> bool {
    // One that cannot be read is meant to say something: `from` reports it.
    option.is_some() || !matches!(variable(VARIABLE), Ok(None))
}

/// The value of a variable that says something.
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
        .with_hint("leave --vectors and MCP_VECTORS out, or build it with the feature `qdrant`"))
}
