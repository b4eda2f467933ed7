//! `logout`: a sign-in to a server is revoked and forgotten.

use std::path::{Path, PathBuf};

use clap::Args;
use oauth::LoggedOut;
use serde_json::json;

use super::login::{protected, take_server};
use crate::cli::shared::DEBUG;
use crate::failure::Failure;
use crate::table::printable;
use crate::target::TargetArguments;
use crate::{config, output, service_sign_in, session, sign_in, stderr_log};

/// Sign out of a server: revoke its tokens where the authorization server offers that, and forget them.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator logout notion
  mcp-aggregator logout notion --config mcp.json      a sign-in that is used without a service"
)]
pub(crate) struct LogoutArguments {
    /// The server, by name or id
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,
    /// Forget the sign-in to a server of this config, instead of the one of the running service
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "token_file", "database"])]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    /// Print JSON: {"server", "warning"}
    #[arg(long)]
    pub(crate) json: bool,
    #[arg(long, help = DEBUG)]
    pub(crate) debug: bool,
}

pub(crate) fn run(arguments: &LogoutArguments) -> Result<(), Failure> {
    stderr_log::init(arguments.debug);
    let warning = match &arguments.config {
        Some(config) => by_config(arguments, config),
        None => by_service(arguments),
    }?;
    if arguments.json {
        return output::print_json(&json!({"server": arguments.server, "warning": warning}));
    }
    let server = printable(&arguments.server);
    output::print_message(format_args!("signed out of `{server}`"));
    if let Some(warning) = warning {
        output::print_message(format_args!("warning: the tokens are forgotten here, but not revoked: {warning}"));
    }
    Ok(())
}

/// Returns why the tokens could not be revoked, if that failed.
fn by_config(arguments: &LogoutArguments, path: &Path) -> Result<Option<String>, Failure> {
    let mut loaded = config::load(path)?;
    let spec = take_server(&mut loaded.config, &arguments.server, path)?;
    let protected = protected(&spec)?;
    session::block_on(async {
        let oauth = sign_in::of_config(path, arguments.target.storage.data_dir.as_deref());
        let done = oauth.logout(&protected).await;
        match done.map_err(|error| Failure::new(error.to_string()).of_kind("SIGN_IN_FAILED"))? {
            LoggedOut::NotRevoked(error) => Ok(Some(error.to_string())),
            LoggedOut::NotSignedIn | LoggedOut::Forgotten | LoggedOut::Revoked => Ok(None),
        }
    })
}

fn by_service(arguments: &LogoutArguments) -> Result<Option<String>, Failure> {
    session::block_on(async {
        let service = arguments.target.service().await?;
        service_sign_in::sign_out(&service, &arguments.server).await
    })
}
