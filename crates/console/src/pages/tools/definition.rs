//! One tool: what it does and takes, so that people can read it; and as its server wrote it.

use serde_json::{Map, Value};
use service::Error;

use crate::form;
use crate::frame::Page;
use crate::html::{Html, html};
use crate::pages::overview::clip;
use crate::pages::{pretty, server_link};
use crate::reply::Reply;
use crate::visit::Visit;
use crate::words;

/// So many letters of a text are shown.
const LONGEST: usize = 20_000;

/// The page of one tool.
pub(crate) async fn show(visit: &Visit<'_>, server: &str, name: &str) -> Result<Reply, Error> {
    let tools = visit.service().tools(Some(server)).await?;
    let tool = tools.into_iter().find(|tool| tool.original_name == name);
    let tool = tool.ok_or_else(|| Error::ToolNotFound { name: format!("{server}.{name}") })?;
    let definition: Value = serde_json::from_str(tool.definition.get()).unwrap_or_default();
    let skills: Html = tool.skills.iter().map(|skill| html!(r#"<span class="tag">{}</span>"#, skill)).collect();
    let (deed, word) = if tool.enabled { ("off", "Switch off") } else { ("on", "Switch on") };
    let body = html!(
        r#"<div class="head"><h1>{short}{state}</h1><form class="actions" method="post" action="/tools">{csrf}<input type="hidden" name="tool" value="{name:#}">
<input type="hidden" name="back" value="{back:#}"><a class="button small" href="{play}">Try in the playground</a><button class="quiet small" name="deed" value="{deed:#}">{word}</button></form></div>
<p class="muted">{title}of {server} · <code>{name}</code> · {tokens} tokens {skills}</p>
<div class="card"><pre class="prose">{description}</pre></div>
<section aria-labelledby="takes"><h2 id="takes">What it takes</h2>{parameters}</section>{output}{hints}
<section aria-labelledby="raw"><h2 id="raw">As its server wrote it</h2><pre class="block" tabindex="0">{raw}</pre></section>"#,
        short = clip(&tool.original_name, 120),
        state = (!tool.enabled).then(|| html!(" {}", words::badge("idle", "off"))),
        csrf = visit.csrf(),
        name = tool.name,
        back = crate::pages::tool_path(server, name),
        play = form::address("/playground", &[("tool", &tool.name)]),
        deed = deed,
        word = word,
        title = definition["title"].as_str().map(|title| format!("{title}, ")),
        server = server_link(&tool.server_name),
        tokens = words::tokens(tool.definition.get().len() as u64),
        skills = skills,
        description = cut(tool.description.as_deref().unwrap_or("Its server does not say what it does.")),
        parameters = parameters(&definition["inputSchema"]),
        output = definition["outputSchema"].is_object().then(|| {
            html!(
                r#"<section aria-labelledby="gives"><h2 id="gives">What it gives</h2>{}</section>"#,
                parameters(&definition["outputSchema"])
            )
        }),
        hints = hints(&definition["annotations"]),
        raw = cut(&pretty(tool.definition.get())),
    );
    Ok(Reply::page(Page { title: clip(&tool.name, 80), place: "/tools", body, script: None }))
}

/// As much of a text as people read and browsers can lay out: a server may send a word of many thousand letters.
pub(crate) fn cut(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => {
            let more = words::size((text.len() - at) as u64);
            format!("{}… and {more} more; GET /api/v1/aggregator/tools has all of it", &text[..at])
        }
        None => text.to_owned(),
    }
}

/// The members of an object as a table.
fn parameters(schema: &Value) -> Html {
    let nothing = Map::new();
    let members = schema["properties"].as_object().unwrap_or(&nothing);
    if members.is_empty() {
        return html!(r#"<p class="muted">Nothing, or anything: its schema names no members.</p>"#);
    }
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let rows: Html = members
        .iter()
        .map(|(name, member)| {
            html!(
                r#"<tr><th scope="row"><code>{name}</code>{required}</th><td>{kind}</td><td>{about}</td></tr>"#,
                name = name,
                required = required.contains(&name.as_str()).then(|| html!(r#" <span class="tag">required</span>"#)),
                kind = kind(member),
                about = member["description"].as_str().map(cut),
            )
        })
        .collect();
    html!(
        r#"<div class="scroll"><table><thead><tr><th>Name</th><th>Type</th><th>What it means</th></tr></thead><tbody>{}</tbody></table></div>"#,
        rows
    )
}

/// What a value may be, in few words.
fn kind(schema: &Value) -> String {
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<String> =
            words.iter().take(12).map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned)).collect();
        return format!("one of {}", words.join(", "));
    }
    let word = match &schema["type"] {
        Value::String(word) => word.clone(),
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "anything".to_owned(),
    };
    let of = if word == "array" { format!(" of {}", kind(&schema["items"])) } else { String::new() };
    let default = schema.get("default").map(|default| format!(", else {default}")).unwrap_or_default();
    format!("{word}{of}{default}")
}

/// What its server says about its harmlessness; nobody has checked that.
fn hints(annotations: &Value) -> Html {
    let known = [
        ("readOnlyHint", "only reads"),
        ("destructiveHint", "may destroy"),
        ("idempotentHint", "may be repeated"),
        ("openWorldHint", "reaches out"),
    ];
    let said: Html = known
        .iter()
        .filter_map(|(key, word)| annotations[*key].as_bool().map(|is_so| (is_so, *word)))
        .map(|(is_so, word)| html!(r#"<span class="tag">{}: {}</span>"#, word, if is_so { "yes" } else { "no" }))
        .collect();
    if said.0.is_empty() { said } else { html!(r#"<p>Its server says: {}</p>"#, said) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_told_in_few_words() {
        assert_eq!(kind(&json!({"type": "array", "items": {"type": ["string", "null"]}})), "array of string or null");
        assert_eq!(kind(&json!({"enum": ["a", 1]})), "one of a, 1");
        assert_eq!(kind(&json!({"type": "integer", "default": 5})), "integer, else 5");
        assert_eq!(kind(&json!(true)), "anything");
    }
}
