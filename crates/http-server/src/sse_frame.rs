//! A message framed as an event of a stream, from which the bare message can be extracted again.
//!
//! Whether a response is sent as plain JSON or as an event is decided after it was packed. So the frame of the event
//! is put around it in the same buffer, and omitted where it is not needed: small messages are copied once, large ones
//! never.

use std::io::Write;

use aggregator::client_sink::Message;
use bytes::{Buf, Bytes};
use protocol::splice::{Piece, splice};

/// Slices of at least this size are shared instead of being copied.
const WORTH_SHARING: usize = 8 << 10;

const TAIL: &[u8] = b"\n\n";

/// A message in its frame.
#[derive(Debug, Clone)]
pub(crate) struct SseFrame {
    pieces: Pieces,
    /// Bytes of the frame in front of the message.
    head: usize,
}

/// Consecutive slices.
#[derive(Debug, Clone)]
pub(crate) enum Pieces {
    One(Bytes),
    Several(Vec<Bytes>),
}

/// The position of an event: its stream, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventId {
    pub(crate) stream: u32,
    pub(crate) number: u32,
}

impl EventId {
    /// Parses an id that a client returns. Only our own format is accepted.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (stream, number) = text.split_once('-')?;
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        (is_plain(stream) && is_plain(number))
            .then(|| Some(Self { stream: stream.parse().ok()?, number: number.parse().ok()? }))?
    }
}

impl std::fmt::Display for EventId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}-{}", self.stream, self.number)
    }
}

impl SseFrame {
    /// Frames a message, with an id if the stream can be resumed.
    pub(crate) fn pack(id: Option<EventId>, message: &Message<'_>) -> Self {
        let mut packing = Packing { done: Vec::new(), open: Vec::new() };
        packing.open.reserve(64 + copied_length(message));
        packing.open.extend_from_slice(b"event: message\n");
        if let Some(id) = id {
            writeln!(packing.open, "id: {id}").expect("a vector takes everything");
        }
        packing.open.extend_from_slice(b"data: ");
        let head = packing.open.len();
        packing.add_message(message, head);
        packing.open.extend_from_slice(TAIL);
        Self { pieces: packing.finish(), head }
    }

    /// Its size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// The slices of the event.
    pub(crate) fn event(&self) -> &[Bytes] {
        self.pieces.as_slice()
    }

    /// The message without its frame.
    pub(crate) fn into_message(self) -> Pieces {
        match self.pieces {
            Pieces::One(bytes) => Pieces::One(bytes.slice(self.head..bytes.len() - TAIL.len())),
            Pieces::Several(mut pieces) => {
                if let Some(first) = pieces.first_mut() {
                    first.advance(self.head);
                }
                if let Some(last) = pieces.last_mut() {
                    last.truncate(last.len() - TAIL.len());
                }
                pieces.retain(|piece| !piece.is_empty());
                Pieces::Several(pieces)
            }
        }
    }
}

impl Pieces {
    pub(crate) fn as_slice(&self) -> &[Bytes] {
        match self {
            Self::One(piece) => std::slice::from_ref(piece),
            Self::Several(pieces) => pieces,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.as_slice().iter().map(Bytes::len).sum()
    }
}

struct Packing {
    done: Vec<Bytes>,
    open: Vec<u8>,
}

impl Packing {
    fn add_message(&mut self, message: &Message<'_>, head: usize) {
        match message {
            Message::Own(bytes) => self.copy(bytes),
            Message::Parts(parts) => parts.iter().for_each(|part| self.add(part)),
            Message::Spliced { line, edits } => splice(line.len(), edits, |piece| match piece {
                Piece::New(bytes) => self.copy(bytes),
                Piece::Kept(span) if span.end - span.start < WORTH_SHARING => self.copy(span.of(line)),
                Piece::Kept(span) => self.add(&line.slice(span.start..span.end)),
            }),
        }
        // The newline at the end belongs to other transports. It was replaced like any other.
        let from = if self.done.is_empty() { head } else { 0 };
        if self.open.len() > from && self.open.last() == Some(&b' ') {
            self.open.pop();
        }
    }

    fn add(&mut self, part: &Bytes) {
        let is_shared = part.len() >= WORTH_SHARING && memchr::memchr2(b'\n', b'\r', part).is_none();
        if !is_shared {
            return self.copy(part);
        }
        self.done.push(Bytes::from(std::mem::take(&mut self.open)));
        self.done.push(part.clone());
    }

    /// Line ends would end the event. In valid JSON they occur only between tokens, where a space is equivalent.
    fn copy(&mut self, bytes: &[u8]) {
        let from = self.open.len();
        self.open.extend_from_slice(bytes);
        let mut rest = &mut self.open[from..];
        while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
            rest[at] = b' ';
            rest = &mut rest[at + 1..];
        }
    }

    fn finish(mut self) -> Pieces {
        let last = Bytes::from(self.open);
        if self.done.is_empty() {
            return Pieces::One(last);
        }
        self.done.push(last);
        Pieces::Several(self.done)
    }
}

/// The approximate size of the copied slices of a message.
fn copied_length(message: &Message<'_>) -> usize {
    match message {
        Message::Own(bytes) => bytes.len(),
        Message::Parts(parts) => parts.iter().map(Bytes::len).filter(|&length| length < WORTH_SHARING).sum(),
        Message::Spliced { line, .. } => line.len().min(2 * WORTH_SHARING),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Span;
    use protocol::splice::Edit;

    fn text(pieces: &[Bytes]) -> String {
        String::from_utf8(pieces.concat()).unwrap()
    }

    fn message(frame: SseFrame) -> String {
        text(frame.into_message().as_slice())
    }

    #[test]
    fn a_message_is_an_event_and_can_be_taken_out_again() {
        let id = EventId { stream: 7, number: 3 };
        let frame = SseFrame::pack(Some(id), &Message::Own(b"{\"a\":1}\n"));
        assert_eq!(text(frame.event()), "event: message\nid: 7-3\ndata: {\"a\":1}\n\n");
        assert_eq!(frame.len(), frame.event()[0].len());
        assert_eq!(message(frame), "{\"a\":1}");
    }

    #[test]
    fn large_stretches_are_shared_and_small_ones_copied() {
        let large = Bytes::from(vec![b'x'; WORTH_SHARING]);
        let line = Bytes::from([b"<", &large[..], b">"].concat());
        let edits = [Edit { span: Span { start: 0, end: 1 }, with: b"[" }];
        let frame = SseFrame::pack(None, &Message::Spliced { line: &line, edits: &edits });
        assert_eq!(frame.event().len(), 3);
        assert_eq!(frame.event()[1].as_ptr(), line[1..].as_ptr());
        assert_eq!(message(frame), format!("[{}>", text(std::slice::from_ref(&large))));

        let parts = [Bytes::from_static(b"{"), large.clone(), Bytes::from_static(b"}\n")];
        let frame = SseFrame::pack(None, &Message::Parts(&parts));
        assert_eq!(frame.event()[1].as_ptr(), large.as_ptr());
        assert_eq!(message(frame), format!("{{{}}}", text(std::slice::from_ref(&large))));
    }

    #[test]
    fn line_ends_between_tokens_do_not_end_the_event() {
        let pretty = Bytes::from(format!("{{\r\n\"a\":\n\"{}\"}}", "x".repeat(WORTH_SHARING)));
        let frame = SseFrame::pack(None, &Message::Spliced { line: &pretty, edits: &[] });
        assert_eq!(text(frame.event()).matches('\n').count(), 3);
        assert_eq!(message(frame), text(std::slice::from_ref(&pretty)).replace(['\r', '\n'], " "));
    }

    #[test]
    fn only_event_ids_of_ours_are_understood() {
        assert_eq!(EventId::parse("12-34"), Some(EventId { stream: 12, number: 34 }));
        for foreign in ["", "-", "1", "1-", "-1", "a-1", "1-2-3", "+1-2", "99999999999-1", "1_2"] {
            assert_eq!(EventId::parse(foreign), None, "{foreign}");
        }
    }
}
