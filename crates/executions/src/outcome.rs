//! How a call ended: what is recorded of it.

use std::borrow::Cow;
use std::sync::LazyLock;

use aggregator::interceptor::CallEnd;
use memchr::memmem::Finder;
use protocol::scan::member;
use protocol::{Envelope, Kind, Span, text};
use registry::{ExecutionStatus, RawJson};
use upstream::CallError;

use super::cancel_reason::CancelReason;

/// Longer payloads are not stored, whatever the settings are.
pub const MAX_PAYLOAD_BYTES: u64 = 256 << 10;

/// Characters of foreign messages that are stored.
const MAX_MESSAGE_LEN: usize = 1000;

/// The reason of our error for a server that exceeded its configured time limit.
const TOO_SLOW: &str = "server_too_slow";

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ended {
    /// A final status.
    pub(crate) status: ExecutionStatus,
    /// What went wrong.
    pub(crate) why: Option<String>,
    /// The same as an identifier for programs: the code of the server's error, or a reason. `None` for a cancelled
    /// call, which is no error.
    pub(crate) kind: Option<Cow<'static, str>>,
    /// The result of the tool, if it is to be stored.
    pub(crate) result: Option<RawJson>,
    /// The length of the server's response.
    pub(crate) bytes: Option<u64>,
}

impl Ended {
    /// The record of `end`; a `cancel_reason` is why it was cancelled.
    pub(crate) fn of(end: CallEnd<'_>, cancel_reason: Option<&CancelReason>, keeps_result: bool) -> Self {
        match end {
            CallEnd::Response(line, outcome) => Self::answered(line, outcome, keeps_result),
            CallEnd::Failed(error) => Self::failed(error),
            CallEnd::Ours(answer) => Self::ours(answer),
            CallEnd::Cancelled => Self::given_up(cancel_reason),
        }
    }

    /// The server responded.
    pub(crate) fn answered(line: &[u8], outcome: Result<Span, Span>, keeps_result: bool) -> Self {
        let result = outcome.ok().filter(|_| keeps_result).and_then(|span| stored_payload(span.of(line)));
        let bytes = Some(line.len() as u64);
        match outcome {
            Ok(result_at) if is_error(line, result_at) => {
                // The tool's own message is part of its result, and is not copied here.
                let ended = Self::unanswered(ExecutionStatus::Error, "the tool reported an error".to_owned());
                Self { result, bytes, ..ended.of_kind("tool_error") }
            }
            Ok(_) => Self { status: ExecutionStatus::Success, why: None, kind: None, result, bytes },
            Err(error) => {
                let ended = Self::unanswered(ExecutionStatus::Error, message_of(line, error));
                Self { bytes, ..ended.of_kind(code_of(line, error)) }
            }
        }
    }

    /// There was no response.
    pub(crate) fn failed(error: &CallError) -> Self {
        let is_timeout = matches!(error, CallError::TooSlow { .. });
        let status = if is_timeout { ExecutionStatus::Timeout } else { ExecutionStatus::Error };
        Self::unanswered(status, error.to_string()).of_kind(error.reason())
    }

    /// We responded in the server's place.
    fn ours(answer: &[u8]) -> Self {
        match Envelope::scan(answer.trim_ascii_end()) {
            Ok(Envelope { kind: Kind::Response { outcome: Ok(_), .. }, .. }) => {
                Self { status: ExecutionStatus::Success, why: None, kind: None, result: None, bytes: None }
            }
            Ok(Envelope { kind: Kind::Response { outcome: Err(error), .. }, .. }) => {
                let reason = reason_of(answer, error);
                let is_timeout = reason == TOO_SLOW;
                let status = if is_timeout { ExecutionStatus::Timeout } else { ExecutionStatus::Error };
                Self::unanswered(status, message_of(answer, error)).of_kind(reason)
            }
            _ => Self::lost(),
        }
    }

    /// It was cancelled: by its client, if there is no `cancel_reason`.
    pub(crate) fn given_up(cancel_reason: Option<&CancelReason>) -> Self {
        match cancel_reason {
            Some(cancel_reason @ CancelReason::Cancelled(_)) => {
                Self::unanswered(ExecutionStatus::Cancelled, cancel_reason.message())
            }
            Some(cancel_reason @ CancelReason::TimedOut(_)) => {
                Self::unanswered(ExecutionStatus::Timeout, cancel_reason.message())
            }
            None => Self::unanswered(ExecutionStatus::Cancelled, "the caller abandoned it".to_owned()),
        }
    }

    /// An internal error.
    pub(super) fn lost() -> Self {
        Self::unanswered(ExecutionStatus::Error, "the call was lost, which is a bug in the aggregator".to_owned())
    }

    /// It ended without a response.
    pub(crate) fn unanswered(status: ExecutionStatus, why: String) -> Self {
        let kind = match status {
            ExecutionStatus::Cancelled => None,
            ExecutionStatus::Timeout => Some("timeout".into()),
            _ => Some("_OTHER".into()),
        };
        Self { status, why: Some(why), kind, result: None, bytes: None }
    }

    /// The same with a more precise kind.
    pub(crate) fn of_kind(self, kind: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: Some(kind.into()), ..self }
    }
}

/// A payload, if it can be stored.
pub(super) fn stored_payload(json: &[u8]) -> Option<RawJson> {
    if json.len() as u64 > MAX_PAYLOAD_BYTES {
        return None;
    }
    std::str::from_utf8(json).ok().and_then(|text| RawJson::parse(text).ok())
}

/// Whether a result reports that the tool failed. Most do not contain the member at all, and are not scanned.
fn is_error(line: &[u8], result: Span) -> bool {
    static WORD: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(b"\"isError\""));
    WORD.find(result.of(line)).is_some()
        && member(line, result, "isError").is_some_and(|value| value.of(line) == b"true")
}

/// The code of an error object.
fn code_of(line: &[u8], error: Span) -> String {
    let code = member(line, error, "code").map(|code| String::from_utf8_lossy(code.of(line)));
    // A code is a number, and so never long; but it is foreign text.
    code.filter(|code| code.len() <= 12).map_or_else(|| "_OTHER".to_owned(), Cow::into_owned)
}

/// The reason in an error object of ours; else its code.
pub(crate) fn reason_of(line: &[u8], error: Span) -> String {
    let reason = member(line, error, "data").and_then(|data| member(line, data, "reason"));
    let reason = reason.and_then(|reason| text::decode(reason.of(line)));
    reason.map_or_else(|| code_of(line, error), Cow::into_owned)
}

/// The message of an error object.
pub(crate) fn message_of(line: &[u8], error: Span) -> String {
    let message = member(line, error, "message").and_then(|message| text::decode(message.of(line)));
    let mut message = message.map_or_else(|| "an error without a message".to_owned(), |text| text.into_owned());
    if message.len() > MAX_MESSAGE_LEN {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_LEN));
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;

    fn answered(line: &'static str) -> Ended {
        let line = Bytes::from_static(line.as_bytes());
        let Kind::Response { outcome, .. } = Envelope::scan(&line).unwrap().kind else { panic!("no answer") };
        Ended::of(CallEnd::Response(&line, outcome), None, true)
    }

    #[test]
    fn an_answer_is_a_success_unless_it_has_an_error() {
        let said = |line| (answered(line).status, answered(line).why);
        let error = ExecutionStatus::Error;
        assert_eq!(said(r#"{"jsonrpc":"2.0","id":1,"result":{"content":[]}}"#), (ExecutionStatus::Success, None));
        let failed = said(r#"{"jsonrpc":"2.0","id":1,"result":{"content":[], "isError" : true }}"#);
        assert_eq!(failed, (error, Some("the tool reported an error".to_owned())));
        let inner = said(r#"{"jsonrpc":"2.0","id":1,"result":{"isError":false,"structuredContent":{"isError":true}}}"#);
        assert_eq!(inner.0, ExecutionStatus::Success, "what the tool talks about is not what happened");
        let refused = said(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no \"such\" city"}}"#);
        assert_eq!(refused, (error, Some("no \"such\" city".to_owned())));
    }

    #[test]
    fn a_result_is_recorded_byte_for_byte_unless_it_is_too_long() {
        let ended = answered(r#"{"jsonrpc":"2.0","id":1,"result":{ "n":1.0e2 }}"#);
        assert_eq!(ended.result.unwrap().get(), r#"{ "n":1.0e2 }"#);
        assert!(stored_payload(format!("\"{}\"", "x".repeat(MAX_PAYLOAD_BYTES as usize)).as_bytes()).is_none());
    }

    #[test]
    fn a_cancelled_call_names_who_cancelled_it() {
        let status =
            |cancel_reason: Option<CancelReason>| Ended::of(CallEnd::Cancelled, cancel_reason.as_ref(), false).status;
        assert_eq!(status(None), ExecutionStatus::Cancelled);
        assert_eq!(status(Some(CancelReason::Cancelled("by an operator".into()))), ExecutionStatus::Cancelled);
        assert_eq!(status(Some(CancelReason::TimedOut(Duration::from_secs(1)))), ExecutionStatus::Timeout);
    }

    #[test]
    fn an_error_of_ours_is_reported_in_its_own_words() {
        let answer = protocol::reply::error(b"7", -32603, "server `a` is down", None);
        let ended = Ended::of(CallEnd::Ours(&answer), None, false);
        assert_eq!((ended.status, ended.why.as_deref()), (ExecutionStatus::Error, Some("server `a` is down")));
    }
}
