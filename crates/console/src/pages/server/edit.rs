//! Edits the connection config of a server: checked, tested, and only then saved.

use http::StatusCode;
use registry::Transport;
use serde_json::{Map, Value, json};
use service::{Error, ServerView, TestReport, Update};
use sha2::{Digest, Sha256};

use crate::html::{Html, html};
use crate::layout::Page;
use crate::pages::server::report_in_words;
use crate::pages::{error_text, options, server_path};
use crate::request::PageRequest;
use crate::response::PageResponse;

/// The input, and what is wrong with it.
pub(super) struct Draft {
    transport: String,
    config: String,
    description: String,
    problem: String,
    is_good: bool,
}

/// Identifies the version that a form was made from, so that concurrent changes are not overwritten unnoticed.
fn mark(server: &ServerView) -> String {
    let record = &server.record;
    let all = json!([record.transport.as_str(), record.connection_config.masked(), record.description]);
    let digest = Sha256::digest(all.to_string().as_bytes());
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The section that shows and edits it.
pub(super) fn section(request: &PageRequest<'_>, server: &ServerView, draft: Option<&Draft>) -> Html {
    let record = &server.record;
    let masked = serde_json::to_string_pretty(&record.connection_config.masked()).expect("JSON can be written");
    let title = r#"<section aria-labelledby="config-title"><h2 id="config-title">Configuration</h2>"#;
    let title = Html(title.to_owned());
    if record.origin == registry::Origin::Config {
        return html!(
            r#"{title}<p class="muted">This server is defined in the config file: change it there. Here you can only enable or disable it. Secrets are masked.</p><pre class="block" tabindex="0">{masked}</pre></section>"#,
            title = title,
            masked = masked,
        );
    }
    let transports = Transport::ALL.iter().map(|transport| (transport.as_str(), transport.as_str().to_owned()));
    let chosen = draft.map_or(record.transport.as_str(), |draft| draft.transport.as_str());
    let note = draft.map(|draft| {
        let (tone, role) = if draft.is_good { ("ok", "status") } else { ("bad", "alert") };
        html!(
            r#"<div class="flash {tone}" role="{role}"><pre>{why}</pre></div>"#,
            tone = tone,
            role = role,
            why = draft.problem
        )
    });
    html!(
        r#"{title}<form class="card" method="post" action="{path}/edit">{csrf}<input type="hidden" name="was" value="{mark:#}">{note}
<div class="field"><label for="description">Description</label><input id="description" name="description" value="{description:#}"></div>
<div class="field"><label for="transport">Transport</label><select id="transport" name="transport">{transports}</select></div>
<div class="field"><label for="config">Connection <span class="hint">JSON. {masks} ${{VAR}} is replaced when connecting.</span></label>
<textarea id="config" name="config" rows="12" spellcheck="false">{config:#}</textarea></div>
<div class="actions"><button name="action" value="test" class="quiet" data-busy="Testing …">Test</button><button name="action" value="save" data-busy="Testing and saving …">Test and save</button>
<button name="action" value="save-untested" class="quiet">Save without a test</button></div></form></section>"#,
        title = title,
        masks = match record.connection_config.is_masked() {
            true => "Replace every *** with the secret: the registry does not have it.",
            false => "Secrets are shown as ***; leave *** to keep the stored secret.",
        },
        path = server_path(&record.name),
        csrf = request.csrf(),
        mark = mark(server),
        note = note,
        description =
            draft.map_or(record.description.as_deref().unwrap_or_default(), |draft| draft.description.as_str()),
        transports = options(transports, chosen),
        config = draft.map_or(masked.as_str(), |draft| draft.config.as_str()),
    )
}

/// Checks the input, tests it if requested, and saves it if it is valid.
pub(super) async fn edit(request: &PageRequest<'_>, name: &str) -> Result<PageResponse, Error> {
    let server = request.service().server(name).await?;
    let form = &request.form;
    let draft = |problem: String, is_good: bool| Draft {
        transport: form.text("transport").to_owned(),
        config: form.text("config").to_owned(),
        description: form.text("description").to_owned(),
        problem,
        is_good,
    };
    let update = match understood(form.text("transport"), form.text("config")) {
        Ok((transport, config)) => Update {
            description: Some(form.value_of("description").map(str::to_owned)),
            transport_type: Some(transport),
            connection_config: Some(config),
            ..Update::default()
        },
        Err(why) => return Ok(again(request, &server, &draft(why, false))),
    };
    let action = form.text("action");
    let ignored = update.connection_config.as_ref().map(ignored).unwrap_or_default();
    if action != "test" && form.value_of("was").is_some_and(|was| was != mark(&server)) {
        let now = serde_json::to_string_pretty(&server.record.connection_config.masked()).expect("JSON can be written");
        let why = format!(
            "The server was changed since you opened this page. Save again to overwrite its current config:\n{}\n{now}",
            server.record.description.as_deref().unwrap_or("(no description)"),
        );
        return Ok(again(request, &server, &draft(why, false)));
    }
    if action != "save-untested" {
        match tried(request, &server, &update).await {
            Ok(report) if action == "test" => {
                let next = if report.sign_in_required { " Save the change, then sign in." } else { "" };
                let message = report_in_words(&report) + next + &ignored;
                return Ok(again(request, &server, &draft(message, true)));
            }
            Ok(_) => {}
            Err(why) => return Ok(again(request, &server, &draft(why, false))),
        }
    }
    match request.service().update(&request.actor, name, update).await {
        Ok(_) => Ok(request.done(format!("Saved.{ignored}"), server_path(name))),
        Err(error) => Ok(again(request, &server, &draft(error_text(&error).replace("connection_config.", ""), false))),
    }
}

/// Unknown keys: clients write some of their own, and some are misspelled.
fn ignored(config: &Map<String, Value>) -> String {
    let unknown = config.keys().filter(|key| !service::is_known_key(key));
    unknown.map(|key| format!("\n`{key}` is unknown and is ignored.")).collect()
}

/// Tests a change with a second connection. A missing sign-in is no reason not to save it.
async fn tried(request: &PageRequest<'_>, server: &ServerView, update: &Update) -> Result<TestReport, String> {
    match request.service().test_update(&server.record.name, update).await {
        Ok(report) if report.success || report.sign_in_required => Ok(report),
        Ok(report) => Err(report_in_words(&report)),
        Err(error) => Err(error_text(&error).replace("connection_config.", "")),
    }
}

/// The page again, with the input.
fn again(request: &PageRequest<'_>, server: &ServerView, draft: &Draft) -> PageResponse {
    let name = &server.record.name;
    let body = html!(
        r#"<div class="head"><h1>{name}</h1><a class="button quiet small" href="{path}">Back without saving</a></div>{form}"#,
        name = name,
        path = server_path(name),
        form = section(request, server, Some(draft)),
    );
    let status = if draft.is_good { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    PageResponse::Page(status, Page { title: name.clone(), place: "/", body, script: None })
}

/// Parses a transport and a config.
pub(crate) fn understood(transport: &str, config: &str) -> Result<(Transport, Map<String, Value>), String> {
    let transport = transport.parse::<Transport>().map_err(|error| error.to_string())?;
    let config: Value = serde_json::from_str(config).map_err(|error| format!("invalid JSON: {error}"))?;
    match config {
        Value::Object(config) => Ok((transport, config)),
        _ => Err("write a JSON object, as in {\"command\": \"npx\"}".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unknown_keys_are_reported() {
        let known = ["type", "command", "oauth", "startTimeout", "lazy", "base_url", "serverUrl", "transport"];
        let config: Map<String, Value> = known.into_iter().map(|key| (key.to_owned(), json!(1))).collect();
        assert_eq!(ignored(&config), "");
        let config = Map::from_iter([("oath".to_owned(), json!({}))]);
        assert_eq!(ignored(&config), "\n`oath` is unknown and is ignored.");
    }
}
