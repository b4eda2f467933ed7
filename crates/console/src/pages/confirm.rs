//! Confirmation of actions that cannot be undone. Scripts ask in the page; without scripts, a separate page does.

use http::StatusCode;

use crate::html::{Html, html};
use crate::layout::Page;
use crate::request::PageRequest;
use crate::response::PageResponse;

/// The field that a confirmed request carries.
const CONFIRMED_FIELD: &str = "sure";

/// A confirmation before an action.
pub(crate) struct Confirmation<'a> {
    /// The question, the same as in scripts.
    pub(crate) about: &'a str,
    /// The name of the action.
    pub(crate) action: &'a str,
    /// The fields that are sent again.
    pub(crate) fields: &'a [(&'a str, &'a str)],
    /// Where to go on "cancel".
    pub(crate) back: &'a str,
}

/// Whether the action was confirmed.
pub(crate) fn is_confirmed(request: &PageRequest<'_>) -> bool {
    request.form.has(CONFIRMED_FIELD)
}

/// The page that asks. Its form is sent to the original action.
pub(crate) fn ask(request: &PageRequest<'_>, question: &Confirmation<'_>) -> PageResponse {
    let fields: Html = question
        .fields
        .iter()
        .map(|(name, value)| {
            html!(r#"<input type="hidden" name="{name:#}" value="{value:#}">"#, name = *name, value = *value)
        })
        .collect();
    let body = html!(
        r#"<section class="card narrow"><h1>Are you sure?</h1><p>{about}</p><form class="actions" method="post" action="{path}">{csrf}{fields}<input type="hidden" name="{sure}" value="yes"><button class="danger">{action}</button><a class="button quiet" href="{back}">Cancel</a></form></section>"#,
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
