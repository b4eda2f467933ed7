//! Several messages in one array, which only revision 2025-03-26 allows: split on the way in, gathered on the way out.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use protocol::Line;
use protocol::envelope::{Envelope, Fault, Kind};
use protocol::reply::{self, code};
use protocol::scan::{Span, elements};
use protocol::splice::{Edit, Piece, splice};
use upstream::{CallError, Caller};

use crate::client::{Client, Respond, failure};
use crate::dispatch::{Aggregator, Incoming};

/// Messages in one batch. Their answers are kept until all are there, so there must be an end to them.
const MOST_MESSAGES: usize = 100;

/// The answers to one batch, until they are complete and leave as one array.
struct Batch {
    client: Arc<Client>,
    gathered: Mutex<Gathered>,
}

struct Gathered {
    /// Answers still to come.
    missing: usize,
    /// The array so far, without its end.
    array: Vec<u8>,
}

/// Dispatches every message of the array in `message` by itself.
pub fn split(aggregator: &Arc<Aggregator>, message: Incoming<'_>) {
    let Incoming { client, line, touched, .. } = message;
    let start = line.iter().position(|&byte| byte == b'[').unwrap_or_default();
    let parts = elements(line, Span { start, end: line.len() }).unwrap_or_default();
    if parts.is_empty() {
        return client.send(&reply::error(b"null", code::INVALID_REQUEST, "Invalid Request: an empty batch", None));
    }
    let parts: Vec<Bytes> = parts.into_iter().map(|part| line.slice(part.start..part.end)).collect();
    if parts.len() > MOST_MESSAGES {
        let text = format!("Invalid Request: a batch of more than {MOST_MESSAGES} messages");
        return client.send(&reply::error(b"null", code::INVALID_REQUEST, &text, None));
    }
    // Counted before anything is dispatched: the first answer may come before the last message is looked at.
    let missing = parts.iter().filter(|part| wants_answer(part)).count();
    let batch =
        Arc::new(Batch { client: Arc::clone(client), gathered: Mutex::new(Gathered { missing, array: Vec::new() }) });
    let to = batch as Arc<dyn Respond>;
    for part in parts {
        if part.starts_with(b"[") {
            to.send(&reply::error(b"null", code::INVALID_REQUEST, "Invalid Request: a batch within a batch", None));
        } else {
            aggregator.take(client, &to, &Line::Whole(part), touched);
        }
    }
}

fn wants_answer(part: &Bytes) -> bool {
    match Envelope::scan(part) {
        Ok(Envelope { kind, .. }) => matches!(kind, Kind::Request { .. }),
        Err(Fault { .. }) => true,
    }
}

impl Batch {
    /// Adds one answer (none for a request that was cancelled) and sends all of them when this was the last.
    fn add(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let before = gathered.array.len();
        gathered.array.push(if before == 0 { b'[' } else { b',' });
        write(&mut gathered.array);
        if gathered.array.len() == before + 1 {
            gathered.array.truncate(before);
        }
        gathered.missing = gathered.missing.saturating_sub(1);
        if gathered.missing == 0 && !gathered.array.is_empty() {
            gathered.array.extend_from_slice(b"]\n");
            self.client.send_parts(&[Bytes::from(std::mem::take(&mut gathered.array))]);
        }
    }

    fn add_message(&self, message: &[u8]) {
        self.add(|array| array.extend_from_slice(message.strip_suffix(b"\n").unwrap_or(message)));
    }
}

impl Caller for Batch {
    fn client(&self) -> u64 {
        self.client.client()
    }

    fn answered(&self, id: &[u8], line: &Bytes, id_at: Span) {
        self.add(|array| {
            splice(line.len(), &mut [Edit { span: id_at, with: id }], |piece| match piece {
                Piece::Kept(span) => array.extend_from_slice(span.of(line)),
                Piece::New(bytes) => array.extend_from_slice(bytes),
            });
        });
        self.client.request_closed();
    }

    fn failed(&self, id: &[u8], error: &CallError) {
        self.add_message(&failure(id, error));
        self.client.request_closed();
    }

    fn cancelled(&self, _id: &[u8]) {
        self.add(|_| {});
        self.client.request_closed();
    }

    fn progressed(&self, token: &[u8], line: &Bytes, token_at: Span) {
        self.client.progressed(token, line, token_at);
    }

    fn flush(&self) {
        self.client.flush();
    }

    fn catching_up(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        self.client.catching_up()
    }
}

impl Respond for Batch {
    fn send(&self, message: &[u8]) {
        self.add_message(message);
    }

    fn send_parts(&self, parts: &[Bytes]) {
        self.add_message(&parts.concat());
    }

    fn as_caller(self: Arc<Self>) -> Arc<dyn Caller> {
        self
    }
}
