//! `remove`: removes a server with its tools and its history.

use clap::Args;
use serde_json::json;

use crate::cli::shared::{FORCE, SERVER};
use crate::client::encoded;
use crate::failure::Failure;
use crate::output::{self, print_message};
use crate::target::{Target, TargetArguments};
use crate::{local_registry, session};

/// Remove a server, its tools and its history.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator remove memory
  mcp-aggregator remove memory --force                cancels its calls")]
pub(crate) struct RemoveArguments {
    #[arg(value_name = "SERVER", help = SERVER)]
    pub(crate) server: String,
    #[arg(long, help = FORCE)]
    pub(crate) force: bool,
    /// Print JSON: {"removed"}
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

pub(crate) fn run(arguments: &RemoveArguments) -> Result<(), Failure> {
    session::block_on(async {
        match arguments.target.find_for_change().await? {
            Target::Service(service) => {
                let path = format!("/servers/{}?force={}", encoded(&arguments.server), arguments.force);
                service.delete(&path).await?;
            }
            Target::Registry(store) => local_registry::remove(&store, &arguments.server).await?,
        }
        if arguments.json {
            return output::print_json(&json!({"removed": arguments.server}));
        }
        print_message(format_args!("removed `{}`", arguments.server));
        Ok(())
    })
}
