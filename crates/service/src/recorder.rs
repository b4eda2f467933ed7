//! Writes down what became of calls, many at a time, and never in their way: while the database is away they wait, and
//! if that takes too long the oldest are given up.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use registry::{Batch, ExecutionRecord, Store, Timestamp};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::retention;
use crate::settings::LiveSettings;

/// How long the first of a batch waits for others.
const BATCH_DELAY: Duration = Duration::from_millis(500);
/// With so many waiting nothing more is waited for. Fewer at once cost more for each: measured, not guessed.
const BATCH_SIZE: usize = 4096;
/// The most that is written at once, and the most that is known of calls under way and waits.
const MAX_BATCH: usize = 4096;
/// The most that waits for the database: so many calls, and so many bytes.
const MAX_PENDING: usize = 100_000;
const MAX_PENDING_BYTES: usize = 64 << 20;
/// How long to wait before trying again while the database is away.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5)];
/// How often old records are looked for, and after how many new ones at the latest.
const PRUNE_INTERVAL: Duration = Duration::from_secs(300);
const PRUNE_AFTER_WRITES: u64 = 50_000;
/// How long the last records may take at the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a call has no other end.
const INTERRUPTED: &str = "the service ended before the call did";

/// Where calls that are over wait until they are written down.
#[derive(Default)]
pub(crate) struct Recorder {
    backlog: Mutex<Backlog>,
    arrived: Notify,
    many: Notify,
    /// Other limits may hold for what is kept.
    limits: Notify,
    closing: watch::Sender<bool>,
    is_closed: watch::Sender<bool>,
    written: AtomicU64,
    dropped: AtomicU64,
    /// Why the last batch could not be written, if it could not.
    last_error: Mutex<Option<String>>,
    /// That records were given up was said, and the database has not been back since.
    has_warned: AtomicBool,
}

/// What a record weighs while it waits.
fn weight(record: &ExecutionRecord) -> usize {
    let length = |json: &Option<registry::RawJson>| json.as_ref().map_or(0, |json| json.get().len());
    let why = record.error_message.as_ref().map_or(0, String::len);
    size_of::<ExecutionRecord>() + 100 + why + length(&record.arguments) + length(&record.result)
}

#[derive(Default)]
struct Backlog {
    /// What is known of calls that are over, and no more: whatever else a call needed is free again for the next one.
    /// Those are known here that were written down while they were under way.
    waiting: Batch,
    bytes: usize,
    /// Being written right now, but for notes.
    writing: Arc<Batch>,
    /// That these are under way is to be written.
    notes: Vec<ExecutionRecord>,
    /// Room for the next batch: the memory of an earlier one.
    room: VecDeque<ExecutionRecord>,
}

impl Recorder {
    /// A call is over; it may have been noted while it was under way.
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
                tracing::warn!("the database is away for too long: the oldest records of calls are given up");
            }
        }
    }

    /// A call has been under way for a while.
    pub(crate) fn note(&self, record: ExecutionRecord) {
        let mut backlog = self.lock();
        // While the database is away, only ends are worth keeping.
        if backlog.notes.len() < MAX_BATCH {
            backlog.notes.push(record);
        }
        drop(backlog);
        self.arrived.notify_one();
    }

    /// Another number of records, or another age, may be too much from now on.
    pub(crate) fn apply_limits(&self) {
        self.limits.notify_one();
    }

    /// Calls that are over and not written down yet.
    /// Each with whether it was noted while it was under way.
    pub(crate) fn unwritten(&self) -> Vec<(ExecutionRecord, bool)> {
        let backlog = self.lock();
        let batches = [&*backlog.writing, &backlog.waiting].into_iter();
        let all = batches.flat_map(|batch| {
            batch.known.iter().map(|record| (record, true)).chain(batch.fresh.iter().map(|record| (record, false)))
        });
        all.map(|(record, is_noted)| (record.clone(), is_noted)).collect()
    }

    /// Why nothing can be written just now, if that is so.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_error(&self, last_error: Option<String>) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = last_error;
    }

    /// Records that wait, that were written, and that were given up.
    pub(crate) fn count(&self) -> (u64, u64, u64) {
        let waiting = {
            let backlog = self.lock();
            backlog.waiting.len() + backlog.writing.len()
        };
        (waiting as u64, self.written.load(Ordering::Relaxed), self.dropped.load(Ordering::Relaxed))
    }

    /// Writes what comes until it is closed.
    pub(crate) async fn run(self: Arc<Self>, store: Store, settings: LiveSettings) {
        let mut closing = self.closing.subscribe();
        let settling = self.settle(&store, Timestamp::now());
        tokio::select! {
            () = settling => {}
            _ = closing.wait_for(|&closing| closing) => {}
        }
        // What became too much while nobody was here.
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
            // What waits counts, too, when it is looked what is too much.
            self.write_all(&store, &mut closing).await;
            let written = self.written.load(Ordering::Relaxed);
            if is_time_to_prune || pruned.0.elapsed() >= PRUNE_INTERVAL || written - pruned.1 >= PRUNE_AFTER_WRITES {
                pruned = (Instant::now(), written);
                prune(&store, &settings).await;
            }
        }
        if timeout(CLOSE_TIMEOUT, self.write_all(&store, &mut closing)).await.is_err() || self.count().0 > 0 {
            tracing::warn!(records = self.count().0, "the last records of calls could not be written");
        }
        self.is_closed.send_replace(true);
    }

    /// Ends what a crash left open.
    async fn settle(&self, store: &Store, began: Timestamp) {
        let mut failures = 0;
        loop {
            match store.settle_executions(began, INTERRUPTED).await {
                Err(error) if error.is_retryable() => {
                    self.set_error(Some(error.to_string()));
                    sleep(PAUSES[failures.min(PAUSES.len() - 1)]).await;
                }
                Ok(0) => break,
                Ok(settled) => break tracing::info!(settled, "ended calls that were left open"),
                Err(error) => break tracing::warn!(%error, "could not end calls that were left open"),
            }
            failures += 1;
        }
        self.set_error(None);
    }

    /// Asks for the end, and waits until everything is written, within reason.
    pub(crate) async fn close(&self) {
        self.closing.send_replace(true);
        let mut is_closed = self.is_closed.subscribe();
        let closed = timeout(CLOSE_TIMEOUT + Duration::from_secs(6), is_closed.wait_for(|&closed| closed)).await;
        if closed.is_err() {
            tracing::warn!("the records of calls were not written in time");
        }
    }

    async fn gather(&self, closing: &mut watch::Receiver<bool>) {
        tokio::select! {
            () = sleep(BATCH_DELAY) => {}
            () = self.many.notified() => {}
            _ = closing.wait_for(|&closing| closing) => {}
        }
    }

    /// Writes everything that waits. While the database is away it tries again; at the end it does not.
    async fn write_all(&self, store: &Store, closing: &mut watch::Receiver<bool>) {
        let mut failures = 0;
        loop {
            let (notes, ended) = self.take_batch();
            if notes.is_empty() && ended.is_empty() {
                return;
            }
            // That something was under way is news only before its end.
            let written = match write(store, &notes).await {
                Ok(noted) => write(store, &ended).await.map(|written| noted + written),
                Err(error) => Err(error),
            };
            match written {
                Ok(written) => {
                    self.finish_batch(written, ended);
                    self.set_error(None);
                    if failures > 0 {
                        tracing::info!("the database is back; records of calls are written again");
                    }
                    failures = 0;
                }
                Err(error) => {
                    if failures == 0 {
                        tracing::warn!(%error, "could not write records of calls; they wait for the database");
                    }
                    self.put_back();
                    self.set_error(Some(error.to_string()));
                    if *closing.borrow() {
                        return;
                    }
                    tokio::select! {
                        () = sleep(PAUSES[failures.min(PAUSES.len() - 1)]) => {}
                        _ = closing.wait_for(|&closing| closing) => {}
                    }
                    failures += 1;
                }
            }
        }
    }

    /// What is to be written next: that some calls are under way, and what became of others.
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

    /// What was being written is, so many records.
    fn finish_batch(&self, count: u64, ended: Arc<Batch>) {
        self.lock().writing = Arc::default();
        // Unless somebody is still looking at them.
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

/// Writes a batch, all at once if possible; says how many records. One that the database refuses does not keep the
/// others out.
async fn write(store: &Store, batch: &Arc<Batch>) -> Result<u64, registry::Error> {
    let error = match store.record(batch).await {
        Ok(()) => return Ok(batch.len() as u64),
        Err(error) => error,
    };
    if error.is_retryable() {
        return Err(error);
    }
    let mut written = 0;
    for record in batch.iter() {
        match store.record(&Batch::of([record], [])).await {
            Ok(()) => written += 1,
            Err(error) if error.is_retryable() => return Err(error),
            Err(_) => {}
        }
    }
    tracing::warn!(%error, refused = batch.len() as u64 - written, "the database refused records of calls");
    Ok(written)
}

async fn prune(store: &Store, settings: &LiveSettings) {
    let settings = settings.now();
    match store.prune_executions(retention::policy(settings.keep_executions_days, settings.keep_executions)).await {
        Ok(0) => {}
        Ok(forgotten) => tracing::debug!(forgotten, "old records of calls are forgotten"),
        Err(error) => tracing::warn!(%error, "could not forget old records of calls"),
    }
}
