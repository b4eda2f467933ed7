//! Reads HTTP/1.1 responses, as far as an MCP client needs it: a length or chunks, JSON or an event stream.

use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};

/// One whole response at the start of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The value of `Mcp-Session-Id`.
    pub(crate) session: Option<String>,
    pub(crate) body: Body,
    /// How many bytes it takes, head and body.
    pub(crate) length: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// It stands in the bytes as it is.
    There(Range<usize>),
    /// It had to be put together.
    Decoded(Vec<u8>),
}

impl Response {
    /// `None` if more bytes have to come.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<Self>> {
        const END_OF_HEAD: &[u8] = b"\r\n\r\n";
        let Some(end) = memchr::memmem::find(bytes, END_OF_HEAD) else {
            return Ok(None);
        };
        let head = Head::read(&bytes[..end])?;
        let start = end + END_OF_HEAD.len();
        let (body, length) = if head.is_chunked {
            let Some((body, length)) = join_chunks(&bytes[start..])? else {
                return Ok(None);
            };
            (Body::Decoded(body), start + length)
        } else {
            let length = start + head.content_length;
            if bytes.len() < length {
                return Ok(None);
            }
            (Body::There(start..length), length)
        };
        let body = if head.is_event_stream { Body::Decoded(answer_among_events(body.of(bytes))?) } else { body };
        Ok(Some(Self { status: head.status, session: head.session, body, length }))
    }
}

impl Body {
    pub(crate) fn of<'a>(&'a self, bytes: &'a [u8]) -> &'a [u8] {
        match self {
            Self::There(range) => &bytes[range.clone()],
            Self::Decoded(body) => body,
        }
    }
}

#[derive(Default)]
struct Head {
    status: u16,
    content_length: usize,
    is_chunked: bool,
    is_event_stream: bool,
    session: Option<String>,
}

impl Head {
    fn read(head: &[u8]) -> Result<Self> {
        let head = std::str::from_utf8(head).context("wrong answer: the head of a response is no text")?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok());
        let mut read =
            Self { status: status.with_context(|| format!("wrong answer: no HTTP: {head}"))?, ..Self::default() };
        for line in lines {
            let Some((name, value)) = line.split_once(':') else {
                bail!("wrong answer: no header: {line}");
            };
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                read.content_length = value.parse().context("wrong answer: a content length is a number")?;
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                read.is_chunked = value.eq_ignore_ascii_case("chunked");
            } else if name.eq_ignore_ascii_case("content-type") {
                read.is_event_stream = value.starts_with("text/event-stream");
            } else if name.eq_ignore_ascii_case("mcp-session-id") {
                read.session = Some(value.to_owned());
            }
        }
        Ok(read)
    }
}

/// The chunks' contents and how many bytes they take; `None` before the last one has come.
fn join_chunks(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>> {
    let mut joined = Vec::new();
    let mut at = 0;
    loop {
        let Some(end) = memchr::memmem::find(&bytes[at..], b"\r\n") else {
            return Ok(None);
        };
        let size = std::str::from_utf8(&bytes[at..at + end]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
        let size = size.context("wrong answer: a chunk without a size")?;
        let start = at + end + 2;
        let Some(chunk) = bytes.get(start..start + size + 2) else {
            return Ok(None);
        };
        ensure!(chunk.ends_with(b"\r\n"), "wrong answer: a chunk longer than it said, or trailers");
        at = start + chunk.len();
        if size == 0 {
            return Ok(Some((joined, at)));
        }
        joined.extend_from_slice(&chunk[..size]);
    }
}

/// The event that is no request or notification. Messages of MCP stand on one line, and so has each event one `data`.
fn answer_among_events(stream: &[u8]) -> Result<Vec<u8>> {
    let lines = stream.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b"data:"));
    let answer = lines.map(<[u8]>::trim_ascii).find(|data| !data.is_empty() && crate::call::is_answer(data));
    Ok(answer.context("wrong answer: a stream ended without it")?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> (Response, String) {
        let response = Response::read(text.as_bytes()).unwrap().unwrap();
        let body = String::from_utf8(response.body.of(text.as_bytes()).to_vec()).unwrap();
        (response, body)
    }

    #[test]
    fn a_response_is_read_when_all_of_it_is_there() {
        let text =
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMCP-Session-Id: s1\r\ncontent-length: 2\r\n\r\n{}";
        for end in 0..text.len() {
            assert_eq!(Response::read(&text.as_bytes()[..end]).unwrap(), None);
        }
        let followed = format!("{text}HTTP/1.1");
        let (response, body) = whole(&followed);
        assert_eq!((response.status, response.session.as_deref(), response.length), (200, Some("s1"), text.len()));
        assert_eq!(body, "{}");
    }

    #[test]
    fn a_response_without_a_length_has_no_body() {
        let (response, body) = whole("HTTP/1.1 202 Accepted\r\n\r\n");
        assert_eq!((response.status, body.as_str()), (202, ""));
    }

    #[test]
    fn chunks_are_joined_when_the_last_one_is_there() {
        let text = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{\"a\r\nA\r\n\":\"\r\n12345\r\n0\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(Response::read(&text.as_bytes()[..end]).unwrap(), None);
        }
        let (response, body) = whole(text);
        assert_eq!((body.as_str(), response.length), ("{\"a\":\"\r\n12345", text.len()));
    }

    #[test]
    fn the_answer_is_found_in_an_event_stream() {
        let events = "id: 1\ndata:\n\ndata: {\"method\":\"notifications/x\"}\n\nevent: message\ndata: {\"id\":1}\n\n";
        let length = events.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {length}\r\n\r\n");
        assert_eq!(whole(&format!("{head}{events}")).1, "{\"id\":1}");
        assert!(Response::read(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n").is_err());
    }

    #[test]
    fn what_is_no_http_is_refused() {
        for text in [
            "hello\r\n\r\n",
            "HTTP/1.1 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nnothing\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nx\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc\r\n",
        ] {
            assert!(Response::read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
