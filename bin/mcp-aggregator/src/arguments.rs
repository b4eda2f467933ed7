//! The command line. Verbs for registered servers are in `servers`, those for documents in `documents`, those for an
//! assistant in `assistant`, those that look
//! after all of it in `care`, those about this program in `manual`; `help` says how all of it is explained.

pub(crate) mod assistant;
pub(crate) mod care;
pub(crate) mod demo;
pub(crate) mod documents;
pub(crate) mod help;
pub(crate) mod manual;
pub(crate) mod servers;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use aggregator::{NamePolicy, Separator, Surface};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use self::assistant::{AskArguments, ContextArguments};
use crate::advisers::AdviserArguments;
use crate::assistant::AssistantArguments;
use crate::failure::Failure;
use crate::storage::StorageArguments;
use crate::target::TargetArguments;
use crate::{output, pasted};
use care::{CallsArguments, DoctorArguments, TopArguments};
use demo::{DemoArguments, DemoServerArguments};
use documents::{DocArguments, RunArguments};
use manual::{CompletionsArguments, ManArguments, NamesArguments};
use servers::{
    AddArguments, ConnectArguments, DisableArguments, DisconnectArguments, EnableArguments, ExportArguments,
    HistoryArguments, ImportArguments, ListArguments, RemoveArguments, SearchArguments, ShowArguments, SkillsArguments,
    StatusArguments, TestArguments,
};

/// What stands between server and tool, unless the user says otherwise.
const SEPARATOR: &str = ".";

/// What stands between server and tool where nobody sees it.
pub(crate) fn usual_separator() -> Separator {
    SEPARATOR.parse().expect("it is the default on the command line, too")
}

const EXAMPLES: &str = "\
The config is the JSON that Claude Desktop and others use:
  {\"mcpServers\": {\"git\": {\"command\": \"uvx\", \"args\": [\"mcp-server-git\"], \"env\": {\"TOKEN\": \"${TOKEN}\"}}}}
$VAR, ${VAR} and ${VAR:-default} are filled in from the environment. The tool `git_log` of the server
`git` is offered as `git.git_log`. Servers over HTTP have a `url`, and `headers` and a `type` (http, sse) if need be.
Servers in containers have a `docker` block with an `image`; Docker or Podman runs them.
Any server may have a `timeout` (milliseconds for a call), an `era` (legacy, modern) and be `disabled`.

Examples:
  mcp-aggregator check --config mcp.json              is the config right?
  mcp-aggregator check --config mcp.json --start      do all the servers start?
  mcp-aggregator tools --config mcp.json              what can they do?
  mcp-aggregator call  --config mcp.json git.git_log repo_path=. max_count=3
  mcp-aggregator stdio --config mcp.json              serve them all as one (for your MCP client)
  mcp-aggregator serve --config mcp.json              the same over HTTP, for many clients
  mcp-aggregator serve                                a service whose servers are added and removed while it runs:
  mcp-aggregator add memory -- npx -y @modelcontextprotocol/server-memory
  mcp-aggregator list
  mcp-aggregator call memory.read_graph
  mcp-aggregator search remember something
  mcp-aggregator run notes.md                         run the tools that a document names
  mcp-aggregator ask \"What time is it in Rome?\"       ask a model that may use the tools
  mcp-aggregator status
  mcp-aggregator import --dry-run                     which servers do other programs on this machine have?

Verbs for registered servers find the service that runs on this machine, or work on its registry if none runs.

Environment:
  MCP_AGGREGATOR_START_TIMEOUT   seconds a server may take to become ready [default: 60]
  MCP_AGGREGATOR_ANSWER_TIMEOUT  seconds a client of 2026-07-28 may take to come back with what an older
                                 server has asked it; then the call is cancelled [default: 300]
  MCP_AGGREGATOR_TOKEN           a token that clients of `serve` must have, and that commands send to a service
  MCP_CREDENTIAL_KEY             the key that credentials in the registry are sealed with
                                 [default: the file credential.key in the data directory]
  DOCKER_HOST                    where the container engine is [default: the usual places of Docker and Podman]
  OTEL_EXPORTER_OTLP_ENDPOINT    where `serve` sends traces of calls; see `mcp-aggregator help serve`

Exit status:
  0 all went well                        2 the command line makes no sense
  1 config, server or call failed        3 the tool ran, and says that it failed
  130 interrupted

`mcp-aggregator help <command>` tells more about each.";

/// Many MCP servers in, one endpoint out.
#[derive(Debug, Parser)]
#[command(version, subcommand_required = true, arg_required_else_help = false, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// What is printed is for machines, whichever command it is.
    #[arg(skip)]
    pub(crate) as_json: bool,
}

impl Arguments {
    /// What was typed. Where that makes no sense, or asks for help, the program ends here.
    pub(crate) fn of_process() -> Self {
        let matches = whole_command().try_get_matches().unwrap_or_else(|error| refuse(&error));
        let arguments = Self::from_arg_matches(&matches).unwrap_or_else(|error| refuse(&error));
        let verb = innermost(&matches);
        pasted::remember(verb);
        Self { as_json: is_typed(verb, "json"), ..arguments }
    }
}

/// The matches of the verb that was typed, or of the verb below it.
fn innermost(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, below)| innermost(below))
}

pub(crate) fn is_typed(verb: &ArgMatches, argument: &str) -> bool {
    // Not every verb has it.
    let is_known = verb.try_contains_id(argument).is_ok();
    is_known && verb.value_source(argument) == Some(ValueSource::CommandLine)
}

/// Says what makes no sense, for people and, if that was asked for, for machines.
fn refuse(error: &clap::Error) -> ! {
    let is_help = !error.use_stderr();
    let typed: Vec<_> = std::env::args_os().skip(1).take_while(|word| word != "--").collect();
    let has = |option: &str| typed.iter().any(|word| word == option);
    let hint = (error.kind() == ErrorKind::MissingRequiredArgument && has("add") && has("--url"))
        .then(|| URL_HINT.to_owned())
        .or_else(|| program_hint(error.kind(), &typed));
    if !is_help && has("--json") {
        let told = error.render().to_string();
        let told = told.strip_prefix("error: ").unwrap_or(&told).trim_end();
        let failure = Failure { hint: hint.clone(), ..Failure::usage(told) };
        // Whoever cannot be told on stdout is told on stderr all the same.
        output::print_json(&failure.to_json()).unwrap_or_else(output::say);
    }
    if let Some(hint) = hint {
        // If stderr is gone, so is who reads it.
        error.print().ok();
        output::say(format_args!("hint: {hint}"));
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// For who writes a program as other programs' own `add` take it, without `--`.
fn program_hint(kind: ErrorKind, typed: &[std::ffi::OsString]) -> Option<String> {
    let mistakes = [ErrorKind::UnknownArgument, ErrorKind::ArgumentConflict, ErrorKind::MissingRequiredArgument];
    let words: Vec<&str> = typed.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    let ["add", name, rest @ ..] = words.as_slice() else { return None };
    if !mistakes.contains(&kind) || name.starts_with('-') {
        return None;
    }
    match rest {
        [program, ..] if !program.starts_with('-') && !program.contains("://") => {
            let all = std::env::args().skip(3).filter(|word| word != "--").map(|word| pasted::quoted(&word));
            let all = all.collect::<Vec<_>>().join(" ");
            Some(format!("a program stands after `--`: `mcp-aggregator add {name} -- {all}`"))
        }
        [] => Some(format!(
            "`mcp-aggregator add {name} -- PROGRAM` starts one, `mcp-aggregator add {name} URL` reaches one elsewhere, \
             `mcp-aggregator add {name} --docker IMAGE` runs one in a container"
        )),
        _ => None,
    }
}

/// For who writes the address of a server where that of a service belongs.
const URL_HINT: &str =
    "the address of a server goes without --url, which says which service: `mcp-aggregator add NAME https://host/mcp`";

/// The whole command line, as it is explained.
pub(crate) fn whole_command() -> clap::Command {
    help::grouped(Arguments::command())
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Stdio(StdioArguments),
    Serve(Box<ServeArguments>),
    Check(CheckArguments),
    Tools(ToolsArguments),
    Call(CallArguments),
    Calls(CallsArguments),
    Run(RunArguments),
    Doc(DocArguments),
    Ask(AskArguments),
    Context(ContextArguments),
    Add(AddArguments),
    Remove(RemoveArguments),
    List(ListArguments),
    Show(ShowArguments),
    Enable(EnableArguments),
    Disable(DisableArguments),
    Connect(ConnectArguments),
    Disconnect(DisconnectArguments),
    Test(TestArguments),
    History(HistoryArguments),
    Status(StatusArguments),
    Search(SearchArguments),
    Skills(SkillsArguments),
    Import(ImportArguments),
    Export(ExportArguments),
    Doctor(DoctorArguments),
    Top(TopArguments),
    Demo(DemoArguments),
    DemoServer(DemoServerArguments),
    Completions(CompletionsArguments),
    Man(ManArguments),
    Names(NamesArguments),
}

/// Serve all servers as one MCP server over stdio, to one client.
///
/// This is what an MCP client starts. Everything is relayed: tools, prompts, resources, and what servers
/// ask; clients of every protocol revision are served. It ends when the client closes its end, or by a signal.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
In the config of your MCP client:
  {\"mcpServers\": {\"all\": {\"command\": \"mcp-aggregator\", \"args\": [\"stdio\", \"--config\", \"/path/to/mcp.json\"]}}}

Examples:
  mcp-aggregator stdio --config mcp.json
  mcp-aggregator stdio --config mcp.json --names safe --log-file aggregator.log
  mcp-aggregator connect claude-desktop --stdio --config mcp.json     writes that config"
)]
pub(crate) struct StdioArguments {
    #[command(flatten)]
    pub(crate) config: ConfigArgument,
    #[command(flatten)]
    pub(crate) names: NameArguments,
    /// The name reported to the client
    #[arg(long, value_name = "NAME", default_value = "mcp-aggregator")]
    pub(crate) name: String,
    /// Log everything, not only warnings and errors
    #[arg(long)]
    pub(crate) debug: bool,
    /// Append the log to a file instead of writing it to stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
}

/// Serve all servers as one MCP server over HTTP, to many clients at once.
///
/// Clients of every protocol revision are served: Streamable HTTP at /mcp, the older HTTP+SSE at /sse,
/// one server alone and under its own names at /mcp/<server> and /sse/<server>; /health tells how we are.
/// All clients share one set of servers. What a server asks is put only to the client it is about.
/// Servers are those of the registry and, if there is a config, those in it. The registry is changed
/// while it runs, over REST: /api/docs tells how. The config is read again when it has changed.
/// /metrics has numbers for Prometheus.
/// It ends by a signal, after requests have had ten seconds to finish; a second signal hurries.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
In the config of your MCP client:
  {\"mcpServers\": {\"all\": {\"type\": \"http\", \"url\": \"http://127.0.0.1:8808/mcp\"}}}
with a token:
  {\"mcpServers\": {\"all\": {\"type\": \"http\", \"url\": \"http://127.0.0.1:8808/mcp\",
                          \"headers\": {\"Authorization\": \"Bearer <token>\"}}}}

Who may come in:
  Without tokens everybody on this machine, and nobody else: another --listen is refused.
  --token-file FILE      lines of `name:token`; # begins a comment
  MCP_AGGREGATOR_TOKEN   one more, named `default`
  Clients send `Authorization: Bearer <token>`. Servers never see it.
  Requests for other host names, or from web pages of other origins, are refused unless allowed.

Traces of calls, for an OpenTelemetry collector (OTLP, http/protobuf):
  OTEL_EXPORTER_OTLP_ENDPOINT          its address, as in http://127.0.0.1:4318; unset: no traces
  OTEL_EXPORTER_OTLP_TRACES_ENDPOINT   the same for traces alone, with the whole path
  OTEL_EXPORTER_OTLP_HEADERS           what it wants to be told, as in api-key=secret
  OTEL_EXPORTER_OTLP_TIMEOUT           how many milliseconds it may take [default: 10000]
  OTEL_SERVICE_NAME                    who we are there [default: mcp-aggregator]
  OTEL_RESOURCE_ATTRIBUTES             more of that, as in deployment.environment.name=test
  OTEL_TRACES_SAMPLER                  which calls: always_on, always_off, traceidratio, or one of these after
                                       parentbased_ [default: parentbased_always_on]
  OTEL_TRACES_SAMPLER_ARG              the part for traceidratio, as in 0.1

Examples:
  mcp-aggregator serve --config mcp.json
  mcp-aggregator serve --config mcp.json --listen 9000
  mcp-aggregator serve --database postgres://me@localhost/mcp
  curl http://127.0.0.1:8808/health
  echo \"laptop:$(openssl rand -hex 32)\" > tokens
  mcp-aggregator serve --config mcp.json --listen 0.0.0.0:8808 --token-file tokens --allow-host mcp.example.com
  MCP_AGGREGATOR_TOKEN=<token> mcp-aggregator serve --config mcp.json"
)]
pub(crate) struct ServeArguments {
    /// More servers, in the JSON that Claude Desktop and others use
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) storage: StorageArguments,
    /// The address to listen at: ADDRESS:PORT, or a port on this machine
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8808", value_parser = listen_address)]
    pub(crate) listen: SocketAddr,
    /// The tokens that let clients in, one `name:token` a line
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// A host name clients reach us by, beside localhost and the address itself; may be repeated
    #[arg(long, value_name = "HOST", value_parser = host)]
    pub(crate) allow_host: Vec<String>,
    /// The origin of web pages that may ask, beside those of this machine; may be repeated
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    pub(crate) allow_origin: Vec<String>,
    #[command(flatten)]
    pub(crate) names: NameArguments,
    /// More skills that tools may have, or other words for those that come along: a JSON array of
    /// {"id", "name", "description", "examples": []}; `mcp-aggregator skills --json` shows all
    #[arg(long, verbatim_doc_comment, value_name = "FILE")]
    pub(crate) skills: Option<PathBuf>,
    /// Keep the vectors by which tools are found in Qdrant, too, and compare them there:
    /// http://HOST[:PORT][/COLLECTION], the port for gRPC; else the variable MCP_VECTORS. A key goes into QDRANT_API_KEY
    #[arg(long, verbatim_doc_comment, value_name = "URL")]
    pub(crate) vectors: Option<String>,
    /// What clients see: `full` is every tool, `search` a few tools of ours that find and call all others,
    /// `grow` the same and what was found, `auto` is full unless the client would drown; an address may say
    /// otherwise: /mcp?surface=search
    #[arg(long, verbatim_doc_comment, value_name = "full|search|grow|auto", default_value_t = Surface::Full,
        value_parser = one_of::<Surface>(&["full", "search", "grow", "auto"]), hide_possible_values = true)]
    pub(crate) surface: Surface,
    /// The folder whose Markdown files may be listed, read, run and rewritten over REST and in the console;
    /// nothing outside of it is, and links are not followed
    #[arg(long, verbatim_doc_comment, value_name = "DIR")]
    pub(crate) documents: Option<PathBuf>,
    /// The name reported to clients
    #[arg(long, value_name = "NAME", default_value = "mcp-aggregator")]
    pub(crate) name: String,
    /// Print where it listens as a line of JSON, as soon as it does: {"url", "mcp", "has_tokens", "pid"}
    #[arg(long)]
    pub(crate) json: bool,
    /// Log everything, not only warnings and errors
    #[arg(long)]
    pub(crate) debug: bool,
    /// Append the log to a file instead of writing it to stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
    /// Keep no account of the calls of MCP clients: for the benchmark, which shows what that costs
    #[arg(long, hide = true)]
    pub(crate) no_history: bool,
    // Last, for their headings are those of all options behind them.
    #[command(flatten)]
    pub(crate) advisers: AdviserArguments,
    #[command(flatten)]
    pub(crate) assistant: AssistantArguments,
}

/// A word that is one of these, so that shells can offer them.
pub(crate) fn one_of<T>(words: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: FromStr + Clone + Send + Sync + 'static,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse())
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let local = |port: &str| port.parse().ok().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let named = text.strip_prefix("localhost:").and_then(local);
    let parsed = text.parse().ok().or(named).or_else(|| local(text));
    parsed.ok_or_else(|| "expected an address and a port, like 127.0.0.1:8808 or [::1]:8808, or only a port".to_owned())
}

fn host(text: &str) -> Result<String, front::GuardError> {
    front::check_host(text).map(|()| text.to_owned())
}

fn origin(text: &str) -> Result<String, front::GuardError> {
    front::check_origin(text).map(|()| text.to_owned())
}

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

/// List the tools of all servers.
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
  mcp-aggregator tools --config mcp.json
  mcp-aggregator tools --config mcp.json --names safe
  mcp-aggregator tools --config mcp.json --json | jq -r '.[].name'
  mcp-aggregator tools off github.delete_repository"
)]
pub(crate) struct ToolsArguments {
    #[command(subcommand)]
    pub(crate) switch: Option<ToolSwitch>,
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

#[derive(Debug, Args)]
pub(crate) struct ConfigArgument {
    /// The servers, in the JSON that Claude Desktop and others use
    #[arg(long = "config", value_name = "FILE")]
    pub(crate) path: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct SeparatorArgument {
    /// What stands between server and tool
    #[arg(long, value_name = "S", default_value = SEPARATOR)]
    pub(crate) separator: Separator,
}

#[derive(Debug, Args)]
pub(crate) struct NameArguments {
    #[command(flatten)]
    pub(crate) separator: SeparatorArgument,
    /// How tools are named: `canonical` is server.tool, `safe` is server__tool, `auto` is canonical
    /// but for clients that refuse such names; a call is accepted under either
    #[arg(long, verbatim_doc_comment, value_name = "auto|canonical|safe", default_value_t = NamePolicy::Auto,
        value_parser = one_of::<NamePolicy>(&["auto", "canonical", "safe"]), hide_possible_values = true)]
    pub(crate) names: NamePolicy,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn an_address_to_listen_at_may_be_short() {
        for (typed, address) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("localhost:80", "127.0.0.1:80"),
            ("0", "127.0.0.1:0"),
            ("[::1]:8808", "[::1]:8808"),
            ("0.0.0.0:99", "0.0.0.0:99"),
        ] {
            assert_eq!(listen_address(typed), Ok(address.parse().unwrap()));
        }
        for typed in ["", "x", "127.0.0.1", "localhost", "localhost:x", "70000", "example.com:80"] {
            assert!(listen_address(typed).is_err(), "{typed}");
        }
    }

    #[test]
    fn options_may_stand_anywhere_and_arguments_of_a_tool_may_look_odd() {
        let typed = ["x", "call", "a.b", "--config", "c", "n=-1", "--json", "-"];
        let Command::Call(call) = Arguments::try_parse_from(typed).unwrap().command else { panic!() };
        assert!(call.json);
        assert_eq!((call.tool.as_str(), call.arguments), ("a.b", vec!["n=-1".to_owned(), "-".to_owned()]));
        assert_eq!(call.separator.separator.as_str(), ".");
    }
}
