//! Posts bodies to an address that is no MCP server and only accepts or refuses them.

use std::time::Duration;

use bytes::Bytes;
use catalog::Remote;
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use tokio::time::timeout;

use crate::error::RequestError;
use crate::http::Http;

/// How long the body of an error response is read for its message.
const WORTH_READING: Duration = Duration::from_secs(1);

/// An address, and the headers of every request to it.
#[derive(Debug)]
pub struct BodySender {
    http: Http,
    headers: HeaderMap,
    limit: Duration,
}

/// Why a body was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendError {
    /// The message.
    pub why: String,
    /// A retry may succeed.
    pub may_pass: bool,
    /// The pause that the other side requests, if any.
    pub pause: Option<Duration>,
}

impl BodySender {
    /// Posts bodies of that type to that address, each within a time limit. The error is why that cannot work.
    pub fn new(
        url: &str,
        headers: Vec<(String, String)>,
        content_type: &'static str,
        limit: Duration,
    ) -> Result<Self, String> {
        let http = Http::new(&Remote::at(url, headers));
        let http = http.map_err(|error| error.to_string())?;
        let headers = http.headers_for(HeaderValue::from_static(content_type));
        Ok(Self { http, headers, limit })
    }

    /// Sends a body, once.
    pub async fn send(&self, body: Bytes) -> Result<(), SendError> {
        match timeout(self.limit, self.attempt(body)).await {
            Ok(taken) => taken,
            Err(_) => {
                let why = format!("it did not answer within {} s", self.limit.as_secs_f32());
                Err(SendError { why, may_pass: true, pause: None })
            }
        }
    }

    async fn attempt(&self, body: Bytes) -> Result<(), SendError> {
        let failed = |error: RequestError| SendError { why: error.to_string(), may_pass: true, pause: None };
        let response = self.http.post_once(&self.headers, body).await.map_err(failed)?;
        let (status, pause) = (response.status(), pause(response.headers()));
        if status.is_success() {
            response.into_body().discard().await;
            return Ok(());
        }
        let words = timeout(WORTH_READING, response.into_body().whole()).await;
        let why = RequestError::status(status, &words.ok().and_then(Result::ok).unwrap_or_default()).to_string();
        Err(SendError { why, may_pass: is_passing(status), pause })
    }
}

/// Whether a retry may succeed: only where the specification of OTLP allows it.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

fn pause(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
