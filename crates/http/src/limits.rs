//! What a client may ask of us before it is refused, slowed down or let go.

use std::time::Duration;

/// The limits of the front. The defaults suit a machine that has other things to do as well.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body: usize,
    /// Bytes of a request's head, its first line included.
    pub head: usize,
    /// Connections at once.
    pub connections: usize,
    /// How long the head of a request may take, once it has begun.
    pub head_time: Duration,
    /// How long a body may take; every byte that arrives at [`Limits::body_rate`] or faster extends it, up to as long again.
    pub body_timeout: Duration,
    /// The slowest a body may arrive, in bytes per second, once [`Limits::body_timeout`] has passed.
    pub body_rate: u64,
    /// How long a connection may be open without a request.
    pub idle_connection: Duration,
    /// How long a client may read nothing of what is written to it before it counts as gone.
    pub stalled: Duration,
    /// Sessions at once. One more ends the one that was left alone the longest.
    pub sessions: usize,
    /// How long a session may be left alone.
    pub idle_session: Duration,
    /// How long a session may show no sign of life before its requests no longer keep others waiting.
    pub away: Duration,
    /// Requests of one session that wait for their answer.
    pub requests_in_flight: usize,
    /// Streams of one session that can be resumed although they have come to their end.
    pub streams_kept: usize,
    /// How long such a stream is kept.
    pub stream_kept_for: Duration,
    /// Bytes one stream keeps for a client that comes back.
    pub bytes_kept: usize,
    /// Bytes one session keeps for that, in all its streams.
    pub session_bytes_kept: usize,
    /// Bytes that may wait for a slow reader before whoever writes to it is made to wait.
    pub bytes_waiting: usize,
    /// How long they are made to wait. Others wait with them, so it is short; then what is not essential is left out.
    pub patience: Duration,
    /// How often a silent stream says that it is still there.
    pub keep_alive: Duration,
    /// How long a client that lost its stream should wait before it comes back.
    pub retry: Duration,
    /// How long requests may go on when we are told to stop.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 64 << 20,
            head: 64 << 10,
            connections: 4096,
            head_time: Duration::from_secs(15),
            body_timeout: Duration::from_secs(20),
            body_rate: 16 << 10,
            idle_connection: Duration::from_secs(180),
            stalled: Duration::from_secs(60),
            sessions: 1000,
            idle_session: Duration::from_secs(30 * 60),
            away: Duration::from_secs(10),
            requests_in_flight: 256,
            streams_kept: 64,
            stream_kept_for: Duration::from_secs(120),
            bytes_kept: 1 << 20,
            session_bytes_kept: 4 << 20,
            bytes_waiting: 1 << 20,
            patience: Duration::from_secs(2),
            keep_alive: Duration::from_secs(15),
            retry: Duration::from_secs(1),
            grace: Duration::from_secs(10),
        }
    }
}
