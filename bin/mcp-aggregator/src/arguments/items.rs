//! The command line of the verbs for prompts and resources.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::SeparatorArgument;
use crate::target::TargetArguments;

/// Where prompts and resources come from, and how they are printed.
#[derive(Debug, Args)]
pub(crate) struct ItemsSource {
    /// Start the servers of this config, instead of asking the running service
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "token_file", "data_dir", "database"])]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) separator: SeparatorArgument,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    /// Print everything that happens, on stderr
    #[arg(long)]
    pub(crate) debug: bool,
}

/// List the prompts of all servers, or of one; or fill one in.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  mcp-aggregator prompts
  mcp-aggregator prompts github
  mcp-aggregator prompts get github.review pull_request=12
  mcp-aggregator prompts --config mcp.json --json | jq -r '.[].name'"
)]
pub(crate) struct PromptsArguments {
    #[command(subcommand)]
    pub(crate) verb: Option<PromptsVerb>,
    /// Only the prompts of this server
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,
    /// Print what REST answers
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) source: ItemsSource,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PromptsVerb {
    /// Fill in a prompt and print its messages
    #[command(after_help = "\
Examples:
  mcp-aggregator prompts get github.review pull_request=12
  mcp-aggregator prompts get github.review '{\"pull_request\": \"12\"}' --json")]
    Get(PromptsGetArguments),
}

#[derive(Debug, Args)]
pub(crate) struct PromptsGetArguments {
    /// The prompt: `server.prompt`, or its own name if only one server has it
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Its arguments, which are text; or one JSON object
    #[arg(value_name = "KEY=VALUE | JSON")]
    pub(crate) arguments: Vec<String>,
    /// Print the result as the server wrote it
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) source: ItemsSource,
}

/// List the resources of all servers, or of one; or read one.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  mcp-aggregator resources
  mcp-aggregator resources files
  mcp-aggregator resources read file:///notes.txt
  mcp-aggregator resources read file:///picture.png > picture.png"
)]
pub(crate) struct ResourcesArguments {
    #[command(subcommand)]
    pub(crate) verb: Option<ResourcesVerb>,
    /// Only the resources of this server
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,
    /// Print JSON: [{"uri", "name", .., "server_name", "template"}]; the `uri` of a template is a pattern
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) source: ItemsSource,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ResourcesVerb {
    /// Read a resource and print its content: text as it is, anything else as bytes
    #[command(after_help = "\
Examples:
  mcp-aggregator resources read file:///notes.txt
  mcp-aggregator resources read file:///notes.txt --server files --json")]
    Read(ResourcesReadArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ResourcesReadArguments {
    /// The address of the resource
    #[arg(value_name = "URI")]
    pub(crate) uri: String,
    /// The server that has it, by name or id [default: the one that lists it]
    #[arg(long, value_name = "SERVER", conflicts_with = "config")]
    pub(crate) server: Option<String>,
    /// Print the result as the server wrote it
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) source: ItemsSource,
}
