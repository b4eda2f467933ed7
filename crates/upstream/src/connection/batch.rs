//! Several messages of the server in one array. Only revision 2025-03-26 has them; they are accepted in any, because
//! the responses in them are awaited.

use std::sync::Arc;

use bytes::Bytes;
use protocol::Line;
use protocol::envelope::Reason;
use protocol::scan::{Cursor, Span};

use super::Connection;
use crate::failure::Unreadable;
use crate::response_handler::ResponseHandler;

impl Connection {
    /// Handles every message of the array in `line` as if it had arrived alone.
    pub(super) fn receive_batch(
        self: &Arc<Self>,
        line: &Bytes,
        about: Option<u64>,
        handlers: &mut Vec<Arc<dyn ResponseHandler>>,
    ) {
        let mut is_empty = true;
        // One by one: the spans of a million tiny elements would take many times the memory of the elements.
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
