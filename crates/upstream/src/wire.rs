//! The way to one server: a pipe to its stdin, or a box of letters to be posted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use protocol::splice::{Edit, Piece, splice};
use tokio::sync::mpsc;

use crate::outbox::Outbox;

/// With more than this waiting to be posted, new calls are refused.
const FULL: usize = 64 << 20;

/// The way to one server.
#[derive(Debug)]
pub enum Wire {
    /// Its stdin.
    Pipe(Arc<Outbox>),
    /// Each message is a request of its own.
    Post(Postbox),
}

/// One message to be posted.
#[derive(Debug)]
pub struct Letter {
    /// Our number, if an answer is wanted.
    pub number: Option<u64>,
    /// The message, without a newline.
    pub body: Bytes,
    waiting: Arc<AtomicUsize>,
}

impl Drop for Letter {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.body.len(), Ordering::Relaxed);
    }
}

/// Where letters are dropped to be posted.
#[derive(Debug)]
pub struct Postbox {
    letters: mpsc::UnboundedSender<Letter>,
    /// Bytes of all letters that are not answered for. This bounds the box, not the channel.
    waiting: Arc<AtomicUsize>,
}

impl Postbox {
    /// A box, and what is dropped into it.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Letter>) {
        let (letters, dropped) = mpsc::unbounded_channel();
        (Self { letters, waiting: Arc::default() }, dropped)
    }

    fn drop_in(&self, number: Option<u64>, body: Bytes) {
        self.waiting.fetch_add(body.len(), Ordering::Relaxed);
        // Nobody collects any more only when the connection has ended, and then every call has been failed.
        drop(self.letters.send(Letter { number, body, waiting: Arc::clone(&self.waiting) }));
    }
}

impl Wire {
    /// Sends a message of our own, newline included.
    pub fn send(&self, number: Option<u64>, message: &[u8]) {
        match self {
            Self::Pipe(outbox) => outbox.push(message),
            Self::Post(postbox) => {
                postbox.drop_in(number, Bytes::copy_from_slice(message.strip_suffix(b"\n").unwrap_or(message)));
            }
        }
    }

    /// Sends somebody's line with some spans replaced.
    pub fn send_spliced(&self, number: Option<u64>, line: &Bytes, edits: &mut [Edit<'_>]) {
        match self {
            Self::Pipe(outbox) => outbox.push_spliced(line, edits),
            Self::Post(postbox) => {
                let mut body = BytesMut::with_capacity(line.len() + 32);
                splice(line.len(), edits, |piece| match piece {
                    Piece::Kept(span) => body.extend_from_slice(span.of(line)),
                    Piece::New(bytes) => body.extend_from_slice(bytes),
                });
                postbox.drop_in(number, body.freeze());
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
            Self::Post(_) => self.waiting() > FULL,
        }
    }

    /// Whether so much is waiting that what nobody needs should be left out.
    pub fn is_congested(&self) -> bool {
        match self {
            Self::Pipe(outbox) => outbox.is_congested(),
            Self::Post(_) => self.is_full(),
        }
    }

    /// Bytes waiting.
    pub fn waiting(&self) -> usize {
        match self {
            Self::Pipe(outbox) => outbox.waiting(),
            Self::Post(postbox) => postbox.waiting.load(Ordering::Relaxed),
        }
    }
}
