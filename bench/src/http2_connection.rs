//! The client's end of one MCP session over HTTP/2: one connection, and as many calls at once as are sent.
//!
//! Only what the benchmark needs of RFC 9113 and RFC 7541: no Huffman coding, no priorities, responses with status 200.

use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};

use crate::client_connection::ClientConnection;
use crate::inbox::Inbox;
use crate::service::Service;
use crate::stall;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW_SIZE: u16 = 4;
/// How many bytes either side may send before the other one allows more.
const INITIAL_WINDOW: i64 = 65_535;
const LARGEST_WINDOW: u32 = (1 << 31) - 1;
/// `:status: 200` in the static table of RFC 7541.
const STATUS_200: u8 = 0x88;

/// One client of a service that has opened its session over HTTP/1.1.
pub(crate) struct Http2Connection {
    stream: TcpStream,
    inbox: Inbox,
    outgoing: Vec<u8>,
    head: RequestHead,
    last_stream: u32,
    /// Bytes that may still be sent in bodies.
    send_window: i64,
    /// Bodies that are not complete, by stream.
    arriving: HashMap<u32, Vec<u8>>,
    arrived: VecDeque<Vec<u8>>,
    taken: Vec<u8>,
    last_id: u64,
    service: Arc<Service>,
}

impl Http2Connection {
    /// `last_id` is the last id that the session has used.
    pub(crate) fn open(service: Arc<Service>, session: &str, last_id: u64) -> Result<Self> {
        let mut stream = TcpStream::connect(service.address).context("could not connect to it")?;
        stream.set_nodelay(true).context("could not switch delays off")?;
        let mut opening = PREFACE.to_vec();
        let mut settings = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
        settings.extend(LARGEST_WINDOW.to_be_bytes());
        write_frame(&mut opening, SETTINGS, 0, 0, &settings);
        let more = LARGEST_WINDOW - u32::try_from(INITIAL_WINDOW)?;
        write_frame(&mut opening, WINDOW_UPDATE, 0, 0, &more.to_be_bytes());
        stream.write_all(&opening).context("could not write to it")?;
        Ok(Self {
            stream,
            inbox: Inbox::default(),
            outgoing: Vec::new(),
            head: RequestHead::new(&service.address.to_string(), session),
            last_stream: 0,
            send_window: INITIAL_WINDOW,
            arriving: HashMap::new(),
            arrived: VecDeque::new(),
            taken: Vec::new(),
            last_id,
            service,
        })
    }

    fn write_request(&mut self, body: &[u8]) -> Result<()> {
        let length = i64::try_from(body.len())?;
        while self.send_window < length {
            self.flush()?;
            self.fill()?;
        }
        self.send_window -= length;
        // Clients have odd numbers.
        self.last_stream += if self.last_stream == 0 { 1 } else { 2 };
        let head = self.head.next(body.len());
        write_frame(&mut self.outgoing, HEADERS, END_HEADERS, self.last_stream, &head);
        write_frame(&mut self.outgoing, DATA, END_STREAM, self.last_stream, body);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        stall::waiting_for(self.service.pid());
        let outcome = self.stream.write_all(&self.outgoing).context("could not write to it");
        stall::not_waiting();
        self.outgoing.clear();
        outcome
    }

    /// Reads one frame, if a whole one is there.
    fn take_frame(&mut self) -> Result<bool> {
        let unread = self.inbox.unread();
        let Some(&[a, b, c, kind, flags, s0, s1, s2, s3]) = unread.first_chunk::<FRAME_HEAD>() else {
            return Ok(false);
        };
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        let stream = u32::from_be_bytes([s0, s1, s2, s3]) & LARGEST_WINDOW;
        let Some(payload) = unread.get(FRAME_HEAD..FRAME_HEAD + length) else {
            return Ok(false);
        };
        match kind {
            HEADERS => {
                // A change of the table's size may come first.
                let status = payload.iter().find(|&&byte| byte & 0xe0 != 0x20);
                ensure!(status == Some(&STATUS_200), "wrong answer: its status is not 200");
                self.arriving.insert(stream, Vec::new());
            }
            DATA => {
                let body = self.arriving.get_mut(&stream).context("a body came before its head")?;
                body.extend_from_slice(payload);
                if flags & END_STREAM != 0 {
                    self.arrived.extend(self.arriving.remove(&stream));
                }
            }
            SETTINGS if flags & ACK == 0 => write_frame(&mut self.outgoing, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => write_frame(&mut self.outgoing, PING, ACK, 0, payload),
            WINDOW_UPDATE if stream == 0 => {
                let more = payload.first_chunk().context("a window update without a number")?;
                self.send_window += i64::from(u32::from_be_bytes(*more));
            }
            RST_STREAM | GOAWAY => bail!("it ended the request: {payload:?}"),
            _ => {}
        }
        self.inbox.take(FRAME_HEAD + length, 0..0);
        Ok(true)
    }
}

fn write_frame(to: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("what the benchmark sends is short").to_be_bytes();
    to.extend_from_slice(&length[1..]);
    to.extend_from_slice(&[kind, flags]);
    to.extend_from_slice(&stream.to_be_bytes());
    to.extend_from_slice(payload);
}

impl ClientConnection for Http2Connection {
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Sends one or several requests.
    fn send(&mut self, requests: &[u8]) -> Result<()> {
        for request in requests.split(|&byte| byte == b'\n').filter(|request| !request.is_empty()) {
            self.write_request(request)?;
        }
        self.flush()
    }

    fn fill(&mut self) -> Result<()> {
        self.inbox.fill(&mut self.stream, self.service.pid())?;
        while self.take_frame()? {}
        if self.outgoing.is_empty() { Ok(()) } else { self.flush() }
    }

    fn take(&mut self) -> Result<bool> {
        let Some(body) = self.arrived.pop_front() else { return Ok(false) };
        ensure!(body.first() == Some(&b'{'), "wrong answer: {}", String::from_utf8_lossy(&body));
        self.taken = body;
        Ok(true)
    }

    fn taken(&self) -> &[u8] {
        &self.taken
    }
}

impl AsFd for Http2Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The headers of requests. As clients do, the first request puts them into the table of the connection, and all others
/// refer to it.
struct RequestHead {
    first: Option<Vec<u8>>,
    others: Vec<u8>,
}

/// `:method: POST` and `:scheme: http` in the static table.
const POST_OVER_HTTP: [u8; 2] = [0x83, 0x86];
/// The first place in the table of the connection, where the header is that was added last.
const NEWEST: u8 = 62;
const INDEXED: u8 = 0x80;
const ADDED: u8 = 0x40;
/// A literal that is not added, with the name `content-length` of the static table: 15 and 13 more.
const CONTENT_LENGTH: [u8; 2] = [0x0f, 13];

impl RequestHead {
    fn new(authority: &str, session: &str) -> Self {
        // By their places in the static table, where they have one.
        let headers = [
            (Err(4), "/mcp"),
            (Err(1), authority),
            (Err(31), "application/json"),
            (Err(19), "application/json, text/event-stream"),
            (Ok("mcp-protocol-version"), "2025-11-25"),
            (Ok("mcp-session-id"), session),
        ];
        let mut first = POST_OVER_HTTP.to_vec();
        for (name, value) in headers {
            match name {
                Err(place) => first.push(ADDED | place),
                Ok(name) => {
                    first.push(ADDED);
                    write_text(&mut first, name);
                }
            }
            write_text(&mut first, value);
        }
        let mut others = POST_OVER_HTTP.to_vec();
        others.extend((0..6).rev().map(|place| INDEXED | (NEWEST + place)));
        Self { first: Some(first), others }
    }

    fn next(&mut self, length: usize) -> Vec<u8> {
        let mut head = self.first.take().unwrap_or_else(|| self.others.clone());
        head.extend_from_slice(&CONTENT_LENGTH);
        write_text(&mut head, &length.to_string());
        head
    }
}

fn write_text(to: &mut Vec<u8>, text: &str) {
    let length = u8::try_from(text.len()).ok().filter(|&length| length < 0x7f);
    to.push(length.expect("what the benchmark sends is short"));
    to.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_stand_as_literals_once_and_as_places_in_the_table_afterwards() {
        let mut head = RequestHead::new("127.0.0.1:1", "s");
        let first = head.next(7);
        assert!(first.starts_with(b"\x83\x86\x44\x04/mcp\x41\x0b127.0.0.1:1\x5f\x10application/json\x53"), "{first:?}");
        assert!(first.ends_with(b"\x40\x0emcp-session-id\x01s\x0f\x0d\x017"), "{first:?}");
        assert_eq!(head.next(12), b"\x83\x86\xc3\xc2\xc1\xc0\xbf\xbe\x0f\x0d\x0212");
    }
}
