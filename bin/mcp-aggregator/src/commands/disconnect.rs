//! `disconnect`: disconnects a server until somebody connects it again.

use clap::Args;

use super::connect::StopOrder;
use crate::failure::Failure;

/// Disconnect a server until you connect it again, or the service restarts.
///
/// Calls in progress have 30 seconds to finish.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator disconnect memory
  mcp-aggregator disconnect memory --force"
)]
pub(crate) struct DisconnectArguments {
    #[command(flatten)]
    pub(crate) order: StopOrder,
}

pub(crate) fn run(arguments: &DisconnectArguments) -> Result<(), Failure> {
    arguments.order.send("disconnect", "disconnecting", "disconnected")
}
