//! `clients`: the MCP clients that are connected to the running service.

use serde_json::Value;

use crate::arguments::clients::ClientsArguments;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::{moment, table, text};
use crate::session;

pub(crate) fn run(arguments: &ClientsArguments) -> Result<(), Failure> {
    let clients = session::block_on(async { Ok(arguments.target.service().await?.list("/clients").await?) })?;
    if arguments.json {
        return output::print_json(&Value::Array(clients));
    }
    if clients.is_empty() {
        print_message("no client is connected");
        print_message("hint: `mcp-aggregator client add CLIENT` makes one use this service");
        return Ok(());
    }
    let header = ["CLIENT", "VERSION", "REVISION", "SINCE", "CALLS", "TOKEN"];
    output::print_lines(&table(header, clients.iter().map(row).collect()))
}

fn row(client: &Value) -> [String; 6] {
    let word = |key: &str| text(client, key);
    [word("name"), word("version"), word("revision"), moment(client, "since"), word("calls"), word("caller")]
}
