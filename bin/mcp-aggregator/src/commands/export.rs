//! `export`: the whole registry in one piece.

use registry::Secrets;

use crate::arguments::exchange::ExportArguments;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::target::Target;
use crate::{local, session};

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
    output::print_json(&exported)?;
    if arguments.secrets {
        say("warning: this has credentials in it; keep it to yourself");
    }
    Ok(())
}
