//! The current activity of a session, and since when it is idle.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The activity of one session.
#[derive(Debug)]
pub(crate) struct Usage {
    /// Pending requests.
    requests: AtomicUsize,
    /// Streams with an active or waiting reader.
    readers: AtomicUsize,
    /// The last activity, in milliseconds since the session began.
    last: AtomicU64,
    began: Instant,
}

impl Usage {
    pub(crate) fn new() -> Self {
        Self {
            requests: AtomicUsize::new(0),
            readers: AtomicUsize::new(0),
            last: AtomicU64::new(0),
            began: Instant::now(),
        }
    }

    /// Records activity.
    pub(crate) fn touch(&self) {
        self.last.store(milliseconds(self.began.elapsed()), Ordering::Relaxed);
    }

    /// Counts one more request, unless there are `most` already.
    pub(crate) fn begin_request(&self, most: usize) -> bool {
        self.touch();
        let begin = |requests: usize| (requests < most).then_some(requests + 1);
        self.requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, begin).is_ok()
    }

    /// A request was answered, or never will be.
    pub(crate) fn end_request(&self) {
        self.touch();
        let end = |requests: usize| requests.checked_sub(1);
        // Nothing to end: the limit is best effort, and must not underflow if a request is answered twice.
        self.requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end).ok();
    }

    /// One more stream is read.
    pub(crate) fn begin_reading(&self) {
        self.touch();
        self.readers.fetch_add(1, Ordering::Relaxed);
    }

    /// A stream is no longer read.
    pub(crate) fn end_reading(&self) {
        self.touch();
        self.readers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Pending requests.
    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Whether a request is pending or a stream is read.
    pub(crate) fn is_busy(&self) -> bool {
        self.requests() > 0 || self.readers.load(Ordering::Relaxed) > 0
    }

    /// Whether there was no reader and no activity for that long.
    pub(crate) fn is_deserted(&self, limit: Duration) -> bool {
        self.readers.load(Ordering::Relaxed) == 0 && self.idle() > limit
    }

    /// How long there has been no activity.
    pub(crate) fn idle(&self) -> Duration {
        self.began.elapsed().saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)))
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_up_to_the_limit() {
        let usage = Usage::new();
        assert!(usage.begin_request(2) && usage.begin_request(2));
        assert!(!usage.begin_request(2));
        usage.end_request();
        assert!(usage.begin_request(2));
        assert_eq!(usage.requests(), 2);
    }

    #[test]
    fn a_client_that_reads_or_waits_is_busy() {
        let usage = Usage::new();
        assert!(!usage.is_busy());
        usage.begin_reading();
        assert!(usage.is_busy());
        usage.end_reading();
        assert!(!usage.is_busy());
    }
}
