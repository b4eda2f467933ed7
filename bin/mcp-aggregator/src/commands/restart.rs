//! `restart`: disconnects a server and connects it again.

use clap::Args;

use super::connect::StopOrder;
use crate::failure::Failure;

/// Restart a server: disconnect it and connect it again. Needs a running service.
///
/// Calls in progress have 30 seconds to finish.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator restart memory
  mcp-aggregator restart memory --force"
)]
pub(crate) struct RestartArguments {
    #[command(flatten)]
    pub(crate) order: StopOrder,
}

pub(crate) fn run(arguments: &RestartArguments) -> Result<(), Failure> {
    arguments.order.send("restart", "restarting", "restarted")
}
