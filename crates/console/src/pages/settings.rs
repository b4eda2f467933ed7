//! Settings, tokens, export and import.

mod backup;

use executions::Error as CallError;
use http::StatusCode;
use serde_json::{Map, Value, json};
use service::{Error, SETTING_RANGES, Settings};

use crate::html::{Html, html};
use crate::layout::Page;
use crate::pages::error_text;
use crate::request::PageRequest;
use crate::response::PageResponse;
pub(crate) use backup::{export, import};

/// The names and descriptions of numeric settings.
const NUMBERS: &[(&str, &str, &str)] = &[
    (
        "timeout_ms",
        "Timeout",
        "milliseconds for a call from REST, the command line, a document or an assistant, including time in the queue",
    ),
    ("mcp_timeout_ms", "Timeout of clients", "milliseconds for a call of an MCP client; empty means no limit"),
    ("concurrent_limit", "Concurrent calls", "from REST, the command line, documents and assistants"),
    ("mcp_concurrent_limit", "Concurrent calls of clients", "of MCP clients; -1 means no limit"),
    ("queue_limit", "Queued calls", "that may wait in the queue"),
    ("session_limit", "Calls in a session", "of a document or an assistant; -1 means no limit"),
    ("health_check_interval_s", "Health checks", "seconds between them"),
    ("health_check_timeout_ms", "Health check timeout", "milliseconds"),
    ("failure_threshold", "Connection retries", "after the first failed attempt; then the server is disabled"),
    ("idle_timeout_s", "Idle timeout of lazy servers", "seconds until they are stopped"),
    ("keep_executions_days", "Retention of executions", "days"),
    ("keep_executions", "Stored executions", "at most"),
    ("keep_audit_days", "Retention of the audit log", "days"),
    ("keep_audit", "Entries of the audit log", "at most"),
    ("keep_history_days", "Retention of server histories", "days"),
    ("keep_history", "Events in a server's history", "at most, for each server"),
    ("server_handshake_kb", "Handshake of a server", "kB of its response, including instructions"),
    ("server_instructions_kb", "Instructions of a server", "kB"),
    ("all_instructions_kb", "Instructions of all servers", "kB; every client gets them"),
    ("server_list_pages", "Pages of a list", "of one server"),
    ("server_catalog_kb", "Lists of a server", "kB of tools, prompts, resources and templates"),
    ("all_catalogs_kb", "Lists of all servers", "kB"),
    ("server_notification_kb", "A notification of a server", "kB; larger ones are dropped"),
    ("server_requests_kb", "Requests of a server", "kB that wait for a client's answer"),
    ("server_message_kb", "A message of a server", "kB, including results of calls"),
    ("server_undelivered_kb", "Undelivered messages of a server", "kB of large ones"),
    ("all_undelivered_kb", "Undelivered messages of all servers", "kB of large ones"),
];

/// The page.
pub(crate) async fn show(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    Ok(page(request, None, None))
}

/// The page; after an error with the input and the problem.
fn page(request: &PageRequest<'_>, problem: Option<&Problem>, refused: Option<&str>) -> PageResponse {
    let settings = request.service().settings();
    let body = html!(
        r#"<h1>Settings</h1><div class="columns"><section aria-labelledby="limits"><h2 id="limits">Limits and times</h2>{form}</section>
<div><section aria-labelledby="tokens"><h2 id="tokens">Tokens</h2>{tokens}</section>
<section aria-labelledby="backup"><h2 id="backup">Export and import</h2>{backup}</section></div></div>"#,
        form = form(request, &settings, problem),
        tokens = tokens(request),
        backup = backup::section(request, refused),
    );
    let status = if problem.is_some() || refused.is_some() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    PageResponse::Page(status, Page { title: "Settings".into(), place: "/settings", body, script: None })
}

/// A problem of the input, and its field.
struct Problem {
    field: String,
    why: String,
}

fn form(request: &PageRequest<'_>, settings: &Settings, problem: Option<&Problem>) -> Html {
    // The input stays until it is saved.
    let typed = |name: &str| problem.and(request.form.get(name)).map(str::to_owned);
    let sign = |name: &str| {
        let is_it = problem.is_some_and(|problem| problem.field == name);
        is_it.then(|| html!(r#" aria-invalid="true" aria-describedby="problem" autofocus"#))
    };
    let now = json!(settings);
    let defaults = json!(Settings::default());
    let fields: Html = NUMBERS
        .iter()
        .map(|(name, title, about)| {
            let value = typed(name).or_else(|| now[*name].as_i64().map(|number| number.to_string()));
            let default = defaults[*name].as_i64().map_or_else(|| "none".to_owned(), |number| number.to_string());
            let range = SETTING_RANGES.iter().find(|(known, ..)| known == name);
            let least = range.map(|(_, least, _, may_be_unlimited)| if *may_be_unlimited { -1 } else { *least });
            html!(
                r#"<div class="field"><label for="{name}">{title} <span class="hint">{about}; {default} by default</span></label><input type="number" id="{name}" name="{name}" value="{value:#}" min="{least}" max="{most}"{sign}></div>"#,
                name = *name,
                sign = sign(name),
                title = *title,
                about = *about,
                default = default,
                value = value,
                least = least,
                most = range.map(|(_, _, most, _)| *most),
            )
        })
        .collect();
    let pauses: Vec<String> = settings.retry_backoff_ms.iter().map(u64::to_string).collect();
    let learns = if problem.is_some() { request.form.has("learn_from_use") } else { settings.learn_from_use };
    let keeps = if problem.is_some() { request.form.has("store_payloads") } else { settings.store_payloads };
    html!(
        r#"<form class="card" method="post" action="/settings">{csrf}<input type="hidden" name="was" value="{was:#}">{problem}{fields}
<div class="field"><label for="retry_backoff_ms">Delays between attempts <span class="hint">milliseconds, separated by commas; empty for the default</span></label><input id="retry_backoff_ms" name="retry_backoff_ms" value="{pauses:#}"{pauses_sign}></div>
<div class="field"><label for="pinned_tools">Pinned tools <span class="hint">full names, one per line: always listed, even for clients that otherwise see only the search tools</span></label><textarea id="pinned_tools" name="pinned_tools" rows="3">{pinned:#}</textarea></div>
<div class="field"><label class="check"><input type="checkbox" name="store_payloads"{payloads}> Store arguments and results with executions</label></div>
<div class="field"><label class="check"><input type="checkbox" name="learn_from_use"{learns}> Learn from use: what clients call after a search is found sooner <span class="hint">turning it off deletes what was counted</span></label></div>
<button>Save</button></form>"#,
        csrf = request.csrf(),
        problem = problem.map(|problem| html!(r#"<p class="flash bad" role="alert" id="problem">{}</p>"#, problem.why)),
        fields = fields,
        was = typed("was").unwrap_or_else(|| now.to_string()),
        pauses = typed("retry_backoff_ms").unwrap_or_else(|| pauses.join(", ")),
        pauses_sign = sign("retry_backoff_ms"),
        pinned = typed("pinned_tools").unwrap_or_else(|| settings.pinned_tools.join("\n")),
        payloads = keeps.then(|| html!(" checked")),
        learns = learns.then(|| html!(" checked")),
    )
}

fn tokens(request: &PageRequest<'_>) -> Html {
    let dependencies = &request.console.dependencies;
    let names = (dependencies.token_names)();
    if names.is_empty() {
        return html!(
            r#"<div class="card"><p>No tokens are configured: only connections of the user that runs this service, and of root, are accepted.</p><p class="muted">To accept others, create a token and start the service with it:</p><pre class="block">echo "laptop:$(openssl rand -hex 32)" &gt; tokens
chmod 600 tokens
mcp-aggregator serve --token-file tokens</pre></div>"#
        );
    }
    let names: Html = names
        .iter()
        .map(|name| {
            let is_own = request.visitor.principal.as_ref().is_some_and(|principal| principal.id() == name);
            html!("<li><code>{}</code>{}</li>", name, is_own.then(|| html!(r#" <span class="tag">you</span>"#)))
        })
        .collect();
    html!(
        r#"<div class="card"><p>Tokens that are accepted, by name.</p><ul>{}</ul><p class="muted">To change them, edit the token file; the service reads it again when it changes.</p></div>"#,
        names
    )
}

/// Changes settings.
pub(crate) async fn change(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    Ok(match changes(request) {
        Err(problem) => page(request, Some(&problem), None),
        Ok(changes) => match request.service().change_settings(&request.actor, Value::Object(changes)).await {
            Ok(settings) => request.done(saved(request, &settings).await, "/settings"),
            Err(error) => page(request, Some(&refused(&error)), None),
        },
    })
}

/// The refusal of the service, in terms of the form.
fn refused(error: &Error) -> Problem {
    let field = match error {
        Error::Validation { problems } => problems.first().and_then(|problem| problem.loc.last()).cloned(),
        _ => None,
    };
    let field = field.unwrap_or_default();
    let lists = [("retry_backoff_ms", "Delays between attempts"), ("pinned_tools", "Pinned tools")];
    let titles = NUMBERS.iter().map(|(name, title, _)| (*name, *title)).chain(lists);
    let title = titles.into_iter().find(|(name, _)| *name == field).map(|(_, title)| title);
    let why = match (title, error) {
        (Some(title), Error::Validation { problems }) => {
            let said = problems.first().map(|problem| problem.msg.as_str()).unwrap_or_default();
            let said = said.strip_prefix(&format!("`{field}` is ")).unwrap_or(said);
            format!("{title}: {said}")
        }
        _ => error_text(error),
    };
    Problem { why, field }
}

/// The success message, and pinned tools that no server has: their server may be added later, or the name is
/// misspelled.
async fn saved(request: &PageRequest<'_>, settings: &Settings) -> String {
    let mut unknown = Vec::new();
    for name in &settings.pinned_tools {
        if let Err(Error::Call(CallError::ToolNotFound { .. })) = request.service().tool_by_any_name(name).await {
            unknown.push(name.as_str());
        }
    }
    let saved = "Saved. The changes are in effect.";
    match unknown.is_empty() {
        true => saved.to_owned(),
        false => format!("{saved}\nPinned, but unknown to all servers: {}", unknown.join(", ")),
    }
}

/// The changes relative to what the form showed, because others may have changed the rest in the meantime. An empty
/// field resets a setting.
fn changes(request: &PageRequest<'_>) -> Result<Map<String, Value>, Problem> {
    let shown = request.form.get("was").and_then(|was| serde_json::from_str::<Value>(was).ok());
    let shown = shown.unwrap_or_else(|| json!(request.service().settings()));
    let mut all = Map::new();
    for (name, title, _) in NUMBERS {
        let Some(text) = request.form.get(name) else { continue };
        let value = match text.trim() {
            "" => Value::Null,
            text => json!(text.parse::<i64>().map_err(|_| Problem {
                field: (*name).to_owned(),
                why: format!("{title}: `{text}` is not a whole number"),
            })?),
        };
        all.insert((*name).to_owned(), value);
    }
    if let Some(text) = request.form.get("retry_backoff_ms") {
        let number = |part: &str| {
            part.parse::<u64>().map_err(|_| Problem {
                field: "retry_backoff_ms".to_owned(),
                why: format!("Delays between attempts: `{part}` is not a whole number"),
            })
        };
        let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
        let numbers = parts.map(number).collect::<Result<Vec<u64>, _>>()?;
        let pauses = if numbers.is_empty() { Value::Null } else { json!(numbers) };
        all.insert("retry_backoff_ms".to_owned(), pauses);
    }
    if let Some(text) = request.form.get("pinned_tools") {
        let names: Vec<&str> = text.lines().map(str::trim).filter(|name| !name.is_empty()).collect();
        all.insert("pinned_tools".to_owned(), json!(names));
    }
    for name in ["store_payloads", "learn_from_use"] {
        all.insert(name.to_owned(), json!(request.form.has(name)));
    }
    all.retain(|name, value| shown[name.as_str()] != *value);
    Ok(all)
}
