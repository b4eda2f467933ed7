//! `tools`: lists the tools of all servers or of one; `explained`: describes one tool.

mod explained;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use aggregator::ServerState;
use catalog::item::{Item, Kind, Page};
use clap::{Args, Subcommand};
use explained::Explained;
use protocol::scan::{Span, member};
use protocol::{reply, text};
use serde_json::{Value, json};

use crate::cli::shared::{CONFIG_INSTEAD_OF_SERVICE, DEBUG, NameArguments};
use crate::client::Client;
use crate::commands::call;
use crate::failure::Failure;
use crate::in_process_client::InProcessClient;
use crate::session::{self, Session};
use crate::table::{aligned, cut, printable, seen_width};
use crate::target::{Target, TargetArguments};
use crate::{command_hint, config, local_registry, output, result_text, server_view, stderr_log, suggestion};

/// List the tools of all servers or of one, or describe one tool and how to call it.
///
/// The tools come from the running service, or from the registry if no service runs. With --config, this command
/// starts the servers of the config, lists their tools and stops them again; it names servers that fail on stderr,
/// and the exit status is 1 only if all of them fail. Descriptions are cut to the width of the terminal, or to
/// COLUMNS if that is set.
/// `tools off` disables tools: clients cannot list, find or call them until `tools on`.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  mcp-aggregator tools
  mcp-aggregator tools github
  mcp-aggregator tools github.search_issues           its parameters, and how to call it
  mcp-aggregator tools --config mcp.json
  mcp-aggregator tools --config mcp.json --names safe
  mcp-aggregator tools --config mcp.json --json | jq -r '.[].name'
  mcp-aggregator tools off github.delete_repository"
)]
pub(crate) struct ToolsArguments {
    #[command(subcommand)]
    pub(crate) verb: Option<ToolsVerb>,
    /// A server whose tools to list, or a tool to describe
    #[arg(value_name = "SERVER | TOOL")]
    pub(crate) name: Option<String>,
    #[arg(long, value_name = "FILE", help = CONFIG_INSTEAD_OF_SERVICE, conflicts_with_all = ["url", "token_file", "data_dir", "database"])]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    #[command(flatten)]
    pub(crate) names: NameArguments,
    /// Print a JSON array: with --config, the definitions as the servers sent them, with full names; otherwise the
    /// response of the REST API
    #[arg(long)]
    pub(crate) json: bool,
    #[arg(long, help = DEBUG)]
    pub(crate) debug: bool,
}

/// Enables or disables tools.
#[derive(Debug, Subcommand)]
pub(crate) enum ToolsVerb {
    /// Enable tools again
    #[command(after_help = "\
Examples:
  mcp-aggregator tools on github.delete_repository
  mcp-aggregator tools on --server github")]
    On(ToolsOnOffArguments),
    /// Disable tools: clients cannot list, find or call them
    #[command(after_help = "\
Examples:
  mcp-aggregator tools off github.delete_repository github.delete_file
  mcp-aggregator tools off --server github")]
    Off(ToolsOnOffArguments),
}

/// Which tools to enable or disable.
#[derive(Debug, Args)]
pub(crate) struct ToolsOnOffArguments {
    /// The full names of the tools, such as github.search
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

/// The minimum width of the description column, however long the names are.
const MIN_DESCRIPTION_WIDTH: usize = 20;
/// A longer name gets a line of its own, so that the others need not make room for it.
const MAX_COLUMN_WIDTH: usize = 64;

pub(crate) fn run(arguments: &ToolsArguments) -> Result<(), Failure> {
    stderr_log::init(arguments.debug);
    match &arguments.verb {
        Some(ToolsVerb::On(wanted)) => return set_enabled(wanted, true),
        Some(ToolsVerb::Off(wanted)) => return set_enabled(wanted, false),
        None => {}
    }
    match &arguments.config {
        Some(config) => by_config(arguments, config),
        None => by_service(arguments),
    }
}

/// Enables or disables tools through the running service.
fn set_enabled(wanted: &ToolsOnOffArguments, on: bool) -> Result<(), Failure> {
    let mut body = json!({ "enabled": on, "names": wanted.names });
    if let Some(server) = &wanted.server {
        body["server_id"] = json!(server);
    }
    let answer = session::block_on(async {
        let service = wanted.target.service().await?;
        match service.post("/tools/switch", Some(&body)).await.map_err(Failure::from) {
            Err(refused) if refused.kind.as_deref() == Some("TOOL_NOT_FOUND") => {
                Err(with_tools_like_it(&service, &wanted.names, on, refused).await)
            }
            answered => answered,
        }
    })?;
    if wanted.json {
        return output::print_json(&answer);
    }
    let changed = usize::try_from(answer["changed"].as_u64().unwrap_or_default()).unwrap_or_default();
    output::print_message(format_args!("{}: {}", if on { "enabled" } else { "disabled" }, counted(changed, "tool")));
    Ok(())
}

/// Adds a suggestion to the error about an unknown tool, if the tool list is available.
async fn with_tools_like_it(service: &Client, typed: &[String], on: bool, refused: Failure) -> Failure {
    let tools = service.get("/tools").await.ok().unwrap_or_default();
    let words = |key: &'static str| tools.as_array().into_iter().flatten().filter_map(move |tool| tool[key].as_str());
    let known: Vec<&str> = words("name").collect();
    let missing = typed.iter().find(|name| !known.contains(&name.as_str()));
    let server = missing.map(|name| name.trim_end_matches(".*"));
    if let Some(server) = server.filter(|server| words("server_name").any(|name| name == *server)) {
        let verb = if on { "on" } else { "off" };
        return refused
            .with_hint(format!("`mcp-aggregator tools {verb} --server {server}` selects all tools of a server"));
    }
    match missing.and_then(|name| suggestion::among(name, known.iter().copied())) {
        Some(question) => refused.with_hint(question),
        None => refused,
    }
}

/// The tools of the running service, or those in the registry.
fn by_service(arguments: &ToolsArguments) -> Result<(), Failure> {
    let (tools, runs) = session::block_on(async {
        match arguments.target.find_existing_or_none().await? {
            Some(Target::Service(service)) => Ok((service.get("/tools").await?, true)),
            Some(Target::Registry(store)) => Ok((local_registry::all_tools(&store).await?, false)),
            None => Ok((Value::Array(Vec::new()), false)),
        }
    })?;
    let tools: Vec<Value> = match (tools, &arguments.name) {
        (Value::Array(tools), Some(name)) => match chosen(tools, name)? {
            Chosen::One(tool) => return show_one(arguments, &tool),
            Chosen::OfServer(tools) => tools,
        },
        (Value::Array(tools), None) => tools,
        (_, _) => Vec::new(),
    };
    if arguments.json {
        return output::print_json(&Value::Array(tools));
    }
    let first_line = |tool: &Value| first_line(tool["description"].as_str().unwrap_or_default());
    // Nobody can call disabled tools.
    let (on, off): (Vec<&Value>, Vec<&Value>) = tools.iter().partition(|tool| tool["enabled"] != false);
    let rows = on.iter().map(|tool| (server_view::text(tool, "name"), first_line(tool))).collect();
    output::print(&in_columns(rows, seen_width().unwrap_or(usize::MAX)))?;
    let more = if off.is_empty() { String::new() } else { format!("; {} more disabled", off.len()) };
    output::print_message(format_args!("{}{more}", counted(on.len(), "tool")));
    if !runs {
        output::print_message(
            "no service is running; `mcp-aggregator serve` starts one, `--config FILE` starts the servers of a file",
        );
    }
    Ok(())
}

/// What a name refers to: a tool, or the tools of a server.
enum Chosen<T> {
    One(Box<T>),
    OfServer(Vec<T>),
}

/// The tool of a service with this full name, safe name, or own name if only one tool has it.
fn chosen(mut tools: Vec<Value>, name: &str) -> Result<Chosen<Value>, Failure> {
    let is = |tool: &Value, key: &str| tool[key].as_str() == Some(name);
    let by_name = |tool: &Value| is(tool, "name") || call::safe_name(tool) == name;
    if let Some(place) = tools.iter().position(by_name) {
        return Ok(Chosen::One(Box::new(tools.swap_remove(place))));
    }
    if tools.iter().any(|tool| is(tool, "server_name")) {
        return Ok(Chosen::OfServer(tools.into_iter().filter(|tool| is(tool, "server_name")).collect()));
    }
    let own: Vec<usize> = (0..tools.len()).filter(|&place| is(&tools[place], "original_name")).collect();
    if let [only] = own[..] {
        return Ok(Chosen::One(Box::new(tools.swap_remove(only))));
    }
    let word = |tool: &Value, key: &str| tool[key].as_str().map(str::to_owned);
    let known = tools.iter().flat_map(|tool| [word(tool, "name"), word(tool, "server_name")]).flatten();
    Err(unknown_name(name, &known.collect::<BTreeSet<_>>()))
}

/// The same among the tools of a config.
fn chosen_in_config(mut tools: Vec<Item>, name: &str, separator: &str) -> Result<Chosen<Item>, Failure> {
    if let Some(place) = tools.iter().position(|tool| *tool.id == *name) {
        return Ok(Chosen::One(Box::new(tools.swap_remove(place))));
    }
    let beginnings = [format!("{name}{separator}"), format!("{name}__")];
    let is_of_server = |tool: &Item| beginnings.iter().any(|beginning| tool.id.starts_with(beginning));
    if tools.iter().any(is_of_server) {
        return Ok(Chosen::OfServer(tools.into_iter().filter(is_of_server).collect()));
    }
    Err(unknown_name(name, &tools.into_iter().map(|tool| tool.id.to_string()).collect()))
}

fn unknown_name(name: &str, known: &BTreeSet<String>) -> Failure {
    let failure = Failure::new(format!("there is no tool and no server with tools with the name `{name}`"));
    let like_it = suggestion::among(name, known.iter().map(String::as_str));
    failure
        .of_kind("TOOL_NOT_FOUND")
        .with_hint(like_it.unwrap_or_else(|| "`mcp-aggregator tools` lists all".to_owned()))
}

/// Describes a tool of a service.
fn show_one(arguments: &ToolsArguments, tool: &Value) -> Result<(), Failure> {
    if arguments.json {
        return output::print_json(tool);
    }
    let text = |key: &str| tool[key].as_str().unwrap_or_default();
    let (name, description, is_off) = (text("name"), text("description"), tool["enabled"] == false);
    let explained = Explained { name, description, schema: &tool["input_schema"], is_off };
    let call = command_hint::completed("`mcp-aggregator call`");
    output::print_lines(&explained.lines(call.trim_matches('`')))
}

/// Describes a tool of a config.
fn show_item(arguments: &ToolsArguments, config: &Path, tool: &Item) -> Result<(), Failure> {
    if arguments.json {
        return output::print(&[&tool.definition[..], b"\n"].concat());
    }
    let member = |key: &str| result_text::member_tree(&tool.definition, key);
    let (description, schema) = (member("description"), member("inputSchema"));
    let description = description.as_str().unwrap_or_default();
    let explained = Explained { name: &tool.id, description, schema: &schema, is_off: false };
    let call = format!("mcp-aggregator call --config {}", command_hint::quoted(&config.display().to_string()));
    output::print_lines(&explained.lines(&call))
}

/// Starts the servers of a config, and lists their tools.
fn by_config(arguments: &ToolsArguments, config: &Path) -> Result<(), Failure> {
    let names = &arguments.names;
    let options =
        session::options("mcp-aggregator", names.separator.separator.clone(), names.names, session::NO_CAPABILITIES)?;
    let loaded = config::load(config)?;
    let (tools, tally) = session::with(loaded, options, async |session| {
        session.all_decided().await?;
        let tally = Tally::of(session);
        Ok((list(session).await?, tally))
    })?;

    let tools = match &arguments.name {
        Some(name) => match chosen_in_config(tools, name, names.separator.separator.as_str())? {
            Chosen::One(tool) => return show_item(arguments, config, &tool),
            Chosen::OfServer(tools) => tools,
        },
        None => tools,
    };
    output::print(&if arguments.json { json(&tools) } else { table(&tools, seen_width().unwrap_or(usize::MAX)) })?;
    let summary = tally.in_words(tools.len());
    if tally.running == 0 && !tally.failed.is_empty() {
        return Err(Failure::new(summary));
    }
    output::print_message(summary);
    Ok(())
}

/// All pages of the list.
pub(crate) async fn list(session: &mut Session) -> Result<Vec<Item>, Failure> {
    let mut conversation = InProcessClient::new(&session.aggregator)?;
    let (mut tools, mut params) = (Vec::new(), None);
    loop {
        let asking = conversation.ask("tools/list", params.as_deref(), |_| {});
        let answer = session.unless_interrupted(asking).await??;
        let result = answer.outcome.map_err(|error| Failure::new(result_text::refusal(error.of(&answer.line))))?;
        let page = Page::read(Kind::Tool, &answer.line, result)
            .ok_or_else(|| Failure::new("the list of tools is unreadable"))?;
        tools.extend(page.items().flatten());
        let Some(cursor) = page.next_cursor else { return Ok(tools) };
        params = Some(reply::object([("cursor", cursor.to_vec())]));
    }
}

/// The results of the servers.
struct Tally {
    running: usize,
    failed: Vec<String>,
}

impl Tally {
    fn of(session: &Session) -> Self {
        let view = session.fleet().view();
        let servers = view.snapshot.servers();
        let failed = servers.iter().filter(|server| server.state.failure().is_some());
        Self {
            running: servers.iter().filter(|server| server.state == ServerState::Running).count(),
            failed: failed.map(|server| printable(server.name.as_str())).collect(),
        }
    }

    /// `12 tools from 3 servers; 1 server failed: db`
    fn in_words(&self, tools: usize) -> String {
        let mut words = format!("{} from {}", counted(tools, "tool"), counted(self.running, "server"));
        if !self.failed.is_empty() {
            let failed = counted(self.failed.len(), "server");
            words.push_str(&format!("; {failed} failed: {}", self.failed.join(", ")));
        }
        words
    }
}

pub(crate) fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// The definitions as a JSON array, one per line, each as its server sent it.
fn json(tools: &[Item]) -> Vec<u8> {
    let definitions: Vec<&[u8]> = tools.iter().map(|tool| &tool.definition[..]).collect();
    [b"[", definitions.join(&b",\n"[..]).as_slice(), b"]\n"].concat()
}

fn table(tools: &[Item], width: usize) -> Vec<u8> {
    in_columns(tools.iter().map(|tool| (printable(&tool.id), first_line_of_description(tool))).collect(), width)
}

/// Names, and as much of the descriptions as fits.
fn in_columns(tools: Vec<(String, String)>, width: usize) -> Vec<u8> {
    let longest = MAX_COLUMN_WIDTH.min(width.saturating_sub(MIN_DESCRIPTION_WIDTH + 2)).max(MIN_DESCRIPTION_WIDTH);
    let is_long = |name: &str| name.chars().count() > longest;
    let widths = tools.iter().filter(|(name, _)| !is_long(name)).map(|(name, _)| name.chars().count());
    let room = width.saturating_sub(widths.max().unwrap_or(0) + 2).max(MIN_DESCRIPTION_WIDTH);
    let mut rows = Vec::with_capacity(tools.len());
    let mut alone = Vec::new();
    for (name, description) in tools {
        let is_long = is_long(&name);
        rows.push([if is_long { String::new() } else { name.clone() }, cut(&description, room)]);
        alone.push(is_long.then_some(name));
    }
    let lines = alone.into_iter().zip(aligned(&rows));
    let lines = lines.flat_map(|(alone, line)| alone.into_iter().chain((!line.is_empty()).then_some(line)));
    lines.flat_map(|line| (line + "\n").into_bytes()).collect()
}

fn first_line_of_description(tool: &Item) -> String {
    let definition = &tool.definition;
    let found = member(definition, Span { start: 0, end: definition.len() }, "description");
    let description = found.and_then(|span| text::decode(span.of(definition))).unwrap_or_default();
    first_line(&description)
}

fn first_line(description: &str) -> String {
    let line = description.lines().map(str::trim).find(|line| !line.is_empty());
    printable(line.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn a_row_shows_the_first_line_of_the_description_cut_to_the_width() {
        let tools = [
            r#"{"name":"a.long_name","description":"\n  First line.\nSecond line."}"#,
            r#"{"name":"b.x"}"#,
            r#"{"name":"b.y","description":"one two three four five six seven"}"#,
        ]
        .map(|definition| Item::read(Kind::Tool, Bytes::from_static(definition.as_bytes())).unwrap());
        let shown = String::from_utf8(table(&tools, 36)).unwrap();
        assert_eq!(shown, "a.long_name  First line.\nb.x\nb.y          one two three four fiv…\n");
    }

    #[test]
    fn one_long_name_does_not_push_all_descriptions_away() {
        let long = "b.".to_owned() + &"x".repeat(300);
        let tools = [("a.x", "first"), (long.as_str(), "second"), ("c.y", ""), (&long, "")];
        let tools = tools.map(|(name, description)| (name.to_owned(), description.to_owned()));
        let shown = String::from_utf8(in_columns(tools.to_vec(), 100)).unwrap();
        assert_eq!(shown, format!("a.x  first\n{long}\n     second\nc.y\n{long}\n"));
    }

    #[test]
    fn the_tally_counts_in_good_english() {
        let tally = Tally { running: 1, failed: vec![] };
        assert_eq!(tally.in_words(1), "1 tool from 1 server");
        let tally = Tally { running: 3, failed: vec!["db".to_owned(), "x".to_owned()] };
        assert_eq!(tally.in_words(12), "12 tools from 3 servers; 2 servers failed: db, x");
    }
}
