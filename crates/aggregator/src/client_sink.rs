//! The way to a client: where its answers, and what is told besides, are put.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use protocol::envelope::{Envelope, Kind};
use protocol::splice::{Edit, Piece, splice};
use upstream::Outbox;

/// What a message is to the request whose way it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outbound {
    /// The answer: nothing follows it for that request.
    Response,
    /// Something before the answer, or about no request at all: progress, a log message, a question, news.
    Notification,
}

/// One message to a client, in the form it is at hand.
#[derive(Debug)]
pub enum Message<'m> {
    /// Bytes of our own, newline included.
    Own(&'m [u8]),
    /// Stretches that together make a message, newline included; for what is too large to copy.
    Parts(&'m [Bytes]),
    /// Somebody's line, without a newline, with some spans replaced.
    Spliced {
        /// The line.
        line: &'m Bytes,
        /// What is replaced, in order.
        edits: &'m [Edit<'m>],
    },
}

/// Something to wait for until a slow reader has caught up.
pub type CatchUp<'w> = Pin<Box<dyn Future<Output = ()> + Send + 'w>>;

/// The way to a client: for everything (stdio), for one request (an HTTP answer), or for what is about no request.
pub trait ClientSink: Send + Sync {
    /// Sends a message. It may wait for [`ClientSink::flush`].
    fn send(&self, what: Outbound, message: Message<'_>);
    /// There will be no answer to the one request that has this way for itself: the client gave it up.
    fn give_up(&self);
    /// Lets out what was sent.
    fn flush(&self);
    /// If the client reads slower than it is sent to: something to wait for before sending more.
    fn catch_up(&self) -> Option<CatchUp<'_>>;
    /// Whether so much is waiting that news nobody asked for should be left out.
    fn is_full(&self) -> bool;
    /// Whether anything but the answer can be sent at all.
    fn carries_notifications(&self) -> bool {
        true
    }
    /// Whether its client has shown no sign of being there for a while; it may still come back.
    fn is_idle(&self) -> bool {
        false
    }
    /// Whether nobody will ever read what is sent, now or after coming back for it.
    fn is_gone(&self) -> bool;
}

/// A way that leads nowhere, for who cannot be told anything.
#[derive(Debug)]
pub struct NullSink;

impl ClientSink for NullSink {
    fn send(&self, _: Outbound, _: Message<'_>) {}
    fn give_up(&self) {}
    fn flush(&self) {}
    fn catch_up(&self) -> Option<CatchUp<'_>> {
        None
    }
    fn is_full(&self) -> bool {
        false
    }
    fn is_gone(&self) -> bool {
        true
    }
}

/// A pipe is the way for everything.
impl ClientSink for Outbox {
    fn send(&self, _: Outbound, message: Message<'_>) {
        match message {
            Message::Own(bytes) => self.push(bytes),
            Message::Parts(parts) => self.push_parts(parts),
            Message::Spliced { line, edits } => self.push_spliced(line, edits),
        }
    }
    fn give_up(&self) {}
    fn flush(&self) {
        Self::flush(self);
    }
    fn catch_up(&self) -> Option<CatchUp<'_>> {
        self.is_congested().then(|| Box::pin(self.caught_up()) as _)
    }
    fn is_full(&self) -> bool {
        Self::is_full(self)
    }
    fn is_gone(&self) -> bool {
        self.is_closed()
    }
}

impl Message<'_> {
    /// The id that an answer has.
    pub fn answered_id(&self) -> Vec<u8> {
        // Usually it is all that is replaced in what a server wrote, and that may be long.
        if let Self::Spliced { edits: [Edit { with, .. }], .. } = self {
            return with.to_vec();
        }
        let mut line = Vec::new();
        self.write_to(&mut line);
        match Envelope::scan(&line) {
            Ok(Envelope { kind: Kind::Response { id, .. }, .. }) => id.of(&line).to_vec(),
            _ => b"null".to_vec(),
        }
    }

    /// Appends the whole message, without its newline.
    pub fn write_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Own(bytes) => out.extend_from_slice(bytes.strip_suffix(b"\n").unwrap_or(bytes)),
            Self::Parts(parts) => {
                parts.iter().for_each(|part| out.extend_from_slice(part));
                if out.last() == Some(&b'\n') {
                    out.pop();
                }
            }
            Self::Spliced { line, edits } => splice(line.len(), edits, |piece| match piece {
                Piece::Kept(span) => out.extend_from_slice(span.of(line)),
                Piece::New(bytes) => out.extend_from_slice(bytes),
            }),
        }
    }
}
