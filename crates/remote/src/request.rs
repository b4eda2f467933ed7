//! One request to a program that is no MCP server, such as a service of ours: sent once, with a complete response.

use std::time::Duration;

use bytes::Bytes;
use catalog::Remote;
use hyper::{Method, StatusCode};
use tokio::time::timeout;

use crate::error::RequestError;
use crate::http::Http;

/// A request. It has no `Debug`, because its headers may contain a token.
#[derive(Clone)]
pub struct Request {
    /// The HTTP method.
    pub method: Method,
    /// The URL.
    pub url: String,
    /// Additional headers.
    pub headers: Vec<(String, String)>,
    /// JSON, or empty.
    pub body: Bytes,
}

/// A response, whatever its status.
#[derive(Debug, Clone)]
pub struct Response {
    /// How it went.
    pub status: StatusCode,
    /// The complete body.
    pub body: Bytes,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum NoResponse {
    /// The server is unreachable; nothing was done.
    #[error("{0}")]
    Unreachable(String),
    /// Something was sent, so it may have been carried out.
    #[error("{0}")]
    Lost(String),
}

/// Sends a request once, and waits for its response within the limit.
pub async fn request(request: Request, limit: Duration) -> Result<Response, NoResponse> {
    let answered = timeout(limit, send(request)).await;
    answered.unwrap_or_else(|_| Err(NoResponse::Lost(format!("it did not answer within {} s", limit.as_secs()))))
}

async fn send(request: Request) -> Result<Response, NoResponse> {
    let Request { method, url, headers, body } = request;
    let http = Http::new(&Remote::at(&url, headers)).map_err(no_response)?;
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
