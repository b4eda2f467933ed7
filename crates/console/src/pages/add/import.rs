//! Servers that somebody else knows: pasted, or found on this machine; ticked, tried, and taken over.

use std::collections::{BTreeMap, BTreeSet};

use http::StatusCode;
use registry::{ConnectionConfig, Page as Part};
use serde_json::Value;
use service::Error;
use service::servers::{Registration, TestReport};

use super::page;
use crate::Found;
use crate::form::Form;
use crate::html::{Html, html};
use crate::pages::server::{report_in_words, report_with_tools};
use crate::pages::told;
use crate::request::PageRequest;
use crate::response::PageResponse;

/// Where servers were found: what a form says of it.
const PASTED: &str = "paste";
const MACHINE: &str = "machine";

/// What somebody did with one of the lists: it is shown again with what came of that.
#[derive(Default)]
struct ImportList {
    /// Which list.
    list: String,
    /// What is ticked in it.
    ticked: BTreeSet<usize>,
    /// What came of it, by place in the list.
    said: BTreeMap<usize, Result<String, String>>,
    /// What is wrong with all of it.
    problem: Option<String>,
}

/// The sections beside the form, before anything was done with them.
pub(super) async fn sections(request: &PageRequest<'_>) -> Result<Html, Error> {
    shown(request, &ImportList::default()).await
}

async fn shown(request: &PageRequest<'_>, shown: &ImportList) -> Result<Html, Error> {
    let servers = request.service().servers(None, false, Part::ALL).await?.items;
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
            r#"<p class="muted">Nothing was found in the files of Claude Desktop, Claude Code, Cursor, VS Code and Windsurf.</p>"#
        ),
        false => tick_list(request, &here, MACHINE, &taken, shown),
    };
    Ok(html!(
        r#"<section aria-labelledby="paste"><h2 id="paste">Paste the config of a client</h2><form class="card" method="post" action="/add">{csrf}
<div class="field"><label for="pasted">JSON of Claude Desktop, Claude Code, Cursor, VS Code or any other <span class="hint">all of it, or one entry</span></label><textarea id="pasted" name="pasted" rows="6" spellcheck="false" placeholder="{example}">{text:#}</textarea></div>
<button name="deed" value="paste" class="quiet">Look at it</button></form>{pasted}</section>
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
            .map_err(|why| format!("This cannot be read: {why}")),
    }
}

/// What somebody pasted is shown, and ticked: that is why they pasted it.
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
            let said = shown.said.get(&at).filter(|_| has_valid_csrf);
            // Who was added just now is told below, and is no surprise.
            let is_surprise = is_taken && !said.is_some_and(Result::is_ok);
            let problem = server
                .problem
                .clone()
                .or_else(|| is_surprise.then(|| "There is a server of that name already.".to_owned()));
            let tick = match is_taken || problem.is_some() {
                true => Some(html!(" disabled")),
                false => (has_valid_csrf && shown.ticked.contains(&at)).then(|| html!(" checked")),
            };
            row(at, server, problem.as_deref(), tick.as_ref(), said)
        })
        .collect();
    html!(
        r#"<form class="card" method="post" action="/add">{csrf}{problem}<input type="hidden" name="from" value="{list:#}"><input type="hidden" name="pasted" value="{text:#}"><ul class="plain">{rows}</ul>
<div class="actions"><button name="deed" value="try" class="quiet" data-busy="Testing …">Test what is ticked</button><button name="deed" value="take" data-busy="Testing and adding …">Test and add</button></div></form>"#,
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

/// One server of a list. What cannot be added cannot be ticked.
fn row(
    at: usize,
    server: &Found,
    problem: Option<&str>,
    tick: Option<&Html>,
    said: Option<&Result<String, String>>,
) -> Html {
    let config = match server.registration.get("connection_config") {
        Some(Value::Object(config)) => ConnectionConfig::from(config.clone()).masked().to_string(),
        _ => String::new(),
    };
    let notes: Html = server.notes.iter().map(|note| html!(r#"<span class="sub">{}</span>"#, note)).collect();
    let said = said.map(|said| {
        let (tone, text) = match said {
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
        r#"<li class="field"><label class="check"><input type="checkbox" name="pick" value="{at:#}"{state}> <span><strong>{name}</strong> <span class="hint">{origin}</span><br><code>{config}</code>{notes}{problem}</span></label>{said}</li>"#,
        at = at,
        state = tick,
        name = server.name,
        origin = server.from,
        config = config,
        notes = notes,
        problem = problem.map(|why| html!(r#"<span class="sub bad">{}</span>"#, why)),
        said = said,
    )
}

/// What is ticked is tried, one after the other; what works is added, if that is wanted. The list stays, with what came
/// of each, unless everything was added.
pub(super) async fn take(request: &PageRequest<'_>, is_to_be_added: bool) -> Result<PageResponse, Error> {
    let list = request.form.text("from");
    let mut what = ImportList { list: list.to_owned(), ..ImportList::default() };
    let Ok(found) = read(request, list) else { return again(request, StatusCode::UNPROCESSABLE_ENTITY, what).await };
    let picked = request.form.all("pick").filter_map(|at| at.parse::<usize>().ok());
    what.ticked = picked.filter(|at| found.get(*at).is_some_and(|server| server.problem.is_none())).collect();
    if what.ticked.is_empty() {
        what.problem = Some("Tick the servers first.".to_owned());
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
        what.said.insert(at, outcome);
    }
    if is_to_be_added && what.ticked.is_empty() {
        let said: Vec<String> = what
            .said
            .iter()
            .filter_map(|(at, said)| Some(format!("{}: {}", found[*at].name, said.as_ref().ok()?)))
            .collect();
        return Ok(request.done(said.join("\n"), "/"));
    }
    let is_well = what.said.values().all(Result::is_ok);
    let status = if is_well { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    again(request, status, what).await
}

/// Tries a server as it would be registered.
async fn tried(request: &PageRequest<'_>, server: &Found) -> Result<(Registration, TestReport), String> {
    let registration = Value::Object(server.registration.clone());
    let registration: Registration = serde_json::from_value(registration).map_err(|error| error.to_string())?;
    let report = request.service().test_unregistered(registration.clone()).await.map_err(|error| told(&error))?;
    if report.success { Ok((registration, report)) } else { Err(report_in_words(&report)) }
}

async fn add(request: &PageRequest<'_>, registration: Registration, report: &TestReport) -> Result<String, String> {
    match request.service().register(&request.actor, registration).await {
        Ok(_) => Ok(format!("added, with {} tools", report.tools.len())),
        Err(error) => Err(told(&error)),
    }
}
