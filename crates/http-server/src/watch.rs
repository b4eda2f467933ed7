//! Finds connections whose client takes too long to send a request, or to read a response.
//!
//! Each connection only records when each phase began, which costs next to nothing; a periodic scan finds those that
//! take too long. A timer for each request would cost every request.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBufCursor, Write};

use crate::limits::Limits;

/// The phase of a connection, and since when.
#[derive(Debug)]
pub(crate) struct Watch {
    began: Instant,
    phase: AtomicU8,
    /// Requests that are being answered: at most one, except with HTTP/2.
    pending: AtomicU32,
    /// Whether what arrives is no sign of a request: with HTTP/2, it may be anything.
    is_multiplexed: AtomicBool,
    /// When the phase began, in milliseconds since the connection was opened.
    since: AtomicU64,
    /// Since when writes to it are blocked; 0 if they are not.
    blocked_since: AtomicU64,
}

/// Idle: the last request is answered, or none has arrived.
const IDLE: u8 = 0;
/// A request has begun to arrive.
const HEAD: u8 = 1;
/// A request is being answered.
const BUSY: u8 = 2;

impl Watch {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
            phase: AtomicU8::new(IDLE),
            pending: AtomicU32::new(0),
            is_multiplexed: AtomicBool::new(false),
            since: AtomicU64::new(0),
            blocked_since: AtomicU64::new(0),
        }
    }

    /// Something begins to arrive: a TLS handshake.
    pub(crate) fn note_head(&self) {
        self.enter(HEAD);
    }

    /// Nothing is expected now.
    pub(crate) fn note_idle(&self) {
        self.enter(IDLE);
    }

    /// The connection has many requests at once.
    pub(crate) fn set_multiplexed(&self) {
        self.is_multiplexed.store(true, Ordering::Relaxed);
    }

    /// A request has arrived completely.
    pub(crate) fn note_request(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        self.enter(BUSY);
    }

    /// It is answered.
    pub(crate) fn note_response(&self) {
        // The tasks of one connection do not run at the same time, so no request begins in between.
        if self.pending.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.enter(IDLE);
        }
    }

    /// Whether its current phase takes too long.
    pub(crate) fn is_overdue(&self, limits: &Limits) -> bool {
        let now = self.now();
        let lasts = |since: u64, limit: Duration| now.saturating_sub(since) > milliseconds(limit);
        let blocked_since = self.blocked_since.load(Ordering::Relaxed);
        if blocked_since > 0 && lasts(blocked_since, limits.stalled) {
            return true;
        }
        let since = self.since.load(Ordering::Relaxed);
        match self.phase.load(Ordering::Relaxed) {
            IDLE => lasts(since, limits.idle_connection),
            HEAD => lasts(since, limits.head_time),
            _ => false,
        }
    }

    /// How long it has been idle; `None` while a request is being answered.
    pub(crate) fn idle_for(&self) -> Option<u64> {
        let is_idle = self.phase.load(Ordering::Relaxed) != BUSY;
        is_idle.then(|| self.now().saturating_sub(self.since.load(Ordering::Relaxed)))
    }

    fn enter(&self, phase: u8) {
        self.since.store(self.now(), Ordering::Relaxed);
        self.phase.store(phase, Ordering::Relaxed);
    }

    fn note_read(&self) {
        if self.phase.load(Ordering::Relaxed) == IDLE && !self.is_multiplexed.load(Ordering::Relaxed) {
            self.enter(HEAD);
        }
    }

    fn note_write(&self, is_blocked: bool) {
        let was_blocked = self.blocked_since.load(Ordering::Relaxed) > 0;
        if is_blocked != was_blocked {
            let since = if is_blocked { self.now().max(1) } else { 0 };
            self.blocked_since.store(since, Ordering::Relaxed);
        }
    }

    fn now(&self) -> u64 {
        milliseconds(self.began.elapsed())
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A connection that records its phases.
pub(crate) struct Watched<S> {
    pub(crate) stream: S,
    pub(crate) watch: Arc<Watch>,
}

impl<S: Read + Unpin> Read for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if matches!(read, Poll::Ready(Ok(()))) {
            self.watch.note_read();
        }
        read
    }
}

impl<S: Write + Unpin> Write for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch.note_write(written.is_pending());
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.watch.note_write(written.is_pending());
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch that began that long ago.
    fn watch(ago: Duration) -> Watch {
        Watch { began: Instant::now().checked_sub(ago).unwrap(), ..Watch::new() }
    }

    #[test]
    fn each_phase_has_a_limit_of_its_own() {
        let limits = Limits::default();
        assert!(!watch(limits.head_time).is_overdue(&limits), "it may be idle for longer");
        let long = limits.idle_connection + Duration::from_secs(1);
        assert!(watch(long).is_overdue(&limits));

        let busy = watch(long);
        busy.note_request();
        busy.since.store(0, Ordering::Relaxed);
        assert!(!busy.is_overdue(&limits), "an answer takes as long as it takes");
        busy.note_response();
        assert!(!busy.is_overdue(&limits), "counted from the answer");

        let head = watch(limits.head_time + Duration::from_secs(1));
        head.note_read();
        assert!(!head.is_overdue(&limits), "counted from its first byte");
        head.since.store(0, Ordering::Relaxed);
        assert!(head.is_overdue(&limits));
    }

    #[test]
    fn a_multiplexed_connection_is_idle_after_its_last_response() {
        let limits = Limits::default();
        let watch = watch(limits.idle_connection + Duration::from_secs(1));
        watch.set_multiplexed();
        watch.note_request();
        watch.note_request();
        watch.note_response();
        watch.since.store(0, Ordering::Relaxed);
        assert!(!watch.is_overdue(&limits), "one request is still being answered");
        watch.note_response();
        watch.since.store(0, Ordering::Relaxed);
        watch.note_read();
        assert!(watch.is_overdue(&limits), "a ping is no request");
    }

    #[test]
    fn a_client_that_reads_nothing_is_overdue_until_it_reads_again() {
        let limits = Limits::default();
        let watch = watch(limits.stalled + Duration::from_secs(2));
        watch.note_request();
        watch.note_write(true);
        watch.blocked_since.store(1, Ordering::Relaxed);
        watch.note_write(true);
        assert!(watch.is_overdue(&limits));
        watch.note_write(false);
        assert!(!watch.is_overdue(&limits));
    }
}
