//! Imports servers: pasted, or found on this machine; selected, tested, and added.

use std::collections::{BTreeMap, BTreeSet};

use http::StatusCode;
use registry::{ConnectionConfig, Page as Part};
use serde_json::Value;
use service::{Error, Registration, TestReport};

use super::page;
use crate::Found;
use crate::form::Form;
use crate::html::{Html, html};
use crate::pages::server::{report_in_words, report_with_tools};
use crate::pages::{error_text, server_path};
use crate::request::PageRequest;
use crate::response::PageResponse;

/// The source of servers, as a form value.
const PASTED: &str = "paste";
const MACHINE: &str = "machine";

/// The outcome for a server that a person has to sign in to.
const ADDED_WITHOUT_SIGN_IN: &str = "added; it requires a sign-in";

/// A list after an action, shown again with the outcome.
#[derive(Default)]
struct ImportList {
    /// The list.
    list: String,
    /// The selected entries.
    ticked: BTreeSet<usize>,
    /// The outcome, by index.
    outcome: BTreeMap<usize, Result<String, String>>,
    /// A problem of the whole list.
    problem: Option<String>,
}

/// The sections next to the form, before any action.
pub(super) async fn sections(request: &PageRequest<'_>) -> Result<Html, Error> {
    shown(request, &ImportList::default()).await
}

async fn shown(request: &PageRequest<'_>, shown: &ImportList) -> Result<Html, Error> {
    let servers = request.service().servers(None, Part::ALL).items;
    let taken: BTreeSet<String> = servers.into_iter().map(|server| server.record.name).collect();
    let text = request.form.text("pasted");
    let pasted = match (shown.list.as_str(), read(request, PASTED)) {
        (PASTED, Ok(found)) => tick_list(request, &found, PASTED, &taken, shown),
        (PASTED, Err(why)) => html!(r#"<p class="flash bad" role="alert">{}</p>"#, why),
        _ => Html::default(),
    };
    let here = (request.console.dependencies.on_this_machine)();
    let machine = match here.is_empty() {
        true => html!(
            r#"<p class="muted">No servers were found in the config files of Claude Desktop, Claude Code, Cursor, VS Code and Windsurf.</p>"#
        ),
        false => tick_list(request, &here, MACHINE, &taken, shown),
    };
    Ok(html!(
        r#"<section aria-labelledby="paste"><h2 id="paste">Paste the config of a client</h2><form class="card" method="post" action="/add">{csrf}
<div class="field"><label for="pasted">JSON of Claude Desktop, Claude Code, Cursor, VS Code or another client <span class="hint">the whole config, or one entry</span></label><textarea id="pasted" name="pasted" rows="6" spellcheck="false" placeholder="{example}">{text:#}</textarea></div>
<button name="action" value="paste" class="quiet">Show servers</button></form>{pasted}</section>
<section aria-labelledby="machine"><h2 id="machine">Found on this machine</h2>{machine}</section>"#,
        csrf = request.csrf(),
        example = r#"{"mcpServers": {"github": {"command": "npx", …}}}"#,
        text = text,
        pasted = pasted,
        machine = machine,
    ))
}

/// The servers of a list.
fn read(request: &PageRequest<'_>, list: &str) -> Result<Vec<Found>, String> {
    match list {
        MACHINE => Ok((request.console.dependencies.on_this_machine)()),
        _ => (request.console.dependencies.read_config)(request.form.text("pasted"))
            .map_err(|why| format!("This config cannot be read: {why}")),
    }
}

/// Shows pasted servers, all selected.
pub(super) async fn pasted(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let ticked = read(request, PASTED).map(|found| (0..found.len()).collect());
    let status = if ticked.is_ok() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    again(
        request,
        status,
        ImportList { list: PASTED.into(), ticked: ticked.unwrap_or_default(), ..ImportList::default() },
    )
    .await
}

/// The page again.
async fn again(request: &PageRequest<'_>, status: StatusCode, what: ImportList) -> Result<PageResponse, Error> {
    let form = super::by_hand(request, &Form::default(), None);
    Ok(page(request, status, &form, &shown(request, &what).await?))
}

fn tick_list(
    request: &PageRequest<'_>,
    found: &[Found],
    list: &str,
    taken: &BTreeSet<String>,
    shown: &ImportList,
) -> Html {
    let has_valid_csrf = shown.list == list;
    let rows: Html = found
        .iter()
        .enumerate()
        .map(|(at, server)| {
            let is_taken = taken.contains(&server.name);
            let outcome = shown.outcome.get(&at).filter(|_| has_valid_csrf);
            // Servers that were just added are reported below.
            let is_surprise = is_taken && !outcome.is_some_and(Result::is_ok);
            let problem = server
                .problem
                .clone()
                .or_else(|| is_surprise.then(|| "A server with this name already exists.".to_owned()));
            let tick = match is_taken || problem.is_some() {
                true => Some(html!(" disabled")),
                false => (has_valid_csrf && shown.ticked.contains(&at)).then(|| html!(" checked")),
            };
            row(at, server, problem.as_deref(), tick.as_ref(), outcome)
        })
        .collect();
    html!(
        r#"<form class="card" method="post" action="/add">{csrf}{problem}<input type="hidden" name="from" value="{list:#}"><input type="hidden" name="pasted" value="{text:#}"><ul class="plain">{rows}</ul>
<div class="actions"><button name="action" value="try" class="quiet" data-busy="Testing …">Test selected</button><button name="action" value="take" data-busy="Testing and adding …">Test and add</button></div></form>"#,
        csrf = request.csrf(),
        problem = shown
            .problem
            .as_ref()
            .filter(|_| has_valid_csrf)
            .map(|why| html!(r#"<p class="flash bad" role="alert">{}</p>"#, why)),
        list = list,
        text = if list == PASTED { request.form.text("pasted") } else { "" },
        rows = rows,
    )
}

/// One server of a list. One that cannot be added cannot be selected.
fn row(
    at: usize,
    server: &Found,
    problem: Option<&str>,
    tick: Option<&Html>,
    outcome: Option<&Result<String, String>>,
) -> Html {
    let config = match server.registration.get("connection_config") {
        Some(Value::Object(config)) => ConnectionConfig::from(config.clone()).masked().to_string(),
        _ => String::new(),
    };
    let notes: Html = server.notes.iter().map(|note| html!(r#"<span class="sub">{}</span>"#, note)).collect();
    let outcome = outcome.map(|outcome| {
        let (tone, text) = match outcome {
            Ok(text) => ("ok", text),
            Err(text) => ("bad", text),
        };
        html!(
            r#"<div class="flash {tone}" role="status"><pre tabindex="0">{text}</pre></div>"#,
            tone = tone,
            text = text
        )
    });
    html!(
        r#"<li class="field"><label class="check"><input type="checkbox" name="pick" value="{at:#}"{state}> <span><strong>{name}</strong> <span class="hint">{origin}</span><br><code>{config}</code>{notes}{problem}</span></label>{outcome}</li>"#,
        at = at,
        state = tick,
        name = server.name,
        origin = server.from,
        config = config,
        notes = notes,
        problem = problem.map(|why| html!(r#"<span class="sub bad">{}</span>"#, why)),
        outcome = outcome,
    )
}

/// Tests the selected servers one after the other, and adds those that work if requested. The list stays with the
/// outcome of each, unless all were added.
pub(super) async fn take(request: &PageRequest<'_>, is_to_be_added: bool) -> Result<PageResponse, Error> {
    let list = request.form.text("from");
    let mut what = ImportList { list: list.to_owned(), ..ImportList::default() };
    let Ok(found) = read(request, list) else { return again(request, StatusCode::UNPROCESSABLE_ENTITY, what).await };
    let picked = request.form.all("pick").filter_map(|at| at.parse::<usize>().ok());
    what.ticked = picked.filter(|at| found.get(*at).is_some_and(|server| server.problem.is_none())).collect();
    if what.ticked.is_empty() {
        what.problem = Some("Select at least one server.".to_owned());
        return again(request, StatusCode::UNPROCESSABLE_ENTITY, what).await;
    }
    for at in what.ticked.clone() {
        let server = &found[at];
        let outcome = tried(request, server).await;
        let outcome = match outcome {
            Ok((registration, report)) if is_to_be_added => add(request, registration, &report).await,
            Ok((_, report)) => Ok(report_with_tools(&report)),
            Err(why) => Err(why),
        };
        let outcome = outcome.map_err(|why| if is_to_be_added { format!("not added: {why}") } else { why });
        if is_to_be_added && outcome.is_ok() {
            what.ticked.remove(&at);
        }
        what.outcome.insert(at, outcome);
    }
    if is_to_be_added && what.ticked.is_empty() {
        let outcome: Vec<String> = what
            .outcome
            .iter()
            .filter_map(|(at, outcome)| Some(format!("{}: {}", found[*at].name, outcome.as_ref().ok()?)))
            .collect();
        let next = match what.outcome.first_key_value() {
            Some((at, Ok(outcome))) if what.outcome.len() == 1 && outcome == ADDED_WITHOUT_SIGN_IN => {
                server_path(&found[*at].name)
            }
            _ => "/".to_owned(),
        };
        return Ok(request.done(outcome.join("\n"), next));
    }
    let is_well = what.outcome.values().all(Result::is_ok);
    let status = if is_well { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    again(request, status, what).await
}

/// Tests a server as it would be registered. A missing sign-in is no reason not to: only then can anybody sign in.
async fn tried(request: &PageRequest<'_>, server: &Found) -> Result<(Registration, TestReport), String> {
    let registration = Value::Object(server.registration.clone());
    let registration: Registration = serde_json::from_value(registration).map_err(|error| error.to_string())?;
    let report = request.service().test_unregistered(registration.clone()).await.map_err(|error| error_text(&error))?;
    if report.success || report.sign_in_required { Ok((registration, report)) } else { Err(report_in_words(&report)) }
}

async fn add(request: &PageRequest<'_>, registration: Registration, report: &TestReport) -> Result<String, String> {
    match request.service().register(&request.actor, registration).await {
        Ok(_) if report.sign_in_required => Ok(ADDED_WITHOUT_SIGN_IN.to_owned()),
        Ok(_) => Ok(format!("added, with {} tools", report.tools.len())),
        Err(error) => Err(error_text(&error)),
    }
}
