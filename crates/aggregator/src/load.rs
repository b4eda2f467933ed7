//! Loads the configuration file: read, checked and expanded before any server is started.

use std::env::{self, VarError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use catalog::{Accepted, Config, ConfigError, Variable};

use crate::cycle::{self, Chain, Cycle};

/// A configuration ready to be run.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The servers.
    pub config: Config,
    /// The position of this configuration in a chain of aggregators.
    pub chain: Chain,
    /// The file as it was read.
    pub source: Vec<u8>,
}

/// A configuration cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// There is no such file.
    #[error("config file not found: {}", .0.display())]
    NotFound(PathBuf),
    /// The file exists, but cannot be read.
    #[error("could not read config file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Its content is invalid.
    #[error("{}: {source}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// All errors in it.
        source: ConfigError,
    },
    /// It would start itself.
    #[error(transparent)]
    Cycle(#[from] Cycle),
}

impl Loaded {
    /// Logs what is probably not intended.
    pub fn log_warnings(&self) {
        for warning in &self.config.warnings {
            tracing::warn!("config: {warning}");
        }
    }
}

/// Reads the configuration at `path` with the variables of our environment.
pub fn load(path: &Path, accepted: Accepted) -> Result<Loaded, LoadError> {
    parse(path, read(path)?, accepted)
}

/// The same, but a server whose variables are not set fails alone, and the others can start.
pub fn load_each(path: &Path, accepted: Accepted) -> Result<Loaded, LoadError> {
    let source = read(path)?;
    let config = Config::parse_each(&source, accepted, variable);
    checked(path, config, source)
}

/// The configuration in `source`, which is the content of the file at `path`. A pipe can be read only once.
pub fn parse(path: &Path, source: Vec<u8>, accepted: Accepted) -> Result<Loaded, LoadError> {
    let config = Config::parse(&source, accepted, variable);
    checked(path, config, source)
}

fn checked(path: &Path, config: Result<Config, ConfigError>, source: Vec<u8>) -> Result<Loaded, LoadError> {
    // A pipe (`<(…)` in a shell) can be read but has no meaningful path.
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let chain = Chain::enter(env::var_os(cycle::VARIABLE).as_deref(), &resolved)?;
    let config = config.map_err(|source| LoadError::Invalid { path: path.to_owned(), source })?;
    Ok(Loaded { config, chain, source })
}

/// A variable of our environment.
pub fn variable(name: &str) -> Variable {
    match env::var(name) {
        Ok(value) => Variable::Set(value),
        Err(VarError::NotPresent) => Variable::Unset,
        Err(VarError::NotUnicode(_)) => Variable::NotUtf8,
    }
}

/// The bytes of the configuration at `path`.
pub fn read(path: &Path) -> Result<Vec<u8>, LoadError> {
    std::fs::read(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => LoadError::NotFound(path.to_owned()),
        _ => LoadError::Unreadable { path: path.to_owned(), source },
    })
}

/// The variable with the seconds a server may take to become ready.
pub(crate) const START_TIMEOUT_VARIABLE: &str = "MCP_AGGREGATOR_START_TIMEOUT";

/// How long a server may take to become ready. Generous: `npx` and `uvx` download a server before its first start.
pub fn start_timeout() -> Result<Duration, String> {
    seconds(START_TIMEOUT_VARIABLE, 60)
}

/// The variable with the seconds a modern client may take to answer a legacy server's request.
pub(crate) const ANSWER_TIMEOUT_VARIABLE: &str = "MCP_AGGREGATOR_ANSWER_TIMEOUT";

/// How long a parked call waits for the client's retry. A person may have to think about the answer.
pub fn answer_timeout() -> Result<Duration, String> {
    seconds(ANSWER_TIMEOUT_VARIABLE, 300)
}

fn seconds(variable: &str, default: u64) -> Result<Duration, String> {
    let Some(text) = env::var_os(variable) else { return Ok(Duration::from_secs(default)) };
    // Text that is not UTF-8 is no number either.
    let text = text.to_string_lossy();
    let seconds = text.parse().ok().filter(|&seconds: &f64| seconds > 0.0 && seconds.is_finite());
    // More than a year is pointless, and clocks cannot represent every number.
    seconds
        .map(|seconds| Duration::from_secs_f64(seconds.min(365.0 * 24.0 * 3600.0)))
        .ok_or_else(|| format!("{variable} is {text:?}; it must be a number of seconds"))
}
