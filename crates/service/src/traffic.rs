//! What goes on at one server: calls in flight, when it was last needed, when it last did well; and its counters.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::ServerCounters;

/// What goes on at the server in one place.
#[derive(Debug)]
pub(crate) struct Traffic {
    /// Counted for whoever watches us.
    pub(crate) counters: ServerCounters,
    began: Instant,
    in_flight: AtomicUsize,
    /// Told when nothing is in flight any more.
    fell_quiet: Notify,
    /// Moments, in milliseconds after it began; 0 means never.
    last_used: AtomicU64,
    last_success: AtomicU64,
}

impl Traffic {
    pub(crate) fn new() -> Self {
        Self {
            counters: ServerCounters::default(),
            began: Instant::now(),
            in_flight: AtomicUsize::new(0),
            fell_quiet: Notify::new(),
            last_used: AtomicU64::new(0),
            last_success: AtomicU64::new(0),
        }
    }

    /// Calls that are not over, those that wait for their turn included.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    /// When a call was last made or ended.
    pub(crate) fn last_used(&self) -> Option<Instant> {
        self.moment(&self.last_used)
    }

    /// When the server last answered a call: it was well then.
    pub(crate) fn last_success(&self) -> Option<Instant> {
        self.moment(&self.last_success)
    }

    /// Waits until nothing is in flight.
    pub(crate) async fn quiet(&self) {
        loop {
            let mut fell_quiet = std::pin::pin!(self.fell_quiet.notified());
            fell_quiet.as_mut().enable();
            if self.in_flight() == 0 {
                return;
            }
            fell_quiet.await;
        }
    }

    /// A call is made.
    pub(crate) fn begin(&self, now: Instant) {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        self.note(&self.last_used, now);
    }

    /// A call is over.
    pub(crate) fn end(&self, now: Instant, is_answered: bool) {
        self.note(&self.last_used, now);
        if is_answered {
            self.note(&self.last_success, now);
        }
        if self.in_flight.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.fell_quiet.notify_waiters();
        }
    }

    fn note(&self, moment: &AtomicU64, now: Instant) {
        let millis = u64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX);
        moment.store(millis.max(1), Ordering::Relaxed);
    }

    fn moment(&self, moment: &AtomicU64) -> Option<Instant> {
        let millis = moment.load(Ordering::Relaxed);
        (millis > 0).then(|| self.began + Duration::from_millis(millis))
    }
}
