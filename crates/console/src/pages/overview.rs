//! The overview: all servers, problems that need attention, and how to connect a client.

mod client_snippets;

use client_snippets::Token;
pub(crate) use client_snippets::copyable;

use std::collections::HashMap;

use registry::{Page as Part, Status, Transport};
use service::{Error, ServerView, Weight};

use crate::chart::sparkline;
use crate::display;
use crate::html::{Html, html};
use crate::layout::Page;
use crate::pages::{server_link, server_path, sign_in};
use crate::rates::Rates;
use crate::request::PageRequest;
use crate::response::PageResponse;

/// The page.
pub(crate) async fn show(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    page(request, Token::of(request, None)).await
}

/// The page with the user's token in the configs for clients.
pub(crate) async fn show_with_token(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let token = request.console.sessions.token(&request.visitor.id);
    page(request, Token::of(request, token)).await
}

async fn page(request: &PageRequest<'_>, token: Token) -> Result<PageResponse, Error> {
    let mut servers = request.service().servers(None, Part::ALL).items;
    request.console.add_usage(&mut servers);
    let rates = request.console.rate_sampler.rates(&request.service().reading());
    let weights = request.service().weights();
    let content = if servers.is_empty() { empty() } else { table(&servers, &rates) };
    let body = html!(
        r#"<h1>Overview</h1><div id="summary" data-live="server. tools. execution. notice">{notices}{summary}</div>
<section aria-labelledby="servers-title"><div class="head"><h2 id="servers-title">Servers</h2><a class="button" href="/add">Add server</a></div>
<div id="servers" data-live="server. tools. execution.">{content}</div></section>{connect}"#,
        notices = notices(request, &servers),
        summary = summary(&servers, &rates, &weights, &request.console.counted()),
        content = content,
        connect = client_snippets::section(request, &token),
    );
    Ok(PageResponse::page(Page { title: "Overview".into(), place: "/", body, script: None }))
}

fn empty() -> Html {
    html!(
        r#"<div class="empty"><h3>No servers yet</h3><p>Add one by hand, paste the config of another client, or import the servers that programs on this machine use.</p>
<p><a class="button" href="/add">Add the first server</a></p></div>"#
    )
}

/// Problems that need attention.
fn notices(request: &PageRequest<'_>, servers: &[ServerView]) -> Html {
    let database = request.service().write_error().map(|why| {
        html!(
            r#"<div class="flash bad" role="alert"><p><strong>The database cannot be written.</strong> {}</p></div>"#,
            why
        )
    });
    let config = request.service().config_error().map(|why| {
        html!(
            r#"<div class="flash bad" role="alert"><div><p><strong>The changed config file is invalid and was not applied.</strong></p><pre class="muted">{}</pre></div></div>"#,
            why
        )
    });
    let about: Html = servers.iter().filter_map(|server| notice(request, server)).collect();
    html!("{}{}{}", database, config, about)
}

fn notice(request: &PageRequest<'_>, server: &ServerView) -> Option<Html> {
    let record = &server.record;
    if record.connection_config.is_masked() {
        return Some(html!(
            r##"<div class="flash warn"><p><strong>{name}</strong> was imported without its secrets, and is disabled until you enter them.</p><a class="button quiet small" href="{path}#config-title">Enter secrets</a></div>"##,
            name = server_link(&record.name),
            path = server_path(&record.name),
        ));
    }
    if record.status == Status::SignInRequired {
        return Some(html!(
            r#"<div class="flash warn"><p><strong>{name}</strong> needs you: sign in to use it.</p>{button}</div>"#,
            name = server_link(&record.name),
            button = sign_in::button(request, &record.name),
        ));
    }
    let why = record.error_message.as_deref().unwrap_or_default();
    let (title, action, button) = match record.status {
        _ if record.auto_disabled => ("was disabled after too many failures", "enable", "Try again"),
        // Credentials in the stderr of a local program are those of other services.
        Status::Error if record.transport != Transport::Stdio && needs_credentials(why) => {
            ("refused the credentials", "connect", "Try again")
        }
        Status::Error => ("cannot be connected", "connect", "Try again"),
        _ => return None,
    };
    let first_line = why.lines().next().unwrap_or_default();
    Some(html!(
        r#"<div class="flash bad"><p><strong>{name}</strong> {title}. <span class="muted">{why}</span></p>
<form method="post" action="{path}/{action}">{csrf}<button class="small">{button}</button></form></div>"#,
        name = server_link(&record.name),
        title = title,
        why = first_line,
        path = server_path(&record.name),
        action = action,
        csrf = request.csrf(),
        button = button,
    ))
}

fn needs_credentials(why: &str) -> bool {
    ["401", "403", "nauthorized", "credentials"].iter().any(|sign| why.contains(sign))
}

fn summary(servers: &[ServerView], rates: &HashMap<String, Rates>, weights: &[Weight], counted: &str) -> Html {
    let up = servers.iter().filter(|server| server.record.status.is_up()).count();
    let (tools, bytes) = weights.iter().fold((0, 0), |(tools, bytes), one| (tools + one.tools, bytes + one.bytes));
    let total = |value: fn(&Rates) -> u64| rates.values().map(value).sum::<u64>();
    let (calls, failed) = (total(|rates| rates.calls), total(|rates| rates.failed));
    let share = if calls == 0 { 0.0 } else { failed as f64 / calls as f64 };
    let card = |name: &str, value: String, more: String| {
        html!(
            r#"<div class="stat"><dt>{name}</dt><dd>{value}</dd><dd class="more">{more}</dd></div>"#,
            name = name,
            value = value,
            more = more,
        )
    };
    html!(
        r#"<dl class="stats">{a}{b}{c}{d}</dl>"#,
        a = card("Servers connected", format!("{up} of {}", servers.len()), String::new()),
        b = card("Tools", display::count(tools), format!("{} tokens for a full list", display::tokens(bytes))),
        c = card(
            "Calls in the last minute",
            display::count(total(|rates| rates.per_minute)),
            format!("{} {counted}", display::count(calls))
        ),
        d = card("Failed", display::percent(share), format!("{} {counted}", display::count(failed))),
    )
}

fn table(servers: &[ServerView], rates: &HashMap<String, Rates>) -> Html {
    let rows: Html = servers.iter().map(|server| row(server, rates.get(&server.record.name))).collect();
    html!(
        r#"<div class="scroll"><table class="servers"><thead><tr><th>Server</th><th>State</th><th>Transport</th><th class="n">Tools</th>
<th class="n">Calls / min</th><th class="n">Failed</th><th class="n">p50</th><th class="n">p95</th><th class="n">CPU</th><th class="n">Memory</th><th>Last 30 min</th></tr></thead><tbody>{}</tbody></table></div>"#,
        rows
    )
}

fn row(server: &ServerView, rates: Option<&Rates>) -> Html {
    let record = &server.record;
    let rates = rates.cloned().unwrap_or_default();
    let share = if rates.calls == 0 { 0.0 } else { rates.failed as f64 / rates.calls as f64 };
    let span = |span: Option<std::time::Duration>| span.map_or_else(|| "–".to_owned(), display::took);
    let about = format!("{} calls in the last half hour", rates.calls);
    html!(
        r#"<tr><th scope="row" data-name="Server">{name}<span class="sub">{description}</span></th><td data-name="State">{status}{more}</td>
<td data-name="Transport">{transport}</td><td class="n" data-name="Tools">{tools}</td><td class="n" data-name="Calls / min">{per_minute}</td>
<td class="n{tone}" data-name="Failed">{share}</td><td class="n" data-name="p50">{p50}</td><td class="n" data-name="p95">{p95}</td><td class="n" data-name="CPU">{cpu}</td><td class="n" data-name="Memory">{memory}</td><td data-name="Last 30 min">{spark}</td></tr>"#,
        name = server_link(&record.name),
        description = record.description.as_deref().map(|text| clip(text, 80)),
        status = display::status(record.status),
        more = more(server),
        transport = transport(server),
        tools = display::count(u64::from(record.tool_count)),
        per_minute = display::count(rates.per_minute),
        tone = if rates.failed > 0 { " bad" } else { "" },
        share = display::percent(share),
        p50 = span(rates.p50),
        p95 = span(rates.p95),
        cpu = server.usage.map_or_else(|| "–".to_owned(), |usage| display::busy(usage.cpu_percent)),
        memory = server.usage.map_or_else(|| "–".to_owned(), |usage| display::size(usage.memory_bytes)),
        spark = sparkline(&rates.bars, &about),
    )
}

/// Further details of its status.
fn more(server: &ServerView) -> Option<Html> {
    let text = match (&server.progress, server.next_retry_at, server.lazy) {
        (Some(progress), ..) => html!("{}", clip(progress, 60)),
        (None, Some(retry), _) => html!("next attempt {}", display::moment(retry)),
        (None, None, true) if !server.record.status.is_up() => html!("starts when needed"),
        _ => return None,
    };
    Some(html!(r#"<span class="sub">{}</span>"#, text))
}

/// The transport of a server, in a word or two.
pub(crate) fn transport(server: &ServerView) -> String {
    let word = server.record.transport.as_str();
    if server.container.is_some() { format!("{word}, container") } else { word.to_owned() }
}

/// The start of a text.
pub(crate) fn clip(text: &str, most: usize) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    match line.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}
