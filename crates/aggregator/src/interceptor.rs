//! Keeping account of calls: which may be made, when, and what becomes of each.
//!
//! The aggregator itself keeps none. Whoever does gives it a [`CallInterceptor`]; every call of a tool, whatever its way in, is
//! then entered there before it is made, and its [`CallTracker`] hears how it went, exactly once.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use protocol::trace::SpanContext;
use protocol::{Span, reply};
use upstream::CallError;

use crate::client::Client;

/// Where calls are entered.
pub trait CallInterceptor: Send + Sync {
    /// Enters a call, or refuses it.
    fn open(&self, call: &CallStart<'_>) -> Result<Arc<dyn CallTracker>, Refusal>;
}

/// A call that is about to be made.
pub struct CallStart<'c> {
    /// Who makes it.
    pub client: &'c Arc<Client>,
    /// The place of the server it goes to.
    pub server: usize,
    /// What that server calls the tool.
    pub tool: &'c Arc<str>,
    /// The id its client gave it.
    pub id: &'c [u8],
    /// The request as it came, and where its `arguments` stand.
    pub line: &'c Bytes,
    /// Where its parameters stand.
    pub params: Option<Span>,
    /// Where its `_meta` stands.
    pub meta: Option<Span>,
}

/// Something to wait for before a call may be made.
pub type PermitFuture = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send>>;

/// The account of one call.
pub trait CallTracker: Send + Sync {
    /// If the call may not be made at once: something to wait for. Asked once.
    fn permit(&self) -> Option<PermitFuture>;
    /// The call is on its way to its server. If it is traced: the span that the server is told as its cause.
    fn on_sent(&self) -> Option<SpanContext>;
    /// It was sent, but waits with us until its server is no longer busy with somebody else.
    fn on_held(&self) {}
    /// That is over, and its server gets it.
    fn on_released(&self) {}
    /// The call is over. Said once.
    fn on_end(&self, end: CallEnd<'_>);
    /// If it was not its client that gave the call up: what the client is told.
    fn cancel_reason(&self) -> Option<Refusal>;
}

/// How a call ended.
#[derive(Debug, Clone, Copy)]
pub enum CallEnd<'e> {
    /// The server answered: with a result, or with an error, which stands there.
    Response(&'e Bytes, Result<Span, Span>),
    /// There was no answer.
    Failed(&'e CallError),
    /// It was answered by us; usually with an error.
    Ours(&'e [u8]),
    /// It was given up.
    Cancelled,
}

/// Why a call is not made, or not finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The code of the JSON-RPC error.
    pub code: i32,
    /// For people.
    pub message: String,
    /// A stable word for programs.
    pub reason: &'static str,
    /// Whether the same call may be made again without harm.
    pub is_safe_to_retry: bool,
}

impl Refusal {
    /// What the client of a refused call is told.
    pub(crate) fn answer(&self, id: &[u8]) -> Vec<u8> {
        let retry: &[u8] = if self.is_safe_to_retry { b"true" } else { b"false" };
        let data = reply::object([("reason", reply::string(self.reason)), ("safeToRetry", retry.to_vec())]);
        reply::error(id, self.code, &self.message, Some(&data))
    }
}
