//! The config file.

use std::path::Path;

use aggregator::Accepted;
use aggregator::load::{self, LoadError, Loaded};

use crate::failure::Failure;

/// Reads and checks the config. The problems are told in the library's own words.
pub(crate) fn load(path: &Path) -> Result<Loaded, Failure> {
    read(path).map_err(|error| explain(&error))
}

/// The same, for who wants to look at the problems.
pub(crate) fn read(path: &Path) -> Result<Loaded, LoadError> {
    load::load(path, Accepted::All)
}

/// The failure that tells of `error`.
pub(crate) fn explain(error: &LoadError) -> Failure {
    Failure::new(error.to_string())
}

/// A stable word for programs.
pub(crate) fn code(error: &LoadError) -> &'static str {
    match error {
        LoadError::NotFound(_) => "not_found",
        LoadError::Unreadable { .. } => "unreadable",
        LoadError::Invalid { source, .. } => source.code(),
        LoadError::Cycle(_) => "cycle",
    }
}
