//! The last stderr lines of a server.
//!
//! Everything a server writes to stderr is read, even if it is not used: a full pipe would block the server. The end
//! of it is kept, because that is where a server reports why it exits.

mod cause;

pub use cause::cause_lines;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use catalog::{Secrets, ServerName};
use protocol::{Line, Lines};
use tokio::sync::Notify;

use crate::stream::Source;

/// The message of an aggregator that would start itself. It may be the server of a server of ours, and its output
/// would be lost in between, so a server's line that contains this is logged as a warning.
pub const LOOP_MESSAGE: &str = "this aggregator would start itself";

/// Lines that show why a server exited.
const LINES: usize = 20;
/// Lines kept where a user may want to read more.
const MORE_LINES: usize = 200;
/// Lines kept of the runs before a restart.
const EARLIER_LINES: usize = 100;
/// Bytes kept of each.
const LINE_WIDTH: usize = 400;
/// Bytes of one line that are read.
const MAX_LINE_BYTES: usize = 64 << 10;

/// The last lines of a server's stderr.
#[derive(Debug, Clone)]
pub struct Tail {
    kept: Arc<SharedTail>,
    secrets: Secrets,
    most: usize,
}

#[derive(Debug, Default)]
struct SharedTail {
    lines: Mutex<TailLines>,
    /// Notified for every line.
    more: Notify,
}

#[derive(Debug, Default)]
struct TailLines {
    /// The last lines of the processes before this one.
    earlier: Vec<String>,
    lines: VecDeque<Vec<u8>>,
    /// The number of lines so far, including those no longer kept.
    count: u64,
}

/// The lines since the last read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewLines {
    /// The lines, oldest first.
    pub lines: Vec<String>,
    /// How many lines in between are lost, because they came too fast.
    pub missed: u64,
    /// Where to continue reading.
    pub until: u64,
}

impl Tail {
    /// A tail that removes these secrets from every line.
    pub fn hiding(secrets: Secrets) -> Self {
        Self { kept: Arc::default(), secrets, most: LINES }
    }

    /// The same, but keeps more lines for a user to read.
    pub fn keeping_more(self) -> Self {
        Self { most: MORE_LINES, ..self }
    }

    /// Reads `source` to its end, keeps the last lines and logs all of them when the log is verbose.
    pub async fn follow(self, server: ServerName, mut source: Source) {
        let mut lines = Lines::with_limit(MAX_LINE_BYTES);
        // Most servers never write to stderr.
        if let Err(error) = source.readable().await {
            return tracing::debug!(%server, %error, "failed to read the server's stderr");
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
        // Before the line is truncated: half a secret would not be recognised.
        let hidden = match std::str::from_utf8(bytes) {
            Ok(text) => self.secrets.hide(text),
            Err(_) => Cow::Owned(self.secrets.hide(&String::from_utf8_lossy(bytes)).into_owned()),
        };
        let bytes = &hidden.as_bytes()[..hidden.len().min(LINE_WIDTH)];
        if memchr::memmem::find(bytes, LOOP_MESSAGE.as_bytes()).is_some() {
            tracing::warn!(%server, "the server reports: {}", String::from_utf8_lossy(bytes).trim());
        }
        tracing::debug!(%server, "stderr: {}", String::from_utf8_lossy(bytes));
        let mut stderr_tail = self.kept.lines.lock().unwrap_or_else(PoisonError::into_inner);
        // A server may write without end, so a line costs no more than its copy.
        let mut line =
            if stderr_tail.lines.len() >= self.most { stderr_tail.lines.pop_front() } else { None }.unwrap_or_default();
        line.clear();
        line.extend_from_slice(bytes);
        stderr_tail.lines.push_back(line);
        stderr_tail.count += 1;
        drop(stderr_tail);
        self.kept.more.notify_waiters();
    }

    /// Its last lines, oldest first. If the lines that state the cause are further up, above a long stack trace, they
    /// come before the others.
    pub fn lines(&self) -> Vec<String> {
        let stderr_tail = self.kept.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let all: Vec<String> = stderr_tail.lines.iter().map(|line| text(line)).collect();
        drop(stderr_tail);
        let (above, last) = all.split_at(all.len().saturating_sub(LINES));
        let is_last = |line: &&str| last.iter().any(|known| known.trim() == *line);
        let causes = cause_lines(all.iter().map(String::as_str));
        let causes: Vec<&str> = causes.into_iter().filter(|line| !above.is_empty() && !is_last(line)).collect();
        let rest = &last[causes.len().min(last.len())..];
        causes.iter().map(|&line| line.to_owned()).chain(rest.iter().cloned()).collect()
    }

    /// Marks this as the tail of a restarted server: the last lines of `before` are kept, too.
    pub fn follows(&self, before: &Self) {
        let stderr_tail = before.kept.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let said: Vec<String> =
            stderr_tail.earlier.iter().cloned().chain(stderr_tail.lines.iter().map(|line| text(line))).collect();
        drop(stderr_tail);
        let earlier = said[said.len().saturating_sub(EARLIER_LINES)..].to_vec();
        self.kept.lines.lock().unwrap_or_else(PoisonError::into_inner).earlier = earlier;
    }

    /// The last lines of the processes before this one, oldest first.
    pub fn earlier(&self) -> Vec<String> {
        self.kept.lines.lock().unwrap_or_else(PoisonError::into_inner).earlier.clone()
    }

    /// The lines after the first `seen`, as far as they are kept.
    pub fn since(&self, seen: u64) -> NewLines {
        let stderr_tail = self.kept.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let first = stderr_tail.count - stderr_tail.lines.len() as u64;
        let before = usize::try_from(seen.saturating_sub(first)).unwrap_or(usize::MAX);
        NewLines {
            lines: stderr_tail.lines.iter().skip(before).map(|line| text(line)).collect(),
            missed: first.saturating_sub(seen),
            until: stderr_tail.count,
        }
    }

    /// Waits until there are more than `seen` lines.
    pub async fn more_than(&self, seen: u64) {
        loop {
            let more = self.kept.more.notified();
            if self.since_count() > seen {
                return;
            }
            more.await;
        }
    }

    /// Whether both belong to the same run of a server.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.kept, &other.kept)
    }

    fn since_count(&self) -> u64 {
        self.kept.lines.lock().unwrap_or_else(PoisonError::into_inner).count
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(tail: &Tail, words: &str) {
        tail.add(&ServerName::new("db").unwrap(), &Line::Whole(words.as_bytes().to_vec().into()));
    }

    #[tokio::test]
    async fn a_reader_gets_every_line_once_and_the_number_of_lost_lines() {
        let tail = Tail::hiding(Secrets::default()).keeping_more();
        said(&tail, "one");
        let new = tail.since(0);
        assert_eq!(new, NewLines { lines: vec!["one".to_owned()], missed: 0, until: 1 });
        let listening = tail.clone();
        let waiting = tokio::spawn(async move { listening.more_than(1).await });
        tokio::task::yield_now().await;
        (0..MORE_LINES + 5).for_each(|number| said(&tail, &number.to_string()));
        waiting.await.unwrap();
        let new = tail.since(1);
        assert_eq!((new.lines.len(), new.missed), (MORE_LINES, 5));
        assert_eq!(tail.since(new.until).lines, Vec::<String>::new());
        assert_eq!(tail.lines().len(), LINES, "its last words are few");
    }

    #[test]
    fn a_cause_above_a_long_stack_trace_is_part_of_the_last_stderr_lines() {
        let tail = Tail::hiding(Secrets::default()).keeping_more();
        said(&tail, "Exception in thread \"main\" java.lang.IllegalStateException: no database");
        (0..50).for_each(|number| said(&tail, &format!("\tat com.example.Main.run(Main.java:{number})")));
        let lines = tail.lines();
        assert_eq!(lines.len(), LINES);
        assert!(lines[0].ends_with("no database") && lines[LINES - 1].ends_with("Main.java:49)"), "{lines:?}");
    }

    #[test]
    fn output_from_before_a_restart_is_kept() {
        let tails: Vec<Tail> = (0..3).map(|_| Tail::hiding(Secrets::default()).keeping_more()).collect();
        said(&tails[0], "first");
        tails[1].follows(&tails[0]);
        said(&tails[1], "second");
        tails[2].follows(&tails[1]);
        said(&tails[2], "third");
        assert_eq!(tails[2].earlier(), ["first", "second"]);
        assert_eq!(tails[2].lines(), ["third"], "its last words are its own");
    }

    #[test]
    fn a_secret_that_a_server_writes_is_not_kept() {
        let tail = Tail::hiding(Secrets::default().with(["hunter2-and-more"]));
        let server = ServerName::new("db").unwrap();
        let padding = "x".repeat(LINE_WIDTH - 8);
        for said in ["bad token hunter2-and-more!".to_owned(), format!("{padding}hunter2-and-more")] {
            tail.add(&server, &Line::Whole(said.into_bytes().into()));
        }
        assert_eq!(tail.lines(), ["bad token ***!".to_owned(), format!("{padding}***")]);
    }
}
