//! The config file, and what this program adds to the words about it.

use std::path::Path;

use aggregator::load::{self, LoadError, Loaded};
use catalog::ConfigError;

use crate::failure::Failure;

/// Reads and checks the config. The problems are told in the library's own words.
pub(crate) fn load(path: &Path) -> Result<Loaded, Failure> {
    load::load(path).map_err(|error| explain(&error))
}

/// The failure that tells of `error`.
pub(crate) fn explain(error: &LoadError) -> Failure {
    let failure = Failure::new(error.to_string());
    if points_here(error) {
        return failure.with_hint("servers over HTTP are not supported by this version of mcp-aggregator yet");
    }
    failure
}

/// Whether the library sends the user to `mcp-aggregator`, which is where he is.
fn points_here(error: &LoadError) -> bool {
    let LoadError::Invalid { source: ConfigError::Problems(problems), .. } = error else { return false };
    problems.iter().filter_map(|problem| problem.hint.as_deref()).any(|hint| hint.contains("`mcp-aggregator`"))
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
