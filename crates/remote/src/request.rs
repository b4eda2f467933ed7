//! One request to a program that is no MCP server, such as a service of ours: sent once, answered whole.

use std::time::Duration;

use bytes::Bytes;
use catalog::{Dialect, Remote};
use hyper::{Method, StatusCode};
use tokio::time::timeout;

use crate::error::RequestError;
use crate::http::Http;

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
pub enum NoResponse {
    /// Nobody is there; nothing was done.
    #[error("{0}")]
    Unreachable(String),
    /// Something was sent, so it may have been done.
    #[error("{0}")]
    Lost(String),
}

/// Sends a request once, and waits for its answer for so long.
pub async fn request(request: Request, limit: Duration) -> Result<Response, NoResponse> {
    let answered = timeout(limit, send(request)).await;
    answered.unwrap_or_else(|_| Err(NoResponse::Lost(format!("it did not answer within {} s", limit.as_secs()))))
}

async fn send(request: Request) -> Result<Response, NoResponse> {
    let Request { method, url, headers, body } = request;
    let http =
        Http::new(&Remote { url: url.as_str().into(), headers, dialect: Dialect::Unknown }).map_err(no_response)?;
    let response = http.once(method, body).await.map_err(no_response)?;
    let status = response.status();
    Ok(Response { status, body: response.into_body().whole().await.map_err(no_response)? })
}

#[expect(clippy::needless_pass_by_value, reason = "the shape `map_err` asks for")]
pub(crate) fn no_response(error: RequestError) -> NoResponse {
    match error.left_untouched() {
        true => NoResponse::Unreachable(error.to_string()),
        false => NoResponse::Lost(error.to_string()),
    }
}
