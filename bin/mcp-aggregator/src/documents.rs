//! Documents that run tools, for the verbs `run` and `doc`.
//!
//! - here: which servers there are for a document
//! - `by_config`, `by_service`: who makes the calls
//! - `progress`: what is told meanwhile

mod by_config;
mod by_service;
mod progress;

use std::path::{Path, PathBuf};

use catalog::Config;
use notebook::{FileError, Server};
use serde_json::Value;

use crate::failure::Failure;
use crate::storage::with_causes;
pub(crate) use by_config::ConfigTools;
pub(crate) use by_service::ServiceTools;
pub(crate) use progress::{Told, in_words};

/// The servers of a config. Those that are switched off come last: only those that are not can be the first.
pub(crate) fn servers_of_config(config: &Config) -> Vec<Server> {
    let enabled = config.servers.iter().map(|spec| Server { name: spec.name.to_string(), is_enabled: true });
    let disabled = config.disabled.iter().map(|name| Server { name: name.to_string(), is_enabled: false });
    enabled.chain(disabled).collect()
}

/// Servers as REST describes them.
pub(crate) fn servers_of_service(described: &[Value]) -> Vec<Server> {
    let server = |server: &Value| {
        let name = server["name"].as_str()?.to_owned();
        Some(Server { name, is_enabled: server["enabled"].as_bool().unwrap_or(true) })
    };
    described.iter().filter_map(server).collect()
}

/// Where a document is, for those who do not know where we are.
pub(crate) fn whole_path(document: &Path) -> PathBuf {
    let absolute = || std::path::absolute(document).unwrap_or_else(|_| document.to_owned());
    document.canonicalize().unwrap_or_else(|_| absolute())
}

/// What went wrong with a file.
#[expect(clippy::needless_pass_by_value, reason = "it is a function for `map_err`")]
pub(crate) fn file_failed(error: FileError) -> Failure {
    Failure::new(with_causes(&error))
}
