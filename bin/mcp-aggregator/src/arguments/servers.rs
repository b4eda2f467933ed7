//! The command line of the verbs for servers that are registered: most work on a running service or on the registry.

use clap::{Args, ValueEnum};

use super::clients::ClientOptions;
use crate::target::TargetArguments;

/// Add a server.
///
/// A program that is started (after `--`), an address, or an image to be run in a container. `$VAR` and `${VAR}` are kept as written and filled
/// in when it is connected, so that secrets can stay in the environment of the service; what is written out
/// is sealed in the registry and shown as ***. A running service connects it at once.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator add memory -- npx -y @modelcontextprotocol/server-memory
  mcp-aggregator add git --env 'TOKEN=${GIT_TOKEN}' --lazy -- uvx mcp-server-git
  mcp-aggregator add docs https://example.org/mcp --header 'Authorization: Bearer ${DOCS_TOKEN}'
  mcp-aggregator add old https://example.org/sse --transport sse
  mcp-aggregator add time --docker mcp/time
  mcp-aggregator add notes --docker mcp/filesystem --volume ~/notes:/notes -- /notes
  mcp-aggregator add web --docker example/server:2 --port 8080 --memory 512m
  mcp-aggregator add time --json '{\"command\": \"uvx\", \"args\": [\"mcp-server-time\"]}'
  mcp-aggregator add --json - < registration.json     what POST /servers takes
  mcp-aggregator add git --replace --env 'TOKEN=${NEW_TOKEN}' -- uvx mcp-server-git"
)]
pub(crate) struct AddArguments {
    /// Its name: lower-case letters, digits, `_` and `-`
    #[arg(value_name = "NAME", required_unless_present = "json")]
    pub(crate) name: Option<String>,
    /// Its address, if it runs elsewhere
    #[arg(value_name = "URL", conflicts_with_all = ["command", "docker"],
        required_unless_present_any = ["command", "json", "docker"])]
    pub(crate) address: Option<String>,
    /// How it is reached [default: stdio for a program, http for an address or a --port]
    #[arg(long, value_enum)]
    pub(crate) transport: Option<TransportArgument>,
    /// The image it is in, to be run in a container; what is after `--` are arguments for it
    #[arg(long, value_name = "IMAGE")]
    pub(crate) docker: Option<String>,
    /// The port at which it listens in its container, for http and sse
    #[arg(long, value_name = "PORT", requires = "docker")]
    pub(crate) port: Option<u16>,
    /// A folder or a volume that it sees in its container, HERE:/INSIDE[:ro]; may be repeated
    #[arg(long, value_name = "VOLUME", requires = "docker")]
    pub(crate) volume: Vec<String>,
    /// The network of its container [default: none for stdio, else the engine's usual one]
    #[arg(long, value_name = "NAME", requires = "docker")]
    pub(crate) network: Option<String>,
    /// The memory that its container may use, as in 512m [default: 1g]
    #[arg(long, value_name = "AMOUNT", requires = "docker")]
    pub(crate) memory: Option<String>,
    /// A variable for the program; may be repeated
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "address")]
    pub(crate) env: Vec<String>,
    /// A header for every request to it, `NAME=VALUE` or `NAME: VALUE`; may be repeated
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "command")]
    pub(crate) header: Vec<String>,
    /// What it is for
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Start it when its tools are called, and stop it when nobody has called them for a while
    #[arg(long)]
    pub(crate) lazy: bool,
    /// Ask this address by GET whether it is well, instead of itself
    #[arg(long, value_name = "URL")]
    pub(crate) health_url: Option<String>,
    /// Do not connect it, now or at the next start
    #[arg(long)]
    pub(crate) no_connect: bool,
    /// It is there: change how it is reached. Its history, its bindings and which of its tools are off stay as they are.
    /// Needs a running service
    #[arg(long, verbatim_doc_comment)]
    pub(crate) replace: bool,
    /// Print the server as JSON. With an OBJECT, all of it comes as JSON, too, `-` for stdin: an entry of a config, or
    /// what POST /servers takes
    #[arg(long, value_name = "OBJECT", num_args = 0..=1, value_parser = object, verbatim_doc_comment)]
    #[expect(clippy::option_option, reason = "as clap tells an option without its value from none")]
    pub(crate) json: Option<Option<String>>,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    /// The program that is started, and its arguments; with --docker, only arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// What can be an object: the name of a server behind `--json` is none.
fn object(text: &str) -> Result<String, String> {
    match text.trim_start().starts_with(['{', '[', '"', '-']) {
        true => Ok(text.to_owned()),
        false => Err("expected a JSON object, or `-`; to have the answer as JSON, write --json last".to_owned()),
    }
}

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransportArgument {
    /// A program that is started
    Stdio,
    /// Streamable HTTP
    Http,
    /// HTTP+SSE, the older one
    Sse,
}

/// Remove a server, with its tools and its history.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator remove memory
  mcp-aggregator remove memory --force                its calls are cancelled")]
pub(crate) struct RemoveArguments {
    /// The server, by name or id
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,
    /// Cancel calls that are under way instead of waiting for them
    #[arg(long)]
    pub(crate) force: bool,
    /// Print JSON: {"removed"}
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// List all servers and how they are.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator list
  mcp-aggregator list --json | jq -r '.[] | select(.status == \"error\") | .name'")]
pub(crate) struct ListArguments {
    /// Print what REST answers
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// Show everything about a server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator show memory
  mcp-aggregator show memory --json | jq -r '.tools[].name'")]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    pub(crate) one: OneServer,
}

/// A server, and in which form its state is shown.
#[derive(Debug, Args)]
pub(crate) struct OneServer {
    /// The server, by name or id
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,
    /// Print what REST answers
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// Allow a server to be connected, and forget its failures.
///
/// A running service connects it. This is also how a server comes back that was switched off because it failed
/// too often.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator enable memory"
)]
pub(crate) struct EnableArguments {
    #[command(flatten)]
    pub(crate) one: OneServer,
}

/// Disconnect a server and keep it so.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator disable memory")]
pub(crate) struct DisableArguments {
    #[command(flatten)]
    pub(crate) one: OneServer,
}

/// Connect a server. A client is made to use mcp-aggregator by `client add`.
///
/// The words claude-desktop, claude-code, cursor and vscode, where no registered server has that name, mean the
/// clients: then this is `client add`, with its options.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator connect memory",
    mut_arg("server", |server| server
        .value_name("SERVER | CLIENT")
        .help("The server, by name or id; or claude-desktop, claude-code, cursor, vscode"))
)]
pub(crate) struct ConnectArguments {
    #[command(flatten)]
    pub(crate) one: OneServer,
    #[command(flatten, next_help_heading = "For a client, as `client add` has them")]
    pub(crate) options: ClientOptions,
}

/// Disconnect a server until it is connected again, or the service starts anew.
///
/// Calls that are under way have 30 s to finish.
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
    pub(crate) one: OneServer,
    /// Cancel calls that are under way instead of waiting for them
    #[arg(long)]
    pub(crate) force: bool,
}

/// Try a server by a connection of its own, and list its tools.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator test memory
  mcp-aggregator test memory --json | jq .success")]
pub(crate) struct TestArguments {
    #[command(flatten)]
    pub(crate) one: OneServer,
}

/// Show what happened to the connection of a server, newest first.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator history memory
  mcp-aggregator history memory --limit 3 --json")]
pub(crate) struct HistoryArguments {
    #[command(flatten)]
    pub(crate) one: OneServer,
    /// At most so many events
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
}

/// Tell how the running service is. The exit status is 1 if something is wrong.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  mcp-aggregator status
  mcp-aggregator status --json | jq -r '.issues[].message'")]
pub(crate) struct StatusArguments {
    /// Print what REST answers
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// Print what a server writes to stderr. Needs a running service.
///
/// The last 200 lines of a server that the service starts as a program or in a container, without its secrets.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator logs memory
  mcp-aggregator logs memory -f
  mcp-aggregator logs memory --lines 20"
)]
pub(crate) struct LogsArguments {
    #[command(flatten)]
    pub(crate) one: OneServer,
    /// Go on printing what it writes, until Ctrl-C; with --json, one object a line
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only the last lines of what is there
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) lines: Option<u32>,
}

/// Restart a server: disconnect it and connect it again. Needs a running service.
///
/// Calls that are under way have 30 s to finish.
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
    pub(crate) one: OneServer,
    /// Cancel calls that are under way instead of waiting for them
    #[arg(long)]
    pub(crate) force: bool,
}
