//! Writes ended calls in batches, without delaying them: while the database is unreachable they are queued, and if
//! that takes too long the oldest are dropped.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use registry::{Batch, ExecutionRecord, RetentionPolicy, Store, Timestamp};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::settings::LiveSettings;

/// How long the first of a batch waits for others.
const BATCH_DELAY: Duration = Duration::from_millis(500);
/// A batch of this size is written at once. Smaller ones cost more for each record: measured, not guessed.
const BATCH_SIZE: usize = 4096;
/// The largest batch, and the maximum of queued records of running calls.
const MAX_BATCH: usize = 4096;
/// The maximum that is queued for the database: calls, and bytes.
const MAX_PENDING: usize = 100_000;
const MAX_PENDING_BYTES: usize = 64 << 20;
/// The delays between attempts while the database is unreachable.
const RETRY_DELAYS: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5)];
/// How often old records are deleted, and after how many new ones at the latest.
const PRUNE_INTERVAL: Duration = Duration::from_secs(300);
const PRUNE_AFTER_WRITES: u64 = 50_000;
/// How long the last records may take at shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The error of a call that was running when the service ended.
const INTERRUPTED: &str = "the service ended before the call did";

/// The queue of ended calls until they are written.
#[derive(Default)]
pub(crate) struct Recorder {
    backlog: Mutex<Backlog>,
    arrived: Notify,
    many: Notify,
    /// The retention limits may have changed.
    limits: Notify,
    closing: watch::Sender<bool>,
    is_closed: watch::Sender<bool>,
    written: AtomicU64,
    dropped: AtomicU64,
    /// Why the last batch could not be written, if so.
    last_error: Mutex<Option<String>>,
    /// A warning about dropped records was logged, and the database has not been reachable since.
    has_warned: AtomicBool,
}

/// The size of a queued record.
fn weight(record: &ExecutionRecord) -> usize {
    let length = |json: &Option<registry::RawJson>| json.as_ref().map_or(0, |json| json.get().len());
    let why = record.error_message.as_ref().map_or(0, String::len);
    size_of::<ExecutionRecord>() + 100 + why + length(&record.arguments) + length(&record.result)
}

#[derive(Default)]
struct Backlog {
    /// The records of ended calls, and nothing else: the other resources of a call are free for the next one. It
    /// includes whether each was recorded while it was running.
    waiting: Batch,
    bytes: usize,
    /// Being written right now, except for records of running calls.
    writing: Arc<Batch>,
    /// Records of running calls to be written.
    notes: Vec<ExecutionRecord>,
    /// The memory of an earlier batch, reused for the next.
    room: VecDeque<ExecutionRecord>,
}

impl Recorder {
    /// Adds an ended call; it may have been recorded while it was running.
    pub(crate) fn add(&self, record: ExecutionRecord, is_noted: bool) {
        let weight = weight(&record);
        let mut backlog = self.lock();
        let queue = if is_noted { &mut backlog.waiting.known } else { &mut backlog.waiting.fresh };
        queue.push_back(record);
        backlog.bytes += weight;
        let given_up = backlog.give_up_oldest();
        let waiting = backlog.waiting.len();
        drop(backlog);
        if waiting == 1 {
            self.arrived.notify_one();
        } else if waiting == BATCH_SIZE {
            self.many.notify_one();
        }
        if given_up > 0 {
            self.dropped.fetch_add(given_up, Ordering::Relaxed);
            if !self.has_warned.swap(true, Ordering::Relaxed) {
                tracing::warn!("the database has been unreachable for too long: dropping the oldest executions");
            }
        }
    }

    /// Adds a call that has been running for a while.
    pub(crate) fn note(&self, record: ExecutionRecord) {
        let mut backlog = self.lock();
        // While the database is unreachable, only ended calls are worth keeping.
        if backlog.notes.len() < MAX_BATCH {
            backlog.notes.push(record);
        }
        drop(backlog);
        self.arrived.notify_one();
    }

    /// The retention limits may have changed.
    pub(crate) fn apply_limits(&self) {
        self.limits.notify_one();
    }

    /// Ended calls that are not written yet, each with whether it was recorded while it was running.
    pub(crate) fn unwritten(&self) -> Vec<(ExecutionRecord, bool)> {
        let backlog = self.lock();
        let batches = [&*backlog.writing, &backlog.waiting].into_iter();
        let all = batches.flat_map(|batch| {
            batch.known.iter().map(|record| (record, true)).chain(batch.fresh.iter().map(|record| (record, false)))
        });
        all.map(|(record, is_noted)| (record.clone(), is_noted)).collect()
    }

    /// Why nothing can be written just now, if so.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_error(&self, last_error: Option<String>) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = last_error;
    }

    /// Records that are queued, that were written, and that were dropped.
    pub(crate) fn count(&self) -> (u64, u64, u64) {
        let waiting = {
            let backlog = self.lock();
            backlog.waiting.len() + backlog.writing.len()
        };
        (waiting as u64, self.written.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }

    /// Writes records until it is closed.
    pub(crate) async fn run(self: Arc<Self>, store: Store, settings: LiveSettings) {
        let mut closing = self.closing.subscribe();
        let settling = self.settle(&store, Timestamp::now());
        tokio::select! {
            () = settling => {}
            _ = closing.wait_for(|&closing| closing) => {}
        }
        // Deletes what exceeded the limits while the service was not running.
        self.apply_limits();
        let mut pruned = (Instant::now(), 0);
        while !*closing.borrow() {
            let is_time_to_prune = tokio::select! {
                () = self.arrived.notified() => false,
                () = self.limits.notified() => true,
                () = sleep_until(pruned.0 + PRUNE_INTERVAL) => true,
                _ = closing.wait_for(|&closing| closing) => false,
            };
            if !is_time_to_prune {
                self.gather(&mut closing).await;
            }
            // Queued records count, too, when the surplus is determined.
            self.write_all(&store, &mut closing).await;
            let written = self.written.load(Ordering::Relaxed);
            if is_time_to_prune || pruned.0.elapsed() >= PRUNE_INTERVAL || written - pruned.1 >= PRUNE_AFTER_WRITES {
                pruned = (Instant::now(), written);
                prune(&store, &settings).await;
            }
        }
        if timeout(CLOSE_TIMEOUT, self.write_all(&store, &mut closing)).await.is_err() || self.count().0 > 0 {
            tracing::warn!(records = self.count().0, "the last executions could not be written");
        }
        self.is_closed.send_replace(true);
    }

    /// Ends calls that a crash left open.
    async fn settle(&self, store: &Store, began: Timestamp) {
        let mut failures = 0;
        loop {
            match store.settle_executions(began, INTERRUPTED).await {
                Err(error) if error.is_retryable() => {
                    self.set_error(Some(error.to_string()));
                    sleep(RETRY_DELAYS[failures.min(RETRY_DELAYS.len() - 1)]).await;
                }
                Ok(0) => break,
                Ok(settled) => break tracing::info!(settled, "marked unfinished executions of the last run as ended"),
                Err(error) => {
                    break tracing::warn!(%error, "failed to mark unfinished executions of the last run as ended");
                }
            }
            failures += 1;
        }
        self.set_error(None);
    }

    /// Requests the end, and waits a limited time until everything is written.
    pub(crate) async fn close(&self) {
        self.closing.send_replace(true);
        let mut is_closed = self.is_closed.subscribe();
        let closed = timeout(CLOSE_TIMEOUT + Duration::from_secs(6), is_closed.wait_for(|&closed| closed)).await;
        if closed.is_err() {
            tracing::warn!("executions were not written in time");
        }
    }

    async fn gather(&self, closing: &mut watch::Receiver<bool>) {
        tokio::select! {
            () = sleep(BATCH_DELAY) => {}
            () = self.many.notified() => {}
            _ = closing.wait_for(|&closing| closing) => {}
        }
    }

    /// Writes everything that is queued. While the database is unreachable it retries; at shutdown it does not.
    async fn write_all(&self, store: &Store, closing: &mut watch::Receiver<bool>) {
        let mut failures = 0;
        loop {
            let (notes, ended) = self.take_batch();
            if notes.is_empty() && ended.is_empty() {
                return;
            }
            // The record of a running call is useful only before its end.
            let written = match write(store, &notes).await {
                Ok(noted) => write(store, &ended).await.map(|ended| noted.and(ended)),
                Err(error) => Err(error),
            };
            match written {
                Ok(Written { records, refused, why_refused }) => {
                    self.finish_batch(records, ended);
                    self.dropped.fetch_add(refused, Ordering::Relaxed);
                    // What is lost is reported until the next batch is written.
                    self.set_error(why_refused);
                    if failures > 0 {
                        tracing::info!("the database is reachable again; executions are written");
                    }
                    failures = 0;
                }
                Err(error) => {
                    if failures == 0 {
                        tracing::warn!(%error, "failed to write executions; will retry when the database is reachable");
                    }
                    self.put_back();
                    self.set_error(Some(error.to_string()));
                    if *closing.borrow() {
                        return;
                    }
                    tokio::select! {
                        () = sleep(RETRY_DELAYS[failures.min(RETRY_DELAYS.len() - 1)]) => {}
                        _ = closing.wait_for(|&closing| closing) => {}
                    }
                    failures += 1;
                }
            }
        }
    }

    /// The next batches: of running calls, and of ended ones.
    fn take_batch(&self) -> (Arc<Batch>, Arc<Batch>) {
        let mut backlog = self.lock();
        let mut later = std::mem::take(&mut backlog.room);
        let fresh = &mut backlog.waiting.fresh;
        if fresh.len() > MAX_BATCH {
            later.extend(fresh.drain(MAX_BATCH..));
        }
        let ended = Batch { fresh: std::mem::replace(fresh, later), known: std::mem::take(&mut backlog.waiting.known) };
        backlog.bytes -= ended.iter().map(weight).sum::<usize>();
        let notes = Batch { known: std::mem::take(&mut backlog.notes).into(), fresh: VecDeque::new() };
        backlog.writing = Arc::new(ended);
        (Arc::new(notes), Arc::clone(&backlog.writing))
    }

    /// Marks a batch as written.
    fn finish_batch(&self, count: u64, ended: Arc<Batch>) {
        self.lock().writing = Arc::default();
        // Unless a reader still holds them.
        if let Some(Batch { fresh: mut room, .. }) = Arc::into_inner(ended) {
            room.clear();
            self.lock().room = room;
        }
        self.written.fetch_add(count, Ordering::Relaxed);
        self.has_warned.store(false, Ordering::Relaxed);
    }

    fn put_back(&self) {
        let mut backlog = self.lock();
        let batch = std::mem::take(&mut backlog.writing);
        backlog.bytes += batch.iter().map(weight).sum::<usize>();
        for record in batch.known.iter().rev() {
            backlog.waiting.known.push_front(record.clone());
        }
        for record in batch.fresh.iter().rev() {
            backlog.waiting.fresh.push_front(record.clone());
        }
        let given_up = backlog.give_up_oldest();
        drop(backlog);
        self.dropped.fetch_add(given_up, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backlog {
    fn give_up_oldest(&mut self) -> u64 {
        let mut given_up = 0;
        while self.waiting.len() > MAX_PENDING || self.bytes > MAX_PENDING_BYTES {
            let oldest = self.waiting.fresh.pop_front().or_else(|| self.waiting.known.pop_front());
            let Some(oldest) = oldest else { break };
            self.bytes -= weight(&oldest);
            given_up += 1;
        }
        given_up
    }
}

/// What became of a batch.
#[derive(Debug, Default, PartialEq, Eq)]
struct Written {
    records: u64,
    /// Records that the database does not accept: they are lost.
    refused: u64,
    why_refused: Option<String>,
}

impl Written {
    fn and(self, other: Self) -> Self {
        Self {
            records: self.records + other.records,
            refused: self.refused + other.refused,
            why_refused: other.why_refused.or(self.why_refused),
        }
    }
}

/// Writes a batch, all at once if possible. A record that the database refuses does not block the others.
async fn write(store: &Store, batch: &Arc<Batch>) -> Result<Written, registry::Error> {
    let error = match store.record(batch).await {
        Ok(()) => return Ok(Written { records: batch.len() as u64, ..Written::default() }),
        Err(error) => error,
    };
    if error.is_retryable() {
        return Err(error);
    }
    let mut written = Written::default();
    for record in batch.iter() {
        match store.record(&Batch::of([record], [])).await {
            Ok(()) => written.records += 1,
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => {
                written.refused += 1;
                written.why_refused = Some(format!("an execution is lost: {error}"));
            }
        }
    }
    tracing::warn!(%error, refused = written.refused, "the database refused executions");
    Ok(written)
}

async fn prune(store: &Store, settings: &LiveSettings) {
    let settings = settings.now();
    match store.prune_executions(RetentionPolicy::of(settings.keep_executions_days, settings.keep_executions)).await {
        Ok(0) => {}
        Ok(forgotten) => tracing::debug!(forgotten, "deleted old executions"),
        Err(error) => tracing::warn!(%error, "failed to delete old executions"),
    }
}
