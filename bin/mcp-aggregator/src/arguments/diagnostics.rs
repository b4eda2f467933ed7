//! The command line of the verbs that look after all of it: `doctor`, `top` and `calls`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::serve::listen_address;
use crate::target::TargetArguments;

/// Look for what is wrong, and say what to do about it.
///
/// Looks at the config (if one is given), its variables, the programs it names, and starts each of its servers;
/// at the running service and its servers, or at the port and the registry for one; at the container engine and at
/// Qdrant, if they are needed; and at all tools together: names that some client refuses, more tools than clients take, what
/// the list costs a model. Nothing is changed. Each line is ok, warning or problem. The exit status is 1 if
/// there is a problem.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator doctor
  mcp-aggregator doctor --config mcp.json
  mcp-aggregator doctor --config mcp.json --no-start --json | jq '.findings[] | select(.level != \"ok\")'"
)]
pub(crate) struct DoctorArguments {
    /// Look at this config, too
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Do not start the servers of the config
    #[arg(long)]
    pub(crate) no_start: bool,
    /// Where a service should listen: ADDRESS:PORT, or a port on this machine [default: 127.0.0.1:8808]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Whether vectors can be kept there, as for `serve --vectors` [default: the variable MCP_VECTORS]
    #[arg(long, value_name = "URL")]
    pub(crate) vectors: Option<String>,
    /// Print JSON: {"ok", "findings": [{"topic", "level", "message", "advice"}]}
    #[arg(long)]
    pub(crate) json: bool,
    /// Tell everything that happens, on stderr
    #[arg(long)]
    pub(crate) debug: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// Watch servers and calls live. Needs a running service.
///
/// Servers with their calls, failures and times in the last minute, and below them the latest calls, anew every
/// second. Keys: j, k or arrows choose a server, whose calls are then shown; s sorts; q, Esc or Ctrl-C ends.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator top
  mcp-aggregator top --once
  mcp-aggregator top --json | jq '.servers[] | select(.errors > 0)'"
)]
pub(crate) struct TopArguments {
    /// Print a single frame
    #[arg(long)]
    pub(crate) once: bool,
    /// Print what would be shown as JSON, once
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// List the latest calls of tools; stop all of them, and allow them again. Needs a running service.
///
/// `calls cancel ID` ends one call. `calls stop` cancels every call and refuses new ones, whoever makes them, until
/// `calls allow`; a restart changes nothing about that. The service itself goes on.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator calls
  mcp-aggregator calls --limit 100 --json | jq '.[] | select(.status == \"error\")'
  mcp-aggregator calls cancel 0199c0de-0000-7000-8000-000000000000
  mcp-aggregator calls stop
  mcp-aggregator calls allow"
)]
pub(crate) struct CallsArguments {
    /// What to do about calls
    #[arg(value_name = "stop|allow|cancel", hide_possible_values = true)]
    pub(crate) verb: Option<CallsVerb>,
    /// The call to cancel
    #[arg(value_name = "ID", required_if_eq("verb", "cancel"))]
    pub(crate) id: Option<String>,
    /// At most so many calls are listed
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// Print what REST answers
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// What can be done about calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CallsVerb {
    Stop,
    Allow,
    Cancel,
}

/// Print the settings of the service, or one of them, or change one.
///
/// A running service applies a change at once. Without one, the registry is changed, for the next start.
/// docs/security.md describes the settings that limit something.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator settings
  mcp-aggregator settings timeout_ms
  mcp-aggregator settings timeout_ms 60000
  mcp-aggregator settings pinned_tools github.search_issues,time.get_current_time
  mcp-aggregator settings timeout_ms default"
)]
pub(crate) struct SettingsArguments {
    /// The setting
    #[arg(value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Its new value: JSON or text, items of a list separated by commas; `default` resets it
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    pub(crate) value: Option<String>,
    /// Print JSON: all settings, or {KEY: VALUE}
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}
