//! What cannot be undone is asked for twice. Scripts ask in the page; where there are none, a page of its own does.

use http::StatusCode;

use crate::html::{Html, html};
use crate::layout::Page;
use crate::request::PageRequest;
use crate::response::PageResponse;

/// What is sent along by who was asked and means it.
const CONFIRMED_FIELD: &str = "sure";

/// A question before a deed.
pub(crate) struct Confirmation<'a> {
    /// What is asked, the same as scripts ask.
    pub(crate) about: &'a str,
    /// What the deed is called.
    pub(crate) action: &'a str,
    /// The fields that are sent again.
    pub(crate) fields: &'a [(&'a str, &'a str)],
    /// Where those go who do not mean it.
    pub(crate) back: &'a str,
}

/// Whether somebody was asked already, and meant it.
pub(crate) fn is_confirmed(request: &PageRequest<'_>) -> bool {
    request.form.has(CONFIRMED_FIELD)
}

/// The page that asks. What is answered goes to where the deed was asked for.
pub(crate) fn ask(request: &PageRequest<'_>, question: &Confirmation<'_>) -> PageResponse {
    let fields: Html = question
        .fields
        .iter()
        .map(|(name, value)| {
            html!(r#"<input type="hidden" name="{name:#}" value="{value:#}">"#, name = *name, value = *value)
        })
        .collect();
    let body = html!(
        r#"<section class="card narrow"><h1>Are you sure?</h1><p>{about}</p><form class="actions" method="post" action="{path}">{csrf}{fields}<input type="hidden" name="{sure}" value="yes"><button class="danger">{action}</button><a class="button quiet" href="{back}">No, go back</a></form></section>"#,
        about = question.about,
        path = request.path,
        csrf = request.csrf(),
        fields = fields,
        sure = CONFIRMED_FIELD,
        action = question.action,
        back = question.back,
    );
    PageResponse::Page(StatusCode::OK, Page { title: "Are you sure?".into(), body, ..Page::default() })
}
