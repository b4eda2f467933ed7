//! `export`: prints the whole registry, or its servers in the format of MCP clients.

use clap::{Args, ValueEnum};
use registry::Secrets;
use serde_json::Value;

use super::list;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::text;
use crate::target::{Target, TargetArguments};
use crate::{local_registry, mcp_servers, session};

/// Export the registry as JSON: servers, settings and bindings, for `import`.
///
/// Without --secrets, credentials are masked, and `import` disables servers that have credentials.
/// With `--format mcp`, only the servers are printed, as the `mcpServers` that MCP clients read.
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
    /// Include credentials in plain text: keep the output private
    #[arg(long)]
    pub(crate) secrets: bool,
    /// Print JSON. This is the default; the option exists for scripts that always pass it
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Registry,
    Mcp,
}

pub(crate) fn run(arguments: &ExportArguments) -> Result<(), Failure> {
    let (exported, of_config) = session::block_on(async {
        match arguments.target.require_existing().await? {
            Target::Service(service) => {
                let exported = service.get(&format!("/export?secrets={}", arguments.secrets)).await?;
                Ok((exported, servers_of_config(&list::servers_of(&service).await?)))
            }
            Target::Registry(store) => {
                let secrets = if arguments.secrets { Secrets::Revealed } else { Secrets::Masked };
                Ok((local_registry::export(&store, secrets).await?, Vec::new()))
            }
        }
    })?;
    match arguments.format {
        ExportFormat::Registry => output::print_json(&exported)?,
        ExportFormat::Mcp => {
            let written = mcp_servers::written(&exported);
            output::print_json(&written.config)?;
            for note in written.notes {
                print_message(format_args!("note: {note}"));
            }
            for name in of_config {
                print_message(format_args!("note: `{name}` is left out: it is in the config file"));
            }
        }
    }
    if arguments.secrets {
        print_message("warning: the output contains credentials; keep it private");
    }
    Ok(())
}

/// The names of servers that are served, but are not in the registry.
fn servers_of_config(servers: &[Value]) -> Vec<String> {
    servers.iter().filter(|server| server["origin"] == "config").map(|server| text(server, "name")).collect()
}
