//! Renders a result without scripts: text up to a limit, pictures, and a link to all of it.

use std::time::Duration;

use executions::Outcome;
use serde_json::{Value, json};

use crate::display;
use crate::form;
use crate::html::{Html, html};
use crate::pages::{pretty, unread};

/// How many characters of a text are shown.
const MAX_TEXT_LEN: usize = 20_000;
/// How many characters of pictures are shown, so that the page stays small.
const MAX_PICTURES_BYTES: usize = 4_000_000;
/// The types of pictures that are shown.
const PICTURES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// The address of the whole last result.
const WHOLE_RESULT_PATH: &str = "/playground/result";
/// Part of the error for servers that send a request which nobody can answer.
const NOBODY_TO_ASK: &str = "cannot be asked now";

/// A rendered result, and whether it is complete.
pub(super) struct Rendered {
    pub(super) markup: Html,
    pub(super) is_whole: bool,
}

/// Renders a result with its timing.
pub(super) fn rendered(outcome: &Outcome) -> Rendered {
    let (result, state) = understood(outcome.result.get());
    let mut page = ResultPage { is_whole: true, pictures_left: MAX_PICTURES_BYTES };
    let parts: Html = match result["content"].as_array() {
        Some(content) if !content.is_empty() => content.iter().map(|part| page.part(part)).collect(),
        _ => page.text(&pretty(outcome.result.get())),
    };
    let raw = page.text(&pretty(outcome.result.get()));
    let span = |milliseconds: f64| display::took(Duration::from_secs_f64(milliseconds.max(0.0) / 1000.0));
    let metadata = &outcome.metadata;
    let has_asked = outcome.result.get().contains(NOBODY_TO_ASK);
    let size = display::size(outcome.result.get().len() as u64);
    let save = (!page.is_whole).then(|| {
        html!(
            r#"<p class="flash warn">Not all of it is shown. <a href="{whole}">Save all</a> ({size})</p>"#,
            whole = WHOLE_RESULT_PATH,
            size = size
        )
    });
    let markup = html!(
        r#"<div class="result">{state}{question}{save}{parts}<p class="muted">queue {queue} · routing {routing} · on the server {execution} · <a href="/executions/{id}">execution</a></p>
<details><summary>Raw result</summary>{raw}</details></div>"#,
        state = state,
        question = has_asked.then(needs_scripts),
        save = save,
        parts = parts,
        queue = span(metadata.queue_time_ms),
        routing = span(metadata.routing_time_ms),
        execution = span(metadata.execution_time_ms),
        id = form::encoded(&metadata.execution_id.to_string()),
        raw = raw,
    );
    Rendered { markup, is_whole: page.is_whole }
}

/// A result as a tree, and its outcome. Neither is known for an unreadable one.
fn understood(result: &str) -> (Value, Html) {
    match serde_json::from_str::<Value>(result) {
        Ok(result) if result["isError"] == true => (result, display::badge("bad", "the tool reports a failure")),
        Ok(result) => (result, display::badge("ok", "done")),
        Err(error) => (Value::Null, html!("{}{}", display::badge("warn", "not a valid result"), unread(&error))),
    }
}

/// Renders an error.
pub(super) fn failed(why: &str) -> Html {
    let question = why.contains(NOBODY_TO_ASK).then(needs_scripts);
    html!(r#"{question}<pre class="error">{why}</pre>"#, question = question, why = why)
}

fn needs_scripts() -> Html {
    html!(r#"<p class="flash warn">The server sent a request for you. Answering it requires JavaScript.</p>"#)
}

/// The state of rendering.
struct ResultPage {
    is_whole: bool,
    pictures_left: usize,
}

impl ResultPage {
    fn text(&mut self, text: &str) -> Html {
        let cut = text.char_indices().nth(MAX_TEXT_LEN).map(|(at, _)| at);
        self.is_whole &= cut.is_none();
        let shown = cut.map_or(text, |at| &text[..at]);
        html!(
            r#"<pre class="block" tabindex="0">{shown}{more}</pre>"#,
            shown = shown,
            more = cut.map(|at| format!(" … ({} more)", display::size((text.len() - at) as u64))),
        )
    }

    fn part(&mut self, part: &Value) -> Html {
        let said = |name: &str| part[name].as_str();
        match said("type") {
            Some("text") => self.text(&pretty(said("text").unwrap_or_default())),
            Some("image") => self.picture(part).unwrap_or_else(|| self.other(part)),
            Some("resource_link") => link(said("title").or(said("name")), said("uri").unwrap_or_default()),
            Some("resource") if part["resource"]["text"].is_string() => html!(
                r#"<p class="muted">{uri}</p>{text}"#,
                uri = part["resource"]["uri"].as_str(),
                text = self.text(part["resource"]["text"].as_str().unwrap_or_default()),
            ),
            _ => self.other(part),
        }
    }

    fn picture(&mut self, part: &Value) -> Option<Html> {
        let kind = PICTURES.iter().find(|kind| part["mimeType"] == **kind)?;
        let data = part["data"].as_str()?;
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=\r\n".contains(&byte);
        if !data.bytes().all(is_letter) || data.len() > self.pictures_left {
            return None;
        }
        self.pictures_left -= data.len();
        Some(html!(
            r#"<img src="data:{kind};base64,{data}" alt="image returned by the tool">"#,
            kind = *kind,
            data = data
        ))
    }

    /// Any other part as JSON, without binary data.
    fn other(&mut self, part: &Value) -> Html {
        let mut part = part.clone();
        for holder in ["", "/resource"] {
            let Some(members) = part.pointer_mut(holder).and_then(Value::as_object_mut) else { continue };
            for (name, value) in members.iter_mut().filter(|(name, _)| matches!(name.as_str(), "data" | "blob")) {
                let Some(text) = value.as_str() else { continue };
                self.is_whole = false;
                *value = json!(format!("… {} of {name}", display::several(text.len() as u64, "character")));
            }
        }
        self.text(&format!("{part:#}"))
    }
}

fn link(name: Option<&str>, uri: &str) -> Html {
    let is_web = uri.starts_with("https://") || uri.starts_with("http://");
    let target = match is_web {
        true => html!(r#"<a href="{uri}" rel="noopener noreferrer" target="_blank">{uri}</a>"#, uri = uri),
        false => html!("<code>{}</code>", uri),
    };
    html!("<p>{name}: {target}</p>", name = name.unwrap_or("A resource"), target = target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(part: &Value) -> (String, bool) {
        let mut page = ResultPage { is_whole: true, pictures_left: 100 };
        (page.part(part).0, page.is_whole)
    }

    #[test]
    fn what_is_long_is_cut_and_what_is_a_picture_is_shown() {
        let (text, is_whole) = shown(&json!({"type": "text", "text": "é".repeat(MAX_TEXT_LEN + 1)}));
        assert!(!is_whole && text.ends_with("… (2 B more)</pre>"), "{}", &text[text.len() - 40..]);
        let (picture, is_whole) = shown(&json!({"type": "image", "mimeType": "image/png", "data": "aGk="}));
        assert!(is_whole && picture.contains("src=\"data:image/png;base64,aGk=\""), "{picture}");
        let (large, is_whole) = shown(&json!({"type": "image", "mimeType": "image/png", "data": "a".repeat(101)}));
        assert!(!is_whole && large.contains("101 characters of data"), "{large}");
    }

    #[test]
    fn a_result_that_cannot_be_read_is_not_taken_for_success() {
        let (result, state) = understood(r#"{"content":[{"type":"text","text":"\ud800"}],"isError":true}"#);
        assert!(result.is_null() && state.0.contains("not a valid result") && !state.0.contains("done"), "{state:?}");
        assert!(understood(r#"{"isError":true}"#).1.0.contains("reports a failure"));
        assert!(understood(r#"{"content":[]}"#).1.0.contains("done"));
    }

    #[test]
    fn nothing_in_a_result_becomes_markup() {
        for part in [
            json!({"type": "image", "mimeType": "image/png", "data": "\"><script>"}),
            json!({"type": "image", "mimeType": "image/svg+xml", "data": "aGk="}),
            json!({"type": "resource_link", "uri": "javascript:alert(1)", "name": "<script>"}),
            json!({"type": "resource", "resource": {"uri": "<script>", "text": "<script>"}}),
        ] {
            let (markup, _) = shown(&part);
            assert!(!markup.contains("<script") && !markup.contains("<img") && !markup.contains("<a "), "{markup}");
        }
    }
}
