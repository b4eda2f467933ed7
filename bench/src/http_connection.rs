//! The client's end of one MCP session over HTTP: a kept-alive connection and one request at a time on it.

use std::io::Write;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use crate::client_connection::ClientConnection;
use crate::http_answer::{Body, Response};
use crate::http2_connection::Http2Connection;
use crate::inbox::Inbox;
use crate::service::Service;
use crate::stall;

/// One client of a service, with a connection of its own. The service ends with its last client.
pub(crate) struct HttpConnection {
    stream: TcpStream,
    inbox: Inbox,
    /// A body that had to be put together.
    decoded: Option<Vec<u8>>,
    /// What every request begins with, up to the value of its length.
    head: Vec<u8>,
    outgoing: Vec<u8>,
    session: Option<String>,
    last_id: u64,
    pub(crate) service: Arc<Service>,
    path: &'static str,
}

impl HttpConnection {
    pub(crate) fn open(service: Arc<Service>) -> Result<Self> {
        Self::open_at(service, "/mcp")
    }

    /// The same at another path.
    pub(crate) fn open_at(service: Arc<Service>, path: &'static str) -> Result<Self> {
        let stream = TcpStream::connect(service.address).context("could not connect to it")?;
        stream.set_nodelay(true).context("could not switch delays off")?;
        Ok(Self {
            stream,
            inbox: Inbox::default(),
            decoded: None,
            head: head(&service, path, None),
            outgoing: Vec::new(),
            session: None,
            last_id: 0,
            service,
            path,
        })
    }

    /// The same session over HTTP/2.
    pub(crate) fn over_http2(&self) -> Result<Http2Connection> {
        let session = self.session.as_deref().context("it has no session")?;
        Http2Connection::open(Arc::clone(&self.service), session, self.last_id)
    }

    /// Whether a whole response was there; its status is then returned, and its body is taken.
    fn take_response(&mut self) -> Result<Option<u16>> {
        let Some(response) = Response::read(self.inbox.unread())? else {
            return Ok(None);
        };
        if let Some(session) = response.session {
            self.head = head(&self.service, self.path, Some(&session));
            self.session = Some(session);
        }
        let (part, decoded) = match response.body {
            Body::There(part) => (part, None),
            Body::Decoded(body) => (0..0, Some(body)),
        };
        self.decoded = decoded;
        self.inbox.take(response.length, part);
        Ok(Some(response.status))
    }
}

fn head(service: &Service, path: &str, session: Option<&str>) -> Vec<u8> {
    let session = session.map_or_else(String::new, |id| format!("Mcp-Session-Id: {id}\r\n"));
    format!(
        concat!(
            "POST {} HTTP/1.1\r\n",
            "Host: {}\r\n",
            "Content-Type: application/json\r\n",
            "Accept: application/json, text/event-stream\r\n",
            "MCP-Protocol-Version: 2025-11-25\r\n",
            "{}",
            "Content-Length: "
        ),
        path, service.address, session
    )
    .into_bytes()
}

impl ClientConnection for HttpConnection {
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn send(&mut self, request: &[u8]) -> Result<()> {
        let body = request.strip_suffix(b"\n").unwrap_or(request);
        self.outgoing.clear();
        self.outgoing.extend_from_slice(&self.head);
        write!(self.outgoing, "{}\r\n\r\n", body.len()).expect("writing to a Vec cannot fail");
        self.outgoing.extend_from_slice(body);
        stall::waiting_for(self.service.pid());
        let outcome = self.stream.write_all(&self.outgoing).context("could not write to it");
        stall::not_waiting();
        outcome
    }

    fn notify(&mut self, notification: &[u8]) -> Result<()> {
        self.send(notification)?;
        loop {
            if let Some(status) = self.take_response()? {
                ensure!(status == 202, "wrong answer to a notification: status {status}");
                return Ok(());
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<()> {
        self.inbox.fill(&mut self.stream, self.service.pid())
    }

    fn take(&mut self) -> Result<bool> {
        let Some(status) = self.take_response()? else {
            return Ok(false);
        };
        ensure!(status == 200, "wrong answer: status {status}: {}", String::from_utf8_lossy(self.taken()));
        Ok(true)
    }

    fn taken(&self) -> &[u8] {
        self.decoded.as_deref().unwrap_or_else(|| self.inbox.taken())
    }
}

impl AsFd for HttpConnection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
