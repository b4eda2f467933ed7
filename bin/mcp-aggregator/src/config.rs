//! Reads the config file.

use std::path::Path;

use aggregator::Accepted;
use aggregator::load::{self, LoadError, Loaded};
use catalog::config::Problem;
use catalog::{Config, ConfigError};
use serde_json::{Value, json};

use crate::failure::Failure;

/// Reads and checks the config. Errors contain the messages of the parser.
///
/// A config can be a pipe, so a command reads it once, and takes everything else from [`Loaded::source`].
pub(crate) fn load(path: &Path) -> Result<Loaded, Failure> {
    let loaded = read(path).map_err(|error| explain(&error))?;
    loaded.log_warnings();
    Ok(loaded)
}

/// The same for a program that serves: a server whose variables are not set fails alone.
pub(crate) fn load_each(path: &Path) -> Result<Loaded, Failure> {
    let loaded = load::load_each(path, Accepted::All).map_err(|error| explain(&error))?;
    loaded.log_warnings();
    Ok(loaded)
}

/// The same for a caller that inspects problems and warnings.
pub(crate) fn read(path: &Path) -> Result<Loaded, LoadError> {
    load::load(path, Accepted::All)
}

/// A config file that was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConfigSource<'a> {
    pub(crate) path: &'a Path,
    pub(crate) bytes: &'a [u8],
}

impl ConfigSource<'_> {
    /// The whole file as JSON, for members other than servers.
    pub(crate) fn document(self) -> Result<Value, Failure> {
        let invalid = |source| LoadError::Invalid { path: self.path.to_owned(), source };
        Config::document(self.bytes).map_err(|source| explain(&invalid(source)))
    }
}

/// The failure for `error`, with each of its problems for programs.
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

/// A stable code for programs.
fn code(error: &LoadError) -> String {
    match error {
        LoadError::NotFound(_) => "CONFIG_NOT_FOUND".to_owned(),
        LoadError::Unreadable { .. } => "CONFIG_UNREADABLE".to_owned(),
        LoadError::Invalid { source, .. } => source.code().to_uppercase(),
        LoadError::Cycle(_) => "CONFIG_CYCLE".to_owned(),
    }
}
