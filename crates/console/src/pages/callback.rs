//! The page after the redirect from an authorization server. It needs no session: whoever has the `state` of an attempt
//! completes it, and anything else changes nothing.

use http::{Response, StatusCode};
use service::{Returned, Service};

use super::server_path;
use crate::html::{Html, html};
use crate::layout;
use crate::response::{self, Body};

/// Its path at the address of the service.
pub const PATH: &str = "/oauth/callback";

/// Completes the sign-in that the query belongs to, and shows the outcome.
pub(crate) async fn finish(service: &Service, query: &str) -> Response<Body> {
    let (status, title, text) = match service.finish_sign_in(query).await {
        Returned::SignedIn { server } => (
            StatusCode::OK,
            "Signed in",
            html!(
                r#"<p>mcp-aggregator is signed in to <strong>{name}</strong>. You can close this page.</p><p><a class="button" href="{path}">Show the server</a></p>"#,
                name = server,
                path = server_path(&server),
            ),
        ),
        Returned::Rejected { why } => (StatusCode::BAD_REQUEST, "Not accepted", said(&why)),
        Returned::Failed { why } => (StatusCode::BAD_GATEWAY, "Not signed in", said(&why)),
    };
    let body =
        html!(r#"<section class="card narrow door"><h1>{title}</h1>{text}</section>"#, title = title, text = text);
    response::whole(status, layout::bare(title, &body))
}

/// What the redirect must be: a plain GET.
pub(crate) fn not_allowed() -> Response<Body> {
    response::refused(StatusCode::METHOD_NOT_ALLOWED, "This address accepts only redirects of a browser.")
}

fn said(why: &str) -> Html {
    html!(r#"<p>{}.</p><p class="muted">Nothing else was changed.</p>"#, why.trim_end_matches('.'))
}
