//! The prompts of all servers, and one of them with arguments.

use registry::RawJson;
use serde_json::{Map, Value, json};
use service::{Error, ItemKind, ItemPage, PromptView};

use crate::display;
use crate::form;
use crate::html::{Html, html};
use crate::layout::Page;
use crate::pages::overview::clip;
use crate::pages::{error_text, items, pager, part, pretty, server_link, shortened};
use crate::request::PageRequest;
use crate::response::PageResponse;

/// The prefix of form fields for arguments of a prompt.
const ARGUMENT: &str = "argument.";
/// How many characters of a message are shown.
const MAX_MESSAGE_LEN: usize = 20_000;

/// The list.
pub(crate) async fn list(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let part = part(request, "offset");
    let prompts = items(request, ItemKind::Prompt, part, ItemPage::prompts).await?;
    let rows: Html = prompts.items.iter().map(row).collect();
    let table = match prompts.total {
        0 => html!(r#"<div class="empty"><h3>No prompts</h3><p>No connected server has any.</p></div>"#),
        _ => html!(
            r#"<div class="scroll"><table class="cards"><thead><tr><th>Prompt</th><th>Server</th><th>Description</th></tr></thead><tbody>{}</tbody></table></div>"#,
            rows
        ),
    };
    let body = html!(
        r#"<h1>Prompts</h1><div id="prompts" data-live="server. tools."><p class="muted">{total}</p>{table}{pager}</div>"#,
        total = display::several(prompts.total, "prompt"),
        table = table,
        pager = pager(prompts.items.len(), part.offset, part.limit, prompts.total, |offset| {
            form::address("/prompts", &[("offset", &offset.to_string())])
        }),
    );
    Ok(PageResponse::page(Page { title: "Prompts".into(), place: "/prompts", body, script: None }))
}

fn row(prompt: &PromptView) -> Html {
    html!(
        r#"<tr><th scope="row"><a href="{path}">{name}</a></th><td data-name="Server">{server}</td><td data-name="Description">{about}</td></tr>"#,
        path = form::address("/prompts/get", &[("name", &prompt.name)]),
        name = clip(&prompt.original_name, 80),
        server = server_link(&prompt.server_name),
        about = about(prompt).map(|about| clip(about, 160)),
    )
}

fn about(prompt: &PromptView) -> Option<&str> {
    prompt.description.as_deref().or(prompt.title.as_deref())
}

/// One prompt: its arguments, and its messages.
pub(crate) async fn get(request: &PageRequest<'_>) -> Result<PageResponse, Error> {
    let name = request.query.value_of("name").unwrap_or_default();
    let prompt = &request.service().prompt_view(name)?;
    let given: Map<String, Value> = request
        .query
        .beginning_with(ARGUMENT)
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect();
    let outcome = match request.query.has("run") {
        true => Some(filled_in(request, prompt, &given).await),
        false => None,
    };
    let arguments: Vec<Value> = serde_json::from_str(prompt.arguments.get()).unwrap_or_default();
    let fields: Html = arguments.iter().map(|argument| field(argument, &given)).collect();
    let body = html!(
        r#"<h1>{name}</h1><p class="muted">of {server}</p>{about}<form class="card" method="get" action="/prompts/get"><input type="hidden" name="name" value="{full:#}"><input type="hidden" name="run" value="1">{fields}<div class="actions"><button>Get</button><a class="button quiet" href="/prompts">All prompts</a></div></form>{outcome}"#,
        name = clip(&prompt.original_name, 120),
        server = server_link(&prompt.server_name),
        about = about(prompt).map(|about| html!("<p>{}</p>", about)),
        full = prompt.name,
        fields = fields,
        outcome = outcome,
    );
    Ok(PageResponse::page(Page { title: clip(&prompt.original_name, 80), place: "/prompts", body, script: None }))
}

fn field(argument: &Value, given: &Map<String, Value>) -> Html {
    let name = argument["name"].as_str().unwrap_or_default();
    let is_required = argument["required"] == true;
    html!(
        r#"<div class="field"><label>{name}{needed} <span class="hint">{about}</span><input name="{field:#}" value="{value:#}" autocomplete="off"{required}></label></div>"#,
        name = clip(name, 80),
        needed = (!is_required).then_some(" (optional)"),
        about = argument["description"].as_str().map(|about| clip(about, 200)),
        field = format!("{ARGUMENT}{name}"),
        value = given.get(name).and_then(Value::as_str).unwrap_or_default(),
        required = is_required.then(|| html!(" required")),
    )
}

async fn filled_in(request: &PageRequest<'_>, prompt: &PromptView, given: &Map<String, Value>) -> Html {
    let arguments = RawJson::parse(json!(given).to_string()).expect("what was written as JSON is JSON");
    let result = match request.service().prompt(&request.actor, &prompt.name, &arguments).await {
        Ok(result) => result,
        Err(error) => return html!(r#"<h2>Request failed</h2><pre class="error">{}</pre>"#, error_text(&error)),
    };
    let messages: Html = match serde_json::from_str::<Value>(result.get()) {
        Ok(read) => read["messages"].as_array().into_iter().flatten().map(message).collect(),
        Err(error) => super::unread(&error),
    };
    html!(
        r#"<h2>Messages</h2>{messages}<details><summary>Raw result</summary><pre class="block" tabindex="0">{raw}</pre></details>"#,
        messages = messages,
        raw = shortened(&pretty(result.get()), MAX_MESSAGE_LEN),
    )
}

fn message(message: &Value) -> Html {
    let content = &message["content"];
    let text = content["text"].as_str().map_or_else(|| pretty(&content.to_string()), str::to_owned);
    html!(
        r#"<section class="card"><h3>{role}</h3><pre class="block" tabindex="0">{text}</pre></section>"#,
        role = message["role"].as_str().unwrap_or_default(),
        text = shortened(&text, MAX_MESSAGE_LEN),
    )
}
