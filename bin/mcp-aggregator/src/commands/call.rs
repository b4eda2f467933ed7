//! `call`: one tool, called by hand.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::Duration;

use aggregator::load::Loaded;
use aggregator::{NamePolicy, NameStyle, Separator, ServerState};
use bytes::Bytes;
use catalog::{Kind, ServerName};
use http::Method;
use protocol::reply;
use serde_json::Value;

use crate::arguments::CallArguments;
use crate::client::Client;
use crate::conversation::{Answer, Conversation};
use crate::failure::Failure;
use crate::session::{self, Session};
use crate::suggestion::{self, Known};
use crate::table::{harmless, printable};
use crate::{answer, config, exit, output, owners, progress, refusal, tool_arguments, words};

/// The token progress is reported under. One call, one token.
const PROGRESS_TOKEN: &[u8] = b"1";
/// Which way calls come to the service from here.
const SOURCE: &str = "cli";
/// As long as the service may let a call take.
const LONGEST_CALL: Duration = Duration::from_secs(86_500);

pub(crate) fn run(arguments: &CallArguments) -> Result<(), Failure> {
    words::tell(arguments.debug);
    match &arguments.config {
        Some(config) => by_config(arguments, config),
        None => by_service(arguments),
    }
}

/// The running service calls it.
fn by_service(arguments: &CallArguments) -> Result<(), Failure> {
    let CallArguments { target, tool, arguments: typed, json, timeout, .. } = arguments;
    let input = tool_arguments::read(typed, io::stdin().lock()).map_err(Failure::usage)?;
    let mut call = vec![("name", reply::string(tool)), ("arguments", input), ("source", reply::string(SOURCE))];
    call.extend(timeout.map(|seconds| ("timeout_ms", (seconds * 1000).to_string().into_bytes())));
    let body = Bytes::from(reply::object(call));
    let result = session::block_on(async {
        let service = target.service().await?;
        let calling = service.send(Method::POST, "/execute", body, LONGEST_CALL);
        let answer = progress::shown(&format!("calling `{}`", printable(tool)), calling).await?;
        if answer.status.is_success() {
            return Ok(answer.body);
        }
        let failure = refusal::told(service.url(), answer.status, &answer.body);
        match failure.kind.as_deref() {
            Some("TOOL_NOT_FOUND") => Err(missing(&service, tool, failure).await),
            _ => Err(failure),
        }
    })?;
    show_result(&result, tool, *json)
}

/// Why there is no such tool: it is switched off, or another was meant.
async fn missing(service: &Client, tool: &str, failure: Failure) -> Failure {
    let tools = service.get("/tools").await.ok().unwrap_or_default();
    let tools = tools.as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |tool: &Value, key: &str| tool[key].as_str().unwrap_or_default().to_owned();
    let (on, off): (Vec<&Value>, Vec<&Value>) = tools.iter().partition(|known| known["enabled"] != false);
    if off.iter().any(|known| known["name"] == tool) {
        let hint = format!("{}/tools switches it on, in a browser", service.url());
        return Failure { message: format!("`{tool}` is switched off"), ..failure }.with_hint(hint);
    }
    let known = |tool: &&Value| Known { full: text(tool, "name"), tool: text(tool, "original_name") };
    let known: Vec<Known> = on.iter().map(known).collect();
    match suggestion::question(&suggestion::closest(tool, &known)) {
        Some(question) => failure.with_hint(question),
        None => failure,
    }
}

/// The server that has it is started for it.
fn by_config(arguments: &CallArguments, config: &Path) -> Result<(), Failure> {
    let CallArguments { separator, tool, arguments: typed, json, .. } = arguments;
    let separator = &separator.separator;
    let options = session::options("mcp-aggregator", separator.clone(), NamePolicy::Canonical, session::NOTHING)?;
    let mut loaded = config::load(config)?;
    keep_only_needed(&mut loaded, tool, separator)?;
    let input = tool_arguments::read(typed, io::stdin().lock()).map_err(Failure::usage)?;

    let answer = session::with(loaded, options, async |session| {
        session.all_decided().await?;
        look_up(session, tool, config)?;
        call(session, tool, input).await
    })?;
    show(&answer, tool, *json)
}

/// Leaves only the servers that could have the tool. If none could, all stay, to find out which name was meant.
fn keep_only_needed(loaded: &mut Loaded, tool: &str, separator: &Separator) -> Result<(), Failure> {
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
        tool: snapshot.item(Kind::Tool, route).id.clone(),
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
    let mut conversation = Conversation::new(&session.aggregator)?;
    let show_progress = |message: &[u8]| {
        if let Some(progress) = answer::progress(message) {
            output::say(progress);
        }
    };
    let asking = conversation.ask("tools/call", Some(&params), show_progress);
    match session.unless_interrupted(asking).await {
        Ok(answer) => answer,
        Err(interrupted) => {
            conversation.cancel("interrupted by the user");
            Err(interrupted)
        }
    }
}

/// Data to stdout; a failure to stderr, with the exit status that tells whose it is.
fn show(answer: &Answer, tool: &str, json: bool) -> Result<(), Failure> {
    match answer.bytes() {
        Ok(result) => show_result(result, tool, json),
        Err(error) => {
            let words = if json { format!("\n{}", String::from_utf8_lossy(error)) } else { answer::refusal(error) };
            let failure = Failure::new(format!("`{tool}` was answered with an error: {words}"));
            Err(Failure { data: serde_json::from_slice(error).ok(), ..failure })
        }
    }
}

fn show_result(result: &[u8], tool: &str, json: bool) -> Result<(), Failure> {
    let failed = answer::is_error(result);
    if json {
        output::print(&[result, b"\n"].concat())?;
    } else if !failed {
        let plain = answer::plain(result);
        // What a tool says may be meant to steer the terminal. To a program it goes as it is.
        let is_seen = io::stdout().is_terminal();
        output::print(&if is_seen { harmless(&String::from_utf8_lossy(&plain)).into_bytes() } else { plain })?;
    }
    if !failed {
        return Ok(());
    }
    let words = if json { Vec::new() } else { answer::plain(result) };
    let words = String::from_utf8_lossy(&words);
    let message = format!("`{tool}` says that it failed\n{words}");
    Err(Failure { code: exit::TOOL_FAILED, ..Failure::new(message.trim_end()) })
}
