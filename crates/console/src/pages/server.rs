//! One server: status, history, tools, and configuration.

mod edit;

use registry::{HistoryEvent, Page as Part, Status, ToolRecord};
use service::{Error, ServerHealth, ServerView, TestReport};

use crate::chart::sparkline;
use crate::display;
use crate::form;
use crate::html::{Html, html};
use crate::layout::Page;
use crate::pages::overview::{clip, transport};
use crate::pages::{Confirmation, ask, error_text, is_confirmed, server_path, sign_in, tool_path};
use crate::request::PageRequest;
use crate::response::PageResponse;

/// How many events of its history are shown.
const HISTORY: u32 = 25;
/// How many of its tools are shown; the others are on the tools page.
const TOOLS: u32 = 50;
/// How many tools of a tested server are listed.
const MAX_LISTED: usize = 200;

/// The page.
pub(crate) async fn show(request: &PageRequest<'_>, name: &str) -> Result<PageResponse, Error> {
    let service = request.service();
    let server = service.server(name).await?;
    let health = service.server_health(name).await?;
    let history = service.history(name, Part::first(HISTORY)).await?;
    let (_, tools) = service.tools_page(Some(name), Part::first(TOOLS)).await?;
    let record = &server.record;
    let body = html!(
        r#"<div id="top" data-live="server. tools."><div class="head"><h1>{name} {status}</h1>{actions}</div>{description}{missing}{problem_banner}</div>
<div class="columns"><div>
<section aria-labelledby="facts-title"><h2 id="facts-title">Summary</h2><div class="card" id="facts" data-live="server. tools. execution.">{facts}</div></section>
<div id="instances" data-live="server. execution.">{instances}</div>
<section aria-labelledby="tools-title"><h2 id="tools-title">Tools</h2><div id="tools" data-live="tools. server.">{tools}</div></section>
{config}</div><div>
<section aria-labelledby="history-title"><h2 id="history-title">History</h2><div class="card" id="history" data-live="server.">{history}</div></section>
{stderr}
<section aria-labelledby="log-title"><h2 id="log-title">Calls and events</h2><div id="log" class="log" role="log" aria-label="Calls and events of this server" tabindex="0" data-server="{id:#}" data-name="{name:#}" data-empty="1"><noscript>Needs JavaScript.</noscript><span data-script hidden>Nothing yet. Calls, connections and notices appear here as they happen.</span></div></section>
</div></div>"#,
        name = record.name,
        id = record.id.to_string(),
        status = display::status(record.status),
        actions = actions(request, &server, sign_in::is_signed_in(request, &server).await),
        description = record.description.as_deref().map(|text| html!(r#"<p class="muted">{}</p>"#, text)),
        missing = record.connection_config.is_masked().then(|| {
            html!(r#"<p class="flash warn">The server cannot be started: {}.</p>"#, service::SECRETS_ARE_MISSING)
        }),
        problem_banner = problem_banner(&server, &health),
        facts = facts(request, &server, &health),
        instances = instances(&server),
        tools = tool_list(&server, &tools.items, tools.total),
        config = edit::section(request, &server, None),
        history = timeline(&history.items),
        stderr = stderr(request, &server)?,
    );
    Ok(PageResponse::page(Page { title: record.name.clone(), place: "/", body, script: None }))
}

/// The actions that are possible now.
fn actions(request: &PageRequest<'_>, server: &ServerView, is_signed_in: bool) -> Html {
    let record = &server.record;
    let path = server_path(&record.name);
    let is_up = record.status.is_up();
    let is_fixed = record.origin == registry::Origin::Config;
    let button = |action: &str, word: &str, class: &str, ask: Option<String>| {
        html!(
            r#"<button formaction="{path}/{action}" class="{class} small" data-busy="{word} …"{ask}>{word}</button>"#,
            path = path,
            action = action,
            word = word,
            class = class,
            ask = ask.map(|question| html!(r#" data-confirm="{}""#, question)),
        )
    };
    let mut buttons = Html::default();
    if record.status == Status::SignInRequired {
        buttons.add(&button("sign-in", "Sign in", "", None));
    } else if record.enabled && !is_up {
        let word = if record.status == Status::Error { "Retry" } else { "Connect" };
        buttons.add(&button("connect", word, "", None));
    }
    if is_up || record.status == Status::Connecting {
        buttons.add(&button("disconnect", "Disconnect", "quiet", None));
    }
    if is_up {
        buttons.add(&button("restart", "Restart", "quiet", None));
        buttons.add(&button("refresh", "Refresh tools", "quiet", None));
    }
    buttons.add(&button("test", "Test", "quiet", None));
    if is_signed_in {
        buttons.add(&button("sign-in", "Sign in again", "quiet", None));
        buttons.add(&button("sign-out", "Sign out", "quiet", None));
    }
    match record.enabled {
        true => buttons.add(&button("disable", "Disable", "quiet", None)),
        false => buttons.add(&button("enable", "Enable", "", None)),
    }
    if !is_fixed {
        buttons.add(&button("remove", "Remove", "danger", Some(removal(&record.name))));
    }
    html!(r#"<form class="actions" method="post">{csrf}{buttons}</form>"#, csrf = request.csrf(), buttons = buttons)
}

fn removal(name: &str) -> String {
    format!("Remove {name} with its tools and its history?")
}

fn problem_banner(server: &ServerView, health: &ServerHealth) -> Html {
    let record = &server.record;
    let error = record.error_message.as_deref().map(|why| {
        let title = match record.status {
            _ if record.auto_disabled => "Disabled after too many failures",
            Status::SignInRequired => "A sign-in is required",
            _ => "Last error",
        };
        html!(
            r#"<section aria-label="{title}"><h2>{title}</h2><pre class="error" tabindex="0">{why}</pre></section>"#,
            title = title,
            why = why
        )
    });
    let warning = health.warning.as_deref().map(|why| html!(r#"<p class="flash warn">{}</p>"#, why));
    let progress = server.progress.as_deref().map(|text| html!(r#"<p class="flash warn" role="status">{}</p>"#, text));
    html!("{}{}{}", progress, error, warning)
}

fn facts(request: &PageRequest<'_>, server: &ServerView, health: &ServerHealth) -> Html {
    let record = &server.record;
    let rates =
        request.console.rate_sampler.rates(&request.service().reading()).remove(&record.name).unwrap_or_default();
    let fact = |name: &str, value: Option<Html>| {
        value.map(|value| html!("<dt>{name}</dt><dd>{value}</dd>", name = name, value = value))
    };
    let text = |text: String| Some(html!("{}", text));
    let info = record.server_info.as_ref();
    let said = |key: &str| info.and_then(|info| info[key].as_str()).unwrap_or_default();
    let identity = format!("{} {}", said("name"), said("version"));
    let container = server.container.as_ref().map(|container| html!("{}", container.image));
    let usage = server.usage.map(|usage| {
        let processes = usage.processes.filter(|count| *count > 1);
        html!(
            "{cpu} of one CPU · {memory}{processes}",
            cpu = display::busy(usage.cpu_percent),
            memory = display::size(usage.memory_bytes),
            processes = processes.map(|count| format!(" in {count} processes")),
        )
    });
    let weight = request.service().weights().into_iter().find(|weight| weight.server == record.name);
    let span = |span: Option<std::time::Duration>| span.map_or_else(|| "–".to_owned(), display::took);
    let calls = html!(
        "{spark}{calls} {counted}, {failed} failed · p50 {p50} · p95 {p95}",
        spark = sparkline(&rates.bars, "calls a minute in the last half hour"),
        calls = display::several(rates.calls, "call"),
        counted = request.console.counted(),
        failed = display::count(rates.failed),
        p50 = span(rates.p50),
        p95 = span(rates.p95),
    );
    let facts = [
        fact("Reports itself as", (!identity.trim().is_empty()).then(|| html!("{}", identity))),
        fact("Protocol", (!said("era").is_empty()).then(|| html!("{}", said("era")))),
        fact("Transport", text(transport(server))),
        fact("Container", container),
        fact("Uses", usage),
        fact(
            "Defined in",
            text(match record.origin {
                registry::Origin::Config => "the config file; change it there. You can disable it here".to_owned(),
                _ => "the registry".to_owned(),
            }),
        ),
        fact("Connected since", record.connected_at.map(display::moment)),
        fact("Next attempt", server.next_retry_at.map(display::moment)),
        fact("Consecutive failures", (record.failure_count > 0).then(|| html!("{}", record.failure_count))),
        fact(
            "Health check",
            health.last_check.map(|at| {
                let latency =
                    health.latency_ms.map(|ms| display::took(std::time::Duration::from_secs_f64(ms / 1000.0)));
                html!("{} {}", display::moment(at), latency)
            }),
        ),
        fact("Calls", Some(calls)),
        fact(
            "Tools",
            weight.map(|weight| {
                html!("{} · {} tokens for a full list", display::count(weight.tools), display::tokens(weight.bytes))
            }),
        ),
        fact("Own endpoint", Some(html!("<code>{}/mcp/{}</code>", request.origin(), form::encoded(&record.name)))),
        fact("Instructions", (!said("instructions").is_empty()).then(|| instructions(said("instructions")))),
    ];
    html!(r#"<dl class="facts">{}</dl>"#, facts.into_iter().flatten().collect::<Html>())
}

/// The instructions of the server; long ones are collapsed.
fn instructions(text: &str) -> Html {
    let text = super::tools::cut(text.trim());
    let first: String = text.lines().take(6).collect::<Vec<_>>().join("\n");
    if first.len() == text.len() && text.len() <= 600 {
        return html!(r#"<pre class="prose">{}</pre>"#, text);
    }
    html!(
        r#"<details id="instructions"><summary>{first} …</summary><pre class="prose">{text}</pre></details>"#,
        first = super::overview::clip(text.lines().next().unwrap_or_default(), 120),
        text = text,
    )
}

/// The instances of a server that not everybody shares.
fn instances(server: &ServerView) -> Html {
    if server.instances.is_empty() {
        return Html::default();
    }
    let rows: Html = server
        .instances
        .iter()
        .map(|instance| {
            let client = instance.client.as_deref().map(|client| html!(r#"<span class="sub">{}</span>"#, clip(client, 80)));
            let error = instance.error.as_deref().map(|why| html!(r#"<span class="sub">{}</span>"#, clip(why, 160)));
            html!(
                r#"<tr><th scope="row">{identity}{client}</th><td>{status}{error}</td><td>{since}</td><td class="n">{calls}</td></tr>"#,
                identity = instance.identity.as_deref().unwrap_or("local user"),
                client = client,
                status = instance.status,
                error = error,
                since = display::moment(instance.since),
                calls = display::count(instance.running_calls),
            )
        })
        .collect();
    html!(
        r#"<section aria-labelledby="instances-title"><h2 id="instances-title">Instances</h2><div class="scroll"><table><thead><tr><th scope="col">Identity</th><th scope="col">Status</th><th scope="col">Since</th><th scope="col" class="n">Running calls</th></tr></thead><tbody>{}</tbody></table></div></section>"#,
        rows
    )
}

/// The stderr of a server that we start; scripts append new lines.
fn stderr(request: &PageRequest<'_>, server: &ServerView) -> Result<Html, Error> {
    let record = &server.record;
    if record.transport != registry::Transport::Stdio && server.container.is_none() {
        return Ok(Html::default());
    }
    let heard = request.service().log(&record.name)?.now();
    let lines: Html = heard.lines.iter().map(|line| html!("<div>{}</div>", line)).collect();
    let address = format!("/api/v1/aggregator/servers/{}/log", form::encoded(&record.name));
    Ok(html!(
        r#"<section aria-labelledby="stderr-title"><h2 id="stderr-title">Live log</h2><div id="stderr" class="log" role="log" aria-label="stderr of this server" tabindex="0" data-log="{address}">{lines}</div>
<p class="hint">The server's stderr, live. The last 200 lines are stored.</p></section>"#,
        address = address,
        lines = lines,
    ))
}

fn tool_list(server: &ServerView, tools: &[ToolRecord], total: u64) -> Html {
    if tools.is_empty() {
        let why = if server.record.status.is_up() {
            "The server has no tools."
        } else {
            "The tools are unknown until the server has been connected once."
        };
        return html!(r#"<div class="empty"><h3>No tools</h3><p>{}</p></div>"#, why);
    }
    let rows: Html = tools
        .iter()
        .map(|tool| {
            html!(
                r#"<tr{off}><th scope="row"><a href="{path}">{name}</a><span class="sub">{description}</span></th><td class="n"><a class="button quiet small" href="{play}">Try</a></td></tr>"#,
                off = (!tool.enabled).then(|| html!(r#" class="off-row""#)),
                path = tool_path(&tool.server_name, &tool.original_name),
                name = tool.original_name,
                description = tool.description.as_deref().map(|text| clip(text, 110)),
                play = form::address("/playground", &[("tool", &tool.name)]),
            )
        })
        .collect();
    let all = (total > u64::from(TOOLS)).then(|| {
        let to = form::address("/tools", &[("server", &server.record.name)]);
        html!(r#"<p class="pager"><a href="{to}">All {total} tools</a></p>"#, to = to, total = display::count(total))
    });
    html!(r#"<div class="scroll"><table><tbody>{rows}</tbody></table></div>{all}"#, rows = rows, all = all)
}

fn timeline(events: &[HistoryEvent]) -> Html {
    if events.is_empty() {
        return html!(r#"<p class="muted">Nothing yet.</p>"#);
    }
    let items: Html = events
        .iter()
        .map(|event| {
            let word = event.kind.as_str();
            let detail = |key: &str| event.details.as_ref().and_then(|details| details[key].as_str());
            let after = detail("to").unwrap_or_default();
            let tone = match (word, after) {
                (_, "degraded") => "warn",
                ("error", _) => "bad",
                ("connected", _) => "ok",
                _ => "",
            };
            let why = detail("error").map(|text| clip(text, 160));
            html!(
                r#"<li class="{tone}"><strong>{word}</strong> <span class="muted">{when}</span>{why}</li>"#,
                tone = tone,
                word = if after.is_empty() { word } else { after },
                when = display::moment(event.timestamp),
                why = why.map(|why| html!(r#"<span class="sub">{}</span>"#, why)),
            )
        })
        .collect();
    html!(r#"<ol class="line">{}</ol>"#, items)
}

/// Performs an action.
pub(crate) async fn act(request: &PageRequest<'_>, name: &str, action: &str) -> Result<PageResponse, Error> {
    let (service, by) = (request.service(), &request.actor);
    // An action in the playground returns there.
    let back = request.form.value_of("back").filter(|back| back.starts_with("/playground?"));
    let here = back.map_or_else(|| server_path(name), str::to_owned);
    let done = match action {
        "connect" => service.connect(by, name).await.map(|_| "Connected."),
        "disconnect" => service.disconnect(by, name, false).await.map(|_| "Disconnected."),
        "restart" => service.restart(by, name, false).await.map(|_| "Restarted."),
        "enable" if service.server(name).await?.record.connection_config.is_masked() => {
            let why = format!("The server stays disabled: {}.", service::SECRETS_ARE_MISSING);
            return Ok(request.failed(why, here));
        }
        "enable" => service.enable(by, name).await.map(|_| "Enabled. The server is connecting."),
        "disable" => service.disable(by, name).await.map(|_| "Disabled until you enable it again."),
        "refresh" => service.refresh_tools(by, name).await.map(|()| "The tools are being refreshed."),
        "remove" if !is_confirmed(request) => {
            service.server(name).await?;
            return Ok(ask(
                request,
                &Confirmation { about: &removal(name), action: "Remove", fields: &[], back: &here },
            ));
        }
        "remove" => {
            return Ok(match service.remove(by, name, true).await {
                Ok(()) => request.done(format!("Removed {name}."), "/"),
                Err(error) => request.failed(error_text(&error), here),
            });
        }
        "test" => {
            return Ok(match service.test(name).await {
                Ok(report) if report.success => request.done(report_in_words(&report), here),
                Ok(report) => request.failed(report_in_words(&report), here),
                Err(error) => request.failed(error_text(&error), here),
            });
        }
        "edit" => return edit::edit(request, name).await,
        "sign-in" => return sign_in::start(request, name).await,
        "sign-out" => return Ok(sign_in::end(request, name).await),
        _ => return Ok(request.failed("Unknown action.", here)),
    };
    Ok(match done {
        Ok(message) => request.done(message, here),
        Err(error) => request.failed(error_text(&error), here),
    })
}

/// The result of a test with all tools and their descriptions, so that the user can decide whether to add the server.
pub(crate) fn report_with_tools(report: &TestReport) -> String {
    if !report.success || report.tools.is_empty() {
        return report_in_words(report);
    }
    let span = display::took(std::time::Duration::from_secs_f64(report.duration_ms / 1000.0));
    let about = report.descriptions.iter().map(|about| about.as_deref().map(|text| clip(text, 110)));
    let lines = report.tools.iter().zip(about.chain(std::iter::repeat(None))).map(|(name, about)| match about {
        Some(about) if !about.is_empty() => format!("\n{}: {about}", clip(name, 80)),
        _ => format!("\n{}", clip(name, 80)),
    });
    let shown: String = lines.take(MAX_LISTED).collect();
    let more = report.tools.len().saturating_sub(MAX_LISTED);
    let more = if more > 0 { format!("\n… and {more} more") } else { String::new() };
    format!("The test succeeded in {span}: {}{shown}{more}", display::several(report.tools.len() as u64, "tool"))
}

/// The result of a test.
pub(crate) fn report_in_words(report: &TestReport) -> String {
    let span = display::took(std::time::Duration::from_secs_f64(report.duration_ms / 1000.0));
    if report.sign_in_required {
        return "The server responds, and requires a sign-in.".to_owned();
    }
    if !report.success {
        let why = report.error.as_deref().unwrap_or("no reason given");
        // Such a short time means that nothing could be tested.
        if report.duration_ms < 1.0 {
            return format!("The connection could not be tested: {why}");
        }
        return format!("The test failed after {span}: {why}");
    }
    let mut names: Vec<&str> = report.tools.iter().take(12).map(String::as_str).collect();
    if report.tools.len() > names.len() {
        names.push("…");
    }
    format!(
        "The test succeeded in {span}: {}: {}",
        display::several(report.tools.len() as u64, "tool"),
        names.join(", ")
    )
}
