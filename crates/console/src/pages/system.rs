//! The health of the service.

use registry::{Page as Part, Status};
use service::{Error, ServerView, Service, ServiceState};

use crate::display;
use crate::html::{Html, html};
use crate::layout::Page;
use crate::pages::server_link;
use crate::request::PageRequest;
use crate::response::PageResponse;

/// The page.
pub(crate) async fn show(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let service = request.service();
    let reached = service.ping().await.map_err(|error| error.to_string());
    let database = reached.and_then(|()| service.write_error().map_or(Ok(()), Err));
    let state = service.state();
    let servers = service.servers(None, Part::ALL).items;
    let failing = failing_servers(&servers);
    let (config, embeddings) = (service.config_error(), service.embedding_error());
    let (tokens, settings) = (service.token_error(), service.settings_error());
    let certificate = service.certificate_error();
    let conflicts = service.name_conflicts();
    let vectors = service.vectors();
    let is_well = database.is_ok()
        && failing.0.is_empty()
        && config.is_none()
        && tokens.is_none()
        && certificate.is_none()
        && settings.is_none()
        && conflicts.is_none()
        && embeddings.is_none()
        && vectors.problem.is_none()
        && !state.executions_stopped;
    let meaning = match (&embeddings, &vectors.problem) {
        (Some(problem), _) => html!("search compares {} only: {}", service::SEARCHED_WITHOUT_MODEL, problem),
        (None, Some(problem)) => html!("the configured vector store is not in use: {}", problem),
        (None, None) if matches!(vectors.in_use, "none" | "table") => {
            html!("there is no model; search compares {} only", service::SEARCHED_WITHOUT_MODEL)
        }
        (None, None) => html!("vector store: {}", vectors.in_use),
    };
    let check = |name: &str, is_fine: bool, more: Html| {
        let badge = if is_fine { display::badge("ok", "ok") } else { display::badge("bad", "failed") };
        html!("<dt>{name}</dt><dd>{badge} {more}</dd>", name = name, badge = badge, more = more)
    };
    let checks: Html = [
        check("Database", database.is_ok(), html!("{}", database.err())),
        check(
            "Servers",
            failing.0.is_empty(),
            html!("{} of {} connected", state.connected_servers, state.total_servers),
        ),
        check("Search by meaning", embeddings.is_none() && vectors.problem.is_none(), meaning),
        check("Config file", config.is_none(), html!("{}", config)),
        check("Names of tools", conflicts.is_none(), html!("{}", conflicts)),
        check("Tokens", tokens.is_none(), html!("{}", tokens)),
        check("Certificate", certificate.is_none(), html!("{}", certificate)),
        check("Settings", settings.is_none(), html!("{}", settings)),
        check(
            "Calls",
            !state.executions_stopped,
            html!("{}", if state.executions_stopped { "stopped" } else { "allowed" }),
        ),
    ]
    .into_iter()
    .collect();
    let body = html!(
        r#"<div id="health" data-live="server. tools. execution. notice"><h1>Health {state}</h1><div class="columns"><section class="card" aria-label="Checks"><h2>Checks</h2><dl class="facts">{checks}</dl>{failing}</section>
<section class="card" aria-label="Numbers"><h2>Numbers</h2><dl class="facts">{numbers}</dl></section></div></div>
<p class="muted">For programs: <a href="/health">/health</a>, <a href="/api/v1/aggregator/health">/api/v1/aggregator/health</a>, <a href="/metrics">/metrics</a> for Prometheus, <a href="/api/docs">/api/docs</a>.</p>"#,
        state = if is_well { display::badge("ok", "healthy") } else { display::badge("bad", "degraded") },
        checks = checks,
        failing = (!failing.0.is_empty()).then(|| html!("<h3>Problems</h3><ul>{}</ul>", failing)),
        numbers = numbers(service, &state),
    );
    Ok(PageResponse::page(Page { title: "Health".into(), place: "/system", body, script: None }))
}

/// The servers with problems, as items of a list.
fn failing_servers(servers: &[ServerView]) -> Html {
    let is_failing = |server: &&ServerView| {
        matches!(server.record.status, Status::Error | Status::Degraded) || server.record.auto_disabled
    };
    let item = |server: &ServerView| {
        let why = server.record.error_message.as_deref().unwrap_or_default().lines().next();
        html!(
            "<li>{} {} <span class=\"muted\">{}</span></li>",
            server_link(&server.record.name),
            display::status(server.record.status),
            why
        )
    };
    servers.iter().filter(is_failing).map(item).collect()
}

/// The numbers of the service, as rows of a description list.
fn numbers(service: &Service, state: &ServiceState) -> Html {
    let (reading, finder) = (service.reading(), service.search_counters());
    let fact = |name: &str, value: String| html!("<dt>{}</dt><dd>{}</dd>", name, value);
    [
        fact("Version", env!("CARGO_PKG_VERSION").to_owned()),
        fact("Uptime", display::long(std::time::Duration::from_secs_f64(state.uptime_seconds))),
        fact("Tools", display::count(state.total_tools)),
        fact("Tools with known skills", display::count(state.classified_tools)),
        fact("Vectors computed", display::count(finder.embedded)),
        fact("Calls running", display::count(reading.running + reading.mcp_running)),
        fact("Calls waiting", display::count(reading.queued + reading.mcp_queued)),
        fact("Calls refused by a limit", display::count(reading.refused_by_limit)),
        fact("Executions written", display::count(reading.history_written)),
        fact("Executions to be written", display::count(reading.history_waiting)),
        fact("Executions dropped", display::count(reading.history_dropped)),
    ]
    .into_iter()
    .collect()
}
