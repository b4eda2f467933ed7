//! The playground: a tool tried without writing JSON. With scripts the page is an MCP client of its own, with progress,
//! cancellation and questions; without, a form with JSON in it does.

use std::time::Duration;

use registry::{Page as Part, RawJson, Source, ToolRecord};
use serde_json::{Map, Value, json};
use service::Error;
use service::calls::{Call, Outcome};

use crate::assets::PLAYGROUND;
use crate::form;
use crate::frame::Page;
use crate::html::{Html, html};
use crate::pages::overview::clip;
use crate::pages::{pretty, server_link, told, tool_path};
use crate::reply::Reply;
use crate::visit::Visit;
use crate::words;

/// So many tools are suggested; who wants another one finds it on the page of tools.
const SUGGESTED: u32 = 200;

/// From a longer schema no form is made: nobody fills in so many fields, and every page must stay light.
const LONGEST_SCHEMA: usize = 50_000;

/// The page.
pub(crate) async fn show(visit: &Visit<'_>) -> Result<Reply, Error> {
    let name = visit.query.said("tool").unwrap_or_default();
    // What an earlier call was given, to be run again.
    let earlier = match visit.query.said("from").and_then(|id| id.parse().ok()) {
        Some(id) => visit.service().execution(id).await.ok().and_then(|call| call.arguments),
        None => None,
    };
    page(visit, name, earlier.map(|arguments| pretty(arguments.get())), None).await
}

async fn page(visit: &Visit<'_>, name: &str, arguments: Option<String>, outcome: Option<Html>) -> Result<Reply, Error> {
    let tool = if name.is_empty() { None } else { find(visit, name).await? };
    let suggestions = visit.service().tools_page(None, Part::first(SUGGESTED)).await?.items;
    let suggestions: Html = suggestions
        .iter()
        .filter(|tool| tool.enabled)
        .map(|tool| html!(r#"<option value="{:#}">"#, tool.name))
        .collect();
    let bench = match &tool {
        Some(tool) => bench(visit, tool, arguments, outcome),
        None if name.is_empty() => html!(
            r#"<div class="empty"><h2>Choose a tool</h2><p>Write its name above, or <a href="/tools">find one by what it does</a>.</p></div>"#
        ),
        None => html!(
            r#"<div class="empty"><h2>There is no tool <code>{name}</code></h2><p>Its server may be gone. <a href="/tools">Look for another one.</a></p></div>"#,
            name = clip(name, 120)
        ),
    };
    let body = html!(
        r#"<h1>Playground</h1><form class="filters" method="get" action="/playground"><label class="grow">Tool<input name="tool" value="{name:#}" list="tools" autocomplete="off" spellcheck="false" placeholder="server.tool"></label><datalist id="tools">{suggestions}</datalist><button class="quiet">Open</button></form>
{bench}<section aria-labelledby="history-title" id="history" hidden><h2 id="history-title">What you ran</h2><div class="scroll"><table class="cards"><tbody></tbody></table></div></section>"#,
        name = name,
        suggestions = suggestions,
        bench = bench,
    );
    Ok(Reply::page(Page { title: "Playground".into(), place: "/playground", body, script: Some(&PLAYGROUND.path) }))
}

/// The tool of a full name: its server's name may have a dot in it, too.
async fn find(visit: &Visit<'_>, name: &str) -> Result<Option<ToolRecord>, Error> {
    for (at, _) in name.match_indices('.') {
        match visit.service().tools(Some(&name[..at])).await {
            Ok(tools) => {
                if let Some(tool) = tools.into_iter().find(|tool| tool.name == name) {
                    return Ok(Some(tool));
                }
            }
            Err(Error::ServerNotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn bench(visit: &Visit<'_>, tool: &ToolRecord, arguments: Option<String>, outcome: Option<Html>) -> Html {
    let schema: Value =
        tool.input_schema.as_ref().and_then(|schema| serde_json::from_str(schema.get()).ok()).unwrap_or_default();
    let form = Some(ascii(&schema)).filter(|text| text.len() <= LONGEST_SCHEMA);
    let hint = match &form {
        Some(_) if schema["properties"].as_object().is_some_and(|members| !members.is_empty()) => {
            "JSON; the form above and this are the same"
        }
        Some(_) => "JSON",
        None => "JSON; there is no form, for the schema is too long",
    };
    let arguments = arguments.unwrap_or_else(|| serde_json::to_string_pretty(&example(&schema)).unwrap_or_default());
    html!(
        r#"<div class="columns"><section aria-labelledby="ask"><h2 id="ask"><a href="{definition}">{short}</a></h2><p class="muted">of {server}{off}</p><details id="about" open><summary>What it does</summary><pre class="prose">{description}</pre></details>
<form class="card" id="bench" method="post" action="/playground" data-server="{server_name:#}" data-tool="{original:#}" data-name="{name:#}" data-schema="{schema:#}">{csrf}<input type="hidden" name="tool" value="{name:#}">
<div id="fields"></div><div class="field"><label for="raw">Arguments <span class="hint">{hint}</span></label><textarea id="raw" name="arguments" rows="8" spellcheck="false">{arguments:#}</textarea></div>
<div class="actions"><button id="run" data-busy="Running …">Run</button><button id="cancel" type="button" class="danger" hidden>Cancel</button><span id="problem" class="hint" role="alert"></span></div></form></section>
<section aria-labelledby="answer"><h2 id="answer">Result</h2><div id="outcome" aria-live="polite">{outcome}</div><div id="question"></div></section></div>"#,
        definition = tool_path(&tool.server_name, &tool.original_name),
        short = clip(&tool.original_name, 120),
        server = server_link(&tool.server_name),
        off = (!tool.enabled).then(|| html!(" · {}", words::badge("idle", "off"))),
        description = crate::pages::tools::cut(tool.description.as_deref().unwrap_or("Its server does not say.")),
        server_name = ascii(&json!(tool.server_name)),
        original = ascii(&json!(tool.original_name)),
        name = tool.name,
        schema = form.as_deref().unwrap_or("null"),
        hint = hint,
        csrf = visit.csrf(),
        arguments = arguments,
        outcome = outcome.unwrap_or_else(|| html!(r#"<p class="muted">Nothing has run yet.</p>"#)),
    )
}

/// JSON in plain ASCII, so that nothing in it has to be shown otherwise than it is.
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

/// The least that a tool must be given.
fn example(schema: &Value) -> Value {
    example_in(schema, schema, 0)
}

fn example_in(schema: &Value, root: &Value, depth: usize) -> Value {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let member = |name: &str| (name.to_owned(), example_of(&schema["properties"][name], root, depth));
    Value::Object(required.map(member).collect::<Map<_, _>>())
}

/// Schemas may name themselves; so deep they are followed.
const DEEPEST: usize = 6;

/// What a schema refers to, or allows beside `null`.
fn meant<'s>(schema: &'s Value, root: &'s Value) -> Option<&'s Value> {
    if let Some(target) = schema["$ref"].as_str() {
        return root.pointer(target.strip_prefix('#')?);
    }
    let all = ["allOf", "anyOf", "oneOf"].iter().find_map(|key| schema[*key].as_array())?;
    all.iter().find(|one| one["type"] != "null")
}

fn example_of(schema: &Value, root: &Value, depth: usize) -> Value {
    if let Some(value) = schema.get("default").or(schema.get("const")).or_else(|| schema["enum"].get(0)) {
        return value.clone();
    }
    if let Some(meant) = meant(schema, root).filter(|_| depth < DEEPEST && schema["type"].is_null()) {
        return example_of(meant, root, depth + 1);
    }
    match schema["type"].as_str() {
        Some("number" | "integer") => schema.get("minimum").cloned().unwrap_or(json!(0)),
        Some("boolean") => json!(false),
        Some("array") => json!([]),
        Some("object") if depth >= DEEPEST => json!({}),
        Some("object") => example_in(schema, root, depth + 1),
        Some("null") => Value::Null,
        _ => json!(""),
    }
}

/// The tool is to be run, without scripts.
pub(crate) async fn run(visit: &Visit<'_>) -> Result<Reply, Error> {
    let (name, text) = (visit.form.text("tool"), visit.form.text("arguments"));
    let line = text.replace(['\n', '\r'], " ");
    let arguments = match RawJson::parse(if line.trim().is_empty() { "{}".to_owned() } else { line }) {
        Ok(arguments) => arguments,
        Err(error) => {
            let why = html!(r#"<pre class="error">The arguments are no JSON: {}</pre>"#, error.to_string());
            return page(visit, name, Some(text.to_owned()), Some(why)).await;
        }
    };
    let call = Call {
        name: name.to_owned(),
        server: None,
        arguments,
        source: Source::Rest,
        actor: visit.actor.clone(),
        document: None,
        session: None,
        timeout_ms: None,
        trace: None,
    };
    let outcome = match visit.service().call(call).await {
        Ok(outcome) => rendered(&outcome),
        Err(error) => html!(r#"<pre class="error">{}</pre>"#, told(&error)),
    };
    page(visit, name, Some(text.to_owned()), Some(outcome)).await
}

/// A result as far as it can be shown without scripts.
fn rendered(outcome: &Outcome) -> Html {
    let result: Value = serde_json::from_str(outcome.result.get()).unwrap_or_default();
    let content = result["content"].as_array().cloned().unwrap_or_default();
    let parts: Html = content
        .iter()
        .map(|part| match (part["type"].as_str(), part["text"].as_str()) {
            (Some("text"), Some(text)) => html!(r#"<pre class="block">{}</pre>"#, text),
            _ => html!(r#"<pre class="block">{}</pre>"#, format!("{part:#}")),
        })
        .collect();
    let span = |milliseconds: f64| words::took(Duration::from_secs_f64(milliseconds.max(0.0) / 1000.0));
    let metadata = &outcome.metadata;
    html!(
        r#"<div class="result">{state}{parts}<p class="muted">waiting {queue} · routing {routing} · at the server {execution} · <a href="/executions/{id}">execution</a></p>
<details><summary>As it came</summary><pre class="block">{raw}</pre></details></div>"#,
        state = if result["isError"] == json!(true) {
            words::badge("bad", "the tool says it failed")
        } else {
            words::badge("ok", "done")
        },
        parts = parts,
        queue = span(metadata.queue_time_ms),
        routing = span(metadata.routing_time_ms),
        execution = span(metadata.execution_time_ms),
        id = form::encoded(&metadata.execution_id.to_string()),
        raw = pretty(outcome.result.get()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_has_what_is_required_and_no_more() {
        let schema = json!({"required": ["a", "b", "c"], "properties": {
            "a": {"type": "string"}, "b": {"enum": ["x", "y"]}, "c": {"type": "object", "required": ["d"], "properties": {"d": {"type": "integer", "minimum": 3}}}, "e": {}}});
        assert_eq!(example(&schema), json!({"a": "", "b": "x", "c": {"d": 3}}));
        assert_eq!(example(&json!(true)), json!({}));
    }

    #[test]
    fn a_schema_reaches_the_script_as_it_is() {
        let odd = json!({"\u{202e}é😀": "\u{1}"});
        let text = ascii(&odd);
        assert!(text.is_ascii());
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), odd);
    }
}
