//! Limits on what a client may request before it is refused, slowed down or disconnected.

use std::time::Duration;

use aggregator::ClientLimits;

/// The limits of the HTTP server. The defaults suit a machine that has other things to do as well.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body: usize,
    /// Bytes of a request's head, its first line included.
    pub head: usize,
    /// Connections at once.
    pub connections: usize,
    /// The same of one identity: a token, or the local user.
    pub connections_of_identity: usize,
    /// How long the head of a request may take, once it has begun.
    pub head_time: Duration,
    /// How long a body may take; every byte that arrives at [`Limits::body_rate`] or faster extends it, up to as long
    /// again.
    pub body_timeout: Duration,
    /// The slowest a body may arrive, in bytes per second, once [`Limits::body_timeout`] has passed.
    pub body_rate: usize,
    /// Wrong tokens that one address may send in a minute before it has to wait.
    pub wrong_tokens: usize,
    /// Addresses whose wrong tokens are counted. One more replaces the one that began to fail first.
    pub wrong_token_addresses: usize,
    /// Sessions of the console. One more ends the longest idle one, of the token that has the most.
    pub console_sessions: usize,
    /// Bytes of the events of one job of the REST API that its client has not read.
    pub job_unread: usize,
    /// How long a connection may be open without a request.
    pub idle_connection: Duration,
    /// How long a client may read nothing of what is written to it before it counts as disconnected.
    pub stalled: Duration,
    /// Sessions at once. One more ends the longest idle one, of the identity that has the most.
    pub sessions: usize,
    /// The same of one identity.
    pub sessions_of_identity: usize,
    /// How long a session may be idle.
    pub idle_session: Duration,
    /// How long a session may be silent before its requests no longer block those of others.
    pub disconnected_after: Duration,
    /// Pending requests of one session.
    pub requests_in_flight: usize,
    /// Bytes of bodies that are arriving or still in use.
    pub received: usize,
    /// The same of one identity.
    pub received_of_identity: usize,
    /// Ended streams of one session that can still be resumed.
    pub streams_kept: usize,
    /// How long such a stream is kept.
    pub stream_kept_for: Duration,
    /// Bytes one stream keeps for a client that reconnects.
    pub bytes_kept: usize,
    /// The same for all streams of one session.
    pub session_bytes_kept: usize,
    /// Bytes that may be unread before senders have to wait.
    pub bytes_waiting: usize,
    /// Bytes in all streams that are unread, or kept to be read again.
    pub unread: usize,
    /// The same of one identity.
    pub unread_of_identity: usize,
    /// How long senders wait. Others wait with them, so it is short; then optional messages are dropped.
    pub slow_reader_timeout: Duration,
    /// How often a silent stream sends a keep-alive comment.
    pub keep_alive: Duration,
    /// How long a client that lost its stream should wait before it reconnects.
    pub retry: Duration,
    /// How long requests may continue during shutdown.
    pub grace: Duration,
    /// Limits on what clients may make us store.
    pub clients: ClientLimits,
}

/// A limit that users can change.
struct Changeable {
    name: &'static str,
    about: &'static str,
    /// The unit of its value.
    unit: usize,
    at: At,
}

/// The field of a limit.
enum At {
    Number(fn(&mut Limits) -> &mut usize),
    Seconds(fn(&mut Limits) -> &mut Duration),
}

const KB: usize = 1 << 10;
const MB: usize = 1 << 20;

/// The maximum of any limit, in its unit.
const MAX_LIMIT: usize = 1_000_000_000;

const CHANGEABLE: [Changeable; 26] = [
    limit("connections", "concurrent connections", 1, |limits| &mut limits.connections),
    limit("connections-per-token", "the same per token", 1, |limits| &mut limits.connections_of_identity),
    limit("sessions", "concurrent sessions", 1, |limits| &mut limits.sessions),
    limit("sessions-per-token", "the same per token", 1, |limits| &mut limits.sessions_of_identity),
    limit("requests-per-session", "pending requests of one session", 1, |limits| &mut limits.requests_in_flight),
    limit("body-mb", "MB of one request body", MB, |limits| &mut limits.body),
    Changeable {
        name: "body-seconds",
        about: "seconds that a body may stall, or stay slower than body-kb-per-second",
        unit: 1,
        at: At::Seconds(|limits| &mut limits.body_timeout),
    },
    limit("body-kb-per-second", "kB per second below which a body is slow", KB, |limits| &mut limits.body_rate),
    limit("received-mb", "MB of all unfinished requests", MB, |limits| &mut limits.received),
    limit("received-mb-per-token", "the same per token", MB, |limits| &mut limits.received_of_identity),
    limit("unread-mb", "MB in streams that clients have not read or may resume", MB, |limits| &mut limits.unread),
    limit("unread-mb-per-token", "the same per token", MB, |limits| &mut limits.unread_of_identity),
    limit("client-info-kb", "kB of a client's name, version and capabilities", KB, |limits| {
        &mut limits.clients.info_bytes
    }),
    limit("id-bytes", "bytes of a request id, progress token or cursor", 1, |limits| &mut limits.clients.id_bytes),
    limit("uri-bytes", "bytes of a subscribed URI", 1, |limits| &mut limits.clients.uri_bytes),
    limit("subscriptions", "subscriptions to resources", 1, |limits| &mut limits.clients.subscriptions),
    limit("subscriptions-per-token", "the same per token", 1, |limits| &mut limits.clients.identity_subscriptions),
    limit("subscriptions-per-session", "the same per session", 1, |limits| &mut limits.clients.session_subscriptions),
    limit("kept-kb-per-session", "kB that one session keeps so that streams can be resumed", KB, |limits| {
        &mut limits.session_bytes_kept
    }),
    limit("wrong-tokens-per-minute", "wrong tokens from one address, before it has to wait", 1, |limits| {
        &mut limits.wrong_tokens
    }),
    limit("wrong-token-addresses", "addresses whose wrong tokens are counted", 1, |limits| {
        &mut limits.wrong_token_addresses
    }),
    limit("modern-clients", "clients of 2026-07-28 that are listed", 1, |limits| {
        &mut limits.clients.sessionless_clients
    }),
    limit("modern-clients-per-token", "the same per token", 1, |limits| {
        &mut limits.clients.identity_sessionless_clients
    }),
    limit("console-sessions", "signed-in sessions of the console", 1, |limits| &mut limits.console_sessions),
    limit("batch-mb", "MB of the responses to one batch", MB, |limits| &mut limits.clients.batch_bytes),
    limit("progress-mb", "MB of unread progress of one run or question", MB, |limits| &mut limits.job_unread),
];

const fn limit(name: &'static str, about: &'static str, unit: usize, at: fn(&mut Limits) -> &mut usize) -> Changeable {
    Changeable { name, about, unit, at: At::Number(at) }
}

impl Changeable {
    /// Its value, in its unit.
    fn value(&self, limits: &mut Limits) -> usize {
        match self.at {
            At::Number(at) => *at(limits) / self.unit,
            At::Seconds(at) => usize::try_from(at(limits).as_secs()).unwrap_or(usize::MAX),
        }
    }

    fn change(&self, limits: &mut Limits, value: usize) {
        match self.at {
            At::Number(at) => *at(limits) = value.saturating_mul(self.unit),
            At::Seconds(at) => *at(limits) = Duration::from_secs(value as u64),
        }
    }
}

impl Limits {
    /// Changes one limit: `NAME=VALUE`.
    pub fn set(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not a limit; write NAME=VALUE"))?;
        let (name, value) = (name.trim(), value.trim());
        let Some(limit) = CHANGEABLE.iter().find(|limit| limit.name == name) else {
            let names = CHANGEABLE.map(|limit| limit.name).join(", ");
            return Err(format!("there is no limit `{name}`; the limits are {names}"));
        };
        let number = value.parse().ok().filter(|number| (1..=MAX_LIMIT).contains(number));
        let number = number
            .ok_or_else(|| format!("the limit `{name}` must be a whole number from 1 to {MAX_LIMIT}, not `{value}`"))?;
        limit.change(self, number);
        Ok(())
    }

    /// Every limit that can be changed: its name, default and description.
    pub fn changeable() -> Vec<(&'static str, usize, &'static str)> {
        let mut defaults = Self::default();
        CHANGEABLE.iter().map(|limit| (limit.name, limit.value(&mut defaults), limit.about)).collect()
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 64 << 20,
            head: 64 << 10,
            connections: 4096,
            connections_of_identity: 2048,
            head_time: Duration::from_secs(15),
            body_timeout: Duration::from_secs(20),
            body_rate: 16 << 10,
            wrong_tokens: 20,
            wrong_token_addresses: 4096,
            console_sessions: 1000,
            job_unread: 16 << 20,
            idle_connection: Duration::from_secs(180),
            stalled: Duration::from_secs(60),
            sessions: 1000,
            sessions_of_identity: 500,
            idle_session: Duration::from_secs(30 * 60),
            disconnected_after: Duration::from_secs(10),
            requests_in_flight: 256,
            received: 512 << 20,
            received_of_identity: 256 << 20,
            streams_kept: 64,
            stream_kept_for: Duration::from_secs(120),
            bytes_kept: 1 << 20,
            session_bytes_kept: 4 << 20,
            bytes_waiting: 1 << 20,
            unread: 256 << 20,
            unread_of_identity: 128 << 20,
            slow_reader_timeout: Duration::from_secs(2),
            keep_alive: Duration::from_secs(15),
            retry: Duration::from_secs(1),
            grace: Duration::from_secs(10),
            clients: ClientLimits::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_can_be_set_by_its_name() {
        for (name, default, _) in Limits::changeable() {
            let mut limits = Limits::default();
            limits.set(&format!("{name}={}", default + 1)).unwrap();
            let limit = CHANGEABLE.iter().find(|limit| limit.name == name).unwrap();
            assert_eq!(limit.value(&mut limits), default + 1, "{name}");
        }
        let mut limits = Limits::default();
        for limit in ["body-seconds=3", "body-kb-per-second=2", "wrong-tokens-per-minute=5", "sessions=7"] {
            limits.set(limit).unwrap();
        }
        assert_eq!((limits.body_timeout, limits.body_rate), (Duration::from_secs(3), 2048));
        assert_eq!((limits.wrong_tokens, limits.sessions), (5, 7));
    }

    #[test]
    fn invalid_limits_are_reported() {
        for (text, expected) in [
            ("sessions", "write NAME=VALUE"),
            ("session=5", "there is no limit `session`; the limits are connections,"),
            ("sessions=0", "a whole number from 1 to 1000000000, not `0`"),
            ("sessions=many", "not `many`"),
        ] {
            let error = Limits::default().set(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
