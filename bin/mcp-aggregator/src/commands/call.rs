//! `call`: one tool, called by hand.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Duration;

use aggregator::load::Loaded;
use aggregator::{NamePolicy, NameStyle, Separator, ServerState};
use bytes::Bytes;
use catalog::{Kind, ServerName};
use http::Method;
use protocol::scan::{Span, member};
use protocol::{escape, reply};
use serde_json::{Value, json};

use crate::arguments::tools::CallArguments;
use crate::client::{Client, RequestError};
use crate::failure::Failure;
use crate::in_process_client::{Answer, InProcessClient};
use crate::session::{self, Session};
use crate::suggestion::{self, Known};
use crate::table::printable;
use crate::{api_error, config, exit, output, owners, progress, result_text, stderr_log, tool_arguments};

/// The token progress is reported under. One call, one token.
const PROGRESS_TOKEN: &[u8] = b"1";
/// Which way calls come to the service from here.
const SOURCE: &str = "cli";
/// Why a server that has a limit of its own gave no answer.
const TOO_SLOW: &str = "server_too_slow";
/// As long as the service may let a call take.
const MAX_CALL_DURATION: Duration = Duration::from_secs(86_500);

pub(crate) fn run(arguments: &CallArguments) -> Result<(), Failure> {
    stderr_log::init(arguments.debug);
    let called = match &arguments.config {
        Some(config) => by_config(arguments, config),
        None => by_service(arguments),
    };
    called.map_err(explained)
}

/// Whoever calls from a script learns whether it may call again. Where nobody said so, no server has seen the call.
fn explained(failure: Failure) -> Failure {
    let reason = match failure.code {
        exit::USAGE => "usage".to_owned(),
        exit::INTERRUPTED => "interrupted".to_owned(),
        _ => failure.kind.as_deref().unwrap_or("not_called").to_ascii_lowercase(),
    };
    let may_have_run = failure.code == exit::INTERRUPTED;
    failure.of_call(&reason, !may_have_run)
}

/// The service was sent the call, or not.
fn unanswered(denial: RequestError) -> Failure {
    match denial {
        RequestError::Absent(failure) => failure.of_call("service_unreachable", true),
        RequestError::Lost(failure) | RequestError::Other(failure) => failure.of_call("answer_lost", false),
    }
}

/// The running service calls it.
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
        // Only what the service refuses is known not to have reached a server; a proxy before it may have given up.
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

/// It was called, whatever went wrong then.
fn called(failure: Failure) -> Failure {
    let reason = if failure.code == exit::TOOL_FAILED { "tool_error" } else { "result_not_shown" };
    failure.of_call(reason, false)
}

/// The arguments as the tool wants them.
fn fitted(typed: &[String], schema: &Value) -> Result<Vec<u8>, Failure> {
    tool_arguments::read(&tool_arguments::fitted(typed, schema), io::empty()).map_err(Failure::usage)
}

/// What a tool of a service takes; nothing if there is no such tool, as the call will say. It decides what is meant by `5`,
/// so without an answer nothing is called.
async fn schema_at(service: &Client, tool: &str) -> Result<Value, Failure> {
    let tools = service.list("/tools").await?;
    let found = tools.iter().find(|known| known["name"] == tool || safe_name(known) == tool).or_else(|| {
        // Its own name will do where nobody else has it.
        let mut own = tools.iter().filter(|known| known["original_name"] == tool);
        own.next().filter(|_| own.next().is_none())
    });
    match found.map(|known| &known["input_schema"]) {
        None => Ok(Value::Null),
        // What no tree can hold comes as the text that its server wrote.
        Some(Value::String(text)) => serde_json::from_str(text).map_err(|error| unread_schema(tool, &error)),
        Some(schema) => Ok(schema.clone()),
    }
}

/// Without the schema nobody knows whether `zip=12345` is a number or a text, and a guess might be wrong.
fn unread_schema(tool: &str, error: &serde_json::Error) -> Failure {
    let failure = Failure::new(format!("the schema of `{tool}` cannot be read: {error}"));
    failure.with_hint("write the arguments as one JSON object, or each as `key:=json` or `key=\"text\"`")
}

/// As clients call it that refuse dots.
pub(super) fn safe_name(tool: &Value) -> String {
    let word = |key: &str| tool[key].as_str().unwrap_or_default();
    format!("{}__{}", word("server_name"), word("original_name"))
}

/// What a tool of a config takes; nothing if there is no such tool, as the call will say.
fn schema_in(session: &Session, tool: &str) -> Result<Value, Failure> {
    let view = session.fleet().view();
    let Some(route) = view.snapshot.resolve(catalog::Scope::All, Kind::Tool, tool) else { return Ok(Value::Null) };
    let definition = &view.snapshot.item(Kind::Tool, route).definition;
    let whole = Span { start: 0, end: definition.len() };
    let Some(schema) = member(definition, whole, "inputSchema") else { return Ok(Value::Null) };
    serde_json::from_slice(schema.of(definition)).map_err(|error| unread_schema(tool, &error))
}

/// Why there is no such tool, as far as that can be found out: it is switched off, or another one was meant.
async fn missing(service: &Client, tool: &str, refused: Failure) -> Failure {
    // What cannot be asked is left out: that the tool is missing is known already.
    let tools = service.get("/tools").await.ok().unwrap_or_default();
    let tools = tools.as_array().map(Vec::as_slice).unwrap_or_default();
    if tools.iter().any(|known| known["name"] == tool && known["enabled"] == false) {
        let hint = format!("`mcp-aggregator tools on {tool}` switches it on");
        return Failure { message: format!("`{tool}` is switched off"), ..refused }.with_hint(hint);
    }
    match meant(tool, tools) {
        Some(hint) => refused.with_hint(hint),
        None => refused,
    }
}

/// Which tools may be meant: those of a similar name, or all of the server if it is named.
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

/// The server that has it is started for it.
fn by_config(arguments: &CallArguments, config: &Path) -> Result<(), Failure> {
    let CallArguments { separator, tool, arguments: typed, .. } = arguments;
    let separator = &separator.separator;
    let options = session::options("mcp-aggregator", separator.clone(), NamePolicy::Canonical, session::NOTHING)?;
    let mut loaded = config::load(config)?;
    keep_only_needed(&mut loaded, tool, separator)?;
    let input = tool_arguments::read(typed, io::stdin().lock()).map_err(Failure::usage)?;

    let answer = session::with(loaded, options, async |session| {
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

/// Leaves only the servers that could have the tool. If none could, all stay, to find out which name was meant.
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

/// Whether there is such a tool now; if not, why, and what may have been meant.
fn look_up(session: &Session, tool: &str, config: &Path) -> Result<(), Failure> {
    let view = session.fleet().view();
    if view.snapshot.resolve(catalog::Scope::All, catalog::Kind::Tool, tool).is_some() {
        return Ok(());
    }
    let down = view.snapshot.servers().iter().find_map(|server| match &server.state {
        ServerState::Failed(how) if owners::fits(tool, server.name.as_str(), &session.aggregator.options.separator) => {
            Some(Failure::new(format!("could not call `{tool}`: server `{}` is down: {how}", server.name)))
        }
        _ => None,
    });
    if let Some(failure) = down {
        let hint =
            format!("`mcp-aggregator check --start --config {}` shows how each server is doing", config.display());
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

/// Calls the tool; Ctrl-C cancels it.
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

/// Data to stdout; a failure to stderr, with the exit status that tells whose it is.
fn show(answer: &Answer, arguments: &CallArguments) -> Result<(), Failure> {
    let CallArguments { tool, json, .. } = arguments;
    match answer.bytes() {
        Ok(result) => show_result(result, arguments).map_err(called),
        Err(error) => {
            let words =
                if *json { format!("\n{}", String::from_utf8_lossy(error)) } else { result_text::refusal(error) };
            let words = for_terminal(&words, io::stderr().is_terminal() && !arguments.raw);
            let failure = Failure::new(format!("`{tool}` was answered with an error: {words}"));
            // As REST tells it.
            let told: Value = serde_json::from_slice(error).unwrap_or_default();
            let (reason, safe) = (&told["data"]["reason"], &told["data"]["safeToRetry"]);
            let reason = reason.as_str().unwrap_or("server_error").to_owned();
            let is_safe = *safe == true;
            let failure = match reason.as_str() {
                TOO_SLOW => failure.with_hint("raise the `timeout` (milliseconds) of the server in the config"),
                _ => failure,
            };
            let data = json!({ "error": told });
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
    let message = format!("`{tool}` says that it failed\n{words}");
    Err(Failure { code: exit::TOOL_FAILED, ..Failure::new(message.trim_end()) })
}

/// What a tool says is a stranger's: it does not steer the terminal of who reads it.
fn for_terminal(words: &str, is_terminal: bool) -> String {
    if is_terminal { escape::multi_line(words).into_owned() } else { words.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_asked_about_and_a_server_that_has_no_such_tool_is_reported_with_those_it_has() {
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
