//! The transport to one server: a pipe to its stdin, or a queue of messages for HTTP.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use protocol::splice::{Edit, spliced};

use crate::outbox::Outbox;

/// With more than this queued, new calls are refused.
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// The overhead of a message besides its bytes, so that many small ones fill the queue too.
const MESSAGE_OVERHEAD_BYTES: usize = 1 << 10;

/// The transport to one server.
#[derive(Debug)]
pub enum UpstreamTransport {
    /// Its stdin.
    Pipe(Arc<Outbox>),
    /// Each message is an HTTP request.
    Http(HttpQueue),
}

/// One message to be posted.
#[derive(Debug)]
pub struct OutgoingMessage {
    /// Our number, if a response is expected.
    pub number: Option<u64>,
    /// The message, without a newline.
    pub body: Bytes,
    waiting: Arc<AtomicUsize>,
}

impl OutgoingMessage {
    fn new(number: Option<u64>, body: Bytes, waiting: &Arc<AtomicUsize>) -> Self {
        waiting.fetch_add(body.len() + MESSAGE_OVERHEAD_BYTES, Ordering::Relaxed);
        Self { number, body, waiting: Arc::clone(waiting) }
    }
}

impl Drop for OutgoingMessage {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.body.len() + MESSAGE_OVERHEAD_BYTES, Ordering::Relaxed);
    }
}

/// Posts messages to a server.
pub trait HttpSender: Debug + Send + Sync {
    /// Starts to post the message, and returns without waiting for it. A message counts as queued until it is dropped.
    fn post(self: Arc<Self>, message: OutgoingMessage);
}

/// The queue of messages to be posted.
#[derive(Debug)]
pub struct HttpQueue {
    post: Arc<dyn HttpSender>,
    /// The total size of all messages that are not processed.
    waiting: Arc<AtomicUsize>,
}

impl HttpQueue {
    /// A queue whose messages go to `post` at once.
    pub fn new(post: Arc<dyn HttpSender>) -> Self {
        Self { post, waiting: Arc::default() }
    }

    fn enqueue(&self, number: Option<u64>, body: Bytes) {
        Arc::clone(&self.post).post(OutgoingMessage::new(number, body, &self.waiting));
    }
}

impl UpstreamTransport {
    /// Sends a message of our own, newline included.
    pub fn send(&self, number: Option<u64>, message: &[u8]) {
        match self {
            Self::Pipe(outbox) => outbox.push(message),
            Self::Http(queue) => {
                queue.enqueue(number, Bytes::copy_from_slice(message.strip_suffix(b"\n").unwrap_or(message)));
            }
        }
    }

    /// Sends a line with some spans replaced.
    pub(crate) fn send_spliced(&self, number: Option<u64>, line: &Bytes, edits: &[Edit<'_>]) {
        match self {
            Self::Pipe(outbox) => outbox.push_spliced(line, edits),
            Self::Http(queue) => {
                queue.enqueue(number, spliced(line, edits).into());
            }
        }
    }

    /// Flushes what was sent.
    pub fn flush(&self) {
        if let Self::Pipe(outbox) = self {
            outbox.flush();
        }
    }

    /// Whether so much is queued that nothing should be added.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Pipe(outbox) => outbox.is_full(),
            Self::Http(_) => self.waiting() > MAX_QUEUED_BYTES,
        }
    }

    /// Whether so much is queued that optional messages should be dropped.
    pub fn is_congested(&self) -> bool {
        match self {
            Self::Pipe(outbox) => outbox.is_congested(),
            Self::Http(_) => self.is_full(),
        }
    }

    /// Bytes queued.
    pub fn waiting(&self) -> usize {
        match self {
            Self::Pipe(outbox) => outbox.waiting(),
            Self::Http(queue) => queue.waiting.load(Ordering::Relaxed),
        }
    }
}
