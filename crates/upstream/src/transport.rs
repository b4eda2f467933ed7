//! The way to one server: a pipe to its stdin, or a box of messages to be sent over HTTP.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use protocol::splice::{Edit, Piece, splice};

use crate::outbox::Outbox;

/// With more than this waiting to be posted, new calls are refused.
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// What a message costs besides its bytes, so that many small ones fill the box too.
const MESSAGE_OVERHEAD_BYTES: usize = 1 << 10;

/// The way to one server.
#[derive(Debug)]
pub enum UpstreamTransport {
    /// Its stdin.
    Pipe(Arc<Outbox>),
    /// Each message is a request of its own.
    Http(HttpQueue),
}

/// One message to be posted.
#[derive(Debug)]
pub struct OutgoingMessage {
    /// Our number, if an answer is wanted.
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

/// Who takes messages to a server.
pub trait HttpSender: Debug + Send + Sync {
    /// Sees to it that the message is posted, and returns without waiting for that. A message counts as waiting until it is
    /// dropped.
    fn post(self: Arc<Self>, message: OutgoingMessage);
}

/// Where messages are dropped to be posted.
#[derive(Debug)]
pub struct HttpQueue {
    post: Arc<dyn HttpSender>,
    /// What all messages weigh that are not answered for.
    waiting: Arc<AtomicUsize>,
}

impl HttpQueue {
    /// A box that is emptied at once, by `post`.
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
            Self::Http(postbox) => {
                postbox.enqueue(number, Bytes::copy_from_slice(message.strip_suffix(b"\n").unwrap_or(message)));
            }
        }
    }

    /// Sends somebody's line with some spans replaced.
    pub fn send_spliced(&self, number: Option<u64>, line: &Bytes, edits: &[Edit<'_>]) {
        match self {
            Self::Pipe(outbox) => outbox.push_spliced(line, edits),
            Self::Http(postbox) => {
                let mut body = BytesMut::with_capacity(line.len() + 32);
                splice(line.len(), edits, |piece| match piece {
                    Piece::Kept(span) => body.extend_from_slice(span.of(line)),
                    Piece::New(bytes) => body.extend_from_slice(bytes),
                });
                postbox.enqueue(number, body.freeze());
            }
        }
    }

    /// Lets out what was sent.
    pub fn flush(&self) {
        if let Self::Pipe(outbox) = self {
            outbox.flush();
        }
    }

    /// Whether so much is waiting that nothing should be added.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Pipe(outbox) => outbox.is_full(),
            Self::Http(_) => self.waiting() > MAX_QUEUED_BYTES,
        }
    }

    /// Whether so much is waiting that what nobody needs should be left out.
    pub fn is_congested(&self) -> bool {
        match self {
            Self::Pipe(outbox) => outbox.is_congested(),
            Self::Http(_) => self.is_full(),
        }
    }

    /// Bytes waiting.
    pub fn waiting(&self) -> usize {
        match self {
            Self::Pipe(outbox) => outbox.waiting(),
            Self::Http(postbox) => postbox.waiting.load(Ordering::Relaxed),
        }
    }
}
