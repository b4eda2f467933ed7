//! Requests to a container engine.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The read timeout.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// One request on its own connection. HTTP/1.0, so that the response ends with the connection.
pub(super) fn ask(socket: &Path, method: &str, path: &str, body: Option<(&str, Vec<u8>)>) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    let (kind, body) = body.unwrap_or(("text/plain", Vec::new()));
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\nHost: engine\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
    )?;
    stream.write_all(&body)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let odd = || io::Error::other("the engine's answer is no HTTP");
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n").ok_or_else(odd)?;
    let status = std::str::from_utf8(&answer[..head]).ok().and_then(|head| head.split(' ').nth(1)?.parse().ok());
    Ok(Answer { status: status.ok_or_else(odd)?, body: answer.split_off(head + 4) })
}
