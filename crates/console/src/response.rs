//! Responses with security headers.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, SET_COOKIE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;

use crate::assets::Asset;
use crate::html::{Html, html};
use crate::layout;

/// The body of a response.
pub type Body = Full<Bytes>;

/// Allows only our own files, and requests to us. Pictures and sounds may be part of a result.
const OWN_ONLY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src data:; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// A picture may contain styles, and nothing more.
const PICTURE_ONLY: &str = "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'none'";

/// The headers of every response: no sniffing, no framing, no referrer, no caching.
const ALWAYS: [(HeaderName, &str); 5] = [
    (CONTENT_SECURITY_POLICY, OWN_ONLY),
    (http::header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (http::header::X_FRAME_OPTIONS, "DENY"),
    (http::header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// The response of a page or an action.
#[derive(Debug)]
pub(crate) enum PageResponse {
    /// A page, to be put into the layout.
    Page(StatusCode, layout::Page),
    /// A complete page.
    Bare(StatusCode, Html),
    /// A complete page that goes on to an address elsewhere by itself.
    Onward(StatusCode, Html, String),
    /// A redirect.
    Seen(String),
    /// A redirect that sets the cookie of a visitor.
    Cookie(String, String),
    /// A redirect to another site, with a cookie.
    Elsewhere(String, String),
    /// A complete page that sets the cookie of a visitor and goes on by itself.
    Entered(String, Html, String),
    /// A picture, shown in a page of the console.
    Picture { content_type: &'static str, content: Vec<u8> },
    /// A download.
    File { name: String, content_type: &'static str, content: Vec<u8> },
}

impl PageResponse {
    /// A page with status 200.
    pub(crate) fn page(page: layout::Page) -> Self {
        Self::Page(StatusCode::OK, page)
    }
}

/// A complete page.
pub(crate) fn whole(status: StatusCode, page: Html) -> Response<Body> {
    let mut response = made(status, "text/html; charset=utf-8", page.0.into());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A complete page that goes on to an address elsewhere by itself, without scripts.
pub(crate) fn onward(status: StatusCode, page: Html, to: &str) -> Response<Body> {
    let mut response = whole(status, page);
    // Without the header, the page still has a link.
    if let Ok(refresh) = HeaderValue::from_str(&format!("0; url={to}")) {
        response.headers_mut().insert(http::header::REFRESH, refresh);
    }
    response
}

/// A redirect after an action.
pub(crate) fn redirect(to: &str) -> Response<Body> {
    let mut response = made(StatusCode::SEE_OTHER, "text/plain", Bytes::new());
    let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(LOCATION, to);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A download.
pub(crate) fn file(name: &str, content_type: &'static str, content: Vec<u8>) -> Response<Body> {
    let mut response = made(StatusCode::OK, content_type, content.into());
    let disposition = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
    let disposition = disposition.unwrap_or(HeaderValue::from_static("attachment"));
    response.headers_mut().insert(CONTENT_DISPOSITION, disposition);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A picture that a page shows.
pub(crate) fn picture(content_type: &'static str, content: Vec<u8>) -> Response<Body> {
    let mut response = made(StatusCode::OK, content_type, content.into());
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Some types can contain scripts. In a page they are only pictures, and they are never opened directly.
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(PICTURE_ONLY));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    response
}

/// A style or script. Its name changes with its content.
pub(crate) fn asset(asset: &Asset) -> Response<Body> {
    let mut response = made(StatusCode::OK, asset.content_type, Bytes::from_static(asset.content.as_bytes()));
    let for_ever = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(CACHE_CONTROL, for_ever);
    response
}

/// An error page.
pub(crate) fn refused(status: StatusCode, why: &str) -> Response<Body> {
    let title = status.canonical_reason().unwrap_or("Refused");
    let body = html!(
        r#"<section class="card narrow"><h1>{title}</h1><p>{why}</p><p><a href="/">Go to the overview</a></p></section>"#,
        title = title,
        why = why,
    );
    whole(status, layout::bare(title, &body))
}

/// The page for a change without a session: a link to sign in, and how to repeat the change.
pub(crate) fn signed_out(came_from: &str) -> Response<Body> {
    let body = html!(
        r#"<section class="card narrow"><h1>You are signed out</h1><p>Nothing was changed. <a href="{door}" target="_blank">Sign in</a> in another tab, then go back in this tab and send the form again.</p></section>"#,
        door = crate::form::address("/login", &[("next", came_from)]),
    );
    whole(StatusCode::UNAUTHORIZED, layout::bare("Signed out", &body))
}

/// Adds a cookie.
pub(crate) fn with_cookie(mut response: Response<Body>, cookie: &str) -> Response<Body> {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

fn made(status: StatusCode, content_type: &'static str, content: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(content));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.extend(ALWAYS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}
