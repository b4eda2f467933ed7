//! The command line of the verbs for servers that are registered: most work on a running service or on the registry.

use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use service::finding::Strategy;

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
  mcp-aggregator add --json - < registration.json     what POST /servers takes"
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
    pub(crate) transport: Option<Way>,
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
pub(crate) enum Way {
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

/// Options that count for clients only.
const FOR_CLIENTS: &str = "For a client";
/// What a client calls us unless it is told otherwise.
pub(crate) const USUAL_ENTRY: &str = "all";

/// Connect a server; or an MCP client to us: claude-desktop, claude-code, cursor or vscode.
///
/// A registered server of that name comes first. Else the four words mean programs: their config is changed so
/// that they use the running service (with its token, if it has one), or start us themselves (--stdio).
/// Only our entry is written; comments and everything else in the file stay. What the file was is kept beside it
/// for --undo; if somebody has changed it since, --undo only takes our entry out.
/// Files of a project are made to be shared: there the token is a reference to MCP_AGGREGATOR_TOKEN, which must be
/// set where the client is started.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator connect memory                                connect a registered server
  mcp-aggregator connect cursor --dry-run                      what would change in Cursor's config?
  mcp-aggregator connect cursor
  mcp-aggregator connect cursor --undo
  mcp-aggregator connect vscode --project                      only for the project in this folder
  mcp-aggregator connect claude-desktop --stdio --config mcp.json
  mcp-aggregator connect claude-code --url http://mcp.example.com:8808 --token-file token",
    mut_arg("server", |server| server
        .value_name("SERVER | CLIENT")
        .help("The server, by name or id; or claude-desktop, claude-code, cursor, vscode"))
)]
pub(crate) struct ConnectArguments {
    #[command(flatten)]
    pub(crate) one: OneServer,
    /// The client starts us, instead of using a running service
    #[arg(help_heading = FOR_CLIENTS, long, requires = "config", conflicts_with_all = ["url", "undo"])]
    pub(crate) stdio: bool,
    /// The servers, for --stdio
    #[arg(help_heading = FOR_CLIENTS, long, value_name = "FILE", requires = "stdio")]
    pub(crate) config: Option<PathBuf>,
    /// In the client's config for the project in this folder, instead of the user's own
    #[arg(help_heading = FOR_CLIENTS, long)]
    pub(crate) project: bool,
    /// What the client calls us
    #[arg(help_heading = FOR_CLIENTS, long = "as", value_name = "NAME", default_value = USUAL_ENTRY, value_parser = NonEmptyStringValueParser::new())]
    pub(crate) entry: String,
    /// Show what would change, and change nothing
    #[arg(help_heading = FOR_CLIENTS, long)]
    pub(crate) dry_run: bool,
    /// Give the file back as it was before
    #[arg(help_heading = FOR_CLIENTS, long)]
    pub(crate) undo: bool,
}

impl ConnectArguments {
    /// Whether an option was given that only makes sense for clients.
    pub(crate) fn is_about_a_client(&self) -> bool {
        self.stdio || self.project || self.dry_run || self.undo || self.entry != USUAL_ENTRY
    }
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

/// Find tools by what they do, among those of connected servers. Needs a running service.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator search create an issue
  mcp-aggregator search \"rename a file\" --server files --limit 3"
)]
pub(crate) struct SearchArguments {
    /// What you want to do, in plain words
    #[arg(value_name = "WORDS", required = true)]
    pub(crate) query: Vec<String>,
    /// At most so many tools
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// Only tools of this server, by name or id; may be repeated
    #[arg(long, value_name = "SERVER")]
    pub(crate) server: Vec<String>,
    /// Only tools with this skill, by name or id; may be repeated
    #[arg(long, value_name = "SKILL")]
    pub(crate) skill: Vec<String>,
    /// Among all tools, or for skills first and then among their tools
    #[arg(long, value_name = "direct|hierarchical", default_value = "direct", value_parser = strategy)]
    pub(crate) strategy: Strategy,
    /// Only what scores at least so much, from 0 to 1
    #[arg(long, value_name = "SCORE", default_value_t = 0.0)]
    pub(crate) threshold: f32,
    /// Print what REST answers, with what each tool takes
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

fn strategy(text: &str) -> Result<Strategy, String> {
    text.parse()
}

/// List what tools can be for, and how many tools of connected servers are. Needs a running service.
///
/// Tools get their skills in the background, by what they say they do. Skills are changed over REST (see /api/docs),
/// or given by `serve --skills`. A classifier (`serve --classifier-url`) may miss some: `skills suggestions` lists
/// them, `skills accept ID` makes one a skill, and `skills reject ID` says no for ever.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator skills
  mcp-aggregator skills suggestions
  mcp-aggregator skills accept image-editing"
)]
pub(crate) struct SkillsArguments {
    /// What to do about skills that a classifier missed
    #[arg(value_name = "suggestions|accept|reject")]
    pub(crate) verb: Option<SkillsVerb>,
    /// The skill to accept or reject
    #[arg(value_name = "ID", required_if_eq_any([("verb", "accept"), ("verb", "reject")]))]
    pub(crate) id: Option<String>,
    /// Print what REST answers
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// What can be done about skills that a classifier missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SkillsVerb {
    Suggestions,
    Accept,
    Reject,
}

/// Add the servers of other programs, or of an export.
///
/// Looks for the config files of MCP clients on this machine, shows their servers, and adds those that are not
/// there yet. Nothing is overwritten and no file is changed. Names are made to fit, and what was renamed is told.
/// An entry that is this aggregator is left out. With an export (see `export`), all of it is taken in: servers
/// that are not there yet, settings and bindings.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator import --dry-run                     what is there on this machine?
  mcp-aggregator import --from claude-desktop
  mcp-aggregator import .vscode/mcp.json
  mcp-aggregator export --secrets > all.json; mcp-aggregator import all.json --url http://other:8808"
)]
pub(crate) struct ImportArguments {
    /// A file: the config of an MCP client, or an export; `-` for stdin
    #[arg(value_name = "FILE", conflicts_with = "from")]
    pub(crate) file: Option<PathBuf>,
    /// claude-desktop, claude-code, cursor, vscode, windsurf, or a file; may be repeated [default: all of them]
    #[arg(long, value_name = "CLIENT | FILE")]
    pub(crate) from: Vec<String>,
    /// Show what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print what was found and done as JSON, without how servers are reached
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}

/// Print the whole registry as JSON: servers, settings and bindings, for `import`.
///
/// Without --secrets, credentials are masked, and servers that have some are switched off where this is imported.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator export > registry.json
  mcp-aggregator export --secrets | ssh other mcp-aggregator import /dev/stdin"
)]
pub(crate) struct ExportArguments {
    /// With credentials as they are: keep the output to yourself
    #[arg(long)]
    pub(crate) secrets: bool,
    /// Print JSON, as always: for those who give it to every command
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
}
