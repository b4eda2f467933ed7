//! The config file.

use std::path::Path;

use aggregator::Accepted;
use aggregator::load::{self, LoadError, Loaded};
use catalog::ConfigError;
use catalog::config::Problem;
use serde_json::json;

use crate::failure::Failure;

/// Reads and checks the config. The problems are told in the library's own words.
pub(crate) fn load(path: &Path) -> Result<Loaded, Failure> {
    read(path).map_err(|error| explain(&error))
}

/// The same, for who wants to look at the problems.
pub(crate) fn read(path: &Path) -> Result<Loaded, LoadError> {
    load::load(path, Accepted::All)
}

/// The failure that tells of `error`, with each of its problems for programs.
pub(crate) fn explain(error: &LoadError) -> Failure {
    let data = match error {
        LoadError::Invalid { source: ConfigError::Problems(problems), .. } => {
            let problem =
                |problem: &Problem| json!({"path": problem.path, "message": problem.message, "hint": problem.hint});
            Some(Box::new(json!({"problems": problems.iter().map(problem).collect::<Vec<_>>()})))
        }
        _ => None,
    };
    Failure { data, ..Failure::new(error.to_string()).of_kind(&code(error)) }
}

/// A stable word for programs.
fn code(error: &LoadError) -> String {
    match error {
        LoadError::NotFound(_) => "CONFIG_NOT_FOUND".to_owned(),
        LoadError::Unreadable { .. } => "CONFIG_UNREADABLE".to_owned(),
        LoadError::Invalid { source, .. } => source.code().to_uppercase(),
        LoadError::Cycle(_) => "CONFIG_CYCLE".to_owned(),
    }
}
