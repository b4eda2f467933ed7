//! The sink for messages to a client: responses, notifications and server requests.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use protocol::envelope::{Envelope, Kind};
use protocol::splice::{Edit, append_spliced};
use tokio::sync::oneshot;
use upstream::Outbox;

/// How a message relates to the request whose sink it is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outbound {
    /// The response: nothing follows it for that request.
    Response,
    /// A message before the response, or about no request: progress, a log message, a server request, a change.
    Notification,
}

/// One message to a client, in the form in which it exists.
#[derive(Debug)]
pub enum Message<'m> {
    /// Bytes of our own, newline included.
    Own(&'m [u8]),
    /// Slices that together make a message, newline included; for messages too large to copy.
    Parts(&'m [Bytes]),
    /// A line from elsewhere, without a newline, with some spans replaced.
    Spliced {
        /// The line.
        line: &'m Bytes,
        /// What is replaced, in order.
        edits: &'m [Edit<'m>],
    },
}

/// A future that completes when a slow reader has caught up.
pub type CatchUp<'w> = Pin<Box<dyn Future<Output = ()> + Send + 'w>>;

/// The sink for one client: for everything (stdio), for one request (an HTTP response), or for messages about no
/// request.
pub trait ClientSink: Send + Sync {
    /// Sends a message. It may be buffered until [`ClientSink::flush`].
    fn send(&self, what: Outbound, message: Message<'_>);
    /// Sends a notification that its client waits for. Returns false if it is dropped because too much is unread
    /// already.
    fn try_send(&self, message: Message<'_>) -> bool {
        self.send(Outbound::Notification, message);
        true
    }
    /// Reports that the one request this sink belongs to gets no response: the client cancelled it.
    fn give_up(&self);
    /// Flushes what was sent.
    fn flush(&self);
    /// If the client reads too slowly: a future to wait for before sending more.
    fn catch_up(&self) -> Option<CatchUp<'_>>;
    /// Whether so much is unread that unrequested notifications should be dropped.
    fn is_full(&self) -> bool;
    /// Whether anything but the response can be sent at all.
    fn carries_notifications(&self) -> bool {
        true
    }
    /// Whether its client has been silent for a while; it may still reconnect.
    fn is_idle(&self) -> bool {
        false
    }
    /// Whether nothing that is sent can be read any more, not even after a reconnect.
    fn is_gone(&self) -> bool;
}

/// Discards everything, for clients that cannot receive messages.
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

/// Receives the response of one request, and discards everything else.
#[derive(Debug)]
pub struct ResponseSink(Mutex<Option<oneshot::Sender<Bytes>>>);

impl ResponseSink {
    /// The sink, and the receiver of the response: a line without its newline.
    pub fn new() -> (Arc<Self>, oneshot::Receiver<Bytes>) {
        let (sender, response) = oneshot::channel();
        (Arc::new(Self(Mutex::new(Some(sender)))), response)
    }

    fn take(&self) -> Option<oneshot::Sender<Bytes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ClientSink for ResponseSink {
    fn send(&self, what: Outbound, message: Message<'_>) {
        // The first response counts.
        if what == Outbound::Response
            && let Some(sender) = self.take()
        {
            let mut line = Vec::new();
            message.write_to(&mut line);
            // The receiver may have been dropped.
            sender.send(line.into()).ok();
        }
    }
    fn give_up(&self) {
        drop(self.take());
    }
    fn flush(&self) {}
    fn catch_up(&self) -> Option<CatchUp<'_>> {
        None
    }
    fn is_full(&self) -> bool {
        false
    }
    fn carries_notifications(&self) -> bool {
        false
    }
    fn is_gone(&self) -> bool {
        let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sender.as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}

/// A pipe carries every message.
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
    /// The id of a response.
    pub fn answered_id(&self) -> Vec<u8> {
        // Usually the id is the only edit in a server's line, which may be long.
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
            Self::Spliced { line, edits } => append_spliced(line, edits, out),
        }
    }
}
