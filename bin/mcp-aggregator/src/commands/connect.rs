//! `connect`: connects a server through the running service; and the code that `disconnect` and `restart` share with
//! it.

use clap::Args;

use super::client::{CLIENTS, ClientOptions, Request};
use super::enable::print_outcome;
use super::{client_setup, list, startup_progress};
use crate::cli::shared::{FORCE, OneServer};
use crate::client::encoded;
use crate::failure::Failure;
use crate::import::clients::Client;
use crate::output::print_message;
use crate::{progress, session};

/// Connect a server. To connect a client to mcp-aggregator, use `client add`.
///
/// If the name is claude-desktop, claude-code, cursor or vscode, and no registered server has that name, this command
/// does the same as `client add` and accepts its options.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator connect memory",
    mut_arg("server", |server| server
        .value_name("SERVER | CLIENT")
        .help("The server, by name or id; or claude-desktop, claude-code, cursor, vscode"))
)]
pub(crate) struct ConnectArguments {
    #[command(flatten)]
    pub(crate) one: OneServer,
    #[command(flatten, next_help_heading = "For a client, as in `client add`")]
    pub(crate) options: ClientOptions,
}

pub(crate) fn run(arguments: &ConnectArguments) -> Result<(), Failure> {
    let one = &arguments.one;
    let client = CLIENTS.into_iter().find(|client| client.as_str() == one.server);
    match client {
        Some(client) if arguments.options.are_given() || !is_registered(one)? => {
            client_setup::run(&Request::of_connect(arguments, client))?;
            let verb = if arguments.options.undo { "remove" } else { "add" };
            let word = client.as_str();
            print_message(format_args!(
                "hint: `mcp-aggregator client {verb} {word}` is the preferred command; `connect` is for servers"
            ));
            Ok(())
        }
        Some(_) | None if arguments.options.are_given() => {
            let known = CLIENTS.map(Client::as_str).join(", ");
            Err(Failure::usage(format!("`{}` is not a known client: {known}", one.server)))
        }
        Some(_) | None => order(one, "connect", "connecting", "connected"),
    }
}

/// Whether a server has that name. This creates no registry.
fn is_registered(one: &OneServer) -> Result<bool, Failure> {
    session::block_on(async {
        let Some(target) = one.target.find_existing().await? else { return Ok(false) };
        let servers = list::servers(&target).await?;
        Ok(servers.iter().any(|server| server["name"] == one.server.as_str()))
    })
}

/// A server to stop, and what happens to its calls: the arguments of `disconnect` and `restart`.
#[derive(Debug, Args)]
pub(crate) struct StopOrder {
    #[command(flatten)]
    pub(crate) one: OneServer,
    #[arg(long, help = FORCE)]
    pub(crate) force: bool,
}

impl StopOrder {
    /// Sends it to the service, and prints the result.
    pub(super) fn send(&self, verb: &str, doing: &str, done: &str) -> Result<(), Failure> {
        order(&self.one, &format!("{verb}?force={}", self.force), doing, done)
    }
}

/// Sends a command about a server to the service, and prints the result.
pub(super) fn order(one: &OneServer, verb: &str, doing: &str, done: &str) -> Result<(), Failure> {
    let server = session::block_on(async {
        let service = one.target.service().await?;
        let path = format!("/servers/{}", encoded(&one.server));
        let order_path = format!("{path}/{verb}");
        let ordered = service.post_long(&order_path);
        let watching = startup_progress::print_progress(&service, &path);
        let decided = async {
            tokio::select! {
                answer = ordered => Ok(answer?),
                silent = watching => Err(silent),
            }
        };
        progress::with_spinner(&format!("{doing} `{}`", one.server), Box::pin(decided)).await
    })?;
    print_outcome(one, &server, done)
}
