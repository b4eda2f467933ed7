//! `call`: calls a tool.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aggregator::load::Loaded;
use aggregator::{NamePolicy, NameStyle, Separator, ServerState};
use bytes::Bytes;
use catalog::{Kind, SIGN_IN_REQUIRED, ServerEntry, ServerName, sign_in_sentence};
use clap::Args;
use http::Method;
use protocol::scan::{Span, member};
use protocol::{escape, reply};
use serde_json::{Value, json};

use crate::cli::shared::{DEBUG, SeparatorArgument};
use crate::client::{Client, RequestError};
use crate::failure::Failure;
use crate::in_process_client::{Answer, InProcessClient};
use crate::session::{self, Session};
use crate::suggestion::{self, Known};
use crate::table::printable;
use crate::target::TargetArguments;
use crate::{api_error, config, exit, output, owners, progress, result_text, stderr_log, tool_arguments};

/// Call a tool and print its result.
///
/// The running service calls the tool; with --config, this command starts the server of the tool instead.
/// Text is printed as it is, other content as one line of JSON each. If the tool reports an error (`isError`), its
/// text goes to stderr and the exit status is 3; for any other failure it is 1. Ctrl-C cancels the call.
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Arguments of the tool, in one of three forms:
  '{\"a\": 1}'    one JSON object
  -             one JSON object from stdin
  key=value ..  the value is JSON if it is valid JSON (5, true, null, [1], \"5\"), otherwise text
  key:=json     the value must be JSON

Examples:
  mcp-aggregator call memory.read_graph
  mcp-aggregator call --config mcp.json time.get_current_time timezone=Europe/Vienna
  mcp-aggregator call --config mcp.json files.read_text_file '{\"path\": \"/tmp/notes.txt\", \"head\": 5}'
  mcp-aggregator call --config mcp.json db.query - < arguments.json"
)]
pub(crate) struct CallArguments {
    /// Start the server from this config for the call, instead of using the running service
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "token_file", "database"])]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) separator: SeparatorArgument,
    #[command(flatten)]
    pub(crate) target: TargetArguments,
    /// Cancel the call after this time [default: the setting timeout_ms of the service]
    #[arg(long, value_name = "SECONDS", conflicts_with = "config", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: Option<u64>,
    /// The tool: `server.tool`, or its safe name `server__tool`
    #[arg(value_name = "TOOL")]
    pub(crate) tool: String,
    /// The arguments of the tool (see below)
    #[arg(value_name = "JSON | KEY=VALUE")]
    pub(crate) arguments: Vec<String>,
    /// Print the result as the server sent it (the service adds `metadata`); with --config, a JSON-RPC error is the
    /// last line on stderr
    #[arg(long)]
    pub(crate) json: bool,
    /// Do not escape control characters in the result when printing to a terminal
    #[arg(long)]
    pub(crate) raw: bool,
    #[arg(long, help = DEBUG)]
    pub(crate) debug: bool,
}

/// The token of progress notifications: there is one call, so one token suffices.
const PROGRESS_TOKEN: &[u8] = b"1";
/// The source of the calls.
const SOURCE: &str = "cli";
/// The limit on the wait for a server that has its own timeout.
const TOO_SLOW: &str = "server_too_slow";
/// The longest timeout that the service allows.
const MAX_CALL_DURATION: Duration = Duration::from_secs(86_500);

pub(crate) fn run(arguments: &CallArguments) -> Result<(), Failure> {
    stderr_log::init(arguments.debug);
    let called = match &arguments.config {
        Some(config) => by_config(arguments, config),
        None => by_service(arguments),
    };
    called.map_err(explained)
}

/// Tells scripts whether a retry is safe. Without other information, no server has received the call.
fn explained(failure: Failure) -> Failure {
    let reason = match failure.code {
        exit::USAGE => "usage".to_owned(),
        exit::INTERRUPTED => "interrupted".to_owned(),
        _ => failure.kind.as_deref().unwrap_or("not_called").to_ascii_lowercase(),
    };
    let may_have_run = failure.code == exit::INTERRUPTED;
    failure.of_call(&reason, !may_have_run)
}

/// Whether the service received the call.
fn unanswered(denial: RequestError) -> Failure {
    match denial {
        RequestError::Absent(failure) => failure.of_call("service_unreachable", true),
        RequestError::Lost(failure) | RequestError::Other(failure) => failure.of_call("answer_lost", false),
    }
}

/// The running service makes the call.
fn by_service(arguments: &CallArguments) -> Result<(), Failure> {
    let CallArguments { target, tool, arguments: typed, timeout, .. } = arguments;
    let input = tool_arguments::read(typed, io::stdin().lock()).map_err(Failure::usage)?;
    let result = session::block_on(async {
        let service = target.service().await?;
        let input = match tool_arguments::are_guessed(typed) {
            true => fitted(typed, &schema_at(&service, tool).await?)?,
            false => input,
        };
        let mut call = vec![("name", reply::string(tool)), ("arguments", input), ("source", reply::string(SOURCE))];
        call.extend(timeout.map(|seconds| ("timeout_ms", (seconds * 1000).to_string().into_bytes())));
        let body = Bytes::from(reply::object(call));
        let call = service.send(Method::POST, "/execute", body, MAX_CALL_DURATION);
        let answer = progress::with_spinner(&format!("calling `{tool}`"), call).await.map_err(unanswered)?;
        if answer.status.is_success() {
            return Ok(answer.body);
        }
        let refused = api_error::describe(service.url(), answer.status, &answer.body);
        // Only a refusal by the service is known not to have reached a server; a proxy before it may have timed out.
        let is_refused = answer.status.is_client_error() || refused.kind.as_deref() == Some("DATABASE_UNAVAILABLE");
        let reason = refused.kind.as_deref().unwrap_or("answer_lost").to_ascii_lowercase();
        let refused = refused.of_call(&reason, is_refused);
        match refused.kind.as_deref() {
            Some("TOOL_NOT_FOUND") => Err(missing(&service, tool, refused).await),
            _ => Err(refused),
        }
    })?;
    show_result(&result, arguments).map_err(called)
}

/// The call was made, whatever failed afterwards.
fn called(failure: Failure) -> Failure {
    let reason = if failure.code == exit::TOOL_FAILED { "tool_error" } else { "result_not_shown" };
    failure.of_call(reason, false)
}

/// The arguments with the types that the tool expects.
fn fitted(typed: &[String], schema: &Value) -> Result<Vec<u8>, Failure> {
    tool_arguments::read(&tool_arguments::fitted(typed, schema), io::empty()).map_err(Failure::usage)
}

/// The input schema of a tool of the service; `None` if there is no such tool, which the call will report. It decides
/// how `5` is sent, so without an answer nothing is called.
async fn schema_at(service: &Client, tool: &str) -> Result<Value, Failure> {
    let tools = service.list("/tools").await?;
    let found = tools.iter().find(|known| known["name"] == tool || safe_name(known) == tool).or_else(|| {
        // The tool's own name suffices if no other server has a tool with that name.
        let mut own = tools.iter().filter(|known| known["original_name"] == tool);
        own.next().filter(|_| own.next().is_none())
    });
    match found.map(|known| &known["input_schema"]) {
        None => Ok(Value::Null),
        // A schema that our parser cannot represent is passed as text.
        Some(Value::String(text)) => serde_json::from_str(text).map_err(|error| unread_schema(tool, &error)),
        Some(schema) => Ok(schema.clone()),
    }
}

/// Without the schema, `zip=12345` may be a number or a text, and a guess may be wrong.
fn unread_schema(tool: &str, error: &serde_json::Error) -> Failure {
    let failure = Failure::new(format!("the schema of `{tool}` cannot be read: {error}"));
    failure.with_hint("write the arguments as one JSON object, or each as `key:=json` or `key=\"text\"`")
}

/// The safe name.
pub(super) fn safe_name(tool: &Value) -> String {
    let word = |key: &str| tool[key].as_str().unwrap_or_default();
    format!("{}__{}", word("server_name"), word("original_name"))
}

/// The input schema of a tool of a config; `None` if there is no such tool, which the call will report.
fn schema_in(session: &Session, tool: &str) -> Result<Value, Failure> {
    let view = session.fleet().view();
    let Some(route) = view.snapshot.resolve(catalog::Scope::All, Kind::Tool, tool) else { return Ok(Value::Null) };
    let definition = &view.snapshot.item(Kind::Tool, route).definition;
    let whole = Span { start: 0, end: definition.len() };
    let Some(schema) = member(definition, whole, "inputSchema") else { return Ok(Value::Null) };
    serde_json::from_slice(schema.of(definition)).map_err(|error| unread_schema(tool, &error))
}

/// Why the tool does not exist: it is disabled, or the name is misspelled.
async fn missing(service: &Client, tool: &str, refused: Failure) -> Failure {
    // Failures are ignored: that the tool is missing is already known.
    let tools = service.get("/tools").await.ok().unwrap_or_default();
    let tools = tools.as_array().map(Vec::as_slice).unwrap_or_default();
    if tools.iter().any(|known| known["name"] == tool && known["enabled"] == false) {
        let hint = format!("`mcp-aggregator tools on {tool}` enables it");
        return Failure { message: format!("`{tool}` is disabled"), ..refused }.with_hint(hint);
    }
    match meant(tool, tools) {
        Some(hint) => refused.with_hint(hint),
        None => refused,
    }
}

/// Suggestions: tools with a similar name, or all tools of the named server.
fn meant(tool: &str, tools: &[Value]) -> Option<String> {
    let on = tools.iter().filter(|known| known["enabled"] != false);
    let word = |known: &Value, key: &str| printable(known[key].as_str().unwrap_or_default());
    let known: Vec<(Known, String)> = on
        .map(|known| {
            let names = Known { full: word(known, "name"), tool: word(known, "original_name") };
            (names, word(known, "server_name"))
        })
        .collect();
    let server = known.iter().map(|(_, server)| server).find(|server| owners::nearly_fits(tool, server));
    let (names, servers): (Vec<Known>, Vec<String>) = known.iter().cloned().unzip();
    suggestion::question(&suggestion::closest(tool, &names)).or_else(|| {
        let server = server?;
        let of_server = names.iter().zip(&servers).filter(|(_, of)| *of == server);
        let of_server: Vec<&str> = of_server.map(|(known, _)| known.tool.as_str()).collect();
        suggestion::some_of(&of_server).map(|some| format!("`{server}` has {some}; `mcp-aggregator tools` lists all"))
    })
}

/// Starts the server of the tool.
fn by_config(arguments: &CallArguments, config: &Path) -> Result<(), Failure> {
    let CallArguments { separator, tool, arguments: typed, .. } = arguments;
    let separator = &separator.separator;
    let options =
        session::options("mcp-aggregator", separator.clone(), NamePolicy::Canonical, session::NO_CAPABILITIES)?;
    let mut loaded = config::load(config)?;
    keep_only_needed(&mut loaded, tool, separator)?;
    let input = tool_arguments::read(typed, io::stdin().lock()).map_err(Failure::usage)?;

    let data_dir = arguments.target.storage.data_dir.as_deref();
    let answer = session::with_sign_ins(loaded, options, data_dir, async |session| {
        session.all_decided().await?;
        look_up(session, tool, config)?;
        let input = match tool_arguments::are_guessed(typed) {
            true => fitted(typed, &schema_in(session, tool)?)?,
            false => input,
        };
        call(session, tool, input).await
    })?;
    show(&answer, arguments)
}

/// Keeps only servers that may have the tool. If none may, all stay, for suggestions.
pub(super) fn keep_only_needed(loaded: &mut Loaded, tool: &str, separator: &Separator) -> Result<(), Failure> {
    let config = &mut loaded.config;
    let exactly = |server: &ServerName| owners::fits(tool, server.as_str(), separator);
    let nearly = |server: &ServerName| owners::nearly_fits(tool, server.as_str());
    for fits in [&exactly as &dyn Fn(&ServerName) -> bool, &nearly] {
        if config.servers.iter().any(|spec| fits(&spec.name)) {
            config.servers.retain(|spec| fits(&spec.name));
            return Ok(());
        }
        if let Some(server) = config.disabled.iter().find(|server| fits(server)) {
            let failure = Failure::new(format!("server `{server}` is disabled in the config"));
            return Err(failure.with_hint("remove `\"disabled\": true` from it"));
        }
    }
    Ok(())
}

/// Whether the tool exists now; if not, the reason and suggestions.
fn look_up(session: &Session, tool: &str, config: &Path) -> Result<(), Failure> {
    let view = session.fleet().view();
    if view.snapshot.resolve(catalog::Scope::All, catalog::Kind::Tool, tool).is_some() {
        return Ok(());
    }
    let is_meant =
        |server: &&ServerEntry| owners::fits(tool, server.name.as_str(), &session.aggregator.options.separator);
    let mut servers = view.snapshot.servers().iter().filter(is_meant);
    if let Some((server, why)) = servers.find_map(|server| Some((server, server.state.failure()?))) {
        if matches!(&server.state, ServerState::Unavailable(unavailable) if unavailable.status == SIGN_IN_REQUIRED) {
            let failure = Failure::new(sign_in_sentence(server.name.as_str(), Some(why))).of_kind("SIGN_IN_REQUIRED");
            return Err(failure.of_call(SIGN_IN_REQUIRED, true));
        }
        let failure = Failure::new(format!("could not call `{tool}`: server `{}` is down: {why}", server.name));
        let hint =
            format!("`mcp-aggregator check --start --config {}` shows the status of each server", config.display());
        return Err(failure.with_hint(hint));
    }
    let snapshot = &view.snapshot;
    let known = |route| Known {
        full: snapshot.listed_name(Kind::Tool, route, NameStyle::Canonical),
        tool: snapshot.item(Kind::Tool, route).id.to_string(),
    };
    let known: Vec<Known> = snapshot.listed(Kind::Tool, NameStyle::Canonical).map(known).collect();
    let hint = suggestion::question(&suggestion::closest(tool, &known))
        .unwrap_or_else(|| format!("`mcp-aggregator tools --config {}` lists all tools", config.display()));
    Err(Failure::new(format!("there is no tool `{tool}`")).with_hint(hint))
}

/// Calls the tool; Ctrl-C cancels the call.
async fn call(session: &mut Session, tool: &str, input: Vec<u8>) -> Result<Answer, Failure> {
    let mut params = vec![("name", reply::string(tool)), ("arguments", input)];
    if io::stderr().is_terminal() {
        params.push(("_meta", reply::object([("progressToken", PROGRESS_TOKEN.to_vec())])));
    }
    let params = reply::object(params);
    let mut conversation = InProcessClient::new(&session.aggregator)?;
    let show_progress = |message: &[u8]| {
        if let Some(progress) = result_text::progress(message) {
            output::print_message(progress);
        }
    };
    let asking = conversation.ask("tools/call", Some(&params), show_progress);
    let what = format!("calling `{tool}`");
    let asking = progress::with_spinner(&what, asking);
    match session.unless_interrupted(asking).await {
        Ok(answer) => answer,
        Err(interrupted) => {
            conversation.cancel("interrupted by the user");
            Err(interrupted)
        }
    }
}

/// Prints the result to stdout, or an error to stderr, with the exit status that says who failed.
fn show(answer: &Answer, arguments: &CallArguments) -> Result<(), Failure> {
    let CallArguments { tool, json, .. } = arguments;
    match answer.bytes() {
        Ok(result) => show_result(result, arguments).map_err(called),
        Err(error) => {
            let words =
                if *json { format!("\n{}", String::from_utf8_lossy(error)) } else { result_text::refusal(error) };
            let words = for_terminal(&words, io::stderr().is_terminal() && !arguments.raw);
            let failure = Failure::new(format!("`{tool}` failed: {words}"));
            // In the format of REST.
            let own = result_text::member_tree(error, "data");
            let (reason, safe) = (&own["reason"], &own["safeToRetry"]);
            let reason = reason.as_str().unwrap_or("server_error").to_owned();
            let is_safe = *safe == true;
            let failure = match reason.as_str() {
                TOO_SLOW => failure.with_hint("raise the `timeout` (milliseconds) of the server in the config"),
                _ => failure,
            };
            let data = json!({ "error": result_text::tree(error) });
            let failure = Failure { data: Some(Box::new(data)), ..failure.of_kind("EXECUTION_FAILED") };
            Err(failure.of_call(&reason, is_safe))
        }
    }
}

fn show_result(result: &[u8], arguments: &CallArguments) -> Result<(), Failure> {
    let CallArguments { tool, json, raw, .. } = arguments;
    let failed = result_text::is_error(result);
    let is_terminal = io::stdout().is_terminal() && !raw;
    if *json && is_terminal {
        output::print(format!("{}\n", escape::json(&String::from_utf8_lossy(result))).as_bytes())?;
    } else if *json {
        output::print(&[result, b"\n"].concat())?;
    } else if !failed && is_terminal {
        output::print(for_terminal(&String::from_utf8_lossy(&result_text::plain(result)), true).as_bytes())?;
    } else if !failed {
        output::print(&result_text::plain(result))?;
    }
    if !failed {
        return Ok(());
    }
    let words = if *json { Vec::new() } else { result_text::plain(result) };
    let words = for_terminal(&String::from_utf8_lossy(&words), io::stderr().is_terminal() && !raw);
    let message = format!("`{tool}` reported an error\n{words}");
    Err(Failure { code: exit::TOOL_FAILED, ..Failure::new(message.trim_end()) })
}

/// The output of a tool is untrusted: it is escaped on a terminal.
fn for_terminal(words: &str, is_terminal: bool) -> String {
    if is_terminal { escape::multi_line(words).into_owned() } else { words.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_gets_a_suggestion_and_an_unknown_tool_the_list_of_its_server() {
        let tool = |server: &str, tool: &str| json!({"name": format!("{server}.{tool}"), "original_name": tool, "server_name": server});
        let mut off = tool("calc", "stats");
        off["enabled"] = json!(false);
        let tools = [tool("calc", "statistics"), tool("calc", "evaluate"), tool("notes", "write"), off];
        let hint = |typed: &str| meant(typed, &tools);
        assert_eq!(hint("calc.statistic").unwrap(), "did you mean `calc.statistics`?");
        assert_eq!(hint("evaluate").unwrap(), "did you mean `calc.evaluate`?");
        assert_eq!(
            hint("calc.frobnicate_all").unwrap(),
            "`calc` has `statistics`, `evaluate`; `mcp-aggregator tools` lists all"
        );
        assert_eq!(hint("nobody.frobnicate_all"), None);
    }
}
