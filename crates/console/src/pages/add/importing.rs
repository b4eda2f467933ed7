//! Servers that somebody else knows: pasted, or found on this machine; ticked, tried, and taken over.

use http::StatusCode;
use registry::ConnectionConfig;
use serde_json::Value;
use service::Error;
use service::servers::Registration;

use super::page;
use crate::Found;
use crate::form::Form;
use crate::html::{Html, html};
use crate::pages::told;
use crate::reply::Reply;
use crate::visit::Visit;

/// What was pasted, and what came of it.
pub(super) struct Pasted<'v> {
    text: &'v str,
    outcome: Result<Vec<Found>, String>,
}

/// The sections beside the form.
pub(super) fn sections(visit: &Visit<'_>, pasted: Option<&Pasted<'_>>) -> Html {
    let found = pasted.map(|pasted| match &pasted.outcome {
        Ok(found) if found.is_empty() => html!(r#"<p class="flash bad" role="alert">There are no servers in it.</p>"#),
        Ok(found) => tick_list(visit, found, "paste", pasted.text),
        Err(why) => html!(r#"<p class="flash bad" role="alert">{}</p>"#, why),
    });
    let here = (visit.console.outside.on_this_machine)();
    let machine = match here.is_empty() {
        true => html!(
            r#"<p class="muted">Nothing was found in the files of Claude Desktop, Claude Code, Cursor, VS Code and Windsurf.</p>"#
        ),
        false => tick_list(visit, &here, "machine", ""),
    };
    html!(
        r#"<section aria-labelledby="paste"><h2 id="paste">Paste the config of a client</h2><form class="card" method="post" action="/add">{csrf}
<div class="field"><label for="pasted">JSON of Claude Desktop, Claude Code, Cursor, VS Code or any other</label><textarea id="pasted" name="pasted" rows="6" spellcheck="false" placeholder="{example}">{text}</textarea></div>
<button name="deed" value="paste" class="quiet">Look at it</button></form>{found}</section>
<section aria-labelledby="machine"><h2 id="machine">Found on this machine</h2>{machine}</section>"#,
        csrf = visit.csrf(),
        example = r#"{"mcpServers": {"github": {"command": "npx", …}}}"#,
        text = pasted.map(|pasted| pasted.text),
        found = found,
        machine = machine,
    )
}

/// What somebody pasted is shown.
pub(super) fn pasted(visit: &Visit<'_>) -> Reply {
    let text = visit.form.text("pasted");
    let outcome = (visit.console.outside.read_config)(text).map_err(|why| format!("This cannot be read: {why}"));
    let status = if outcome.is_ok() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    let form = super::by_hand(visit, &Form::default(), None);
    page(visit, status, &form, &sections(visit, Some(&Pasted { text, outcome })))
}

fn tick_list(visit: &Visit<'_>, found: &[Found], from: &str, text: &str) -> Html {
    let rows: Html = found
        .iter()
        .enumerate()
        .map(|(at, server)| {
            let config = match server.registration.get("connection_config") {
                Some(Value::Object(config)) => ConnectionConfig::from(config.clone()).masked().to_string(),
                _ => String::new(),
            };
            let notes: Html = server.notes.iter().map(|note| html!(r#"<span class="sub">{}</span>"#, note)).collect();
            html!(
                r#"<li class="field"><label class="check"><input type="checkbox" name="pick" value="{at}"> <span><strong>{name}</strong> <span class="hint">{origin}</span><br><code>{config}</code>{notes}</span></label></li>"#,
                at = at,
                name = server.name,
                origin = server.from,
                config = config,
                notes = notes,
            )
        })
        .collect();
    html!(
        r#"<form class="card" method="post" action="/add">{csrf}<input type="hidden" name="from" value="{from}"><input type="hidden" name="pasted" value="{text}"><ul class="plain">{rows}</ul>
<button name="deed" value="take" data-busy="Testing and adding …">Test and add what is ticked</button></form>"#,
        csrf = visit.csrf(),
        from = from,
        text = text,
        rows = rows,
    )
}

/// What is ticked is tried, one after the other, and added if it works.
pub(super) async fn take(visit: &Visit<'_>) -> Result<Reply, Error> {
    let found = match visit.form.text("from") {
        "machine" => (visit.console.outside.on_this_machine)(),
        _ => match (visit.console.outside.read_config)(visit.form.text("pasted")) {
            Ok(found) => found,
            Err(why) => return Ok(visit.failed(why, "/add")),
        },
    };
    let picked: Vec<&Found> =
        visit.form.all("pick").filter_map(|at| at.parse::<usize>().ok()).filter_map(|at| found.get(at)).collect();
    if picked.is_empty() {
        return Ok(visit.failed("Tick the servers first.", "/add"));
    }
    let (mut said, mut failures) = (Vec::new(), 0);
    for server in picked {
        match add(visit, server).await {
            Ok(tools) => said.push(format!("{}: added, with {tools} tools", server.name)),
            Err(why) => {
                failures += 1;
                said.push(format!("{}: not added: {why}", server.name));
            }
        }
    }
    let said = said.join("\n");
    Ok(if failures == 0 { visit.done(said, "/") } else { visit.failed(said, "/add") })
}

async fn add(visit: &Visit<'_>, server: &Found) -> Result<usize, String> {
    let registration = Value::Object(server.registration.clone());
    let registration: Registration = serde_json::from_value(registration).map_err(|error| error.to_string())?;
    let report = visit.service().test_unregistered(registration.clone()).await.map_err(|error| told(&error))?;
    if !report.success {
        return Err(report.error.unwrap_or_else(|| "the test failed".to_owned()));
    }
    visit.service().register(&visit.actor, registration).await.map_err(|error| told(&error))?;
    Ok(report.tools.len())
}
