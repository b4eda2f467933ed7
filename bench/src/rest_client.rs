//! The client's end of the REST API: a kept-alive connection, one request at a time, each timed.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::http_answer::{Body, Response};
use crate::inbox::Inbox;
use crate::service::Service;

/// Where it all is.
const PREFIX: &str = "/api/v1/aggregator";

/// A connection to a service, which ends with it.
pub(crate) struct RestClient {
    stream: TcpStream,
    inbox: Inbox,
    pub(crate) service: Arc<Service>,
}

/// What came back, and after which time.
pub(crate) struct Timed {
    pub(crate) body: serde_json::Value,
    pub(crate) time: Duration,
    pub(crate) bytes: usize,
}

impl RestClient {
    pub(crate) fn open(service: Arc<Service>) -> Result<Self> {
        let stream = TcpStream::connect(service.address).context("could not connect to it")?;
        stream.set_nodelay(true).context("could not switch delays off")?;
        Ok(Self { stream, inbox: Inbox::default(), service })
    }

    pub(crate) fn get(&mut self, path: &str) -> Result<Timed> {
        self.ask("GET", path, "", 200)
    }

    pub(crate) fn post(&mut self, path: &str, body: &serde_json::Value, expected: u16) -> Result<Timed> {
        self.ask("POST", path, &body.to_string(), expected)
    }

    pub(crate) fn put(&mut self, path: &str, body: &serde_json::Value, expected: u16) -> Result<Timed> {
        self.ask("PUT", path, &body.to_string(), expected)
    }

    /// Reading the answer into a tree is not counted: that is our own business.
    fn ask(&mut self, method: &str, path: &str, body: &str, expected: u16) -> Result<Timed> {
        let request = format!(
            "{method} {PREFIX}{path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.service.address,
            body.len()
        );
        let start = Instant::now();
        self.stream.write_all(request.as_bytes()).context("could not write to it")?;
        let response = loop {
            if let Some(response) = Response::read(self.inbox.unread())? {
                break response;
            }
            self.inbox.fill(&mut self.stream, self.service.pid())?;
        };
        let time = start.elapsed();
        let (part, decoded) = match response.body {
            Body::There(part) => (part, None),
            Body::Decoded(body) => (0..0, Some(body)),
        };
        self.inbox.take(response.length, part);
        let body = decoded.as_deref().unwrap_or_else(|| self.inbox.taken());
        let status = response.status;
        ensure!(
            status == expected,
            "wrong answer to {method} {path}: status {status}: {}",
            String::from_utf8_lossy(body)
        );
        let bytes = body.len();
        let body = serde_json::from_slice(body).with_context(|| format!("the answer to {method} {path} is no JSON"))?;
        Ok(Timed { body, time, bytes })
    }
}
