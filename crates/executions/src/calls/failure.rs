//! The errors of failed calls, and what is recorded of them.

use bytes::Bytes;
use catalog::sign_in_sentence;
use protocol::Span;
use protocol::bridge::result::{self, ResultType};
use registry::{ExecutionStatus, RawJson, Status, Timestamp};
use serde_json::{Map, Value, json};

use super::Call;
use super::attempt::{Failure, Miss};
use crate::{CancelReason, Ended, Error, Execution, Executions, QUEUE_TIMEOUT, Refused, ServerEntry, message_of};

/// How a call ended: the result for the caller, and the end to record.
pub(super) struct Concluded {
    pub(super) outcome: Result<RawJson, Error>,
    pub(super) ended: Ended,
}

impl Concluded {
    fn failed(error: Error, ended: Ended) -> Self {
        Self { outcome: Err(error), ended }
    }
}

/// Whether a call is valid.
pub(super) fn check(call: &Call) -> Result<(), Error> {
    if call.arguments.get().trim_start().starts_with('{') {
        return Ok(());
    }
    Err(Error::InvalidArguments)
}

/// The error of a refused call.
pub(super) fn refused(refused: &Refused) -> Error {
    let message = refused.message();
    let context = match refused {
        Refused::Stopped => return Error::ExecutionStopped,
        Refused::Full(full) => json!({ "limit": "queue_limit", "concurrent_limit": full.limit, "queued": full.queued }),
        Refused::SessionOver(limit) => json!({ "limit": "session_limit", "session_limit": limit }),
        Refused::RateLimited(excess) => excess.context(),
    };
    let refusal = refused.refusal();
    let context = with_reason(object(context), refusal.reason, refusal.is_safe_to_retry);
    Error::LimitReached { message, context }
}

/// A call that waited too long in the queue.
pub(super) fn waited_too_long() -> Concluded {
    let message = format!("The call waited {} s in the queue; try again later", QUEUE_TIMEOUT.as_secs());
    let ended = Ended::unanswered(ExecutionStatus::Error, message.clone()).of_kind("limit_reached");
    let context = with_reason(object(json!({ "limit": "concurrent_limit" })), "limit_reached", true);
    Concluded::failed(Error::LimitReached { message, context }, ended)
}

/// A call that was cancelled.
pub(super) fn cancel_requested(execution: &Execution, cancel_reason: &CancelReason) -> Concluded {
    let refusal = cancel_reason.refusal();
    let mut context = with_reason(context(execution), refusal.reason, refusal.is_safe_to_retry);
    let message = refusal.message;
    let error = match cancel_reason {
        CancelReason::Cancelled(_) => Error::ExecutionCancelled { message, context },
        CancelReason::TimedOut(limit) => {
            context.insert("timeout_ms".to_owned(), json!(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)));
            Error::ExecutionTimeout { message, context }
        }
    };
    Concluded::failed(error, Ended::given_up(Some(cancel_reason)))
}

/// The server responded with a result: usually that is it.
pub(super) fn result(execution: &Execution, line: &Bytes, span: Span) -> Concluded {
    if result::kind(line, span) == ResultType::InputRequired {
        let message =
            format!("Server `{}` requests input from a person, which is not possible here", execution.server());
        let ended = Ended::unanswered(ExecutionStatus::Error, message.clone()).of_kind("input_required");
        let context = with_reason(context(execution), "input_required", false);
        return Concluded::failed(Error::ExecutionFailed { message, context }, ended);
    }
    let text = String::from_utf8_lossy(span.of(line)).into_owned();
    let ended = Ended::answered(line, Ok(span), execution.keeps_result());
    match RawJson::parse(text) {
        Ok(result) => Concluded { outcome: Ok(result), ended },
        // Our scanner accepts what serde_json does not: numbers and nesting without limit.
        Err(error) => {
            let message = format!("Server `{}` sent a result that cannot be displayed: {error}", execution.server());
            let context = with_reason(context(execution), "unreadable_answer", false);
            Concluded::failed(Error::ExecutionFailed { message, context }, ended)
        }
    }
}

/// The server responded with an error.
pub(super) fn refused_by_server(execution: &Execution, line: &Bytes, error: Span) -> Concluded {
    let ended = Ended::answered(line, Err(error), false);
    let message = format!("Server `{}` answered with an error: {}", execution.server(), message_of(line, error));
    let mut context = with_reason(context(execution), "server_error", false);
    let own = serde_json::from_slice(error.of(line)).unwrap_or(Value::Null);
    context.insert("error".to_owned(), own);
    Concluded::failed(Error::ExecutionFailed { message, context }, ended)
}

impl Executions {
    /// The server did not respond.
    pub(super) fn failed(&self, execution: &Execution, failure: &Failure) -> Concluded {
        let ended = failure.ended.clone();
        if failure.is_absent && !failure.was_sent {
            return Concluded::failed(self.unavailable(execution.slot_index()), ended);
        }
        let message = ended.why.clone().unwrap_or_default();
        let reason = ended.kind.as_deref().filter(|kind| *kind != "_OTHER").unwrap_or("call_failed");
        let context = with_reason(context(execution), reason, failure.is_untouched && !failure.was_sent);
        // A call that was delivered before may have been carried out: that is more than a failed connection.
        let error = match failure.miss.filter(|_| !failure.was_sent) {
            Some(Miss::Unreachable) => {
                let (server_id, name, status) = self.server_status_of(execution);
                Error::ConnectionFailed { server_id, name, status, why: message }
            }
            Some(Miss::Forgotten) => {
                let (server_id, name, status) = self.server_status_of(execution);
                Error::SessionNotFound { server_id, name, status, why: message }
            }
            None if ended.status == ExecutionStatus::Timeout => {
                let mut context = context;
                context.insert("limit".to_owned(), json!("server"));
                Error::ExecutionTimeout { message, context }
            }
            None => Error::ExecutionFailed { message, context },
        };
        Concluded::failed(error, ended)
    }

    /// The server of a call, and its status.
    fn server_status_of(&self, execution: &Execution) -> (String, String, Status) {
        let entry = self.server_table().at(execution.slot_index());
        let (id, status) =
            entry.map_or((String::new(), Status::Disconnected), |entry| (entry.id.to_string(), entry.status));
        (id, execution.server().to_string(), status)
    }

    /// The error for the unavailable server in that slot.
    pub fn unavailable(&self, slot_index: usize) -> Error {
        if let Some(entry) = self.server_table().at(slot_index) {
            let sentence = sentence(&entry, Timestamp::now());
            let (server_id, name) = (entry.id.to_string(), entry.name.to_string());
            return Error::ServerUnavailable { server_id, name, status: entry.status, sentence };
        }
        let view = self.aggregator().map(|aggregator| aggregator.fleet.view());
        let name =
            view.and_then(|view| Some(view.snapshot.servers().get(slot_index)?.name.to_string())).unwrap_or_default();
        let sentence = format!("Server `{name}` is not connected");
        Error::ServerUnavailable { server_id: String::new(), name, status: Status::Disconnected, sentence }
    }
}

/// The server, its state, since when, and when it is retried next.
fn sentence(entry: &ServerEntry, now: Timestamp) -> String {
    let ServerEntry { name, status, since, retry_at, why, .. } = entry;
    if *status == Status::Connected {
        // The status was not updated yet.
        return format!("Server `{name}{UNAVAILABLE}its connection was just lost, and the service reconnects");
    }
    if *status == Status::SignInRequired {
        return sign_in_sentence(name, why.as_deref());
    }
    let mut text = format!("Server `{name}{UNAVAILABLE}{status} since {}", to_the_second(*since));
    if let Some(at) = retry_at {
        let left = at.since(now).as_secs_f64().ceil();
        text += &format!("; next attempt at {} (in {left} s)", to_the_second(*at));
    }
    match why {
        Some(why) => text + "; " + why,
        None => text,
    }
}

/// A time for people, without fractions of a second.
fn to_the_second(moment: Timestamp) -> String {
    let text = moment.to_string();
    text.split_once('.').map_or(text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// What precedes the state of a server in [`sentence`].
const UNAVAILABLE: &str = "` is not available: ";

/// The same message for a person, with local times if it is the one about an unavailable server. Records and JSON have
/// them in UTC.
pub fn with_local_times(message: &str) -> String {
    let mut shown = message.to_owned();
    let Some(found) = shown.find(UNAVAILABLE) else { return shown };
    let mut state = found + UNAVAILABLE.len();
    for lead in [" since ", "; next attempt at "] {
        let Some(start) = shown[state..].find(lead).map(|found| state + found + lead.len()) else { continue };
        let end = shown[start..].find([' ', ';', '\n']).map_or(shown.len(), |length| start + length);
        let Ok(moment) = shown[start..end].parse::<Timestamp>() else { continue };
        let local = moment.local("%Y-%m-%d %H:%M:%S");
        shown.replace_range(start..end, &local);
        state = start + local.len();
    }
    shown
}

/// The execution, server and tool.
fn context(execution: &Execution) -> Map<String, Value> {
    let record = execution.record();
    object(json!({
        "execution_id": record.id,
        "server_id": record.server_id,
        "server_name": &*record.server_name,
        "tool_name": &*record.tool_name,
    }))
}

/// The same with a stable identifier of the failure, and whether a retry is safe.
fn with_reason(mut context: Map<String, Value>, reason: &str, is_safe_to_retry: bool) -> Map<String, Value> {
    context.insert("reason".to_owned(), json!(reason));
    context.insert("safeToRetry".to_owned(), json!(is_safe_to_retry));
    context
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_an_unavailable_server_are_local_for_people() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap().local("%Y-%m-%d %H:%M:%S");
        let (since, next) = ("2026-07-28T12:00:00Z", "2026-07-28T12:05:00Z");
        let written = |since: &str, next: &str| {
            format!("failed: Server `a since 1` is not available: error since {since}; next attempt at {next} (in 5 s)")
        };
        let shown = with_local_times(&format!("{}; it said: down since {since}", written(since, next)));
        let expected = format!("{}; it said: down since {since}", written(&at(since), &at(next)));
        assert_eq!(shown, expected, "what a server said itself stays as it is");
        let other = format!("no luck since {since}; next attempt at {next}");
        assert_eq!(with_local_times(&other), other);
        let disabled = format!("Server `a` is not available: disabled since {since}");
        assert_eq!(with_local_times(&disabled), disabled.replace(since, &at(since)));
    }
}
