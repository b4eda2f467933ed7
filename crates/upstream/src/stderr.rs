//! The last words of a server.
//!
//! Everything a server writes to stderr is read, whether anybody wants it or not: a full pipe would block the server.
//! The end of it is kept, because that is where a server says why it died.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use catalog::{Secrets, ServerName};
use protocol::{Line, Lines};

use crate::stream::Source;

/// How an aggregator says that it would start itself. It may be the server of a server of ours, and its words would be
/// lost on the way up, so a server's line that holds this is passed on as a warning.
pub const CIRCLE: &str = "this aggregator would start itself";

/// Lines kept.
const LINES: usize = 20;
/// Bytes kept of each.
const LINE_WIDTH: usize = 400;
/// Bytes of one line that are looked at.
const LONGEST_LINE: usize = 64 << 10;

/// The last lines of a server's stderr.
#[derive(Debug, Default, Clone)]
pub struct Tail {
    kept: Arc<Mutex<VecDeque<Vec<u8>>>>,
    secrets: Secrets,
}

impl Tail {
    /// One that keeps no secret, even if the server says it.
    pub fn hiding(secrets: Secrets) -> Self {
        Self { kept: Arc::default(), secrets }
    }

    /// Reads `source` to its end, keeping the last lines and telling all of them to the log when it is verbose.
    pub async fn follow(self, server: ServerName, mut source: Source) {
        let mut lines = Lines::with_limit(LONGEST_LINE);
        // Most servers never say a word here.
        if let Err(error) = source.readable().await {
            return tracing::debug!(%server, %error, "could not wait for its stderr");
        }
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
        // Before it is cut: half a secret would not be known for one.
        let hidden = match std::str::from_utf8(bytes) {
            Ok(text) => self.secrets.hide(text),
            Err(_) => Cow::Owned(self.secrets.hide(&String::from_utf8_lossy(bytes)).into_owned()),
        };
        let bytes = &hidden.as_bytes()[..hidden.len().min(LINE_WIDTH)];
        if memchr::memmem::find(bytes, CIRCLE.as_bytes()).is_some() {
            tracing::warn!(%server, "it says: {}", String::from_utf8_lossy(bytes).trim());
        }
        tracing::debug!(%server, "stderr: {}", String::from_utf8_lossy(bytes));
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // A server may write without end, so a line costs no more than its copy.
        let mut line = if kept.len() == LINES { kept.pop_front().unwrap_or_default() } else { Vec::new() };
        line.clear();
        line.extend_from_slice(bytes);
        kept.push_back(line);
    }

    /// The lines kept so far, oldest first.
    pub fn lines(&self) -> Vec<String> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_a_server_tells_is_not_kept() {
        let tail = Tail::hiding(Secrets::default().with(["hunter2-and-more"]));
        let server = ServerName::new("db").unwrap();
        let padding = "x".repeat(LINE_WIDTH - 8);
        for said in ["bad token hunter2-and-more!".to_owned(), format!("{padding}hunter2-and-more")] {
            tail.add(&server, &Line::Whole(said.into_bytes().into()));
        }
        assert_eq!(tail.lines(), ["bad token ***!".to_owned(), format!("{padding}***")]);
    }
}
