//! `export`: the whole registry in one piece, or its servers as MCP clients read them.

use registry::Secrets;
use serde_json::Value;

use super::list;
use crate::arguments::import_export::{ExportArguments, ExportFormat};
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::server_view::text;
use crate::target::Target;
use crate::{local_registry, mcp_servers, session};

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
                print_message(format_args!(
                    "note: `{name}` is left out: it comes from the config file, and stands there"
                ));
            }
        }
    }
    if arguments.secrets {
        print_message("warning: this has credentials in it; keep it to yourself");
    }
    Ok(())
}

/// The names of servers that are served, but are not in the registry.
fn servers_of_config(servers: &[Value]) -> Vec<String> {
    servers.iter().filter(|server| server["origin"] == "config").map(|server| text(server, "name")).collect()
}
