//! Several messages of the server in one array. Only revision 2025-03-26 knows them; they are understood in any, for
//! somebody waits for the answers in them.

use std::sync::Arc;

use bytes::Bytes;
use protocol::Line;
use protocol::envelope::Reason;
use protocol::scan::{Cursor, Span};

use super::Connection;
use crate::failure::Unreadable;
use crate::response_handler::ResponseHandler;

impl Connection {
    /// Takes every message of the array in `line` as if it had come alone.
    pub(super) fn receive_batch(
        self: &Arc<Self>,
        line: &Bytes,
        about: Option<u64>,
        handlers: &mut Vec<Arc<dyn ResponseHandler>>,
    ) {
        let mut is_empty = true;
        // One by one: the places of a million tiny elements would take many times what they take themselves.
        let mut cursor = Cursor::new(line);
        cursor.take(b'[');
        while let Ok(Span { start, end }) = cursor.value() {
            is_empty = false;
            let part = line.slice(start..end);
            if part.starts_with(b"[") {
                self.fail_unreadable(None, junk("a batch within a batch"), &part);
            } else {
                self.receive(Line::Whole(part), about, handlers);
            }
            if !cursor.take(b',') {
                break;
            }
        }
        if is_empty {
            self.fail_unreadable(None, junk("an empty batch"), line);
        }
    }
}

fn junk(problem: &'static str) -> Unreadable {
    Unreadable::Faulty(Reason::Invalid(problem))
}
