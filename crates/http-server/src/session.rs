//! One session of a legacy client: the client, its general stream, and the streams of its requests.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aggregator::client_sink::ClientSink;
use aggregator::{Client, Responder};

use crate::limits::Limits;
use crate::server::{RequestContext, Shared};
use crate::stream::Stream;
use crate::usage::Usage;

/// The number of the stream for messages about no request.
pub(crate) const GENERAL: u32 = 0;

/// The transport of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Streamable HTTP: every request is answered in its own HTTP response.
    Streamable,
    /// HTTP+SSE: everything is answered on one stream.
    Sse,
}

/// A legacy client and its state.
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) client: Arc<Client>,
    pub(crate) usage: Arc<Usage>,
    /// The stream for messages about no request; with HTTP+SSE, for everything.
    pub(crate) general: Arc<Stream>,
    /// The responder for requests without their own stream.
    pub(crate) responder: Arc<Responder>,
    transport: Transport,
    pub(crate) request_context: RequestContext,
    /// Streams of requests that can be resumed.
    streams: Mutex<BTreeMap<u32, Arc<Stream>>>,
    last_stream: AtomicU32,
}

impl Session {
    /// A session that is not registered yet.
    pub(crate) fn new(shared: &Shared, request_context: RequestContext, transport: Transport) -> Arc<Self> {
        let usage = Arc::new(Usage::new());
        let number = (transport == Transport::Streamable).then_some(GENERAL);
        let general = Arc::new(Stream::lasting(&shared.limits, number, &usage, &request_context.identity));
        let client = shared.client(&request_context, Arc::clone(&general) as Arc<dyn ClientSink>);
        let sink = match transport {
            Transport::Streamable => Arc::clone(&shared.null_sink),
            Transport::Sse => Arc::clone(&general) as Arc<dyn ClientSink>,
        };
        Arc::new(Self {
            id: random_id(),
            responder: Responder::to(&client, sink),
            client,
            usage,
            general,
            transport,
            request_context,
            streams: Mutex::default(),
            last_stream: AtomicU32::new(GENERAL),
        })
    }

    /// Whether a request that names this session's id may use it. Knowing the id is not enough.
    pub(crate) fn is_of(&self, request_context: &RequestContext, transport: Transport) -> bool {
        // The messages of HTTP+SSE are posted to one address for all servers.
        let (own, given) = (&self.request_context, request_context);
        let is_here = transport == Transport::Sse || (own.scope, &own.profile) == (given.scope, &given.profile);
        // Its client acts within the profile that the principal was bound to when the session began.
        let has_same_bounds = own.principal.profile() == given.principal.profile();
        self.transport == transport && own.credential == given.credential && has_same_bounds && is_here
    }

    /// The stream of one more request, unless there are too many.
    pub(crate) fn begin(&self, limits: &Limits, takes_notifications: bool) -> Option<Arc<Stream>> {
        if !self.usage.begin_request(limits.requests_in_flight) {
            return None;
        }
        let number = self.last_stream.fetch_add(1, Ordering::Relaxed) + 1;
        Some(Arc::new(Stream::in_session(
            limits,
            number,
            takes_notifications,
            &self.usage,
            &self.request_context.identity,
        )))
    }

    /// Makes the stream resumable.
    pub(crate) fn keep(&self, number: u32, stream: &Arc<Stream>, limits: &Limits) {
        self.streams().insert(number, Arc::clone(stream));
        self.prune(limits);
    }

    /// The stream of that number, if it is still known.
    pub(crate) fn stream(&self, number: u32) -> Option<Arc<Stream>> {
        if number == GENERAL { Some(Arc::clone(&self.general)) } else { self.streams().get(&number).cloned() }
    }

    /// Removes ended streams: the stale ones, and the oldest if there are too many.
    pub(crate) fn prune(&self, limits: &Limits) {
        let mut streams = self.streams();
        streams.retain(|_, stream| !stream.is_stale(limits.stream_kept_for));
        let mut weight: usize = streams.values().map(|stream| stream.weight()).sum();
        let mut ended = streams.values().filter(|stream| stream.is_left()).count();
        let most = if self.request_context.identity.is_crowded() { 0 } else { limits.session_bytes_kept };
        let is_too_much = |weight, ended| weight > most || ended > limits.streams_kept;
        let mut surplus = Vec::new();
        for (&number, stream) in streams.iter() {
            if !is_too_much(weight, ended) {
                break;
            }
            if stream.is_left() {
                weight -= stream.weight();
                ended -= 1;
                surplus.push(number);
            }
        }
        for number in surplus {
            if let Some(stream) = streams.remove(&number) {
                stream.close();
            }
        }
    }

    /// Ends the general stream as soon as nothing is expected from it.
    pub(crate) fn retire(&self) {
        match self.transport {
            Transport::Streamable => self.general.finish(),
            Transport::Sse => self.general.retire(),
        }
    }

    /// Ends all its streams.
    pub(crate) fn close(&self) {
        self.general.close();
        let streams = std::mem::take(&mut *self.streams());
        for stream in streams.into_values() {
            stream.close();
        }
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Stream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// 160 unguessable bits, as 40 visible characters.
fn random_id() -> String {
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes.iter().fold(String::with_capacity(40), |mut text, byte| {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).expect("four bits are one digit"));
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_long_visible_and_never_the_same() {
        let (one, other) = (random_id(), random_id());
        assert_eq!(one.len(), 40);
        assert!(one.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(one, other);
    }
}
