//! `clients`: lists the MCP clients that are connected to the running service.

use clap::Args;
use serde_json::Value;

use crate::cli::shared::REST_JSON;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::{moment, table, text};
use crate::session;
use crate::target::TargetArguments;

/// List the MCP clients that are connected to the running service.
///
/// A client of a revision before 2026-07-28 is listed as long as its session exists. Later revisions have no sessions:
/// their clients are listed for 15 minutes after their last request.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator clients
  mcp-aggregator clients --json | jq -r '.[] | [.name, .version, .calls] | @tsv'"
)]
pub(crate) struct ClientsArguments {
    #[arg(long, help = REST_JSON)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

pub(crate) fn run(arguments: &ClientsArguments) -> Result<(), Failure> {
    let clients = session::block_on(async { Ok(arguments.target.service().await?.list("/clients").await?) })?;
    if arguments.json {
        return output::print_json(&Value::Array(clients));
    }
    if clients.is_empty() {
        print_message("no client is connected");
        print_message("hint: `mcp-aggregator client add CLIENT` connects one to this service");
        return Ok(());
    }
    let header = ["CLIENT", "VERSION", "REVISION", "SINCE", "CALLS", "TOKEN"];
    output::print_lines(&table(header, clients.iter().map(row).collect()))
}

fn row(client: &Value) -> [String; 6] {
    let word = |key: &str| text(client, key);
    [word("name"), word("version"), word("revision"), moment(client, "since"), word("calls"), word("caller")]
}
