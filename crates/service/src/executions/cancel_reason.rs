//! Why a call is not made, or must end before it is answered; and what its client is told.

use std::time::Duration;

use aggregator::interceptor::Refusal;

use super::concurrency::Full;
use super::execution::QUEUE_TIMEOUT;

/// Errors of ours that JSON-RPC leaves to servers.
const REFUSED: i32 = -32000;
/// What the SDKs say when a request takes too long.
const TOO_SLOW: i32 = -32001;

/// Somebody decided that a call must end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CancelReason {
    /// The operator cancelled it; the words say what happened.
    Cancelled(std::sync::Arc<str>),
    /// It took longer than it may.
    TimedOut(Duration),
}

/// Why a call is not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Executions were stopped.
    Stopped,
    /// Too many run and wait.
    Full(Full),
    /// Its session has made as many as it may.
    SessionOver(u64),
}

impl CancelReason {
    /// In words.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Cancelled(why) => format!("The call was cancelled: {why}"),
            Self::TimedOut(limit) => format!("The call took longer than {} s, the time-out", limit.as_secs_f32()),
        }
    }

    /// What the client is told.
    pub(crate) fn refusal(&self) -> Refusal {
        let (code, reason) = match self {
            Self::Cancelled(_) => (REFUSED, "execution_cancelled"),
            Self::TimedOut(_) => (TOO_SLOW, "execution_timeout"),
        };
        Refusal { code, message: self.message(), reason, is_safe_to_retry: false }
    }
}

impl Refused {
    /// In words.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Stopped => "Executions are stopped; an operator must allow them again".to_owned(),
            Self::Full(full) => format!(
                "Too many calls at once: {} may run, and {} wait for their turn already; try again later",
                full.limit, full.queued
            ),
            Self::SessionOver(limit) => format!(
                "This session has made the {limit} calls it may make; an operator can raise `session_limit` (in the \
                 console's settings, or by `PATCH /settings`) or begin to count anew with a reset"
            ),
        }
    }

    /// What the client is told.
    pub(crate) fn refusal(&self) -> Refusal {
        let reason = match self {
            Self::Stopped => "executions_stopped",
            Self::Full(_) => "limit_reached",
            Self::SessionOver(_) => "session_limit_reached",
        };
        Refusal { code: REFUSED, message: self.message(), reason, is_safe_to_retry: true }
    }
}

/// What the client of a call is told whose turn did not come.
pub(super) fn waited_too_long() -> Refusal {
    let message = format!("The call waited {} s for its turn; try again later", QUEUE_TIMEOUT.as_secs());
    Refusal { code: REFUSED, message, reason: "limit_reached", is_safe_to_retry: true }
}
