//! The command line of the verbs that look at tools and try them: `check`, `tools`, `call`, `search` and `skills`.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use service::tool_search::Strategy;

use super::{ConfigArgument, NameArguments, SeparatorArgument};
use crate::target::TargetArguments;

/// Check the config, and with --start every server in it.
///
/// Without --start nothing is started: the config is read, its variables are filled in, and what would
/// be started is printed, without arguments and environment, for these may hold secrets.
/// With --start every server is started, asked for its tools and stopped again; the exit status is 1
/// if any of them failed.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  mcp-aggregator check --config mcp.json
  mcp-aggregator check --config mcp.json --start
  mcp-aggregator check --config mcp.json --start --json | jq '.servers[] | select(.state == \"failed\")'"
)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    /// Start every server and tell what works, and why not
    #[arg(long)]
    pub(crate) start: bool,
    /// Print JSON: {"ok", "servers": [..]}, or {"ok", "error": {..}} if the config is wrong
    #[arg(long)]
    pub(crate) json: bool,
    /// Tell everything that happens, on stderr
    #[arg(long)]
    pub(crate) debug: bool,
}

/// List the tools of all servers, or of one; or tell what a tool takes, and how it is called.
///
/// Those of the running service, or those that the registry knows. With a config, its servers are started,
/// asked and stopped again; one that fails is named on stderr, and the exit status is 1 only if all of them
/// failed. Descriptions are cut to the width of the terminal, or to COLUMNS if that is set.
/// `tools off` switches tools off: nobody lists, finds or calls them until `tools on`.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  mcp-aggregator tools
  mcp-aggregator tools github
  mcp-aggregator tools github.search_issues           what does it take, and how is it called?
  mcp-aggregator tools --config mcp.json
  mcp-aggregator tools --config mcp.json --names safe
  mcp-aggregator tools --config mcp.json --json | jq -r '.[].name'
  mcp-aggregator tools off github.delete_repository"
)]
pub(crate) struct ToolsArguments {
    #[command(subcommand)]
    pub(crate) switch: Option<ToolSwitch>,
    /// A server, whose tools are listed, or a tool, of which everything is told
    #[arg(value_name = "SERVER | TOOL")]
    pub(crate) name: Option<String>,
    /// Start the servers of this config, instead of asking the running service
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "token_file", "data_dir", "database"])]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    #[command(flatten)]
    pub(crate) names: NameArguments,
    /// Print the definitions as a JSON array, as the servers wrote them but for the full name; without a config,
    /// what REST answers
    #[arg(long)]
    pub(crate) json: bool,
    /// Tell everything that happens, on stderr
    #[arg(long)]
    pub(crate) debug: bool,
}

/// Tools are switched.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolSwitch {
    /// Switch tools on again
    #[command(after_help = "\
Examples:
  mcp-aggregator tools on github.delete_repository
  mcp-aggregator tools on --server github")]
    On(SwitchArguments),
    /// Switch tools off: nobody lists, finds or calls them
    #[command(after_help = "\
Examples:
  mcp-aggregator tools off github.delete_repository github.delete_file
  mcp-aggregator tools off --server github")]
    Off(SwitchArguments),
}

/// Which tools are switched.
#[derive(Debug, Args)]
pub(crate) struct SwitchArguments {
    /// Their full names, as in github.search
    #[arg(value_name = "NAME", required_unless_present = "server")]
    pub(crate) names: Vec<String>,
    /// All tools of this server
    #[arg(long, value_name = "NAME")]
    pub(crate) server: Option<String>,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    /// Print JSON: {"changed": NUMBER}
    #[arg(long)]
    pub(crate) json: bool,
}

/// Call one tool and print what it returns.
///
/// The running service calls it; with a config, the server that can have the tool is started for it instead.
/// Text is printed as it is, anything else as one line of JSON each. A tool that says it failed (`isError`)
/// is told on stderr with exit status 3, any other failure with 1. Ctrl-C cancels the call.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Arguments of the tool, in one of three forms:
  '{\"a\": 1}'    one JSON object
  -             one JSON object on stdin
  key=value ..  the value is JSON if it reads as JSON (5, true, null, [1], \"5\"), else text;
  key:=json     the value must be JSON

Examples:
  mcp-aggregator call memory.read_graph
  mcp-aggregator call --config mcp.json time.get_current_time timezone=Europe/Vienna
  mcp-aggregator call --config mcp.json files.read_text_file '{\"path\": \"/tmp/notes.txt\", \"head\": 5}'
  mcp-aggregator call --config mcp.json db.query - < arguments.json"
)]
pub(crate) struct CallArguments {
    /// Start the server from this config for the call, instead of asking the running service
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "token_file", "data_dir", "database"])]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) separator: SeparatorArgument,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    /// How long the service lets the call take [default: what its settings say]
    #[arg(long, value_name = "SECONDS", conflicts_with = "config", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: Option<u64>,
    /// The tool: `server.tool`, or its safe name `server__tool`
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,
    /// Its arguments (see below)
    #[arg(value_name = "JSON | KEY=VALUE")]
    pub(crate) arguments: Vec<String>,
    /// Print the result as the server wrote it (the service adds `metadata`); with a config, a JSON-RPC error is
    /// the last line on stderr
    #[arg(long)]
    pub(crate) json: bool,
    /// Write what the tool says to a terminal as it is, too: else signs stand for what would steer it
    #[arg(long)]
    pub(crate) raw: bool,
    /// Tell everything that happens, on stderr
    #[arg(long)]
    pub(crate) debug: bool,
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
    #[arg(long, value_name = "direct|hierarchical", default_value = "direct",
        value_parser = strategies(), hide_possible_values = true)]
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

fn strategies() -> impl TypedValueParser<Value = Strategy> {
    PossibleValuesParser::new(Strategy::ALL.map(Strategy::as_str)).map(|word| word.parse().expect("it is one of them"))
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
