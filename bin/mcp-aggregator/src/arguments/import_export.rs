//! The command line of what comes from elsewhere and goes there: `import` and `export`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::target::TargetArguments;

/// Add the servers of other programs, or of an export.
///
/// Looks for the config files of MCP clients on this machine, shows their servers, and adds those that are not
/// there yet. Nothing is overwritten and no file is changed. Names are made to fit, and what was renamed is told.
/// An entry that is this aggregator is left out. With an export (see `export`), all of it is taken in: servers
/// that are not there yet, settings and bindings.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator import --dry-run                     what is there on this machine?
  mcp-aggregator import --from claude-desktop
  mcp-aggregator import .vscode/mcp.json
  mcp-aggregator export --secrets > all.json; mcp-aggregator import all.json --url http://other:8808"
)]
pub(crate) struct ImportArguments {
    /// A file: the config of an MCP client, or an export; `-` for stdin
    #[arg(value_name = "FILE", conflicts_with = "from")]
    pub(crate) file: Option<PathBuf>,
    /// claude-desktop, claude-code, cursor, vscode, windsurf, or a file; may be repeated [default: all of them]
    #[arg(long, value_name = "CLIENT | FILE")]
    pub(crate) from: Vec<String>,
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print what was found and done as JSON, without how servers are reached
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// Print the whole registry as JSON: servers, settings and bindings, for `import`.
///
/// Without --secrets, credentials are masked, and servers that have some are disabled where this is imported.
/// With `--format mcp` only the servers are printed, as the `mcpServers` that MCP clients read.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator export > registry.json
  mcp-aggregator export --secrets | ssh other mcp-aggregator import /dev/stdin
  mcp-aggregator export --format mcp --secrets > mcp.json"
)]
pub(crate) struct ExportArguments {
    /// The whole registry for `import`, or plain `mcpServers` for MCP clients
    #[arg(long, value_name = "registry|mcp", value_enum, default_value_t = ExportFormat::Registry, hide_possible_values = true)]
    pub(crate) format: ExportFormat,
    /// With credentials as they are: keep the output to yourself
    #[arg(long)]
    pub(crate) secrets: bool,
    /// Print JSON, as always: for those who give it to every command
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// How a registry is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Registry,
    Mcp,
}
