//! Newline-delimited framing over a growing buffer.
//!
//! A reader fills [`Lines::space`] and takes complete lines with [`Lines::next_line`]. A line is split off the buffer
//! as shared bytes, so a 50 MB result is in memory once, and its buffer is freed with it.

use bytes::{Bytes, BytesMut};

/// The maximum size of a message. Far above any real result; it keeps a faulty server from using up the memory.
pub const LONGEST_LINE: usize = 512 << 20;

/// The capacity of a new buffer. Small on purpose: fifty idle servers have fifty of these.
const READ_ROOM: usize = 8 << 10;

/// The minimum space for a read, before the buffer is renewed or grown.
const LEAST_ROOM: usize = 2 << 10;

/// A line longer than this takes its buffer with it.
const LARGE: usize = 64 << 10;

/// How much of each end of an over-long line is kept, to find its id.
const ENDS_KEPT: usize = 1 << 10;

/// Splits a stream of bytes into lines.
#[derive(Debug)]
pub struct Lines {
    buffer: BytesMut,
    /// The start of the buffer that was already searched for a newline.
    searched: usize,
    longest: usize,
    skipping: Option<Skipped>,
}

/// An item of the stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A line without its end (`\n` or `\r\n`).
    Whole(Bytes),
    /// A line beyond the limit: its start, its end and its length. The rest is dropped.
    TooLong {
        /// The first bytes.
        head: Bytes,
        /// The last bytes.
        tail: Bytes,
        /// The length in bytes.
        length: usize,
    },
}

#[derive(Debug)]
struct Skipped {
    head: Bytes,
    length: usize,
}

impl Default for Lines {
    fn default() -> Self {
        Self::with_limit(LONGEST_LINE)
    }
}

impl Lines {
    /// Splits into lines of at most `longest` bytes.
    pub fn with_limit(longest: usize) -> Self {
        Self { buffer: BytesMut::new(), searched: 0, longest, skipping: None }
    }

    /// The buffer for the next read: append to it, never remove from it.
    pub fn space(&mut self) -> &mut BytesMut {
        // An empty buffer restarts at its beginning, so that a message as large as the last one fits into one read.
        if self.buffer.is_empty() || self.buffer.capacity() - self.buffer.len() < LEAST_ROOM {
            self.buffer.reserve(READ_ROOM);
        }
        &mut self.buffer
    }

    /// The next complete line. Blank lines are skipped.
    pub fn next_line(&mut self) -> Option<Line> {
        loop {
            let Some(found) = memchr::memchr(b'\n', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                self.drop_excess();
                return None;
            };
            let mut line = self.buffer.split_to(self.searched + found + 1);
            self.searched = 0;
            if line.len() > LARGE {
                // Bytes after the line are moved to a new buffer, so that the large one is freed with the line.
                self.buffer = BytesMut::from(&self.buffer[..]);
            }
            line.truncate(line.len() - 1);
            if let Some(skipped) = self.skipping.take() {
                return Some(too_long(skipped, line));
            }
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Some(Line::Whole(line.freeze()));
            }
        }
    }

    /// The bytes after the last newline when the stream ends: a message without its newline, or an incomplete one.
    pub fn rest(&mut self) -> Option<Line> {
        self.buffer.extend_from_slice(b"\n");
        self.next_line()
    }

    /// The size of the incomplete line in bytes, for limits.
    pub fn pending(&self) -> usize {
        self.buffer.len()
    }

    /// Drops the incomplete line: only its [`Line::TooLong`] remains.
    pub fn skip_line(&mut self) {
        self.searched = self.buffer.len();
        self.skip();
    }

    /// Keeps memory bounded while a line exceeds the limit.
    fn drop_excess(&mut self) {
        let is_skipping = self.skipping.is_some();
        if is_skipping || self.buffer.len() > self.longest {
            self.skip();
        }
    }

    fn skip(&mut self) {
        if self.buffer.len() < 4 * ENDS_KEPT {
            return;
        }
        let skipped = self
            .skipping
            .get_or_insert_with(|| Skipped { head: Bytes::copy_from_slice(&self.buffer[..ENDS_KEPT]), length: 0 });
        let kept = self.buffer.len() - ENDS_KEPT;
        skipped.length += kept;
        self.buffer = BytesMut::from(&self.buffer[kept..]);
        self.searched = self.buffer.len();
    }
}

fn too_long(skipped: Skipped, rest: BytesMut) -> Line {
    let length = skipped.length + rest.len();
    let tail = rest.freeze();
    Line::TooLong { head: skipped.head, tail: tail.slice(tail.len().saturating_sub(ENDS_KEPT)..), length }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(lines: &mut Lines) -> Vec<String> {
        std::iter::from_fn(|| lines.next_line())
            .map(|line| match line {
                Line::Whole(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
                Line::TooLong { length, .. } => format!("<{length}>"),
            })
            .collect()
    }

    #[test]
    fn ends_and_blanks_are_taken_off() {
        let mut lines = Lines::default();
        lines.space().extend_from_slice(b"a\r\n\n  \r\nb \nc");
        assert_eq!(whole(&mut lines), ["a", "b "]);
        assert_eq!(lines.rest(), Some(Line::Whole(Bytes::from_static(b"c"))));
        assert_eq!(lines.rest(), None);
    }

    #[test]
    fn a_line_beyond_the_limit_is_dropped_and_its_ends_are_kept() {
        let mut lines = Lines::with_limit(100_000);
        let long = format!("{{\"id\":1,{}\"end\"}}", "x".repeat(1_000_000));
        for chunk in long.as_bytes().chunks(7_000) {
            lines.space().extend_from_slice(chunk);
            assert_eq!(lines.next_line(), None);
            assert!(lines.buffer.len() < 120_000, "memory stays bounded");
        }
        lines.space().extend_from_slice(b"\nnext\n");
        let Some(Line::TooLong { head, tail, length }) = lines.next_line() else { panic!() };
        assert!(head.starts_with(b"{\"id\":1,x"));
        assert!(tail.ends_with(b"x\"end\"}"));
        assert_eq!(length, long.len());
        assert_eq!(whole(&mut lines), ["next"]);
    }

    #[test]
    fn a_large_line_leaves_no_large_buffer_behind() {
        let mut lines = Lines::default();
        lines.space().extend_from_slice(&vec![b'x'; 10 << 20]);
        lines.space().extend_from_slice(b"\nnext");
        assert!(matches!(lines.next_line(), Some(Line::Whole(line)) if line.len() == 10 << 20));
        assert_eq!(lines.next_line(), None);
        assert!(lines.space().capacity() < 64 << 10);
        lines.space().extend_from_slice(b" one\n");
        assert_eq!(whole(&mut lines), ["next one"]);
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_they_arrive(
            text in prop::collection::vec("[a-z{}\\r]{0,20}", 0..20), cuts in prop::collection::vec(1usize..9, 1..50)
        ) {
            let stream = text.iter().map(|line| format!("{line}\n")).collect::<String>();
            let mut at_once = Lines::default();
            at_once.space().extend_from_slice(stream.as_bytes());
            let expected = whole(&mut at_once);

            let (mut piecemeal, mut got, mut at) = (Lines::default(), Vec::new(), 0);
            for cut in cuts.iter().cycle() {
                let end = (at + cut).min(stream.len());
                piecemeal.space().extend_from_slice(&stream.as_bytes()[at..end]);
                got.extend(whole(&mut piecemeal));
                at = end;
                if at == stream.len() { break; }
            }
            prop_assert_eq!(got, expected);
        }
    }
}
