//! One call, from its request to its end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use aggregator::Client;
use aggregator::interceptor::{CallEnd, CallTracker, PermitFuture, Refusal};
use protocol::trace::{SpanContext, TraceContext};
use registry::{ExecutionId, ExecutionRecord, ExecutionStatus, RawJson, ServerId, ShortStr, Source, Timestamp};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

use super::cancel_reason::{CancelReason, waited_too_long};
use super::concurrency::Slot;
use super::outcome::Ended;
use super::{Executions, ids};
use crate::limits::RunningCall;
use crate::metrics::ServerCounters;
use crate::traces::{CallTrace, FinishedCall, ServerSpan, Traces};

/// How long a call may be queued.
pub(crate) const QUEUE_TIMEOUT: Duration = Duration::from_secs(300);

/// Longer request ids are not stored: clients choose them.
const MAX_REQUEST_ID_LEN: usize = 100;

/// Where a call comes from.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// The interface it came through.
    pub(crate) source: Source,
    /// Who made it: the name of a token, where there are tokens.
    pub(crate) caller: Option<Arc<str>>,
    /// The declared name of its MCP client.
    pub(crate) client: Option<Arc<str>>,
    /// The document it was made from, and the line there.
    pub(crate) document: Option<(String, Option<u32>)>,
}

/// A call that is about to begin.
pub(crate) struct NewExecution {
    /// The slot index of its server.
    pub(crate) slot_index: usize,
    /// That server's id, where it has one, and the name it has now.
    pub(crate) server: (Option<ServerId>, Arc<str>),
    /// The server's name of the tool.
    pub(crate) tool: Arc<str>,
    /// Where it comes from.
    pub(crate) origin: Origin,
    /// The arguments, if they are to be stored.
    pub(crate) arguments: Option<RawJson>,
    /// Whether its result is to be stored.
    pub(crate) keeps_result: bool,
    /// The trace that its caller provided.
    pub(crate) trace: Option<TraceContext>,
}

/// One call.
pub(crate) struct Execution {
    pub(crate) id: ExecutionId,
    details: NewExecution,
    submitted_at: Timestamp,
    submitted: Instant,
    /// The table it is in until it ends.
    whole: Arc<Executions>,
    progress: Mutex<Progress>,
    cancel_requested: Notify,
    /// Its trace.
    trace: Option<CallTrace>,
}

/// How far it has progressed.
#[derive(Default)]
struct Progress {
    /// When it left the queue, if it was queued.
    had_turn: Option<Instant>,
    /// When it was first sent to its server.
    first_sent: Option<Instant>,
    /// When it was sent to its server, unless it waits for a retry.
    sent: Option<Instant>,
    retries: u32,
    /// If it is traced: its spans at its server.
    server_spans: Vec<ServerSpan>,
    cancel_reason: Option<CancelReason>,
    ended: Option<(Instant, Ended)>,
    slot: Option<Slot>,
    /// Counts it against the limits of calls in progress, until it ends.
    running: Option<RunningCall>,
    turn: Option<oneshot::Receiver<()>>,
    /// The client and the id of its request in the aggregator.
    request: Option<(Weak<Client>, Box<[u8]>)>,
    /// The length of that request.
    request_bytes: Option<u64>,
    /// It was recorded while it was running.
    is_noted: bool,
}

/// The durations of a call's phases.
pub(crate) struct Times {
    /// In the queue.
    pub(crate) queue: Duration,
    /// From the end of the queue to the server.
    pub(crate) routing: Duration,
    /// At the server.
    pub(crate) execution: Duration,
    /// In total.
    pub(crate) total: Duration,
}

impl Execution {
    pub(super) fn new(whole: Arc<Executions>, mut details: NewExecution, slot: Option<Slot>) -> Self {
        let trace = whole.traces.as_ref().map(|traces| traces.begin(details.trace.take()));
        let submitted_at = Timestamp::now();
        Self {
            id: ids::fresh(submitted_at),
            submitted_at,
            submitted: Instant::now(),
            details,
            whole,
            progress: Mutex::new(Progress { slot, ..Progress::default() }),
            cancel_requested: Notify::new(),
            trace,
        }
    }

    /// The slot index of its server.
    pub(crate) fn slot_index(&self) -> usize {
        self.details.slot_index
    }

    /// The name its server had.
    pub(crate) fn server(&self) -> &Arc<str> {
        &self.details.server.1
    }

    /// The server's name of the tool.
    pub(crate) fn tool(&self) -> &str {
        &self.details.tool
    }

    /// The interface it came through.
    pub(crate) fn source(&self) -> Source {
        self.details.origin.source
    }

    /// How long it has been at its server.
    pub(super) fn running_for(&self, now: Instant) -> Option<Duration> {
        self.lock().sent.map(|sent| now.saturating_duration_since(sent))
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().ended.is_some()
    }

    /// Sets the receiver it waits for while it is queued.
    pub(super) fn set_turn(&self, turn: oneshot::Receiver<()>) {
        self.lock().turn = Some(turn);
    }

    /// The receiver it waits for, if it is queued. Taken once.
    pub(crate) fn take_turn(&self) -> Option<oneshot::Receiver<()>> {
        self.lock().turn.take()
    }

    /// Records that it left the queue.
    pub(crate) fn mark_turn(&self) {
        self.lock().had_turn.get_or_insert_with(Instant::now);
    }

    /// Records its request in the aggregator: the client, the id and the length.
    pub(crate) fn goes_as(&self, client: &Arc<Client>, id: &[u8], bytes: usize) {
        let mut progress = self.lock();
        progress.request = Some((Arc::downgrade(client), id.into()));
        progress.request_bytes = Some(bytes as u64);
    }

    /// Its request in the aggregator, if there is one.
    pub(super) fn request(&self) -> Option<(Arc<Client>, Box<[u8]>)> {
        let progress = self.lock();
        let (client, id) = progress.request.as_ref()?;
        Some((client.upgrade()?, id.clone()))
    }

    /// Records that it is sent to its server. If it is traced, returns the span that the server receives as parent.
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

    /// Records that it is held because its server is busy with another client's: that is not the server's time.
    pub(crate) fn mark_held(&self) {
        let mut progress = self.lock();
        if progress.ended.is_some() || progress.sent.is_none() {
            return;
        }
        // It was the first time that it was sent, unless it is a retry.
        if progress.retries == 0 {
            progress.first_sent = None;
        }
        progress.sent = None;
        drop(progress);
        self.announce();
    }

    /// Records that it is sent to its server now.
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

    /// Sets what counts it as in progress.
    pub(super) fn set_running(&self, running: Option<RunningCall>) {
        self.lock().running = running;
    }

    /// Sets its concurrency slot.
    pub(super) fn set_slot(&self, slot: Slot) {
        let mut progress = self.lock();
        if progress.ended.is_none() {
            progress.slot = Some(slot);
        }
    }

    /// Records a failed attempt that is retried. Until then it releases its slot.
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
        self.whole.count(self.slot_index(), ServerCounters::retried);
        self.announce();
    }

    /// Requests its end. Returns whether it is the first request, which counts.
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

    /// Why it must end, if that was requested.
    pub(crate) fn cancel_reason(&self) -> Option<CancelReason> {
        self.lock().cancel_reason.clone()
    }

    /// Waits until its end is requested.
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

    /// Ends it. Returns whether it had not ended already.
    pub(crate) fn finish(self: &Arc<Self>, ended: Ended) -> bool {
        if !self.end(ended) {
            return false;
        }
        self.whole.record_end(self);
        self.announce();
        true
    }

    /// Records its end, for itself and its server.
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
        let (slot, turn, running) = (progress.slot.take(), progress.turn.take(), progress.running.take());
        drop(progress);
        self.whole.count(self.slot_index(), |counters| {
            counters.called(status);
            if let (Some(first), Some(sent)) = (first_sent, sent) {
                counters.routing.add(first.saturating_duration_since(self.submitted));
                counters.execution.add(now.saturating_duration_since(sent));
            }
        });
        // Releases the slot for the next call.
        drop((slot, turn, running));
        true
    }

    /// Notifies the observer of its progress.
    pub(super) fn announce(&self) {
        let observer = &self.whole.observer;
        if observer.has_listeners() {
            observer.on_progress(self.record());
        }
    }

    /// Its record for a running call, unless it has ended or was recorded before.
    pub(super) fn note(&self) -> Option<ExecutionRecord> {
        let mut progress = self.lock();
        if progress.is_noted || progress.ended.is_some() || progress.sent.is_none() {
            return None;
        }
        progress.is_noted = true;
        drop(progress);
        Some(self.record())
    }

    /// Whether it was recorded while it was running.
    pub(super) fn is_noted(&self) -> bool {
        self.lock().is_noted
    }

    /// The durations of its phases, up to now or to its end.
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

    /// Its record.
    pub(crate) fn record(&self) -> ExecutionRecord {
        let progress = self.lock();
        let NewExecution { server, tool, origin, arguments, .. } = &self.details;
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

    /// Exports its spans, once it has ended.
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

    /// Whether its result is to be stored.
    pub(crate) fn keeps_result(&self) -> bool {
        self.details.keeps_result
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tracks a call of an MCP client.
pub(super) struct ExecutionTracker(pub(super) Arc<Execution>);

impl CallTracker for ExecutionTracker {
    fn permit(&self) -> Option<PermitFuture> {
        let turn = self.0.take_turn()?;
        Some(Box::pin(async move {
            // If the sender was dropped the call has ended, and the permit is not needed any more.
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
    /// Whatever happened: a call without a reference is not running.
    fn drop(&mut self) {
        self.0.finish(Ended::lost());
    }
}
