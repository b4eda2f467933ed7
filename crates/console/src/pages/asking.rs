//! What cannot be undone is asked for twice. Scripts ask in the page; where there are none, a page of its own does.

use http::StatusCode;

use crate::frame::Page;
use crate::html::{Html, html};
use crate::reply::Reply;
use crate::visit::Visit;

/// What is sent along by who was asked and means it.
const SURE: &str = "sure";

/// A question before a deed.
pub(crate) struct Question<'a> {
    /// What is asked, the same as scripts ask.
    pub(crate) about: &'a str,
    /// What the deed is called.
    pub(crate) deed: &'a str,
    /// The fields that are sent again.
    pub(crate) fields: &'a [(&'a str, &'a str)],
    /// Where those go who do not mean it.
    pub(crate) back: &'a str,
}

/// Whether somebody was asked already, and meant it.
pub(crate) fn is_sure(visit: &Visit<'_>) -> bool {
    visit.form.has(SURE)
}

/// The page that asks. What is answered goes to where the deed was asked for.
pub(crate) fn ask(visit: &Visit<'_>, question: &Question<'_>) -> Reply {
    let fields: Html = question
        .fields
        .iter()
        .map(|(name, value)| {
            html!(r#"<input type="hidden" name="{name:#}" value="{value:#}">"#, name = *name, value = *value)
        })
        .collect();
    let body = html!(
        r#"<section class="card narrow"><h1>Are you sure?</h1><p>{about}</p><form class="actions" method="post" action="{path}">{csrf}{fields}<input type="hidden" name="{sure}" value="yes"><button class="danger">{deed}</button><a class="button quiet" href="{back}">No, go back</a></form></section>"#,
        about = question.about,
        path = visit.path,
        csrf = visit.csrf(),
        fields = fields,
        sure = SURE,
        deed = question.deed,
        back = question.back,
    );
    Reply::Page(StatusCode::OK, Page { title: "Are you sure?".into(), body, ..Page::default() })
}
