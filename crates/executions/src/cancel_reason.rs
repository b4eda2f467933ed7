//! Why a call is refused, or must end before it is answered; and the error its client receives.

use std::time::Duration;

use aggregator::interceptor::Refusal;

use super::concurrency::Full;
use super::execution::QUEUE_TIMEOUT;
use super::limits::LimitExcess;

/// The JSON-RPC code for errors of the implementation.
const REFUSED: i32 = -32000;
/// The code of the SDKs for a request that timed out.
const TOO_SLOW: i32 = -32001;

/// Why a call must end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CancelReason {
    /// The operator cancelled it, with this reason.
    Cancelled(std::sync::Arc<str>),
    /// It exceeded its time limit.
    TimedOut(Duration),
}

/// Why a call is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Executions were stopped.
    Stopped,
    /// Too many run and are queued.
    Full(Full),
    /// Its session has reached its limit.
    SessionOver(u64),
    /// A limit of its identity, its profile, its server or its tool is reached.
    RateLimited(LimitExcess),
}

impl From<LimitExcess> for Refused {
    fn from(excess: LimitExcess) -> Self {
        Self::RateLimited(excess)
    }
}

impl CancelReason {
    /// The message for people.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Cancelled(why) => format!("The call was cancelled: {why}"),
            Self::TimedOut(limit) => format!("The call timed out after {} s", limit.as_secs_f32()),
        }
    }

    /// The error for the client.
    pub(crate) fn refusal(&self) -> Refusal {
        let (code, reason) = match self {
            Self::Cancelled(_) => (REFUSED, "execution_cancelled"),
            Self::TimedOut(_) => (TOO_SLOW, "execution_timeout"),
        };
        Refusal { code, message: self.message(), reason, is_safe_to_retry: false, retry_after: None }
    }
}

impl Refused {
    /// The message for people.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Stopped => "Executions are stopped; an operator must allow them again".to_owned(),
            Self::Full(full) => format!(
                "Too many concurrent calls: {} may run, and {} already wait in the queue; try again later",
                full.limit, full.queued
            ),
            Self::SessionOver(limit) => format!(
                "This session has reached its limit of {limit} calls; an operator can raise `session_limit` (in the \
                 console's settings, or with `PATCH /settings`) or reset the count with a reset of executions"
            ),
            Self::RateLimited(excess) => excess.message(),
        }
    }

    /// The error for the client.
    pub(crate) fn refusal(&self) -> Refusal {
        let reason = match self {
            Self::Stopped => "executions_stopped",
            Self::Full(_) => "limit_reached",
            Self::SessionOver(_) => "session_limit_reached",
            Self::RateLimited(_) => "rate_limited",
        };
        let retry_after = match self {
            Self::RateLimited(excess) => Some(excess.retry_after),
            _ => None,
        };
        Refusal { code: REFUSED, message: self.message(), reason, is_safe_to_retry: true, retry_after }
    }
}

/// The error of a call that waited too long in the queue.
pub(super) fn waited_too_long() -> Refusal {
    let message = format!("The call waited {} s in the queue; try again later", QUEUE_TIMEOUT.as_secs());
    Refusal { code: REFUSED, message, reason: "limit_reached", is_safe_to_retry: true, retry_after: None }
}
