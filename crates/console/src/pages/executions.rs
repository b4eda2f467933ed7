//! Executions: every call as it happens, its outcome, and its cancellation.

mod export;

use executions::{Error as CallError, MAX_PAYLOAD_BYTES, with_local_times};
use registry::{
    ExecutionFilter, ExecutionId, ExecutionRecord, ExecutionStatus, Page as Part, RawJson, Source, Timestamp,
};
use service::{Error, Problem};

use crate::display;
use crate::form;
use crate::html::{Html, html};
use crate::layout::Page;
use crate::pages::overview::clip;
use crate::pages::{Confirmation, ask, error_text, is_confirmed, options, pager, pretty, server_link, tool_path};
use crate::request::PageRequest;
use crate::response::PageResponse;

pub(crate) use export::{export_csv, export_json};

/// Calls per page.
const PAGE: u32 = 50;
/// How many tools are suggested.
const MAX_SUGGESTED: u32 = 500;
/// How many alternatives are listed if nothing matches.
const MAX_ALTERNATIVES: usize = 10;
/// How much of arguments and results is shown.
const MAX_SHOWN_CHARS: usize = 20_000;
/// The confirmation before all calls are stopped.
const STOP_ALL: &str = "Cancel all calls and refuse new ones until you allow them again?";

/// The filters of the query.
#[derive(Clone, Copy)]
struct ExecutionQuery<'v> {
    status: &'v str,
    source: &'v str,
    server: &'v str,
    tool: &'v str,
    from: &'v str,
    to: &'v str,
    offset: u64,
}

impl<'v> ExecutionQuery<'v> {
    fn of(request: &'v PageRequest<'_>) -> Self {
        let value = |name: &str| request.query.value_of(name).unwrap_or_default();
        let offset = value("offset").parse().unwrap_or(0);
        Self {
            status: value("status"),
            source: value("source"),
            server: value("server"),
            tool: value("tool"),
            from: value("from"),
            to: value("to"),
            offset,
        }
    }

    /// Refuses an invalid filter: ignoring it would show other calls than requested.
    fn filter(&self) -> Result<ExecutionFilter, Error> {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Ok(ExecutionFilter {
            status: read("status", self.status, |word| word.parse().ok())?.into_iter().collect(),
            source: read("source", self.source, |word| word.parse().ok())?,
            server_name: text(self.server),
            tool_name: text(self.tool),
            since: read("from", self.from, Timestamp::from_local)?,
            until: read("to", self.to, Timestamp::from_local)?,
            ..ExecutionFilter::default()
        })
    }

    fn address(&self, path: &str, offset: u64) -> String {
        let offset = if offset == 0 { String::new() } else { offset.to_string() };
        let pairs = [
            ("status", self.status),
            ("source", self.source),
            ("server", self.server),
            ("tool", self.tool),
            ("from", self.from),
            ("to", self.to),
            ("offset", &*offset),
        ];
        form::address(path, &pairs)
    }
}

/// Parses a filter, if it is not empty.
fn read<T>(name: &str, value: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, Error> {
    if value.is_empty() {
        return Ok(None);
    }
    let refused = || {
        let msg = format!("invalid filter value `{}`", clip(value, 60));
        Error::Validation { problems: vec![Problem { loc: vec![name.to_owned()], msg, kind: "value_error" }] }
    };
    parse(value).map(Some).ok_or_else(refused)
}

/// The list.
pub(crate) async fn list(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let asked = ExecutionQuery::of(request);
    // A full name selects the tool of that server.
    if asked.server.is_empty()
        && asked.tool.contains(['.', ':', '_', '/'])
        && let Ok(tool) = request.service().tool_by_any_name(asked.tool).await
    {
        let meant = ExecutionQuery { server: &tool.server_name, tool: &tool.original_name, offset: 0, ..asked };
        return Ok(PageResponse::Seen(meant.address("/executions", 0)));
    }
    let listed = request.service().executions(&asked.filter()?, Part { limit: PAGE, offset: asked.offset }).await?;
    let reading = request.service().reading();
    let body = html!(
        r#"<div class="head"><h1>Executions</h1><div class="actions" id="export" data-live="notice"><a class="button quiet small" href="{json}">Export JSON</a><a class="button quiet small" href="{csv}">Export CSV</a>{stop}</div></div>
{filters}<div id="list" data-live="execution."><p class="muted">{running} running, {waiting} waiting · {total}</p>{table}{pager}</div>"#,
        json = asked.address("/executions/export.json", 0),
        csv = asked.address("/executions/export.csv", 0),
        stop = stop_button(request),
        filters = filters(request, &asked).await?,
        running = display::count(reading.running + reading.mcp_running),
        waiting = display::count(reading.queued + reading.mcp_queued),
        total = display::several(listed.total, "call"),
        table = table(request, &asked, &listed.items).await?,
        pager =
            pager(listed.items.len(), asked.offset, PAGE, listed.total, |offset| asked.address("/executions", offset)),
    );
    Ok(PageResponse::page(Page { title: "Executions".into(), place: "/executions", body, script: None }))
}

fn stop_button(request: &PageRequest<'_>) -> Option<Html> {
    if request.service().executions_are_stopped() {
        return None;
    }
    Some(html!(
        r#"<form method="post" action="/executions/stop">{csrf}<button class="danger small" data-confirm="{ask}">Stop all calls</button></form>"#,
        csrf = request.csrf(),
        ask = STOP_ALL,
    ))
}

async fn filters(request: &PageRequest<'_>, asked: &ExecutionQuery<'_>) -> Result<Html, Error> {
    let any = |word: &str| std::iter::once(("", word.to_owned()));
    let statuses = ExecutionStatus::ALL.iter().map(|status| (status.as_str(), status.as_str().to_owned()));
    let sources = Source::ALL.iter().map(|source| (source.as_str(), source.as_str().to_owned()));
    // Executions are kept longer than servers, so a removed one can still be selected.
    let mut servers = crate::pages::server_names(request);
    if !asked.server.is_empty() && !servers.iter().any(|name| name == asked.server) {
        servers.push(asked.server.to_owned());
    }
    let servers = servers.iter().map(|name| (name.as_str(), clip(name, 60)));
    Ok(html!(
        r#"<form class="filters" method="get" action="/executions"><label>State<select name="status" data-submit>{statuses}</select></label>
<label>Source<select name="source" data-submit>{sources}</select></label><label>Server<select name="server" data-submit>{servers}</select></label>
<label>Tool<input name="tool" value="{tool:#}" list="tool-names" autocomplete="off" spellcheck="false"></label><datalist id="tool-names">{tools}</datalist>
<span class="break"></span><label>From<input type="datetime-local" name="from" value="{from:#}"></label><label>To<input type="datetime-local" name="to" value="{to:#}"></label><button class="quiet">Filter</button></form>"#,
        statuses = options(any("any").chain(statuses), asked.status),
        sources = options(any("anywhere").chain(sources), asked.source),
        servers = options(any("any").chain(servers), asked.server),
        tool = asked.tool,
        from = asked.from,
        to = asked.to,
        tools = tool_names(request, asked, "")
            .await?
            .iter()
            .map(|name| html!(r#"<option value="{:#}">"#, name))
            .collect::<Html>(),
    ))
}

/// Distinct names of tools that contain a text.
async fn tool_names(request: &PageRequest<'_>, asked: &ExecutionQuery<'_>, part: &str) -> Result<Vec<String>, Error> {
    let server = Some(asked.server).filter(|server| !server.is_empty());
    let tools = match request.service().tools_page(server, Part::first(MAX_SUGGESTED)).await {
        Err(Error::Call(CallError::ServerNotFound { .. })) => return Ok(Vec::new()),
        page => page?.1.items,
    };
    let part = part.to_lowercase();
    let fitting = tools.into_iter().map(|tool| tool.original_name).filter(|name| name.to_lowercase().contains(&part));
    let mut names: Vec<String> = fitting.collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

/// The message if no call matches: the name of a tool must be complete.
async fn nothing_fits(request: &PageRequest<'_>, asked: &ExecutionQuery<'_>) -> Result<Html, Error> {
    let is_all = [asked.status, asked.source, asked.server, asked.tool, asked.from, asked.to]
        .iter()
        .all(|value| value.is_empty());
    if is_all {
        return Ok(html!(
            r#"<div class="empty"><h3>No calls</h3><p>Calls of clients, of the command line and of the <a href="/playground">playground</a> appear here as they happen.</p></div>"#
        ));
    }
    let others = match asked.tool {
        "" => Vec::new(),
        part => tool_names(request, asked, part)
            .await?
            .into_iter()
            .filter(|name| name != part)
            .take(MAX_ALTERNATIVES)
            .collect(),
    };
    let links: Html = others
        .iter()
        .map(|name| {
            let meant = ExecutionQuery { tool: name, offset: 0, ..*asked };
            html!(r#"<li><a href="{to}">{name}</a></li>"#, to = meant.address("/executions", 0), name = clip(name, 80))
        })
        .collect();
    let list = (!others.is_empty()).then(|| html!(r#"<p>Did you mean</p><ul class="plain">{}</ul>"#, links));
    Ok(html!(
        r#"<div class="empty"><h3>No matching calls</h3>{list}<p><a href="/executions">All calls</a></p></div>"#,
        list = list
    ))
}

async fn table(
    request: &PageRequest<'_>,
    asked: &ExecutionQuery<'_>,
    calls: &[ExecutionRecord],
) -> Result<Html, Error> {
    if calls.is_empty() {
        return nothing_fits(request, asked).await;
    }
    let rows: Html = calls.iter().map(|call| row(request, call)).collect();
    Ok(html!(
        r#"<div class="scroll"><table class="cards calls"><thead><tr><th>Submitted</th><th>Tool</th><th>State</th><th class="n">Duration</th><th>Source</th><td></td></tr></thead><tbody>{}</tbody></table></div>"#,
        rows
    ))
}

fn row(request: &PageRequest<'_>, call: &ExecutionRecord) -> Html {
    let is_open = matches!(call.status, ExecutionStatus::Pending | ExecutionStatus::Executing);
    let path = format!("/executions/{}", call.id);
    let cancel = is_open.then(|| {
        html!(
            r#"<form method="post" action="{path}/cancel">{csrf}<button class="danger small" data-confirm="{ask}">Cancel</button></form>"#,
            path = path,
            csrf = request.csrf(),
            // Rows move while calls arrive, so the confirmation names the call.
            ask = format!("Cancel {}.{}?", clip(&call.server_name, 80), clip(&call.tool_name, 80)),
        )
    });
    html!(
        r#"<tr><td class="nowrap" data-name="Submitted">{when}</td><th scope="row"><a href="{path}" data-drawer>{tool}</a><span class="sub">{server}</span></th>
<td data-name="State">{status}<span class="sub">{why}</span></td><td class="n" data-name="Duration">{took}</td><td data-name="Source">{source}<span class="sub">{client} {caller}</span></td><td>{cancel}</td></tr>"#,
        when = display::clock(call.submitted_at),
        path = path,
        tool = clip(&call.tool_name, 80),
        server = server_link(&call.server_name),
        status = display::execution(call.status),
        why = call.error_message.as_deref().map(|why| clip(&with_local_times(why), 100)),
        took = call.duration.map_or_else(|| "–".to_owned(), display::took),
        source = call.source.as_str(),
        client = call.client.as_deref().map(|client| clip(client, 60)),
        caller = call.caller.as_deref(),
        cancel = cancel,
    )
}

/// One call.
pub(crate) async fn show(request: &PageRequest<'_>, id: &str) -> Result<PageResponse, Error> {
    let call = request.service().execution(understood(id)?).await?;
    let waited = call.started_at.map(|started| started.since(call.submitted_at));
    let fact = |name: &str, value: Option<Html>| {
        value.map(|value| html!("<dt>{name}</dt><dd>{value}</dd>", name = name, value = value))
    };
    let facts: Html = [
        fact("State", Some(display::execution(call.status))),
        fact("Server", Some(server_link(&call.server_name))),
        fact("Submitted", Some(display::exact(call.submitted_at))),
        fact("Queue and routing", waited.map(|span| html!("{}", display::took(span)))),
        fact("On the server", call.duration.map(|span| html!("{}", display::took(span)))),
        fact("Retries", (call.retries > 0).then(|| html!("{}", call.retries))),
        fact("Source", Some(html!("{} {}", call.source.as_str(), call.caller))),
        fact("Client", call.client.as_deref().map(|client| html!("{}", client))),
        fact("Document", call.document_path.as_ref().map(|path| html!("{} line {}", path, call.section_line))),
        fact("Request", call.request_bytes.map(|bytes| html!("{}", display::size(bytes)))),
        fact("Response", call.response_bytes.map(|bytes| html!("{}", display::size(bytes)))),
        fact("Request id of the client", call.request_id.as_deref().map(|id| html!("<code>{}</code>", id))),
        fact("Id", Some(html!("<code>{}</code>", call.id.to_string()))),
    ]
    .into_iter()
    .flatten()
    .collect();
    let bodies = match (&call.arguments, &call.result) {
        (None, None) => html!(
            r#"<p class="muted">Arguments and results are not stored. You can change that for new calls in the <a href="/settings">settings</a>.</p>"#
        ),
        (arguments, result) => html!(
            "{}{}",
            kept("Arguments", arguments.as_ref(), call.request_bytes),
            kept("Result", result.as_ref(), call.response_bytes),
        ),
    };
    let play = form::address(
        "/playground",
        &[("tool", &format!("{}.{}", call.server_name, call.tool_name)), ("from", &call.id.to_string())],
    );
    let body = html!(
        r#"<div class="head"><h1>{tool}</h1><div class="actions"><a class="button small" href="{play}">Run again</a><a class="button quiet small" href="{definition}">Definition</a>{cancel}</div></div>
<div id="drawer" data-live="execution."><div class="card"><dl class="facts">{facts}</dl></div>{error}{bodies}</div>"#,
        tool = clip(&call.tool_name, 120),
        play = play,
        definition = tool_path(&call.server_name, &call.tool_name),
        cancel = matches!(call.status, ExecutionStatus::Pending | ExecutionStatus::Executing).then(|| {
            html!(r#"<form method="post" action="/executions/{id}/cancel">{csrf}<button class="danger small">Cancel</button></form>"#, id = call.id.to_string(), csrf = request.csrf())
        }),
        facts = facts,
        error = call.error_message.as_deref().map(|why| html!(r#"<h2>Error</h2><pre class="error" tabindex="0">{}</pre>"#, with_local_times(why))),
        bodies = bodies,
    );
    Ok(PageResponse::page(Page { title: clip(&call.tool_name, 80), place: "/executions", body, script: None }))
}

/// A stored part of a call; if the other part is stored and this one is not, it was too large.
fn kept(title: &str, text: Option<&RawJson>, bytes: Option<u64>) -> Option<Html> {
    let Some(text) = text else {
        let size = display::size(bytes.filter(|bytes| *bytes > MAX_PAYLOAD_BYTES)?);
        return Some(html!(
            r#"<h2>{title}</h2><p class="muted">Too large to store ({size}).</p>"#,
            title = title,
            size = size,
        ));
    };
    let text = pretty(text.get());
    let cut = text.char_indices().nth(MAX_SHOWN_CHARS).map(|(at, _)| at);
    let more = cut.map(|_| html!(r#"<p class="muted">The rest is in the export.</p>"#));
    let shown = cut.map_or(text.as_str(), |at| &text[..at]);
    Some(html!(
        r#"<h2>{title}</h2><pre class="block" tabindex="0">{shown}</pre>{more}"#,
        title = title,
        shown = shown,
        more = more
    ))
}

/// Parses an id. An invalid id is an unknown one.
fn understood(id: &str) -> Result<ExecutionId, Error> {
    id.parse().map_err(|_| Error::Call(CallError::ExecutionNotFound { id: id.to_owned() }))
}

/// Cancels a call.
pub(crate) async fn cancel(request: &PageRequest<'_>, id: &str) -> Result<PageResponse, Error> {
    let call = request.service().cancel_execution(&request.actor, understood(id)?).await;
    Ok(match call {
        Ok(call) => request.done(format!("{} is {}.", call.tool_name, call.status), "/executions"),
        Err(error) => request.failed(error_text(&error), "/executions"),
    })
}

/// Stops all calls.
pub(crate) async fn stop(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    if !is_confirmed(request) {
        let question = Confirmation { about: STOP_ALL, action: "Stop all calls", fields: &[], back: "/executions" };
        return Ok(ask(request, &question));
    }
    let stopped = request.service().stop_executions(&request.actor).await;
    Ok(request.done(format!("Stopped. {} cancelled.", display::several(stopped.cancelled, "call")), "/executions"))
}

/// Allows calls again.
pub(crate) async fn reset(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    request.service().reset_executions(&request.actor).await;
    Ok(request.done("Calls are allowed again.", "/executions"))
}
