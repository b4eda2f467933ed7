//! One call, from when it was asked for to its end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use aggregator::client::Client;
use aggregator::interceptor::{CallEnd, CallTracker, PermitFuture, Refusal};
use protocol::trace::{SpanContext, TraceContext};
use registry::{ExecutionId, ExecutionRecord, ExecutionStatus, RawJson, ServerId, ShortStr, Source, Timestamp};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

use super::cancel_reason::{CancelReason, waited_too_long};
use super::concurrency::Slot;
use super::outcome::Ended;
use super::{Executions, ids};
use crate::metrics::ServerCounters;
use crate::traces::{CallTrace, FinishedCall, ServerSpan, Traces};

/// How long a call waits for its turn.
pub(crate) const QUEUE_TIMEOUT: Duration = Duration::from_secs(300);

/// Longer ids of clients are not kept: clients choose them.
const MAX_REQUEST_ID_LEN: usize = 100;

/// Where a call comes from.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// Which way it came.
    pub(crate) source: Source,
    /// Who made it: the name of a token, where there are tokens.
    pub(crate) caller: Option<Arc<str>>,
    /// What the MCP client that made it calls itself.
    pub(crate) client: Option<Arc<str>>,
    /// The document it was made from, and the line there.
    pub(crate) document: Option<(String, Option<u32>)>,
}

/// A call that is about to be entered.
pub(crate) struct NewExecution {
    /// The place of its server.
    pub(crate) place: usize,
    /// That server's id, where it has one, and the name it has now.
    pub(crate) server: (Option<ServerId>, Arc<str>),
    /// What that server calls the tool.
    pub(crate) tool: Arc<str>,
    /// Where it comes from.
    pub(crate) origin: Origin,
    /// What the tool is given, if that is to be kept.
    pub(crate) arguments: Option<RawJson>,
    /// Whether its result is to be kept.
    pub(crate) keeps_result: bool,
    /// The trace that whoever makes it says it belongs to.
    pub(crate) trace: Option<TraceContext>,
}

/// One call.
pub(crate) struct Execution {
    pub(crate) id: ExecutionId,
    asked: NewExecution,
    submitted_at: Timestamp,
    submitted: Instant,
    /// Where it is entered until it is over.
    whole: Arc<Executions>,
    progress: Mutex<Progress>,
    cancel_requested: Notify,
    /// Where calls are traced.
    trace: Option<CallTrace>,
}

/// How far it has got.
#[derive(Default)]
struct Progress {
    /// When its turn came, if it had to wait.
    had_turn: Option<Instant>,
    /// When its server first got it.
    first_sent: Option<Instant>,
    /// When its server got it, unless it waits to be sent again.
    sent: Option<Instant>,
    retries: u32,
    /// If it is traced: its times at its server.
    server_spans: Vec<ServerSpan>,
    cancel_reason: Option<CancelReason>,
    ended: Option<(Instant, Ended)>,
    slot: Option<Slot>,
    turn: Option<oneshot::Receiver<()>>,
    /// Under whose name, and which id, it goes through the aggregator.
    request: Option<(Weak<Client>, Box<[u8]>)>,
    /// How long that request is.
    request_bytes: Option<u64>,
    /// That it is under way was written down.
    is_noted: bool,
}

/// How long the parts of a call took.
pub(crate) struct Times {
    /// Waiting for its turn.
    pub(crate) queue: Duration,
    /// From its turn to the server.
    pub(crate) routing: Duration,
    /// At the server.
    pub(crate) execution: Duration,
    /// In all.
    pub(crate) total: Duration,
}

impl Execution {
    pub(super) fn new(whole: Arc<Executions>, mut asked: NewExecution, slot: Option<Slot>) -> Self {
        let trace = whole.traces.as_ref().map(|traces| traces.begin(asked.trace.take()));
        let submitted_at = Timestamp::now();
        Self {
            id: ids::fresh(submitted_at),
            submitted_at,
            submitted: Instant::now(),
            asked,
            whole,
            progress: Mutex::new(Progress { slot, ..Progress::default() }),
            cancel_requested: Notify::new(),
            trace,
        }
    }

    /// The place of its server.
    pub(crate) fn place(&self) -> usize {
        self.asked.place
    }

    /// The name its server had.
    pub(crate) fn server(&self) -> &Arc<str> {
        &self.asked.server.1
    }

    /// What its server calls the tool.
    pub(crate) fn tool(&self) -> &str {
        &self.asked.tool
    }

    /// Which way it came.
    pub(crate) fn source(&self) -> Source {
        self.asked.origin.source
    }

    /// For how long its server has had it.
    pub(super) fn running_for(&self, now: Instant) -> Option<Duration> {
        self.lock().sent.map(|sent| now.saturating_duration_since(sent))
    }

    /// Whether nothing more will happen to it.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().ended.is_some()
    }

    /// It may not be made at once: this is what it waits for.
    pub(super) fn set_turn(&self, turn: oneshot::Receiver<()>) {
        self.lock().turn = Some(turn);
    }

    /// What it waits for, if it may not be made at once. Asked once.
    pub(crate) fn take_turn(&self) -> Option<oneshot::Receiver<()>> {
        self.lock().turn.take()
    }

    /// What it waited for has come.
    pub(crate) fn mark_turn(&self) {
        self.lock().had_turn.get_or_insert_with(Instant::now);
    }

    /// It goes through the aggregator as the request of that client under that id, so many bytes long.
    pub(crate) fn goes_as(&self, client: &Arc<Client>, id: &[u8], bytes: usize) {
        let mut progress = self.lock();
        progress.request = Some((Arc::downgrade(client), id.into()));
        progress.request_bytes = Some(bytes as u64);
    }

    /// As what it goes through the aggregator, if it does.
    pub(super) fn request(&self) -> Option<(Arc<Client>, Box<[u8]>)> {
        let progress = self.lock();
        let (client, id) = progress.request.as_ref()?;
        Some((client.upgrade()?, id.clone()))
    }

    /// It is on its way to its server. If it is traced: the span that the server is told as its cause.
    pub(crate) fn mark_sent(&self) -> Option<SpanContext> {
        let now = Instant::now();
        let span = {
            let mut progress = self.lock();
            if progress.sent.is_some() || progress.ended.is_some() {
                return progress.server_spans.last().map(|server_span| server_span.span);
            }
            progress.sent = Some(now);
            progress.first_sent.get_or_insert(now);
            progress.server_spans.extend(self.trace.as_ref().map(|trace| trace.server_span(now)));
            progress.server_spans.last().map(|server_span| server_span.span)
        };
        self.announce();
        span
    }

    /// Its server is busy with somebody else, so it waits with us: that is not the server's time.
    pub(crate) fn mark_held(&self) {
        let mut progress = self.lock();
        if progress.ended.is_some() || progress.sent.is_none() {
            return;
        }
        // It was the first time that it was sent, unless it is made again.
        if progress.retries == 0 {
            progress.first_sent = None;
        }
        progress.sent = None;
        drop(progress);
        self.announce();
    }

    /// Its server gets it now.
    pub(crate) fn mark_released(&self) {
        let now = Instant::now();
        {
            let mut progress = self.lock();
            if progress.ended.is_some() || progress.sent.is_some() {
                return;
            }
            progress.sent = Some(now);
            progress.first_sent.get_or_insert(now);
            if let Some(server_span) = progress.server_spans.last_mut() {
                server_span.from = now;
            }
        }
        self.announce();
    }

    /// This is its place among those that may run.
    pub(super) fn set_slot(&self, slot: Slot) {
        let mut progress = self.lock();
        if progress.ended.is_none() {
            progress.slot = Some(slot);
        }
    }

    /// It will be sent again, because that went wrong. Until then it gives its place to others.
    pub(crate) fn mark_retry(&self, why: &str) {
        let slot = {
            let mut progress = self.lock();
            if progress.sent.is_some()
                && let Some(server_span) = progress.server_spans.last_mut()
            {
                server_span.failed = Some((Instant::now(), why.into()));
            }
            progress.retries += 1;
            progress.sent = None;
            progress.request = None;
            progress.slot.take()
        };
        drop(slot);
        self.whole.count(self.place(), ServerCounters::retried);
        self.announce();
    }

    /// Somebody decided that it must end; whether that is news. The first one's word counts.
    pub(super) fn request_cancel(&self, cancel_reason: CancelReason) -> bool {
        let mut progress = self.lock();
        if progress.ended.is_some() || progress.cancel_reason.is_some() {
            return false;
        }
        progress.cancel_reason = Some(cancel_reason);
        drop(progress);
        self.cancel_requested.notify_waiters();
        true
    }

    /// What was decided about it, if anything was.
    pub(crate) fn cancel_reason(&self) -> Option<CancelReason> {
        self.lock().cancel_reason.clone()
    }

    /// Waits until somebody decides that it must end.
    pub(crate) async fn cancel_requested(&self) -> CancelReason {
        loop {
            let mut cancel_requested = std::pin::pin!(self.cancel_requested.notified());
            cancel_requested.as_mut().enable();
            if let Some(cancel_reason) = self.cancel_reason() {
                return cancel_reason;
            }
            cancel_requested.await;
        }
    }

    /// It is over; whether it was not already.
    pub(crate) fn finish(self: &Arc<Self>, ended: Ended) -> bool {
        if !self.end(ended) {
            return false;
        }
        self.whole.record_end(self);
        self.announce();
        true
    }

    /// Its end, for itself and its server.
    fn end(&self, ended: Ended) -> bool {
        let now = Instant::now();
        let status = ended.status;
        let mut progress = self.lock();
        if progress.ended.is_some() {
            return false;
        }
        progress.ended = Some((now, ended));
        let sent = progress.sent;
        let first_sent = progress.first_sent;
        let (slot, turn) = (progress.slot.take(), progress.turn.take());
        drop(progress);
        self.whole.count(self.place(), |counters| {
            counters.called(status);
            if let (Some(first), Some(sent)) = (first_sent, sent) {
                counters.routing.add(first.saturating_duration_since(self.submitted));
                counters.execution.add(now.saturating_duration_since(sent));
            }
        });
        // The next one's turn.
        drop((slot, turn));
        true
    }

    /// Tells who listens how far it has got.
    pub(super) fn announce(&self) {
        let events = &self.whole.events;
        if events.has_listeners() {
            events.emit(crate::Event::Execution(Box::new(self.record())));
        }
    }

    /// Notes that its server has it, unless it is over or that was noted before.
    pub(super) fn note(&self) -> Option<ExecutionRecord> {
        let mut progress = self.lock();
        if progress.is_noted || progress.ended.is_some() || progress.sent.is_none() {
            return None;
        }
        progress.is_noted = true;
        drop(progress);
        Some(self.record())
    }

    /// Whether it was written down while it was under way.
    pub(super) fn is_noted(&self) -> bool {
        self.lock().is_noted
    }

    /// How long its parts took, up to now or to its end.
    pub(crate) fn times(&self) -> Times {
        let progress = self.lock();
        let end = progress.ended.as_ref().map_or_else(Instant::now, |(at, _)| *at);
        let first_sent = progress.first_sent.unwrap_or(end);
        let turn = progress.had_turn.unwrap_or(self.submitted);
        Times {
            queue: turn.saturating_duration_since(self.submitted),
            routing: first_sent.saturating_duration_since(turn),
            execution: progress.sent.map_or(Duration::ZERO, |sent| end.saturating_duration_since(sent)),
            total: end.saturating_duration_since(self.submitted),
        }
    }

    /// What is known of it.
    pub(crate) fn record(&self) -> ExecutionRecord {
        let progress = self.lock();
        let NewExecution { server, tool, origin, arguments, .. } = &self.asked;
        let at = |moment: Instant| self.submitted_at.later_by(moment.saturating_duration_since(self.submitted));
        let document = origin.document.as_ref();
        let of_mcp =
            progress.request.as_ref().filter(|(_, id)| origin.source == Source::Mcp && id.len() <= MAX_REQUEST_ID_LEN);
        let mut record = ExecutionRecord {
            id: self.id,
            server_id: server.0,
            server_name: Arc::clone(&server.1),
            tool_name: Arc::clone(tool),
            source: origin.source,
            caller: origin.caller.clone(),
            client: origin.client.clone(),
            document_path: document.map(|(path, _)| path.clone()),
            section_line: document.and_then(|(_, line)| *line),
            status: if progress.sent.is_some() { ExecutionStatus::Executing } else { ExecutionStatus::Pending },
            submitted_at: self.submitted_at,
            started_at: progress.first_sent.map(at),
            completed_at: None,
            duration: None,
            retries: progress.retries,
            error_message: None,
            request_id: of_mcp.map(|(_, id)| ShortStr::from(&*String::from_utf8_lossy(id))),
            request_bytes: progress.request_bytes,
            response_bytes: None,
            arguments: arguments.clone(),
            result: None,
        };
        if let Some((moment, ended)) = &progress.ended {
            record.status = ended.status;
            record.completed_at = Some(at(*moment));
            record.duration = progress.first_sent.map(|sent| moment.saturating_duration_since(sent));
            record.error_message = ended.why.clone();
            record.result = ended.result.clone();
            record.response_bytes = ended.bytes;
        }
        record
    }

    /// Tells a collector of it, once it is over.
    pub(super) fn export(&self, traces: &Traces) {
        let Some(trace) = self.trace.as_ref().filter(|trace| trace.span.is_sampled) else { return };
        let progress = self.lock();
        let Some((over, ended)) = &progress.ended else { return };
        let of_mcp = progress.request.as_ref().filter(|_| self.source() == Source::Mcp);
        let finished = FinishedCall {
            id: self.id,
            server: self.server(),
            tool: self.tool(),
            source: self.source(),
            request_id: of_mcp.and_then(|(_, id)| std::str::from_utf8(id).ok()),
            submitted: (self.submitted_at, self.submitted),
            server_spans: &progress.server_spans,
            retries: progress.retries,
            over: *over,
            ended,
        };
        finished.export(trace, traces);
    }

    /// Whether its result is to be kept.
    pub(crate) fn keeps_result(&self) -> bool {
        self.asked.keeps_result
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The account of a call that comes from an MCP client.
pub(super) struct ExecutionTracker(pub(super) Arc<Execution>);

impl CallTracker for ExecutionTracker {
    fn permit(&self) -> Option<PermitFuture> {
        let turn = self.0.take_turn()?;
        Some(Box::pin(async move {
            // If the other end is gone the call is over, and nobody waits for this any more.
            timeout(QUEUE_TIMEOUT, turn).await.map_or_else(|_| Err(waited_too_long()), |_| Ok(()))
        }))
    }

    fn on_sent(&self) -> Option<SpanContext> {
        self.0.mark_sent()
    }

    fn on_held(&self) {
        self.0.mark_held();
    }

    fn on_released(&self) {
        self.0.mark_released();
    }

    fn on_end(&self, end: CallEnd<'_>) {
        let ended = Ended::of(end, self.0.cancel_reason().as_ref(), self.0.keeps_result());
        self.0.finish(ended);
    }

    fn cancel_reason(&self) -> Option<Refusal> {
        self.0.cancel_reason().map(|cancel_reason| cancel_reason.refusal())
    }
}

impl Drop for ExecutionTracker {
    /// Whatever broke: a call that nobody knows any more is not under way.
    fn drop(&mut self) {
        self.0.finish(Ended::lost());
    }
}
