//! One attempt at a call, made by a client of our own through the same path as any call.

use std::sync::{Arc, Mutex, PoisonError};

use aggregator::client_sink::{ClientSink, NullSink, ResponseSink};
use aggregator::interceptor::{CallEnd, CallTracker, PermitFuture, Refusal};
use aggregator::{Aggregator, Client, ClientSetup, FlushSet, Options, Responder};
use bytes::Bytes;
use catalog::{SIGN_IN_REQUIRED, Scope};
use protocol::bridge::meta;
use protocol::revision::SELF_CONTAINED_REVISION;
use protocol::scan::member;
use protocol::trace::{SpanContext, TraceContext};
use protocol::{Envelope, Kind, Lifecycle, Line, Span, reply, text};
use upstream::{CallError, RemoteFailure};

use super::Call;
use super::resolution::Target;
use crate::{Ended, Execution, message_of, reason_of};

/// The id of the one request of such a client.
const ID: &[u8] = b"1";

/// One attempt at a call: its execution, and why it failed.
pub(super) struct Attempt {
    execution: Arc<Execution>,
    failure: Mutex<Option<Failure>>,
}

/// The outcome of an attempt.
pub(super) enum AttemptOutcome {
    /// A result, at this span.
    Result(Bytes, Span),
    /// An error of the server, at this span.
    Refused(Bytes, Span),
    /// No response of the server.
    Nothing(Failure),
}

/// Why the server did not respond.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// The end to record.
    pub(super) ended: Ended,
    /// The server certainly did not receive the call.
    pub(super) is_untouched: bool,
    /// The connection was lost during the call.
    pub(super) is_lost: bool,
    /// The server is not connected.
    pub(super) is_absent: bool,
    /// It is connected, as far as is known, but the call was not delivered.
    pub(super) miss: Option<Miss>,
    /// An earlier attempt was delivered and lost its connection.
    pub(super) was_sent: bool,
}

/// Why a call was not delivered to a remote server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Miss {
    /// The server is unreachable.
    Unreachable,
    /// It had lost our session, and a new handshake failed.
    Forgotten,
}

impl Failure {
    fn of(error: &CallError) -> Self {
        Self {
            ended: Ended::failed(error),
            is_untouched: error.is_safe_to_retry(),
            is_lost: match error {
                // A person has to sign in first: a retry fails in the same way.
                CallError::Remote { failure: RemoteFailure::SignInRequired, .. } => false,
                error => matches!(error, CallError::Ended { .. } | CallError::Remote { .. }),
            },
            is_absent: false,
            miss: match error {
                CallError::Remote { failure: RemoteFailure::Unreachable, .. } => Some(Miss::Unreachable),
                CallError::Remote { failure: RemoteFailure::SessionLost, .. } => Some(Miss::Forgotten),
                _ => None,
            },
            was_sent: false,
        }
    }

    /// We responded in the server's place.
    fn ours(line: &[u8], error: Span) -> Self {
        let data = member(line, error, "data");
        let text_of =
            |name| data.and_then(|data| member(line, data, name)).and_then(|value| text::decode(value.of(line)));
        let reason = text_of("reason").unwrap_or_default();
        let is_absent =
            matches!(&*reason, "server_unavailable" | "server_failed" | "server_starting" | SIGN_IN_REQUIRED);
        let ended = Ended::unanswered(registry::ExecutionStatus::Error, message_of(line, error));
        let ended = ended.of_kind(reason_of(line, error));
        Self { ended, is_untouched: is_absent, is_lost: false, is_absent, miss: None, was_sent: false }
    }

    /// Whether a retry a little later may succeed. A session that could not be renewed was retried already.
    pub(super) fn may_pass(&self) -> bool {
        self.miss != Some(Miss::Forgotten)
    }

    /// Records that an earlier attempt was delivered, so the call may have been carried out: the caller must know.
    pub(super) fn note_sent_before(&mut self) {
        let before = "; the connection was lost after the call had been sent, so it may have been executed";
        if let Some(why) = self.ended.why.as_mut().filter(|why| !why.ends_with(before)) {
            why.push_str(before);
        }
        self.was_sent = true;
    }

    fn unexplained() -> Self {
        let why = "the call was abandoned".to_owned();
        let ended = Ended::unanswered(registry::ExecutionStatus::Error, why);
        Self { ended, is_untouched: false, is_lost: false, is_absent: false, miss: None, was_sent: false }
    }
}

impl Attempt {
    /// Makes the call; returns its client, and a future for the outcome.
    pub(super) fn make(
        aggregator: &Arc<Aggregator>,
        execution: &Arc<Execution>,
        call: &Call,
        line: &Bytes,
    ) -> (Arc<Client>, impl Future<Output = AttemptOutcome> + use<>) {
        let (sink, response) = ResponseSink::new();
        let attempt = Arc::new(Self { execution: Arc::clone(execution), failure: Mutex::default() });
        let setup = ClientSetup {
            sink: Arc::new(NullSink),
            names: aggregator.options.names,
            scope: Scope::One(execution.slot_index()),
            principal: Arc::clone(&call.actor.principal),
            is_alone: false,
            surface: aggregator::Surface::Full,
            profile: None,
        };
        let client = Client::for_tracked_call(setup, Arc::clone(&attempt) as Arc<dyn CallTracker>);
        execution.goes_as(&client, ID, line.len());
        let to = Responder::to(&client, Arc::clone(&sink) as Arc<dyn ClientSink>);
        let mut flush_set = FlushSet::default();
        aggregator.take(&client, &to, &Line::Whole(line.clone()), &mut flush_set);
        flush_set.flush();
        to.flush();
        (client, async move {
            // Until the tracker has noted why a call failed, its sink must not close.
            let _sink = sink;
            match response.await {
                Ok(line) => attempt.understand(line),
                Err(_) => AttemptOutcome::Nothing(attempt.take_failure().unwrap_or_else(Failure::unexplained)),
            }
        })
    }

    fn understand(&self, line: Bytes) -> AttemptOutcome {
        if let Some(failure) = self.take_failure() {
            return AttemptOutcome::Nothing(failure);
        }
        match Envelope::scan(&line) {
            Ok(Envelope { kind: Kind::Response { outcome: Ok(result), .. }, .. }) => {
                AttemptOutcome::Result(line, result)
            }
            Ok(Envelope { kind: Kind::Response { outcome: Err(error), .. }, .. }) => {
                AttemptOutcome::Refused(line, error)
            }
            _ => AttemptOutcome::Nothing(Failure::unexplained()),
        }
    }

    fn take_failure(&self) -> Option<Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set_failure(&self, failure: Failure) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }
}

impl CallTracker for Attempt {
    /// No wait here: the slot is acquired before the first attempt.
    fn permit(&self) -> Option<PermitFuture> {
        None
    }

    fn on_sent(&self) -> Option<SpanContext> {
        self.execution.mark_sent()
    }

    fn on_held(&self) {
        self.execution.mark_held();
    }

    fn on_released(&self) {
        self.execution.mark_released();
    }

    /// An attempt has ended. Whether the call has, is decided elsewhere.
    fn on_end(&self, end: CallEnd<'_>) {
        match end {
            CallEnd::Response(..) => {}
            CallEnd::Failed(error) => self.set_failure(Failure::of(error)),
            CallEnd::Ours(answer) => {
                let answer = answer.trim_ascii_end();
                if let Ok(Envelope { kind: Kind::Response { outcome: Err(error), .. }, .. }) = Envelope::scan(answer) {
                    self.set_failure(Failure::ours(answer, error));
                }
            }
            CallEnd::Cancelled => self.set_failure(Failure::unexplained()),
        }
    }

    fn cancel_reason(&self) -> Option<Refusal> {
        None
    }
}

/// The request in its server's lifecycle, so that the bridge need not translate it.
pub(super) fn line_of(target: &Target, call: &Call, options: &Options) -> Bytes {
    // Servers read lines. In JSON a line end occurs only between tokens, where a space is equivalent.
    let mut arguments = call.arguments.get().as_bytes().to_vec();
    arguments.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    let mut params = vec![("name", reply::string(&target.tool)), ("arguments", arguments)];
    // A caller's trace context is passed on to the server, whether we add spans to it or not.
    let mut members = call.trace.as_ref().map(TraceContext::members).unwrap_or_default();
    if target.lifecycle == Lifecycle::SelfContained {
        let info =
            reply::object([("name", reply::string(&options.name)), ("version", reply::string(&options.version))]);
        members.extend([
            (meta::PROTOCOL_VERSION, reply::string(SELF_CONTAINED_REVISION)),
            (meta::CLIENT_CAPABILITIES, b"{}".to_vec()),
            (meta::CLIENT_INFO, info),
        ]);
    }
    if !members.is_empty() {
        params.push(("_meta", reply::object(members)));
    }
    let mut line = reply::request(1, "tools/call", Some(&reply::object(params)));
    line.pop();
    line.into()
}
