//! Loads the configuration file: read, checked and expanded before any server is started.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use catalog::{Accepted, Config, ConfigError};

use crate::cycle::{self, Chain, Cycle};

/// A configuration ready to be run.
#[derive(Debug)]
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

/// Reads the configuration at `path` with the variables of our environment.
pub fn load(path: &Path, accepted: Accepted) -> Result<Loaded, LoadError> {
    load_by(path, |bytes| Config::parse(bytes, accepted, |name| std::env::var(name).ok()))
}

/// The same, but a server whose variables are not set fails alone, and the others can start.
pub fn load_each(path: &Path, accepted: Accepted) -> Result<Loaded, LoadError> {
    load_by(path, |bytes| Config::parse_each(bytes, accepted, |name| std::env::var(name).ok()))
}

fn load_by(path: &Path, parse: impl FnOnce(&[u8]) -> Result<Config, ConfigError>) -> Result<Loaded, LoadError> {
    let bytes = read(path)?;
    // A pipe (`<(…)` in a shell) can be read but has no meaningful path.
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let chain = Chain::enter(std::env::var_os(cycle::VARIABLE).as_deref(), &resolved)?;
    let config = parse(&bytes).map_err(|source| LoadError::Invalid { path: path.to_owned(), source })?;
    for warning in &config.warnings {
        tracing::warn!("config: {warning}");
    }
    Ok(Loaded { config, chain, source: bytes })
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
    let Some(text) = std::env::var_os(variable) else { return Ok(Duration::from_secs(default)) };
    // Text that is not UTF-8 is no number either.
    let text = text.to_string_lossy();
    let seconds = text.parse().ok().filter(|&seconds: &f64| seconds > 0.0 && seconds.is_finite());
    // More than a year is pointless, and clocks cannot represent every number.
    seconds
        .map(|seconds| Duration::from_secs_f64(seconds.min(365.0 * 24.0 * 3600.0)))
        .ok_or_else(|| format!("{variable} is {text:?}; it must be a number of seconds"))
}
