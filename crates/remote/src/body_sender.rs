//! Bodies posted to an address where nobody speaks MCP: it says yes or no, and that is all.

use std::time::Duration;

use bytes::Bytes;
use catalog::{Dialect, Remote};
use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use tokio::time::timeout;

use crate::error::RequestError;
use crate::http::Http;

/// How much of an answer is read for its words.
const WORTH_READING: Duration = Duration::from_secs(1);

/// An address, and what is sent along with every body.
#[derive(Debug)]
pub struct BodySender {
    http: Http,
    headers: HeaderMap,
    limit: Duration,
}

/// Why a body was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendError {
    /// In words.
    pub why: String,
    /// The same body may be taken later.
    pub may_pass: bool,
    /// For how long nothing is to be sent, if the other side says so.
    pub pause: Option<Duration>,
}

impl BodySender {
    /// Bodies of that type for that address, each of which may take so long. If that cannot work: why.
    pub fn new(
        url: &str,
        headers: Vec<(String, String)>,
        content_type: &'static str,
        limit: Duration,
    ) -> Result<Self, String> {
        let http = Http::new(&Remote { url: url.into(), headers, dialect: Dialect::Unknown });
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

/// Whether it may be another answer later: only where the specification of OTLP says so.
fn is_passing(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 502 | 503 | 504)
}

fn pause(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
