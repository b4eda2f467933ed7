//! `export`: the whole registry in one piece, or its servers as MCP clients read them.

use registry::Secrets;

use crate::arguments::exchange::{ExportArguments, ExportFormat};
use crate::failure::Failure;
use crate::output::{self, say};
use crate::target::Target;
use crate::{local, mcp_servers, session};

pub(crate) fn run(arguments: &ExportArguments) -> Result<(), Failure> {
    let exported = session::block_on(async {
        match arguments.target.looked_at().await? {
            Target::Service(service) => Ok(service.get(&format!("/export?secrets={}", arguments.secrets)).await?),
            Target::Registry(store) => {
                let secrets = if arguments.secrets { Secrets::Revealed } else { Secrets::Masked };
                local::export(&store, secrets).await
            }
        }
    })?;
    match arguments.format {
        ExportFormat::Registry => output::print_json(&exported)?,
        ExportFormat::Mcp => {
            let written = mcp_servers::written(&exported);
            output::print_json(&written.config)?;
            for note in written.notes {
                say(format_args!("note: {note}"));
            }
        }
    }
    if arguments.secrets {
        say("warning: this has credentials in it; keep it to yourself");
    }
    Ok(())
}
