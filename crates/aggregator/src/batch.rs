//! Several messages in one array, which only revision 2025-03-26 allows: split on the way in, gathered on the way out.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use protocol::Line;
use protocol::envelope::{Envelope, Fault, Kind};
use protocol::reply::{self, code};
use protocol::scan::{Span, elements};

use crate::answering::Answering;
use crate::dispatch::{Aggregator, Incoming};
use crate::way::{CatchingUp, Message, Way, What};

/// Messages in one batch. Their answers are kept until all are there, so there must be an end to them.
const MOST_MESSAGES: usize = 100;

/// The answers to one batch, until they are complete and leave as one array.
struct Batch {
    way: Arc<dyn Way>,
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
    let Incoming { client, to, line, touched } = message;
    let start = line.iter().position(|&byte| byte == b'[').unwrap_or_default();
    let parts = elements(line, Span { start, end: line.len() }).unwrap_or_default();
    if parts.is_empty() {
        return to.say(&reply::error(b"null", code::INVALID_REQUEST, "Invalid Request: an empty batch", None));
    }
    let parts: Vec<Bytes> = parts.into_iter().map(|part| line.slice(part.start..part.end)).collect();
    if parts.len() > MOST_MESSAGES {
        let text = format!("Invalid Request: a batch of more than {MOST_MESSAGES} messages");
        return to.say(&reply::error(b"null", code::INVALID_REQUEST, &text, None));
    }
    // Counted before anything is dispatched: the first answer may come before the last message is looked at.
    let missing = parts.iter().filter(|part| wants_answer(part)).count();
    let gathered = Mutex::new(Gathered { missing, array: Vec::new() });
    let gathering = Answering::to(client, Arc::new(Batch { way: Arc::clone(to.way()), gathered }));
    for part in parts {
        if part.starts_with(b"[") {
            let text = "Invalid Request: a batch within a batch";
            gathering.say(&reply::error(b"null", code::INVALID_REQUEST, text, None));
        } else {
            aggregator.take(client, &gathering, &Line::Whole(part), touched);
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
        if gathered.missing > 0 {
            return;
        }
        if gathered.array.is_empty() {
            return self.way.give_up();
        }
        gathered.array.extend_from_slice(b"]\n");
        let array = Bytes::from(std::mem::take(&mut gathered.array));
        self.way.send(What::Answer, Message::Parts(&[array]));
    }
}

impl Way for Batch {
    fn send(&self, what: What, message: Message<'_>) {
        match what {
            What::Answer => self.add(|array| message.write_to(array)),
            What::Aside => self.way.send(what, message),
        }
    }

    fn give_up(&self) {
        self.add(|_| {});
    }

    fn flush(&self) {
        self.way.flush();
    }

    fn catching_up(&self) -> Option<CatchingUp<'_>> {
        self.way.catching_up()
    }

    fn is_full(&self) -> bool {
        self.way.is_full()
    }

    fn carries_asides(&self) -> bool {
        self.way.carries_asides()
    }

    fn is_away(&self) -> bool {
        self.way.is_away()
    }

    fn is_gone(&self) -> bool {
        self.way.is_gone()
    }
}
