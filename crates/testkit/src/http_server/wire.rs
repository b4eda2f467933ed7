//! HTTP/1.1 as far as this server needs it.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};

use crate::raw;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    /// `GET`, `POST`, `DELETE`...
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The headers, names in lower case. Values of a repeated header are joined by `, `.
    pub headers: BTreeMap<String, String>,
    /// The body, without the framing it came in.
    pub body: Vec<u8>,
    /// On which connection it came, counted from 1.
    pub connection: usize,
}

impl Request {
    /// The value of a header, whose name is given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The JSON-RPC method in the body.
    pub fn rpc_method(&self) -> Option<String> {
        raw::at(&self.body, &["method"]).and_then(raw::text)
    }

    /// Whether the body is a JSON-RPC message with this method.
    pub fn is(&self, rpc_method: &str) -> bool {
        self.rpc_method().is_some_and(|method| method == rpc_method)
    }

    /// The path without its query.
    pub(crate) fn bare_path(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }

    /// A value of the query, as it was written.
    pub(crate) fn query(&self, key: &str) -> Option<&str> {
        let (_, query) = self.path.split_once('?')?;
        query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
    }

    /// Whether the client will not use the connection again.
    pub(crate) fn is_last(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// Reads the next request. `None` if the client ended the connection between two of them.
    pub(crate) fn read(
        reader: &mut impl BufRead,
        writer: &mut impl Write,
        connection: usize,
    ) -> io::Result<Option<Self>> {
        let line = read_line(reader)?;
        if line.is_empty() {
            return Ok(None);
        }
        let mut words = line.split(' ');
        let (Some(method), Some(path), Some("HTTP/1.1")) = (words.next(), words.next(), words.next()) else {
            return Err(malformed("the request line"));
        };
        let (method, path) = (method.to_owned(), path.to_owned());
        let headers = read_headers(reader)?;
        let mut request = Self { method, path, headers, body: Vec::new(), connection };
        if request.header("expect").is_some() {
            writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        request.body = request.read_body(reader)?;
        Ok(Some(request))
    }

    fn read_body(&self, reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
        if self.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
            return read_chunks(reader);
        }
        let length = self.header("content-length").map_or(Ok(0), str::parse);
        read_exactly(reader, length.map_err(|_| malformed("the content length"))?)
    }
}

fn read_headers(reader: &mut impl BufRead) -> io::Result<BTreeMap<String, String>> {
    let mut headers = BTreeMap::<String, String>::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            return Ok(headers);
        }
        let (name, value) = line.split_once(':').ok_or_else(|| malformed("a header"))?;
        let value = value.trim();
        headers
            .entry(name.to_ascii_lowercase())
            .and_modify(|earlier| *earlier = format!("{earlier}, {value}"))
            .or_insert_with(|| value.to_owned());
    }
}

fn read_chunks(reader: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = read_line(reader)?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| malformed("the size of a chunk"))?;
        if size == 0 {
            read_headers(reader)?; // Trailers, or just the empty line.
            return Ok(body);
        }
        body.extend(read_exactly(reader, size)?);
        if !read_line(reader)?.is_empty() {
            return Err(malformed("the end of a chunk"));
        }
    }
}

fn read_exactly(reader: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A line without its end; empty at the end of the input.
fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    line.truncate(line.trim_end_matches(['\r', '\n']).len());
    Ok(line)
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} is malformed"))
}

/// The first half of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    status: u16,
    headers: Vec<(&'static str, String)>,
}

impl Head {
    pub(crate) fn new(status: u16) -> Self {
        Self { status, headers: Vec::new() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn json(self) -> Self {
        self.with("Content-Type", "application/json")
    }

    pub(crate) fn html(self) -> Self {
        self.with("Content-Type", "text/html; charset=utf-8")
    }

    pub(crate) fn events(self) -> Self {
        self.with("Content-Type", "text/event-stream").with("Cache-Control", "no-cache")
    }

    fn to_text(&self) -> String {
        let status = self.status;
        let mut text = format!("HTTP/1.1 {status} {}\r\n", reason(status));
        for (name, value) in &self.headers {
            text.extend([*name, ": ", value.as_str(), "\r\n"]);
        }
        text + "\r\n"
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "As Scripted",
    }
}

/// Writes a whole answer whose length is known.
pub(crate) fn write_whole(writer: &mut impl Write, head: Head, body: &[u8]) -> io::Result<()> {
    let head = head.with("Content-Length", body.len().to_string());
    writer.write_all(&[head.to_text().as_bytes(), body].concat())
}

/// Writes a head after which chunks follow.
pub(crate) fn begin_chunks(writer: &mut impl Write, head: Head) -> io::Result<()> {
    writer.write_all(head.with("Transfer-Encoding", "chunked").to_text().as_bytes())
}

/// Writes one chunk. An empty one would be the end, so nothing is written then.
pub(crate) fn write_chunk(writer: &mut impl Write, chunk: &[u8]) -> io::Result<()> {
    if chunk.is_empty() {
        return Ok(());
    }
    let size = format!("{:x}\r\n", chunk.len());
    writer.write_all(&[size.as_bytes(), chunk, b"\r\n"].concat())
}

pub(crate) fn end_chunks(writer: &mut impl Write) -> io::Result<()> {
    writer.write_all(b"0\r\n\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunked_and_sized_bodies_are_read_one_after_the_other() {
        let mut input: &[u8] =
            b"POST /mcp?a=1&sessionId=x HTTP/1.1\r\nX-A: 1\r\nx-a:2\r\nTransfer-Encoding: chunked\r\n\r\n\
            3;ext=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n\
            POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nhi";
        let mut output = Vec::new();
        let first = Request::read(&mut input, &mut output, 1).unwrap().unwrap();
        assert_eq!(first.body, b"abc0123456789");
        assert_eq!(first.header("x-a"), Some("1, 2"));
        assert_eq!(first.query("sessionId"), Some("x"));
        assert!(output.is_empty());
        let second = Request::read(&mut input, &mut output, 1).unwrap().unwrap();
        assert_eq!(second.body, b"hi");
        assert_eq!(output, b"HTTP/1.1 100 Continue\r\n\r\n");
        assert!(Request::read(&mut input, &mut output, 1).unwrap().is_none());
    }
}
