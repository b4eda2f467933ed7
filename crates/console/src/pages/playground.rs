//! The playground: runs a tool without writing JSON. With scripts the page is an MCP client with progress, cancellation
//! and server requests; without scripts it has a form with JSON.
//!
//! - [`choice`]: which tool, and what to show if there is none; [`example`]: initial arguments
//! - [`render`]: the result, without scripts

mod choice;
mod example;
mod render;

use executions::{Call, Error as CallError};
use http::Method;
use registry::{RawJson, Source, Status, ToolRecord};
use serde_json::{Value, json};
use service::Error;

use crate::assets::PLAYGROUND;
use crate::display;
use crate::form;
use crate::html::{Html, html};
use crate::layout::Page;
use crate::pages::overview::clip;
use crate::pages::tools::{hints, long};
use crate::pages::{error_text, pretty, server_link_for, server_path, tool_path};
use crate::request::PageRequest;
use crate::response::PageResponse;

pub(crate) use choice::suggest;

/// Longer schemas get no form: it would have too many fields, and every page must stay small.
const MAX_SCHEMA_LEN: usize = 50_000;

/// The page.
pub(crate) async fn show(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let name = request.query.value_of("tool").unwrap_or_default();
    // The arguments of an earlier call, to run it again.
    let earlier = match request.query.value_of("from").filter(|id| !id.is_empty()) {
        Some(id) => {
            let known = id.parse().map_err(|_| Error::Call(CallError::ExecutionNotFound { id: id.to_owned() }))?;
            request.service().execution(known).await?.arguments
        }
        None => None,
    };
    page(request, name, earlier.map(|arguments| pretty(arguments.get())), None).await
}

async fn page(
    request: &PageRequest<'_>,
    name: &str,
    arguments: Option<String>,
    outcome: Option<Html>,
) -> Result<PageResponse, Error> {
    let tool = if name.is_empty() { None } else { choice::find(request, name).await? };
    let bench = match &tool {
        Some(tool) => bench(request, tool, arguments, outcome).await?,
        None if name.is_empty() => choice::all(request),
        None => choice::missing(request, name).await?,
    };
    let body = html!(
        r#"<h1>Playground</h1><form class="filters" method="get" action="/playground"><label class="grow">Tool<input name="tool" value="{name:#}" list="tools" autocomplete="off" spellcheck="false" placeholder="part of a name, or server.tool"></label><datalist id="tools">{suggestions}</datalist><button class="quiet">Open</button></form>
{bench}<section aria-labelledby="history-title" id="history" hidden><h2 id="history-title">Your runs</h2><div class="scroll"><table class="cards"><tbody></tbody></table></div></section>"#,
        name = name,
        suggestions = choice::suggested(request, ""),
        bench = bench,
    );
    Ok(PageResponse::page(Page {
        title: "Playground".into(),
        place: "/playground",
        body,
        script: Some(&PLAYGROUND.path),
    }))
}

async fn bench(
    request: &PageRequest<'_>,
    tool: &ToolRecord,
    arguments: Option<String>,
    outcome: Option<Html>,
) -> Result<Html, Error> {
    let read = tool.input_schema.as_ref().map(|schema| serde_json::from_str::<Value>(schema.get())).transpose();
    let unread = read.as_ref().err().map(ToString::to_string);
    let schema = read.ok().flatten().unwrap_or_default();
    let form = Some(ascii(&schema)).filter(|text| text.len() <= MAX_SCHEMA_LEN);
    let hint = match &form {
        _ if unread.is_some() => html!("JSON; there is no form, because the schema cannot be read: {}", unread),
        Some(_) if schema["properties"].as_object().is_some_and(|members| !members.is_empty()) => {
            html!("JSON<span data-script hidden>; has the same content as the form above</span>")
        }
        Some(_) => html!("JSON"),
        None => html!("JSON; there is no form, because the schema is too long"),
    };
    let arguments =
        arguments.unwrap_or_else(|| serde_json::to_string_pretty(&example::of(&schema)).unwrap_or_default());
    let annotations = crate::pages::annotations(tool);
    let harm = match &annotations {
        Ok(annotations) => harm(annotations),
        // The behaviour is unknown.
        Err(_) => Some("may be destructive"),
    };
    let annotations = &annotations.unwrap_or_default();
    Ok(html!(
        r#"<div class="columns"><section aria-labelledby="ask"><h2 id="ask"><a href="{definition}">{short}</a></h2><div class="muted actions" id="of" data-live="server.">of {server}{off}{state}</div><details id="about" open><summary>What it does</summary>{description}</details>
<form class="card" id="bench" method="post" action="/playground" data-server="{server_name:#}" data-tool="{original:#}" data-name="{name:#}" data-schema="{schema:#}" data-harm="{harm:#}">{csrf}<input type="hidden" name="tool" value="{name:#}">
<noscript><p class="hint">With JavaScript, this page has a form, shows progress, and lets you answer requests of the server.</p></noscript><div id="fields"></div><div class="field"><label for="raw">Arguments <span class="hint">{hint}</span></label><textarea id="raw" name="arguments" rows="8" spellcheck="false">{arguments:#}</textarea></div>
{hints}<div class="actions"><button id="run" data-busy="Running …">Run</button>{warning}<button id="cancel" type="button" class="danger" hidden>Cancel</button><span id="problem" class="hint" role="alert"></span></div></form></section>
<section aria-labelledby="answer"><h2 id="answer">Result</h2><div id="outcome" aria-live="polite">{outcome}</div><div id="question"></div></section></div>"#,
        definition = tool_path(&tool.server_name, &tool.original_name),
        short = clip(&tool.original_name, 120),
        server = server_link_for(request, &tool.server_name),
        off = (!tool.enabled).then(|| html!(" · {}", display::badge("idle", "disabled"))),
        state = standing(request, tool).await?,
        description = long(tool.description.as_deref().unwrap_or("The server provides no description.")),
        server_name = ascii(&json!(tool.server_name)),
        original = ascii(&json!(tool.original_name)),
        name = tool.name,
        schema = form.as_deref().unwrap_or("null"),
        hint = hint,
        harm = harm,
        hints = hints(annotations),
        warning = harm.map(|harm| display::badge("warn", harm)),
        csrf = request.csrf(),
        arguments = arguments,
        outcome = outcome.unwrap_or_else(|| html!(r#"<p class="muted">Nothing has run yet.</p>"#)),
    ))
}

/// A warning before the run, if the server declares a reason.
fn harm(annotations: &Value) -> Option<&'static str> {
    (annotations["destructiveHint"] == true && annotations["readOnlyHint"] != true).then_some("may be destructive")
}

/// Whether the server is available; if not, what the user can do.
async fn standing(request: &PageRequest<'_>, tool: &ToolRecord) -> Result<Html, Error> {
    let record = request.service().server(&tool.server_name).await?.record;
    if record.status.is_up() {
        return Ok(Html::default());
    }
    let (action, word) = match (record.enabled, record.status) {
        _ if !request.may(&Method::POST, &server_path(&record.name)) => {
            return Ok(html!(" · {}", display::status(record.status)));
        }
        (false, _) => ("enable", "Enable"),
        (true, Status::Error) => ("connect", "Retry"),
        (true, Status::SignInRequired) => ("sign-in", "Sign in"),
        (true, Status::Connecting) => return Ok(html!(" · {}", display::status(record.status))),
        (true, _) => ("connect", "Connect"),
    };
    Ok(html!(
        r#" · {state} <form method="post" action="{path}/{action}">{csrf}<input type="hidden" name="back" value="{back:#}"><button class="quiet small">{word}</button></form>"#,
        state = display::status(record.status),
        path = server_path(&record.name),
        action = action,
        csrf = request.csrf(),
        back = form::address("/playground", &[("tool", &tool.name)]),
        word = word,
    ))
}

/// JSON in plain ASCII, so that nothing in it has to be escaped for display.
fn ascii(value: &Value) -> String {
    let mut out = String::new();
    for unit in value.to_string().encode_utf16() {
        match u8::try_from(unit) {
            Ok(byte) if byte.is_ascii() && !byte.is_ascii_control() => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\u{unit:04x}")),
        }
    }
    out
}

/// Runs the tool, without scripts.
pub(crate) async fn run(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let (name, text) = (request.form.text("tool"), request.form.text("arguments"));
    let line = text.replace(['\n', '\r'], " ");
    let arguments = match RawJson::parse(if line.trim().is_empty() { "{}".to_owned() } else { line }) {
        Ok(arguments) => arguments,
        Err(error) => {
            let why = html!(r#"<pre class="error">The arguments are not valid JSON: {}</pre>"#, error.to_string());
            return page(request, name, Some(text.to_owned()), Some(why)).await;
        }
    };
    let call = Call {
        name: name.to_owned(),
        server: None,
        arguments,
        source: Source::Rest,
        actor: request.actor.clone(),
        document: None,
        session: None,
        timeout_ms: None,
        trace: None,
    };
    let outcome = match request.service().call(call).await {
        Ok(outcome) => {
            let rendered = render::rendered(&outcome);
            if !rendered.is_whole {
                request.console.result_cache.put(&request.visitor.id, outcome.result.get());
            }
            rendered.markup
        }
        Err(error) => render::failed(&error_text(&error)),
    };
    page(request, name, Some(text.to_owned()), Some(outcome)).await
}

/// The last result that was too long for its page, as a download.
pub(crate) fn whole(request: &PageRequest<'_>) -> PageResponse {
    match request.console.result_cache.get(&request.visitor.id) {
        Some(result) => PageResponse::File {
            name: "result.json".into(),
            content_type: "application/json",
            content: result.as_bytes().to_vec(),
        },
        None => request.failed("This result is no longer stored. Run the tool again.", "/playground"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_reaches_the_script_unchanged() {
        let odd = json!({"\u{202e}é😀": "\u{1}"});
        let text = ascii(&odd);
        assert!(text.is_ascii());
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), odd);
    }
}
