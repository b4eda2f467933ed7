//! The call as a client of our own makes it: it goes the way every call goes.

use std::sync::{Arc, Mutex, PoisonError};

use aggregator::client::{Client, ClientSetup};
use aggregator::client_sink::{CatchUp, ClientSink, Message, NullSink, Outbound};
use aggregator::dispatch::FlushSet;
use aggregator::interceptor::{CallEnd, CallTracker, PermitFuture, Refusal};
use aggregator::responder::Responder;
use aggregator::{Aggregator, Options};
use bytes::Bytes;
use catalog::Scope;
use protocol::bridge::meta;
use protocol::revision::SELF_CONTAINED_REVISION;
use protocol::scan::member;
use protocol::trace::{SpanContext, TraceContext};
use protocol::{Envelope, Kind, Lifecycle, Line, Span, reply, text};
use tokio::sync::oneshot;
use upstream::CallError;
use upstream::failure::RemoteFailure;

use super::Call;
use super::resolution::Target;
use crate::executions::{Ended, Execution, message_of, reason_of};

/// The id of the one request of such a client.
const ID: &[u8] = b"1";

/// One attempt at a call: its account, and where its answer goes.
pub(crate) struct Attempt {
    execution: Arc<Execution>,
    answer: Mutex<Option<oneshot::Sender<Bytes>>>,
    failure: Mutex<Option<Failure>>,
}

/// What came back.
pub(super) enum AttemptOutcome {
    /// A result, which stands there.
    Result(Bytes, Span),
    /// An error of the server, which stands there.
    Refused(Bytes, Span),
    /// Nothing of the server.
    Nothing(Failure),
}

/// Why nothing came from the server.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    /// What it means for the record.
    pub(super) ended: Ended,
    /// The server certainly did not see the call.
    pub(super) is_untouched: bool,
    /// The connection was lost while the call was under way.
    pub(super) is_lost: bool,
    /// The server is not connected.
    pub(super) is_absent: bool,
    /// It is connected, as far as we know, but the call did not get there.
    pub(super) miss: Option<Miss>,
    /// An earlier attempt got there and broke off.
    pub(super) was_sent: bool,
}

/// Why a call did not get to a server that runs elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Miss {
    /// Nobody is there.
    Unreachable,
    /// It had forgotten us, and did not get to know us again.
    Forgotten,
}

impl Failure {
    fn of(error: &CallError) -> Self {
        Self {
            ended: Ended::failed(error),
            is_untouched: error.is_safe_to_retry(),
            is_lost: matches!(error, CallError::Ended { .. } | CallError::Remote { .. }),
            is_absent: false,
            miss: match error {
                CallError::Remote { failure: RemoteFailure::Unreachable, .. } => Some(Miss::Unreachable),
                CallError::Remote { failure: RemoteFailure::SessionLost, .. } => Some(Miss::Forgotten),
                _ => None,
            },
            was_sent: false,
        }
    }

    /// We answered in the server's place.
    fn ours(line: &[u8], error: Span) -> Self {
        let data = member(line, error, "data");
        let told = |name| data.and_then(|data| member(line, data, name)).and_then(|value| text::decode(value.of(line)));
        let reason = told("reason").unwrap_or_default();
        let is_absent = matches!(&*reason, "server_unavailable" | "server_failed" | "server_starting");
        let ended = Ended::unanswered(registry::ExecutionStatus::Error, message_of(line, error));
        let ended = ended.of_kind(reason_of(line, error));
        Self { ended, is_untouched: is_absent, is_lost: false, is_absent, miss: None, was_sent: false }
    }

    /// Whether the same call may go better a little later. A session that could not be made anew was tried again already.
    pub(super) fn may_pass(&self) -> bool {
        self.miss != Some(Miss::Forgotten)
    }

    /// An earlier attempt got to the server, so the call may have been carried out: whoever made it must know.
    pub(super) fn note_sent_before(&mut self) {
        let before = "; it had been sent before, and the connection broke off, so it may have been carried out";
        if let Some(why) = self.ended.why.as_mut().filter(|why| !why.ends_with(before)) {
            why.push_str(before);
        }
        self.was_sent = true;
    }

    fn unexplained() -> Self {
        let why = "the call was given up".to_owned();
        let ended = Ended::unanswered(registry::ExecutionStatus::Error, why);
        Self { ended, is_untouched: false, is_lost: false, is_absent: false, miss: None, was_sent: false }
    }
}

impl Attempt {
    /// Makes the call; the client that makes it, and what comes back.
    pub(super) fn make(
        aggregator: &Arc<Aggregator>,
        execution: &Arc<Execution>,
        call: &Call,
        line: &Bytes,
    ) -> (Arc<Client>, impl Future<Output = AttemptOutcome> + use<>) {
        let (sender, answer) = oneshot::channel();
        let attempt = Arc::new(Self {
            execution: Arc::clone(execution),
            answer: Mutex::new(Some(sender)),
            failure: Mutex::default(),
        });
        let setup = ClientSetup {
            sink: Arc::new(NullSink),
            names: aggregator.options.names,
            scope: Scope::One(execution.place()),
            principal: Arc::clone(&call.actor.name),
            is_alone: false,
            surface: aggregator::Surface::Full,
        };
        let client = Client::with_origin(setup, Arc::clone(&attempt) as _);
        execution.goes_as(&client, ID, line.len());
        let to = Responder::to(&client, Arc::clone(&attempt) as Arc<dyn ClientSink>);
        let mut flush_set = FlushSet::default();
        aggregator.take(&client, &to, &Line::Whole(line.clone()), &mut flush_set);
        flush_set.flush();
        to.flush();
        (client, async move {
            match answer.await {
                Ok(line) => attempt.understand(line),
                Err(_) => AttemptOutcome::Nothing(attempt.take_failure().unwrap_or_else(Failure::unexplained)),
            }
        })
    }

    /// It goes through the aggregator under that id.
    pub(crate) fn goes_as(&self, client: &Arc<Client>, id: &[u8], bytes: usize) {
        self.execution.goes_as(client, id, bytes);
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

    fn take_sender(&self) -> Option<oneshot::Sender<Bytes>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl CallTracker for Attempt {
    /// Its turn has come already: it is waited for before the first attempt.
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

    /// An attempt is over. Whether the call is, is decided elsewhere.
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

impl ClientSink for Attempt {
    fn send(&self, what: Outbound, message: Message<'_>) {
        // The first answer counts; nobody waits for anything else.
        if what == Outbound::Response
            && let Some(sender) = self.take_sender()
        {
            let mut line = Vec::new();
            message.write_to(&mut line);
            // Whoever waited may be gone.
            sender.send(line.into()).ok();
        }
    }

    fn give_up(&self) {
        drop(self.take_sender());
    }

    fn flush(&self) {}

    fn catch_up(&self) -> Option<CatchUp<'_>> {
        None
    }

    fn is_full(&self) -> bool {
        false
    }

    fn carries_notifications(&self) -> bool {
        false
    }

    fn is_gone(&self) -> bool {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer.as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}

/// The request, in the words of its server's era, so that nothing need be translated on the way.
pub(super) fn line_of(target: &Target, call: &Call, options: &Options) -> Bytes {
    // Servers read lines. In JSON a line end stands only between tokens, where a blank does as well.
    let mut arguments = call.arguments.get().as_bytes().to_vec();
    arguments.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    let mut params = vec![("name", reply::string(&target.tool)), ("arguments", arguments)];
    // Whoever told a trace wants the server to know it, whether we add to it or not.
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
