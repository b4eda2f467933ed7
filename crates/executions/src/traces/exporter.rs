//! Sends spans to their collector in batches, without delaying calls: while the collector is unreachable they are
//! queued within bounds, and the oldest are dropped.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::otlp::{self, Span};
use super::{Collector, ExportError, TraceCounters};

/// How long the first of a batch waits for others.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// With the spans of this many calls a batch is sent at once; it contains no more.
const BATCH_SIZE: usize = 512;
/// The maximum that is queued: the spans of this many calls, and bytes.
const MAX_PENDING: usize = 8192;
const MAX_PENDING_BYTES: usize = 16 << 20;
/// The delays between attempts while the collector is unreachable.
const RETRY_DELAYS: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
];
/// The longest pause that a busy collector can request.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// How long the last spans may take at shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The queue of spans until they are sent.
pub(super) struct Exporter {
    /// The encoded resource.
    resource: Vec<u8>,
    backlog: Mutex<Backlog>,
    arrived: Notify,
    many: Notify,
    closing: watch::Sender<bool>,
    is_closed: watch::Sender<bool>,
    exported: AtomicU64,
    dropped: AtomicU64,
    /// A warning was logged, and nothing was accepted since.
    has_warned: AtomicBool,
}

#[derive(Default)]
struct Backlog {
    waiting: VecDeque<Encoded>,
    bytes: usize,
}

/// The spans of one call.
struct Encoded {
    bytes: Vec<u8>,
    spans: u64,
}

/// What is sent at once.
struct Batch {
    body: Bytes,
    spans: u64,
}

impl Exporter {
    pub(super) fn new(resource: &[(String, String)]) -> Self {
        Self {
            resource: otlp::resource(resource),
            backlog: Mutex::default(),
            arrived: Notify::new(),
            many: Notify::new(),
            closing: watch::Sender::default(),
            is_closed: watch::Sender::default(),
            exported: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Adds the spans of a call.
    pub(super) fn add(&self, spans: &[Span<'_>]) {
        let mut bytes = Vec::with_capacity(512 * spans.len());
        spans.iter().for_each(|span| otlp::put_span(&mut bytes, span));
        let mut backlog = self.lock();
        backlog.bytes += bytes.len();
        backlog.waiting.push_back(Encoded { bytes, spans: spans.len() as u64 });
        let given_up = backlog.give_up_oldest();
        let waiting = backlog.waiting.len();
        drop(backlog);
        if waiting == 1 {
            self.arrived.notify_one();
        } else if waiting == BATCH_SIZE {
            self.many.notify_one();
        }
        self.dropped.fetch_add(given_up, Ordering::Relaxed);
    }

    pub(super) fn reading(&self) -> TraceCounters {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TraceCounters { exported: load(&self.exported), dropped: load(&self.dropped) }
    }

    /// Sends spans until it is closed, and a moment longer.
    pub(super) async fn run(self: Arc<Self>, collector: Arc<dyn Collector>) {
        let mut closing = self.closing.subscribe();
        let deadline = async {
            drop(closing.wait_for(|&closing| closing).await);
            sleep(CLOSE_TIMEOUT).await;
        };
        tokio::select! {
            () = self.work(&*collector) => {}
            () = deadline => tracing::warn!("the last traces were not sent in time"),
        }
        self.is_closed.send_replace(true);
    }

    /// Requests the end, and waits a limited time until everything is sent.
    pub(super) async fn close(&self) {
        self.closing.send_replace(true);
        let mut is_closed = self.is_closed.subscribe();
        // It ends in time by itself, unless it is stuck.
        if timeout(CLOSE_TIMEOUT + Duration::from_secs(1), is_closed.wait_for(|&closed| closed)).await.is_err() {
            tracing::warn!("the last traces were not sent");
        }
    }

    async fn work(&self, collector: &dyn Collector) {
        let mut closing = self.closing.subscribe();
        while let Some(batch) = self.next(&mut closing).await {
            let counter = match self.deliver(collector, &batch, &mut closing).await {
                true => &self.exported,
                false => &self.dropped,
            };
            counter.fetch_add(batch.spans, Ordering::Relaxed);
        }
    }

    /// Sends a batch until it is accepted or refused, or the time is over. Returns whether it was accepted.
    async fn deliver(&self, collector: &dyn Collector, batch: &Batch, closing: &mut watch::Receiver<bool>) -> bool {
        let mut failures = 0;
        loop {
            let Err(unsent) = collector.post(batch.body.clone()).await else { break };
            self.complain(&unsent);
            if !unsent.may_pass || *closing.borrow() {
                return false;
            }
            let pause = RETRY_DELAYS[failures.min(RETRY_DELAYS.len() - 1)];
            let wanted = unsent.pause.map_or(pause, |wanted| wanted.clamp(pause, MAX_PAUSE));
            tokio::select! {
                () = sleep(wanted) => {}
                _ = closing.wait_for(|&closing| closing) => {}
            }
            failures += 1;
        }
        if self.has_warned.swap(false, Ordering::Relaxed) {
            tracing::info!("the collector accepts traces again");
        }
        true
    }

    /// The next batch; `None` if it is closed and nothing is left.
    async fn next(&self, closing: &mut watch::Receiver<bool>) -> Option<Batch> {
        loop {
            let waiting = self.lock().waiting.len();
            let is_closing = *closing.borrow();
            if waiting >= BATCH_SIZE || is_closing {
                return self.take_batch();
            }
            tokio::select! {
                () = self.arrived.notified(), if waiting == 0 => {}
                () = sleep(BATCH_DELAY), if waiting > 0 => return self.take_batch(),
                () = self.many.notified(), if waiting > 0 => {}
                _ = closing.wait_for(|&closing| closing) => {}
            }
        }
    }

    fn take_batch(&self) -> Option<Batch> {
        let mut backlog = self.lock();
        let count = backlog.waiting.len().min(BATCH_SIZE);
        let calls: Vec<Encoded> = backlog.waiting.drain(..count).collect();
        backlog.bytes -= calls.iter().map(|call| call.bytes.len()).sum::<usize>();
        drop(backlog);
        if calls.is_empty() {
            return None;
        }
        let spans = calls.iter().map(|call| call.spans).sum();
        let body = otlp::request(&self.resource, env!("CARGO_PKG_VERSION"), calls.into_iter().map(|call| call.bytes));
        Some(Batch { body: body.into(), spans })
    }

    /// Logs a warning once, until something is accepted again.
    fn complain(&self, unsent: &ExportError) {
        if self.has_warned.swap(true, Ordering::Relaxed) {
            return;
        }
        let ExportError { why, may_pass, .. } = unsent;
        match may_pass {
            true => tracing::warn!(%why, "failed to send traces; they are buffered until the collector accepts them"),
            false => tracing::warn!(%why, "failed to send traces; dropped them"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backlog {
    /// Drops the oldest; returns the number of spans.
    fn give_up_oldest(&mut self) -> u64 {
        let mut given_up = 0;
        while self.waiting.len() > MAX_PENDING || self.bytes > MAX_PENDING_BYTES {
            let Some(oldest) = self.waiting.pop_front() else { break };
            self.bytes -= oldest.bytes.len();
            given_up += oldest.spans;
        }
        given_up
    }
}
