//! The pages: one file for each, with its actions.

pub(crate) mod add;
pub(crate) mod audit;
pub(crate) mod callback;
pub(crate) mod clients;
mod confirm;
pub(crate) mod documents;
pub(crate) mod executions;
pub(crate) mod identity;
pub(crate) mod limits;
pub(crate) mod login;
pub(crate) mod overview;
pub(crate) mod playground;
pub(crate) mod profiles;
pub(crate) mod prompts;
pub(crate) mod resources;
pub(crate) mod server;
pub(crate) mod settings;
pub(crate) mod sign_in;
pub(crate) mod system;
pub(crate) mod tools;

use std::collections::HashMap;
use std::sync::Arc;

use http::Method;
use registry::Listed;
use serde_json::Value;
use serde_json::value::RawValue;
use service::{Error, ItemKind, ItemPage, ListPlace};

use crate::form;
use crate::html::{Html, html};
use crate::request::PageRequest;
pub(crate) use confirm::{Confirmation, ask, is_confirmed};

/// An error for people: every problem on its own line.
pub(crate) fn error_text(error: &Error) -> String {
    match error {
        Error::Validation { problems } => {
            let line = |problem: &service::Problem| format!("{}: {}", place(&problem.loc), problem.msg);
            problems.iter().map(line).collect::<Vec<_>>().join("\n")
        }
        _ => ::executions::with_local_times(&error.to_string()),
    }
}

fn place(parts: &[String]) -> String {
    parts.iter().skip_while(|part| *part == "body").map(String::as_str).collect::<Vec<_>>().join(".")
}

/// Indented JSON; any other text stays unchanged.
pub(crate) fn pretty(text: &str) -> String {
    let value: Result<Value, _> = serde_json::from_str(text);
    // Numbers that would change are not touched.
    let is_exact = |value: &Value| {
        serde_json::to_string(value).is_ok_and(|again| again.len() == text.len() || !has_odd_numbers(text))
    };
    match value {
        Ok(value) if is_exact(&value) => serde_json::to_string_pretty(&value).unwrap_or_else(|_| text.to_owned()),
        _ => text.to_owned(),
    }
}

/// A text of several lines, truncated to a number of characters.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    text.char_indices().nth(most).map_or_else(|| text.to_owned(), |(at, _)| format!("{}…", &text[..at]))
}

/// Whether there may be numbers that a JSON parser cannot represent.
fn has_odd_numbers(text: &str) -> bool {
    let mut digits = 0;
    text.bytes().any(|byte| {
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        digits > 15
    })
}

/// The names of all servers.
pub(crate) fn server_names(request: &PageRequest<'_>) -> Vec<String> {
    let listed = request.service().servers(None, registry::Page::ALL);
    listed.items.into_iter().map(|view| view.record.name).collect()
}

/// The path of a server's page.
pub(crate) fn server_path(name: &str) -> String {
    format!("/servers/{}", form::encoded(name))
}

/// A link to a server's page.
pub(crate) fn server_link_for(request: &PageRequest<'_>, name: &str) -> Html {
    match request.may(&Method::GET, &server_path(name)) {
        true => server_link(name),
        false => html!("{}", name),
    }
}

/// A link to the page of a server.
pub(crate) fn server_link(name: &str) -> Html {
    html!(r#"<a href="{path}">{name}</a>"#, path = server_path(name), name = name)
}

/// The path of a tool's page.
pub(crate) fn tool_path(server: &str, tool: &str) -> String {
    format!("/tools/{}/{}", form::encoded(server), form::encoded(tool))
}

/// The position in a list, with links to other pages.
pub(crate) fn pager(shown: usize, offset: u64, limit: u32, total: u64, address: impl Fn(u64) -> String) -> Html {
    let limit = u64::from(limit);
    if total <= limit && offset == 0 {
        return Html::default();
    }
    let link = |is_there: bool, to: u64, word: &str| match is_there {
        true => html!(r#"<a class="button quiet small" href="{to}">{word}</a>"#, to = address(to), word = word),
        false => html!(r#"<span class="button quiet small off">{word}</span>"#, word = word),
    };
    html!(
        r#"<nav class="pager" aria-label="Pages of the list">{back}<span>{from}–{to} of {total}</span>{on}</nav>"#,
        back = link(offset > 0, offset.saturating_sub(limit), "Previous"),
        from = crate::display::count(offset + 1),
        to = crate::display::count(offset + shown as u64),
        total = crate::display::count(total),
        on = link(offset + (shown as u64) < total, offset + limit, "Next"),
    )
}

/// Rows of a list on one page.
const ROWS: u32 = 50;

/// The page of a list that a query parameter names.
pub(crate) fn part(request: &PageRequest<'_>, name: &str) -> registry::Page {
    let offset = request.query.value_of(name).and_then(|offset| offset.parse().ok()).unwrap_or(0);
    registry::Page { limit: ROWS, offset }
}

/// Describes a page of items, unless it is interrupted.
type Describe<T> = fn(&ItemPage, &dyn Fn() -> bool) -> Result<Listed<T>, Error>;

/// A page of prompts, resources or templates, described where a list of its size belongs.
pub(crate) async fn items<T: Send + 'static>(
    request: &PageRequest<'_>,
    kind: ItemKind,
    part: registry::Page,
    describe: Describe<T>,
) -> Result<Listed<T>, Error> {
    let service = Arc::clone(request.service());
    let place = ListPlace::of(service.items(kind, None, part)?.size()).await?;
    place.run(move |is_over| describe(&service.items(kind, None, part)?, is_over)).await
}

/// The options of a select, with one of them selected.
pub(crate) fn options<'a>(choices: impl IntoIterator<Item = (&'a str, String)>, chosen: &str) -> Html {
    choices
        .into_iter()
        .map(|(value, name)| {
            html!(
                r#"<option value="{value:#}"{selected}>{name}</option>"#,
                value = value,
                selected = (value == chosen).then(|| html!(" selected")),
                name = name,
            )
        })
        .collect()
}

/// A notice that JSON of a server cannot be parsed into a tree: numbers out of range, lone surrogates, deep nesting.
pub(crate) fn unread(error: &serde_json::Error) -> Html {
    html!(r#"<p class="flash warn" role="status">The server's text cannot be displayed: {}</p>"#, error.to_string())
}

/// The annotations of a tool.
pub(crate) fn annotations(tool: &registry::ToolRecord) -> Result<Value, serde_json::Error> {
    let members: HashMap<String, &RawValue> = serde_json::from_str(tool.definition.get())?;
    members.get("annotations").map_or(Ok(Value::Null), |said| serde_json::from_str(said.get()))
}

#[cfg(test)]
mod tests {
    use ::executions::Error as CallError;
    use registry::{Status, Timestamp};

    use super::*;

    #[test]
    fn the_times_in_an_error_are_local() {
        let since = "2026-07-28T12:00:00Z";
        let sentence = |since: &str| format!("Server `a` is not available: error since {since}");
        let error = CallError::ServerUnavailable {
            server_id: String::new(),
            name: "a".to_owned(),
            status: Status::Error,
            sentence: sentence(since),
        };
        let local = since.parse::<Timestamp>().unwrap().local("%Y-%m-%d %H:%M:%S");
        assert_eq!(error_text(&Error::from(error)), sentence(&local));
    }
}
