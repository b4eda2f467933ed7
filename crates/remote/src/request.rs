//! One request to a program that is no MCP server, such as a service of ours: sent once, answered whole.

use std::time::Duration;

use bytes::Bytes;
use catalog::{Dialect, Remote};
use hyper::{Method, StatusCode};
use tokio::time::timeout;

use crate::http::Http;
use crate::trouble::Trouble;

/// A request. It has no `Debug`, for its headers may hold a token.
#[derive(Clone)]
pub struct Request {
    /// What is to be done.
    pub method: Method,
    /// Where.
    pub url: String,
    /// What is said beside it.
    pub headers: Vec<(String, String)>,
    /// JSON, or nothing.
    pub body: Bytes,
}

/// What came back, whatever it says.
#[derive(Debug, Clone)]
pub struct Response {
    /// How it went.
    pub status: StatusCode,
    /// All of it.
    pub body: Bytes,
}

/// Why nothing came back.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// Nobody is there; nothing was done.
    #[error("{0}")]
    Unreachable(String),
    /// Something was sent, so it may have been done.
    #[error("{0}")]
    Lost(String),
}

/// Sends a request once, and waits for its answer for so long.
pub async fn request(request: Request, limit: Duration) -> Result<Response, Unanswered> {
    let answered = timeout(limit, send(request)).await;
    answered.unwrap_or_else(|_| Err(Unanswered::Lost(format!("it did not answer within {} s", limit.as_secs()))))
}

async fn send(request: Request) -> Result<Response, Unanswered> {
    let Request { method, url, headers, body } = request;
    let http = Http::new(&Remote { url: url.as_str().into(), headers, dialect: Dialect::Unknown }).map_err(told)?;
    let response = http.once(method, body).await.map_err(told)?;
    let status = response.status();
    Ok(Response { status, body: response.into_body().whole().await.map_err(told)? })
}

#[expect(clippy::needless_pass_by_value, reason = "the shape `map_err` asks for")]
pub(crate) fn told(trouble: Trouble) -> Unanswered {
    match trouble.left_untouched() {
        true => Unanswered::Unreachable(trouble.to_string()),
        false => Unanswered::Lost(trouble.to_string()),
    }
}
