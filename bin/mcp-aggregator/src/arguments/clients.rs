//! The command line of the verbs for MCP clients: `client` and `clients`.

use std::path::PathBuf;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};

use crate::commands::client::CLIENTS;
use crate::import::clients::Client;
use crate::target::TargetArguments;

/// The name of our entry in a client's config unless another is given.
pub(crate) const DEFAULT_ENTRY: &str = "all";

/// Make MCP clients use mcp-aggregator: change their config files, and change them back.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator client list
  mcp-aggregator client add cursor --dry-run
  mcp-aggregator client add cursor --replace
  mcp-aggregator client remove cursor")]
pub(crate) struct ClientArguments {
    #[command(subcommand)]
    pub(crate) verb: ClientVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClientVerb {
    Add(ClientAddArguments),
    Remove(ClientRemoveArguments),
    List(ClientListArguments),
}

/// Change the config of a client so that it uses mcp-aggregator.
///
/// The client uses the running service (with its token, if it has one), or starts mcp-aggregator itself (--stdio).
/// Only one entry is written; comments and everything else in the file stay. Servers that the client has by itself
/// and that mcp-aggregator serves, too, are reported; --replace removes them from the client's config.
/// The file is kept beside it as it was; --undo, or `client remove`, restores it. If somebody has changed the file
/// since, only our changes are undone.
/// Files of a project are made to be shared: there the token is a reference to MCP_AGGREGATOR_TOKEN, which must be
/// set where the client is started.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator client add cursor --dry-run                      what would change in Cursor's config?
  mcp-aggregator client add cursor
  mcp-aggregator client add cursor --replace                      remove its servers that mcp-aggregator serves, too
  mcp-aggregator client add cursor --undo                         restore its config
  mcp-aggregator client add vscode --project                      only for the project in this folder
  mcp-aggregator client add claude-desktop --stdio --config mcp.json
  mcp-aggregator client add claude-code --url http://mcp.example.com:8808 --token-file token"
)]
pub(crate) struct ClientAddArguments {
    /// The client: claude-desktop, claude-code, cursor or vscode
    #[arg(value_name = "CLIENT", value_parser = client_word(), hide_possible_values = true)]
    pub(crate) client: Client,
    /// Print JSON: {"client", "file", "changed", "backup", "duplicates", "removed"}
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    #[command(flatten)]
    pub(crate) options: ClientOptions,
}

/// What is to become of a client's config.
#[derive(Debug, Args)]
pub(crate) struct ClientOptions {
    /// The client starts mcp-aggregator, instead of using a running service
    #[arg(long, requires = "config", conflicts_with_all = ["url", "undo"])]
    pub(crate) stdio: bool,
    /// The servers, for --stdio
    #[arg(long, value_name = "FILE", requires = "stdio")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) place: ClientPlace,
    /// Remove servers from the client's config that mcp-aggregator serves, too
    #[arg(long, conflicts_with = "undo")]
    pub(crate) replace: bool,
    /// Restore the file as it was before
    #[arg(long)]
    pub(crate) undo: bool,
}

/// Which entry of which file.
#[derive(Debug, Args)]
pub(crate) struct ClientPlace {
    /// The client's config for the project in this folder, instead of the user's own
    #[arg(long)]
    pub(crate) project: bool,
    /// The name of mcp-aggregator in the client's config
    #[arg(long = "as", value_name = "NAME", default_value = DEFAULT_ENTRY, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) entry: String,
    /// Show what would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl ClientOptions {
    /// Whether an option was given that only makes sense for clients.
    pub(crate) fn are_given(&self) -> bool {
        let ClientPlace { project, entry, dry_run } = &self.place;
        self.stdio || self.replace || self.undo || *project || *dry_run || entry != DEFAULT_ENTRY
    }
}

/// Restore the config of a client as it was before `client add`.
///
/// If somebody has changed the file since, our entry is taken out, servers that --replace had removed are put back,
/// and the rest stays.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator client remove cursor
  mcp-aggregator client remove vscode --project --dry-run"
)]
pub(crate) struct ClientRemoveArguments {
    /// The client: claude-desktop, claude-code, cursor or vscode
    #[arg(value_name = "CLIENT", value_parser = client_word(), hide_possible_values = true)]
    pub(crate) client: Client,
    #[command(flatten)]
    pub(crate) place: ClientPlace,
    /// Print JSON: {"client", "file", "changed"}
    #[arg(long)]
    pub(crate) json: bool,
}

/// List the clients whose config mcp-aggregator can change, and which of them use it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator client list
  mcp-aggregator client list --json | jq -r '.[] | select(.connected) | .client'")]
pub(crate) struct ClientListArguments {
    /// Print JSON: [{"client", "scope", "file", "exists", "problem", "connected", "entries", "servers",
    /// "duplicates"}]
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// List the MCP clients that are connected to the running service.
///
/// Clients of revisions before 2026-07-28 are listed while their session lasts. Later ones have no session: they
/// are listed for 15 minutes after their last request.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator clients
  mcp-aggregator clients --json | jq -r '.[] | [.name, .version, .calls] | @tsv'"
)]
pub(crate) struct ClientsArguments {
    /// Print what REST answers
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

fn client_word() -> impl TypedValueParser<Value = Client> {
    PossibleValuesParser::new(CLIENTS.map(Client::word))
        .map(|word| Client::of_word(&word).expect("only their words are accepted"))
}
