//! Puts vectors into the index that need no model: stored ones, and those of the table.

use std::sync::{PoisonError, RwLock};

use registry::Embedding;

use crate::locked;
use crate::stored_vector;
use crate::tool_index::ToolIndex;

/// The number of stored vectors that are put into the index while searches wait.
const LOADED_AT_ONCE: usize = 512;
/// The number of vectors of the table that are made at once.
const ROUGH_AT_ONCE: usize = 128;

/// Puts stored vectors into the index, some at a time: those of the model first, because the length of a remote model's
/// vectors is known by them; then what is close to the vectors that tools will have. If there is nothing else, the
/// length follows from the rows themselves.
pub(super) fn load_vectors(tool_index: &RwLock<ToolIndex>, current: Vec<Embedding>, mut outdated: Vec<Embedding>) {
    let write = || tool_index.write().unwrap_or_else(PoisonError::into_inner);
    let mut of_other_texts = Vec::new();
    let mut current = current.into_iter();
    while current.len() > 0 {
        let mut tool_index = write();
        of_other_texts.extend(current.by_ref().take(LOADED_AT_ONCE).filter(|embedding| {
            let decoded = stored_vector::decode(&embedding.bytes);
            !decoded.is_some_and(|(vector, hash)| tool_index.set_vector(embedding.tool, hash, &vector))
        }));
    }
    if locked(tool_index).dimension() == 0
        && let Some(dimension) = stored_vector::dimension_of(of_other_texts.iter().map(|it| it.bytes.as_slice()))
    {
        write().expect_dimension(dimension);
    }
    // A vector of the model itself is closer than one of an earlier model: it replaces that.
    outdated.extend(of_other_texts);
    for some in outdated.chunks(LOADED_AT_ONCE) {
        let mut tool_index = write();
        for Embedding { tool, text_hash, bytes, .. } in some {
            let vector = stored_vector::numbers(bytes, tool_index.dimension());
            tool_index.set_interim_vector(*tool, text_hash, &vector);
        }
    }
}

/// Makes vectors of the table for tools that have no other, and with `with_own` for those that have one, too.
pub(super) fn make_rough_vectors(tool_index: &RwLock<ToolIndex>, with_own: bool) {
    let missing = locked(tool_index).missing_rough_vectors(with_own);
    for some in missing.chunks(ROUGH_AT_ONCE) {
        let texts: Vec<_> = {
            let tool_index = locked(tool_index);
            some.iter().filter_map(|tool| Some((*tool, tool_index.text(*tool)?))).collect()
        };
        let made =
            texts.into_iter().filter_map(|(tool, (document, hash))| Some((tool, hash, document.rough_vector()?)));
        let made: Vec<_> = made.collect();
        let mut tool_index = tool_index.write().unwrap_or_else(PoisonError::into_inner);
        made.into_iter().for_each(|(tool, hash, vector)| tool_index.set_rough_vector(tool, hash, &vector));
    }
}

#[cfg(test)]
mod tests;
