//! `login`: a person signs in to a server with a browser. `by_config`: without a service; `by_service`: at a running one.

mod by_config;
mod by_service;

use std::path::PathBuf;

use catalog::LoopbackRedirect;
use clap::Args;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::cli::shared::{CONFIG_INSTEAD_OF_SERVICE, DEBUG};
use crate::failure::Failure;
use crate::output;
use crate::sign_in::browser;
use crate::table::printable;
use crate::target::TargetArguments;

pub(super) use by_config::{protected, take_server};

/// Sign in to a server with a browser, and list its tools.
///
/// This command opens the page of the authorization server in the browser, and prints its address. BROWSER names
/// another browser. When you have signed in there, the browser is sent back, and the server is connected. The sign-in
/// is stored encrypted and renewed automatically. With --config, it is stored in the data directory, where `stdio` and
/// `call` find it.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator login notion
  mcp-aggregator login notion --no-browser            print the address only
  mcp-aggregator login notion --config mcp.json       without a service"
)]
pub(crate) struct LoginArguments {
    /// The server, by name or id
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,
    #[arg(long, value_name = "FILE", help = CONFIG_INSTEAD_OF_SERVICE, conflicts_with_all = ["url", "token_file", "database"])]
    pub(crate) config: Option<PathBuf>,
    /// Print the address only, and do not open a browser
    #[arg(long)]
    pub(crate) no_browser: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    /// Print JSON: {"server", "tools"}
    #[arg(long)]
    pub(crate) json: bool,
    #[arg(long, help = DEBUG)]
    pub(crate) debug: bool,
}

pub(crate) fn run(arguments: &LoginArguments) -> Result<(), Failure> {
    crate::stderr_log::init(arguments.debug);
    match &arguments.config {
        Some(config) => by_config::run(arguments, config),
        None => by_service::run(arguments),
    }
}

/// Sends the person to the authorization page: opens it, or prints how to get there, and to where it leads back.
fn show_page(arguments: &LoginArguments, address: &str) {
    let server = printable(&arguments.server);
    let is_opened = !arguments.no_browser && browser::open(address);
    if is_opened {
        output::print_message(format_args!(
            "signing in to `{server}` in your browser. If no page opened, open:\n  {address}"
        ));
    } else {
        output::print_message(format_args!("open this address to sign in to `{server}`:\n  {address}"));
    }
    let redirect_uri = redirect_uri(address);
    if browser::is_over_ssh()
        && let Some(LoopbackRedirect { port, .. }) = redirect_uri.as_deref().and_then(LoopbackRedirect::parse)
    {
        output::print_message(format_args!(
            "the browser must reach port {port} of this machine; if it runs on another one, forward the port from there:\n  \
             ssh -L {port}:127.0.0.1:{port} {}",
            this_host()
        ));
    }
}

/// The redirect address in the address of an authorization page.
fn redirect_uri(authorization_url: &str) -> Option<String> {
    let (_, query) = authorization_url.split_once('?')?;
    let value = query.split('&').find_map(|pair| pair.strip_prefix("redirect_uri="))?;
    Some(percent_decode_str(value).decode_utf8().ok()?.into_owned())
}

/// This machine, as the person has reached it.
fn this_host() -> String {
    let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
    connection.split(' ').nth(2).map_or_else(|| "HOST".to_owned(), str::to_owned)
}

/// Prints the result: the server, and its tools.
fn print_signed_in(arguments: &LoginArguments, tools: &[String]) -> Result<(), Failure> {
    if arguments.json {
        let tools: Vec<Value> = tools.iter().map(|tool| json!(tool)).collect();
        return output::print_json(&json!({"server": arguments.server, "tools": tools}));
    }
    let server = printable(&arguments.server);
    let count = match tools.len() {
        0 => "no tools".to_owned(),
        1 => "1 tool".to_owned(),
        many => format!("{many} tools"),
    };
    output::print_message(format_args!("signed in to `{server}`, which has {count}"));
    output::print_lines(&tools.iter().map(|tool| printable(tool)).collect::<Vec<_>>())
}

/// There was no redirect in time.
fn expired(server: &str) -> Failure {
    Failure::new(format!("nobody signed in to `{}` within ten minutes", printable(server)))
        .of_kind("SIGN_IN_EXPIRED")
        .with_hint(format!("run `mcp-aggregator login {}` again", printable(server)))
}

/// The sign-in did not work.
fn failed(server: &str, why: &str) -> Failure {
    Failure::new(format!("could not sign in to `{}`: {why}", printable(server))).of_kind("SIGN_IN_FAILED")
}
