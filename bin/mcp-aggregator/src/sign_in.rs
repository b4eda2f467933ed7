//! Signing in to servers (OAuth) from the command line.
//!
//! - [`grant_file`]: where sign-ins of servers of a config are stored
//! - [`callback`]: the loopback listener that the browser is sent back to
//! - [`browser`]: opens the browser
//! - [`reconnect`]: connects servers when somebody has signed in to them

pub(crate) mod browser;
pub(crate) mod callback;
mod grant_file;
pub(crate) mod reconnect;

use std::path::Path;
use std::sync::Arc;

use oauth::{OAuth, OAuthOptions};

use crate::command_hint::quoted;
use crate::storage::StorageArguments;
use grant_file::GrantFile;

/// How this program presents itself to authorization servers.
pub(crate) fn options() -> OAuthOptions {
    OAuthOptions::new(env!("CARGO_PKG_VERSION"))
}

/// The sign-ins to servers of a config file. They are in the data directory, which all commands share.
pub(crate) fn of_config(config: &Path, data_dir: Option<&Path>) -> Arc<OAuth> {
    let storage = StorageArguments { data_dir: data_dir.map(Path::to_owned), database: None, database_schema: None };
    let in_data_dir = data_dir.map(|folder| format!(" --data-dir {}", quoted(&folder.to_string_lossy())));
    let login_arguments = format!("--config {}{}", quoted(&config.to_string_lossy()), in_data_dir.unwrap_or_default());
    let options = OAuthOptions { login_arguments, ..options() };
    // A server that needs no sign-in must not fail because there is no data directory.
    let folder = storage.folder().map_err(|failure| failure.message);
    OAuth::new(Arc::new(remote::HttpFetch), Arc::new(GrantFile::new(folder)), options)
}
