//! One tool: its description and parameters, and the definition of the server.

use executions::Error as CallError;
use http::Method;
use registry::ToolRecord;
use serde_json::Value;
use service::Error;

use super::schema;
use crate::display;
use crate::form;
use crate::html::{Html, html};
use crate::layout::Page;
use crate::pages::overview::clip;
use crate::pages::{pretty, server_link_for};
use crate::request::PageRequest;
use crate::response::PageResponse;

/// How many characters of a text are shown.
const MAX_SHOWN_LEN: usize = 20_000;
/// How many characters of a long text are shown at first.
const BEGINNING: usize = 1_500;
/// The length of the pieces of a very long word.
const PIECE: usize = 1_000;

/// The page of one tool.
pub(crate) async fn show(request: &PageRequest<'_>, server: &str, name: &str) -> Result<PageResponse, Error> {
    let tool = request.service().tool_of(server, name).await?;
    let tool = tool.ok_or_else(|| Error::Call(CallError::ToolNotFound { name: format!("{server}.{name}") }))?;
    let definition = serde_json::from_str::<Value>(tool.definition.get());
    let unread = definition.as_ref().err().map(crate::pages::unread);
    let definition = definition.unwrap_or_default();
    let skills: Html = tool.skills.iter().map(|skill| html!(r#"<span class="tag">{}</span>"#, skill)).collect();
    let (action, word) = if tool.enabled { ("off", "Disable") } else { ("on", "Enable") };
    let body = html!(
        r#"<div class="head"><h1>{short}{state}</h1><form class="actions" method="post" action="/tools">{csrf}<input type="hidden" name="tool" value="{name:#}">
<input type="hidden" name="back" value="{back:#}"><a class="button small" href="{play}">Try in the playground</a>{switch}</form></div>
<p class="muted">{title}of {server} · <code>{name}</code>{for_clients} · {tokens} tokens {skills}</p>
<div class="card">{description}</div>
<section aria-labelledby="takes"><h2 id="takes">Parameters</h2>{parameters}</section>{output}{hints}
<section aria-labelledby="raw"><h2 id="raw">Definition from the server</h2><pre class="block" tabindex="0">{raw}</pre></section>"#,
        short = clip(&tool.original_name, 120),
        state = (!tool.enabled).then(|| html!(" {}", display::badge("idle", "disabled"))),
        csrf = request.csrf(),
        name = tool.name,
        back = crate::pages::tool_path(server, name),
        play = form::address("/playground", &[("tool", &tool.name)]),
        switch = request.may(&Method::POST, "/tools").then(|| {
            html!(
                r#"<button class="quiet small" name="action" value="{action:#}">{word}</button>"#,
                action = action,
                word = word,
            )
        }),
        title = definition["title"].as_str().map(|title| format!("{title}, ")),
        server = server_link_for(request, &tool.server_name),
        for_clients = for_clients(request, &tool),
        tokens = display::tokens(tool.definition.get().len() as u64),
        skills = skills,
        description = long(tool.description.as_deref().unwrap_or("The server provides no description.")),
        parameters = unread.unwrap_or_else(|| schema::table(&definition["inputSchema"])),
        output = definition["outputSchema"].is_object().then(|| {
            html!(
                r#"<section aria-labelledby="gives"><h2 id="gives">Result</h2>{}</section>"#,
                schema::table(&definition["outputSchema"])
            )
        }),
        hints = hints(&definition["annotations"]),
        raw = pieces(&cut(&pretty(tool.definition.get()))),
    );
    Ok(PageResponse::page(Page { title: clip(&tool.name, 80), place: "/tools", body, script: None }))
}

/// The names that clients use, if they differ from ours.
fn for_clients(request: &PageRequest<'_>, tool: &ToolRecord) -> Html {
    let names = request.service().names_for_clients(&tool.server_name, &tool.original_name);
    let others = names.into_iter().filter(|name| *name != tool.name);
    let said: Vec<Html> = others.map(|name| html!("<code>{}</code> ", clip(&name, 200))).collect();
    match said.is_empty() {
        true => Html::default(),
        false => html!(" · for clients also {}", said.into_iter().collect::<Html>()),
    }
}

/// A text whose start is shown, and the rest on request.
pub(crate) fn long(text: &str) -> Html {
    let Some((at, _)) = text.char_indices().nth(BEGINNING) else {
        return html!(r#"<pre class="prose">{}</pre>"#, text);
    };
    html!(
        r#"<pre class="prose">{beginning} …</pre><details class="more"><summary>Show all ({size})</summary><pre class="prose">{all}</pre></details>"#,
        beginning = &text[..at],
        size = display::size(text.len() as u64),
        all = pieces(&cut(text)),
    )
}

/// A text in pieces: browsers are slow with words of many thousand letters.
fn pieces(text: &str) -> Html {
    if !text.split_whitespace().any(|word| word.len() > PIECE) {
        return html!("{}", text);
    }
    let mut rest = text;
    let mut out = Html::default();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE.min(rest.len())));
        out.add(&html!(r#"<span class="piece">{}</span>"#, piece));
        rest = after;
    }
    out
}

/// A text within a limit that browsers can lay out: a server may send a word of many thousand letters.
pub(crate) fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN_LEN) {
        Some((at, _)) => {
            let more = display::size((text.len() - at) as u64);
            format!("{}… and {more} more; GET /api/v1/aggregator/tools returns all of it", &text[..at])
        }
        None => text.to_owned(),
    }
}

/// The hints of the server about the behaviour; they are not verified.
pub(crate) fn hints(annotations: &Value) -> Html {
    let known = [
        ("readOnlyHint", "read-only"),
        ("destructiveHint", "destructive"),
        ("idempotentHint", "idempotent"),
        ("openWorldHint", "open world"),
    ];
    let said: Html = known
        .iter()
        .filter_map(|(key, word)| annotations[*key].as_bool().map(|is_so| (is_so, *word)))
        .map(|(is_so, word)| html!(r#"<span class="tag">{}: {}</span>"#, word, if is_so { "yes" } else { "no" }))
        .collect();
    if said.0.is_empty() { said } else { html!(r#"<p>Hints of the server: {}</p>"#, said) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_folded_and_a_long_word_is_in_pieces() {
        assert_eq!(long("short").0, r#"<pre class="prose">short</pre>"#);
        let shown = long(&"é".repeat(200_000)).0;
        assert!(
            shown.len() < 100_000 && shown.contains("Show all (390.6 KB)") && shown.contains("piece"),
            "{}",
            shown.len()
        );
    }
}
