//! The last words of a server.
//!
//! Everything a server writes to stderr is read, whether anybody wants it or not: a full pipe would block the server.
//! The end of it is kept, because that is where a server says why it died.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use catalog::ServerName;
use protocol::{Line, Lines};

use crate::stream::Source;

/// Lines kept.
const LINES: usize = 20;
/// Characters kept of each.
const LINE_WIDTH: usize = 400;
/// Bytes of one line that are looked at.
const LONGEST_LINE: usize = 64 << 10;

/// The last lines of a server's stderr.
#[derive(Debug, Default, Clone)]
pub struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Tail {
    /// Reads `source` to its end, keeping the last lines and telling all of them to the log when it is verbose.
    pub async fn follow(self, server: ServerName, mut source: Source) {
        let mut lines = Lines::with_limit(LONGEST_LINE);
        while matches!(source.read_into(lines.space()).await, Ok(1..)) {
            while let Some(line) = lines.next_line() {
                self.add(&server, &line);
            }
        }
        if let Some(line) = lines.rest() {
            self.add(&server, &line);
        }
    }

    fn add(&self, server: &ServerName, line: &Line) {
        let bytes = match line {
            Line::Whole(bytes) => bytes,
            Line::TooLong { head, .. } => head,
        };
        let text: String = String::from_utf8_lossy(bytes).chars().take(LINE_WIDTH).collect();
        tracing::debug!(%server, "stderr: {text}");
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == LINES {
            kept.pop_front();
        }
        kept.push_back(text);
    }

    /// The lines kept so far, oldest first.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
