//! The command line of `demo`, and of the servers it starts.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::serve::listen_address;

/// Start a service with two small servers, to look around.
///
/// Nothing else is needed: the servers are in this program. It listens at the usual port, or at another one if
/// that is taken, and says what to try. Its data is in a temporary folder; Ctrl-C ends it and removes that.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator demo
  mcp-aggregator demo --listen 9000"
)]
pub(crate) struct DemoArguments {
    /// The address to listen at: ADDRESS:PORT, or a port on this machine [default: 8808, or one that is free]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Print where it listens as a line of JSON, as soon as it does:
    /// {"url", "mcp", "has_tokens", "reachable_by", "token_file", "pid"}
    #[arg(long)]
    pub(crate) json: bool,
}

/// Be one of the servers of the demo, over stdio.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct DemoServerArguments {
    /// Which one
    #[arg(value_enum)]
    pub(crate) server: DemoServer,
    /// Where notes are kept
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: PathBuf,
}

/// A server of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DemoServer {
    Calc,
    Notes,
}
