//! Server-sent events: the framing of event streams over HTTP.

use bytes::{Buf, Bytes, BytesMut};

/// One event of a stream.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Event {
    /// The type; empty for a plain message.
    pub kind: String,
    /// The data. Several lines are joined by newlines.
    pub data: Bytes,
    /// The id from which to resume the stream.
    pub id: Option<String>,
    /// The delay before reconnecting, in milliseconds.
    pub retry: Option<u64>,
}

/// Splits a stream of bytes into events.
#[derive(Debug, Default)]
pub struct Events {
    buffer: BytesMut,
    /// The start of the buffer that was already searched for a line end.
    searched: usize,
    /// Whether the last line ended with a carriage return; a line feed right after it belongs to it.
    after_return: bool,
    /// The incomplete event, and whether it has any field.
    event: Event,
    is_open: bool,
    data: Data,
}

/// The data of the incomplete event. One line stays where it is in memory; several are copied together.
#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    Line(Bytes),
    Lines(BytesMut),
}

impl Data {
    fn add(&mut self, line: Bytes) {
        *self = match std::mem::take(self) {
            Self::None => Self::Line(line),
            Self::Line(first) => {
                let mut lines = BytesMut::with_capacity(first.len() + line.len() + 1);
                for part in [&first[..], b"\n", &line] {
                    lines.extend_from_slice(part);
                }
                Self::Lines(lines)
            }
            Self::Lines(mut lines) => {
                lines.extend_from_slice(b"\n");
                lines.extend_from_slice(&line);
                Self::Lines(lines)
            }
        };
    }

    fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Line(line) => line.len(),
            Self::Lines(lines) => lines.len(),
        }
    }

    fn finish(self) -> Bytes {
        match self {
            Self::None => Bytes::new(),
            Self::Line(line) => line,
            Self::Lines(lines) => lines.freeze(),
        }
    }
}

impl Events {
    /// Appends received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The size of the incomplete event in bytes, for limits.
    pub fn pending(&self) -> usize {
        self.buffer.len() + self.data.len()
    }

    /// The next complete event. An event without data, but with an id or a delay, counts: it says where and when to
    /// resume.
    pub fn next_event(&mut self) -> Option<Event> {
        while let Some(line) = self.next_line() {
            if !line.is_empty() {
                self.field(&line);
            } else if std::mem::take(&mut self.is_open) {
                let data = std::mem::take(&mut self.data).finish();
                return Some(Event { data, ..std::mem::take(&mut self.event) });
            }
        }
        None
    }

    /// A line without its end, which is a line feed, a carriage return, or both.
    fn next_line(&mut self) -> Option<Bytes> {
        if self.after_return && !self.buffer.is_empty() {
            self.after_return = false;
            if self.buffer[0] == b'\n' {
                self.buffer.advance(1);
            }
        }
        let Some(found) = memchr::memchr2(b'\n', b'\r', &self.buffer[self.searched..]) else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.searched + found).freeze();
        self.searched = 0;
        self.after_return = self.buffer[0] == b'\r';
        self.buffer.advance(1);
        Some(line)
    }

    fn field(&mut self, line: &Bytes) {
        let colon = memchr::memchr(b':', line);
        let name = &line[..colon.unwrap_or(line.len())];
        let mut value = colon.map_or_else(Bytes::new, |colon| line.slice(colon + 1..));
        if value.first() == Some(&b' ') {
            value.advance(1);
        }
        let text = || String::from_utf8_lossy(&value).into_owned();
        match name {
            b"data" => self.data.add(value),
            b"event" => self.event.kind = text(),
            b"id" if !value.contains(&0) => self.event.id = Some(text()),
            b"retry" => self.event.retry = text().parse().ok(),
            // A comment, or an unknown field.
            _ => return,
        }
        self.is_open = true;
    }
}

/// Splits a stream as a whole and in small pieces, for the fuzz target `sse` and the test that replays its corpus.
/// Panics if the events are inconsistent.
pub fn check_stream(data: &[u8]) {
    let mut whole = Events::default();
    whole.push(data);
    let expected: Vec<Event> = std::iter::from_fn(|| whole.next_event()).collect();
    assert!(whole.pending() <= data.len(), "no more is pending than has come");
    let total: usize = expected.iter().map(|event| event.data.len()).sum();
    assert!(total <= data.len(), "events say no more than has come");
    // The first byte decides how the stream is split.
    let piece = 1 + usize::from(data.first().copied().unwrap_or_default());
    let (mut pieces, mut got) = (Events::default(), Vec::new());
    for part in data.chunks(piece) {
        pieces.push(part);
        got.extend(std::iter::from_fn(|| pieces.next_event()));
    }
    assert_eq!(got, expected, "events depend on how they arrive");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_stream_of_the_fuzz_corpus_is_read() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/sse");
        let mut count = 0;
        for file in std::fs::read_dir(corpus).expect("the corpus is part of the repository") {
            check_stream(&std::fs::read(file.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count >= 15, "only {count} streams");
    }

    fn all(stream: &[u8]) -> Vec<Event> {
        let mut events = Events::default();
        events.push(stream);
        std::iter::from_fn(|| events.next_event()).collect()
    }

    fn message(data: &'static str) -> Event {
        Event { data: Bytes::from_static(data.as_bytes()), ..Event::default() }
    }

    #[test]
    fn events_are_separated_with_all_their_fields() {
        let stream =
            b": hello\n\nevent: endpoint\ndata: /x\nid: 7\nretry: 50\n\ndata:a\ndata: b\ndata\n\nid: 8\n\ndata: cut";
        let endpoint = Event { kind: "endpoint".into(), id: Some("7".into()), retry: Some(50), ..message("/x") };
        let only_id = Event { id: Some("8".into()), ..Event::default() };
        assert_eq!(all(stream), [endpoint, message("a\nb\n"), only_id]);
    }

    #[test]
    fn every_line_end_counts() {
        for stream in [&b"data: a\n\ndata: b\n\n"[..], b"data: a\r\n\r\ndata: b\r\n\r\n", b"data: a\r\rdata: b\r\r"] {
            assert_eq!(all(stream), [message("a"), message("b")], "{stream:?}");
        }
    }

    proptest! {
        #[test]
        fn events_do_not_depend_on_how_they_arrive(
            lines in prop::collection::vec("(data: ?|id: |event:|: )?[a-z]{0,5}(\n|\r\n|\r)", 0..20),
            cuts in prop::collection::vec(1usize..5, 1..40)
        ) {
            let stream = lines.concat() + "\n\n";
            let expected = all(stream.as_bytes());
            let (mut events, mut got, mut at) = (Events::default(), Vec::new(), 0);
            for cut in cuts.iter().cycle() {
                let end = (at + cut).min(stream.len());
                events.push(&stream.as_bytes()[at..end]);
                got.extend(std::iter::from_fn(|| events.next_event()));
                at = end;
                if at == stream.len() { break; }
            }
            prop_assert_eq!(got, expected);
        }
    }
}
