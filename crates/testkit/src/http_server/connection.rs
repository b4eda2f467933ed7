//! One TCP connection: its requests, and the ways to respond.

use std::io::{self, BufReader, ErrorKind};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use super::events::Event;
use super::script::{Refusal, Script};
use super::state::Shared;
use super::wire::{self, Head, Request};
use super::{legacy, streamable};
use crate::raw;

/// How often an idle stream checks whether its client is still connected.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Connection {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    pub(super) shared: Arc<Shared>,
    /// The script as it was when the present request arrived.
    pub(super) script: Script,
}

/// What happens to a connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    KeepAlive,
    Close,
}

/// Serves a connection until either side ends it.
pub(super) fn serve(socket: TcpStream, number: usize, shared: &Arc<Shared>) -> io::Result<()> {
    let reader = BufReader::with_capacity(1 << 16, socket.try_clone()?);
    let mut connection = Connection { reader, writer: socket, shared: Arc::clone(shared), script: Script::default() };
    while let Some(request) = Request::read(&mut connection.reader, &mut connection.writer, number)? {
        shared.record(request.clone());
        connection.script = shared.script();
        if connection.answer(&request)? == Next::Close || request.is_last() {
            break;
        }
    }
    Ok(())
}

impl Connection {
    fn answer(&mut self, request: &Request) -> io::Result<Next> {
        self.shared.rest(self.script.slow_headers);
        let allowed = |(name, value): &(String, String)| request.header(name) == Some(value);
        if !self.script.required_headers.iter().all(allowed) {
            let head = Head::new(401).with("WWW-Authenticate", r#"Bearer realm="fake-http-server""#);
            return self.refuse(head, "Unauthorized");
        }
        if self.script.is_legacy() { legacy::answer(self, request) } else { streamable::answer(self, request) }
    }

    /// An answer without a body.
    pub(super) fn empty(&mut self, status: u16) -> io::Result<Next> {
        wire::write_whole(&mut self.writer, Head::new(status), b"")?;
        Ok(Next::KeepAlive)
    }

    /// An error response without an id, as the official SDKs send it.
    pub(super) fn refuse(&mut self, head: Head, why: &str) -> io::Result<Next> {
        let message = raw::quote(why);
        let body = format!(r#"{{"jsonrpc":"2.0","error":{{"code":-32000,"message":{message}}},"id":null}}"#);
        self.whole(head.json(), body.as_bytes())
    }

    pub(super) fn refuse_as_scripted(&mut self, refusal: Refusal) -> io::Result<Next> {
        let head =
            refusal.header.into_iter().fold(Head::new(refusal.status), |head, (name, value)| head.with(name, value));
        self.refuse(head, "As the script says")
    }

    pub(super) fn garbage(&mut self) -> io::Result<Next> {
        self.whole(Head::new(200).html(), b"<!DOCTYPE html>\n<html><body>Please sign in.</body></html>\n")
    }

    /// A whole response, unless the script splits it.
    pub(super) fn whole(&mut self, head: Head, body: &[u8]) -> io::Result<Next> {
        if self.script.chunk_size.is_some() {
            self.begin(head)?;
            self.chunk(body)?;
            return self.end();
        }
        wire::write_whole(&mut self.writer, head, body)?;
        Ok(Next::KeepAlive)
    }

    /// Begins an answer whose length is not known.
    pub(super) fn begin(&mut self, head: Head) -> io::Result<()> {
        wire::begin_chunks(&mut self.writer, head)
    }

    pub(super) fn chunk(&mut self, bytes: &[u8]) -> io::Result<()> {
        let size = self.script.chunk_size.unwrap_or(usize::MAX);
        bytes.chunks(size).try_for_each(|chunk| wire::write_chunk(&mut self.writer, chunk))
    }

    pub(super) fn end(&mut self) -> io::Result<Next> {
        wire::end_chunks(&mut self.writer)?;
        Ok(Next::KeepAlive)
    }

    pub(super) fn new_event(&self) -> Event {
        Event::new(self.script.line_end)
    }

    /// Writes a message as an event with an id of its own.
    pub(super) fn message_event(&mut self, message: String) -> io::Result<()> {
        let id = format!("event-{}", self.shared.next_number());
        let event = self.new_event().kind("message").id(&id).data(&self.script.render(message)).finish();
        self.chunk(&event)
    }

    /// Writes what arrives as events until the server closes the stream or the client leaves.
    pub(super) fn pump(&mut self, messages: &Receiver<String>) -> io::Result<Next> {
        self.pump_with(messages, |message| message)
    }

    /// The same, and every message is changed before.
    pub(super) fn pump_with(
        &mut self,
        messages: &Receiver<String>,
        change: impl Fn(String) -> String,
    ) -> io::Result<Next> {
        loop {
            match messages.recv_timeout(POLL_INTERVAL) {
                Ok(message) => self.message_event(change(message))?,
                Err(RecvTimeoutError::Disconnected) => return self.end(),
                Err(RecvTimeoutError::Timeout) if self.client_is_gone()? => return Ok(Next::Close),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Leaves a request without a response until the client disconnects or the server stops.
    pub(super) fn hang(&mut self) -> io::Result<Next> {
        while !self.shared.is_stopping() && !self.client_is_gone()? {
            self.shared.rest(POLL_INTERVAL);
        }
        Ok(Next::Close)
    }

    fn client_is_gone(&mut self) -> io::Result<bool> {
        self.writer.set_read_timeout(Some(Duration::from_millis(1)))?;
        let seen = self.writer.peek(&mut [0]);
        self.writer.set_read_timeout(None)?;
        match seen {
            Ok(bytes) => Ok(bytes == 0),
            Err(error) => Ok(!matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)),
        }
    }
}
