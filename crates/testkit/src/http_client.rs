//! A small HTTP/1.1 client over plain sockets, without any automatic behaviour.
//!
//! - `HttpRequest`: a request to send; [`Connection`]: a socket that carries one after the other; [`Answer`]: the
//!   response
//! - `body`: bodies of every framing, whole or in pieces; `events`: server-sent events
//!
//! A test may stop reading in the middle, close in the middle, or write invalid HTTP.

mod body;
mod events;

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use serde_json::Value;

use crate::DEADLINE;
use crate::driver::shown;
use body::Body;
pub use events::Event;

/// A request about to be sent.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

/// One connection. Dropping it closes it.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

/// The head of a response, and access to its body. The connection can be used again after the whole body was read.
#[derive(Debug)]
pub struct Answer<'c> {
    /// The status code.
    pub status: u16,
    headers: BTreeMap<String, String>,
    body: Body<'c>,
}

impl HttpRequest {
    /// A request of this HTTP method.
    pub fn new(method: &str, path: &str) -> Self {
        Self { method: method.to_owned(), path: path.to_owned(), headers: Vec::new(), body: None }
    }

    /// A POST of a JSON-RPC message with the headers every well-behaved client sends.
    pub fn post(path: &str, message: impl AsRef<[u8]>) -> Self {
        Self::new("POST", path)
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream")
            .body(message)
    }

    /// A GET for a stream of events.
    pub fn stream(path: &str) -> Self {
        Self::new("GET", path).header("Accept", "text/event-stream")
    }

    /// Adds a header, or replaces the one of this name.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self = self.without(name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Removes a header.
    pub fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = Some(body.as_ref().to_vec());
        self
    }

    /// The bytes that go on the wire. `Host` and `Content-Length` are ours unless they were given.
    pub fn to_bytes(&self, address: SocketAddr) -> Vec<u8> {
        let given = |name: &str| self.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if !given("host") {
            head += &format!("Host: {address}\r\n");
        }
        if let Some(body) = &self.body
            && !given("content-length")
            && !given("transfer-encoding")
        {
            head += &format!("Content-Length: {}\r\n", body.len());
        }
        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += "\r\n";
        [head.as_bytes(), self.body.as_deref().unwrap_or_default()].concat()
    }
}

impl Connection {
    /// Connects.
    #[track_caller]
    pub fn open(address: SocketAddr) -> Self {
        Self::try_open(address).unwrap_or_else(|error| panic!("could not connect to {address}: {error}"))
    }

    /// Connects, if there is a listener.
    pub fn try_open(address: SocketAddr) -> io::Result<Self> {
        let writer = TcpStream::connect(address)?;
        writer.set_nodelay(true)?;
        // Every read has a timeout, which fails the test.
        writer.set_read_timeout(Some(DEADLINE))?;
        writer.set_write_timeout(Some(DEADLINE))?;
        Ok(Self { reader: BufReader::new(writer.try_clone()?), writer })
    }

    /// Sends a request and reads the head of its answer.
    #[track_caller]
    pub fn ask(&mut self, ask: &HttpRequest) -> Answer<'_> {
        self.send(ask);
        self.answer()
    }

    /// Sends a request, without waiting for its answer.
    #[track_caller]
    pub fn send(&mut self, ask: &HttpRequest) {
        let address = self.writer.peer_addr().expect("a connected socket has a peer");
        self.write(&ask.to_bytes(address)).unwrap_or_else(|error| panic!("could not send {ask:?}: {error}"));
    }

    /// Sends a request, and waits for no answer.
    pub fn try_send(&mut self, ask: &HttpRequest) -> io::Result<()> {
        let address = self.writer.peer_addr()?;
        self.write(&ask.to_bytes(address))
    }

    /// Sends a request and reads its whole response. `None` if the connection closes before that.
    pub fn try_fetch(&mut self, ask: &HttpRequest) -> Option<(u16, Vec<u8>)> {
        self.try_send(ask).ok()?;
        let mut answer = self.try_answer().ok()??;
        Some((answer.status, answer.try_bytes().ok()?))
    }

    /// Writes these bytes, valid HTTP or not.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)
    }

    /// Reads the head of the next answer.
    #[track_caller]
    pub fn answer(&mut self) -> Answer<'_> {
        match self.try_answer() {
            Ok(Some(answer)) => answer,
            Ok(None) => panic!("the connection was closed instead of an answer"),
            Err(error) => panic!("no answer came: {error}"),
        }
    }

    /// Reads the head of the next answer. `None` if the connection was closed instead.
    pub fn try_answer(&mut self) -> io::Result<Option<Answer<'_>>> {
        let line = match read_line(&mut self.reader) {
            Err(error) if is_broken(&error) => return Ok(None),
            line => line?,
        };
        if line.is_empty() {
            return Ok(None);
        }
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|code| code.parse().ok());
        let status: u16 = status.ok_or_else(|| malformed(&format!("the status line `{line}`")))?;
        let headers = read_headers(&mut self.reader)?;
        let body = Body::of(status, &headers, &mut self.reader)?;
        Ok(Some(Answer { status, headers, body }))
    }

    /// Waits until the other side has closed the connection; what it still wrote is returned.
    #[track_caller]
    pub fn wait_closed(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Err(error) if !is_broken(&error) => panic!("the connection was not closed: {error}"),
            _ => rest,
        }
    }

    /// Something that can write to the connection from another thread.
    pub fn writer(&self) -> TcpStream {
        self.writer.try_clone().expect("a test has file descriptors to spare")
    }

    /// Something that can close the connection from another thread.
    pub fn closer(&self) -> Closer {
        Closer { socket: self.writer.try_clone().expect("a test has file descriptors to spare") }
    }
}

/// Closes a connection that another thread reads.
#[derive(Debug)]
pub struct Closer {
    socket: TcpStream,
}

impl Closer {
    /// Closes it, both ways.
    pub fn close(&self) {
        // It fails if the other side closed it first.
        self.socket.shutdown(Shutdown::Both).ok();
    }
}

impl Answer<'_> {
    /// The value of a header, whose name is given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// All headers, names in lower case. Values of a repeated header are joined by `, `.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.headers
    }

    /// Whether the body is of this type, parameters aside.
    pub fn is_of_type(&self, content_type: &str) -> bool {
        self.header("content-type").is_some_and(|found| found.split(';').next() == Some(content_type))
    }

    /// Whether it is an event stream.
    pub fn is_stream(&self) -> bool {
        self.is_of_type("text/event-stream")
    }

    /// The whole body.
    #[track_caller]
    pub fn bytes(&mut self) -> Vec<u8> {
        self.try_bytes().unwrap_or_else(|error| panic!("the body of an answer {} broke off: {error}", self.status))
    }

    /// The whole body, unless the connection breaks first.
    pub fn try_bytes(&mut self) -> io::Result<Vec<u8>> {
        let mut whole = Vec::new();
        while let Some(piece) = self.body.next_piece()? {
            whole.extend(piece);
        }
        Ok(whole)
    }

    /// The whole body as JSON.
    #[track_caller]
    pub fn json(&mut self) -> Value {
        let bytes = self.bytes();
        let status = self.status;
        serde_json::from_slice(&bytes).unwrap_or_else(|error| panic!("{error} in the {status} body {}", shown(&bytes)))
    }

    /// The next event. `None` at the end of the stream, complete or not.
    pub fn next_event(&mut self) -> Option<Event> {
        events::next(&mut self.body)
    }

    /// The next event that carries a message. `None` at the end of the stream.
    pub fn next_message(&mut self) -> Option<Event> {
        std::iter::from_fn(|| self.next_event()).find(|event| !event.data.is_empty())
    }

    /// The next event that carries a message of this JSON-RPC method, or an answer if `None`.
    #[track_caller]
    pub fn message(&mut self, method: Option<&str>) -> Value {
        loop {
            let event = self.next_message().unwrap_or_else(|| panic!("the stream ended before {method:?} came"));
            let message = event.json();
            if message.get("method").and_then(Value::as_str) == method {
                return message;
            }
        }
    }
}

fn read_headers(reader: &mut impl BufRead) -> io::Result<BTreeMap<String, String>> {
    let mut headers = BTreeMap::<String, String>::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            return Ok(headers);
        }
        let (name, value) = line.split_once(':').ok_or_else(|| malformed(&format!("the header `{line}`")))?;
        let value = value.trim();
        headers
            .entry(name.to_ascii_lowercase())
            .and_modify(|earlier| *earlier = format!("{earlier}, {value}"))
            .or_insert_with(|| value.to_owned());
    }
}

/// A line without its end; empty at the end of the input.
fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    line.truncate(line.trim_end_matches(['\r', '\n']).len());
    Ok(line)
}

fn is_broken(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted)
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("{what} is malformed"))
}
