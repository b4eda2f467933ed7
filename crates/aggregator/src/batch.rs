//! JSON-RPC batches, which only revision 2025-03-26 allows: split on arrival; the responses leave as one array.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use protocol::Line;
use protocol::envelope::{Envelope, EnvelopeError, Kind};
use protocol::reply::{self, code};
use protocol::scan::{Span, count_elements, elements};

use crate::client_sink::{CatchUp, ClientSink, Message, Outbound};
use crate::dispatch::{Aggregator, Incoming};
use crate::responder::Responder;

/// Messages in one batch. The responses are held until all have arrived, so their number must be bounded.
pub const MAX_BATCH_MESSAGES: usize = 100;

/// The responses to one batch, until they are complete and leave as one array.
struct Batch {
    sink: Arc<dyn ClientSink>,
    /// Bytes of responses that are collected.
    most_bytes: usize,
    gathered: Mutex<Gathered>,
}

struct Gathered {
    /// Responses that have not arrived.
    missing: usize,
    /// The array so far, without its closing bracket.
    array: Vec<u8>,
}

/// Dispatches every message of the array in `message` separately.
pub(crate) fn split(aggregator: &Arc<Aggregator>, message: Incoming<'_>) {
    let Incoming { client, to, line, flush_set } = message;
    let start = line.iter().position(|&byte| byte == b'[').unwrap_or_default();
    let array = Span { start, end: line.len() };
    // Counted first: the spans of a million tiny elements would take many times the memory of the elements.
    match count_elements(line, array) {
        None | Some(0) => {
            return to.respond(&reply::error(b"null", code::INVALID_REQUEST, "Invalid Request: an empty batch", None));
        }
        Some(count) if count > MAX_BATCH_MESSAGES => {
            let text = format!("Invalid Request: a batch of more than {MAX_BATCH_MESSAGES} messages");
            return to.respond(&reply::error(b"null", code::INVALID_REQUEST, &text, None));
        }
        Some(_) => {}
    }
    let parts = elements(line, array).unwrap_or_default();
    let parts: Vec<Bytes> = parts.into_iter().map(|part| line.slice(part.start..part.end)).collect();
    // Counted before anything is dispatched: the first response may arrive before the last message is scanned.
    let missing = parts.iter().filter(|part| wants_answer(part)).count();
    let gathered = Mutex::new(Gathered { missing, array: Vec::new() });
    let most_bytes = aggregator.options.client_limits.batch_bytes;
    let gathering = Responder::to(client, Arc::new(Batch { sink: Arc::clone(to.sink()), most_bytes, gathered }));
    for part in parts {
        if part.starts_with(b"[") {
            let text = "Invalid Request: a batch within a batch";
            gathering.respond(&reply::error(b"null", code::INVALID_REQUEST, text, None));
        } else {
            aggregator.take(client, &gathering, &Line::Whole(part), flush_set);
        }
    }
}

fn wants_answer(part: &Bytes) -> bool {
    match Envelope::scan(part) {
        Ok(Envelope { kind, .. }) => matches!(kind, Kind::Request { .. }),
        Err(EnvelopeError { .. }) => true,
    }
}

impl Batch {
    /// Adds one response (none for a cancelled request) and sends all of them when this was the last.
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
            return self.sink.give_up();
        }
        gathered.array.extend_from_slice(b"]\n");
        let array = Bytes::from(std::mem::take(&mut gathered.array));
        self.sink.send(Outbound::Response, Message::Parts(&[array]));
    }
}

impl ClientSink for Batch {
    fn send(&self, what: Outbound, message: Message<'_>) {
        match what {
            Outbound::Response => self.add(|array| match array.len() <= self.most_bytes {
                true => message.write_to(array),
                false => {
                    let text = format!(
                        "The responses to this batch have more than {} MB (limit `batch-mb`); send the requests one by one",
                        self.most_bytes >> 20
                    );
                    let refusal = reply::error(&message.answered_id(), code::INTERNAL_ERROR, &text, None);
                    Message::Own(&refusal).write_to(array);
                }
            }),
            Outbound::Notification => self.sink.send(what, message),
        }
    }

    fn give_up(&self) {
        self.add(|_| {});
    }

    fn flush(&self) {
        self.sink.flush();
    }

    fn catch_up(&self) -> Option<CatchUp<'_>> {
        self.sink.catch_up()
    }

    fn is_full(&self) -> bool {
        self.sink.is_full()
    }

    fn carries_notifications(&self) -> bool {
        self.sink.carries_notifications()
    }

    fn is_idle(&self) -> bool {
        self.sink.is_idle()
    }

    fn is_gone(&self) -> bool {
        self.sink.is_gone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the last message.
    #[derive(Default)]
    struct Last(Mutex<Vec<u8>>);

    impl ClientSink for Last {
        fn send(&self, _: Outbound, message: Message<'_>) {
            let mut last = Vec::new();
            message.write_to(&mut last);
            *self.0.lock().unwrap() = last;
        }
        fn give_up(&self) {}
        fn flush(&self) {}
        fn catch_up(&self) -> Option<CatchUp<'_>> {
            None
        }
        fn is_full(&self) -> bool {
            false
        }
        fn is_gone(&self) -> bool {
            false
        }
    }

    #[test]
    fn a_batch_gathers_so_many_bytes_and_then_errors() {
        let last = Arc::new(Last::default());
        let sink = Arc::clone(&last) as Arc<dyn ClientSink>;
        let batch =
            Batch { sink, most_bytes: 3 << 20, gathered: Mutex::new(Gathered { missing: 4, array: Vec::new() }) };
        let answer = |id: u32| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"{}"}}"#, "x".repeat(2 << 20));
        for id in 1..=4 {
            batch.send(Outbound::Response, Message::Own(answer(id).as_bytes()));
        }
        let gathered = last.0.lock().unwrap();
        assert!(gathered.len() < 5 << 20, "{}", gathered.len());
        let tail = String::from_utf8_lossy(&gathered[4 << 20..]);
        for id in [3, 4] {
            assert!(tail.contains(&format!(r#""id":{id},"error""#)), "{tail}");
        }
        assert!(tail.contains("more than 3 MB (limit `batch-mb`); send the requests one by one"), "{tail}");
    }
}
