//! The interface for tracking calls: which may be made, when, and how each ends.
//!
//! The aggregator itself tracks none. A program that does supplies a [`CallInterceptor`]; every tool call, however it
//! arrives, is opened there before it is made, and its [`CallTracker`] is notified of the end exactly once.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::trace::SpanContext;
use protocol::{Span, reply};
use upstream::CallError;

use crate::client::Client;

/// Opens calls.
pub trait CallInterceptor: Send + Sync {
    /// Opens a call, or refuses it.
    fn open(&self, call: &CallStart<'_>) -> Result<Arc<dyn CallTracker>, Refusal>;
}

/// A call that is about to be made.
pub struct CallStart<'c> {
    /// The client that makes it.
    pub client: &'c Arc<Client>,
    /// The slot index of its server.
    pub server: usize,
    /// The server's name of the tool.
    pub tool: &'c Arc<str>,
    /// The client's id of the request.
    pub id: &'c [u8],
    /// The request as it arrived.
    pub line: &'c Bytes,
    /// The span of its parameters.
    pub params: Option<Span>,
    /// The span of its `_meta`.
    pub meta: Option<Span>,
}

/// A future that completes when a call may be made.
pub type PermitFuture = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send>>;

/// Tracks one call.
pub trait CallTracker: Send + Sync {
    /// If the call may not be made at once: a future to wait for. Called once.
    fn permit(&self) -> Option<PermitFuture>;
    /// The call is being sent to its server. If it is traced, returns the span that the server receives as parent.
    fn on_sent(&self) -> Option<SpanContext>;
    /// The call waits in our queue until its server has finished another client's request.
    fn on_held(&self) {}
    /// The wait is over, and the call is sent to its server.
    fn on_released(&self) {}
    /// The call has ended. Called once.
    fn on_end(&self, end: CallEnd<'_>);
    /// If someone other than the client cancelled the call: the error the client receives.
    fn cancel_reason(&self) -> Option<Refusal>;
}

/// How a call ended.
#[derive(Debug, Clone, Copy)]
pub enum CallEnd<'e> {
    /// The server responded, with a result or an error at this span.
    Response(&'e Bytes, Result<Span, Span>),
    /// There was no response.
    Failed(&'e CallError),
    /// We responded ourselves; usually with an error.
    Ours(&'e [u8]),
    /// It was cancelled.
    Cancelled,
}

/// Why a call is not made, or not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The code of the JSON-RPC error.
    pub code: i32,
    /// For people.
    pub message: String,
    /// A stable identifier for programs.
    pub reason: &'static str,
    /// Whether the same call may be made again without harm.
    pub is_safe_to_retry: bool,
    /// After which time it may be made again, if that is known.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// The error response to a refused call.
    pub(crate) fn answer(&self, id: &[u8]) -> Vec<u8> {
        let retry: &[u8] = if self.is_safe_to_retry { b"true" } else { b"false" };
        let mut data = vec![("reason", reply::string(self.reason)), ("safeToRetry", retry.to_vec())];
        let millis = self.retry_after.map(|wait| wait.as_nanos().div_ceil(1_000_000));
        data.extend(millis.map(|millis| ("retry_after_ms", millis.to_string().into_bytes())));
        reply::error(id, self.code, &self.message, Some(&reply::object(data)))
    }
}
