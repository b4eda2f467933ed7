//! A client of 2024-11-05 over HTTP+SSE: one stream for everything it receives, and an endpoint for what it sends.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::background_post::{BackgroundPost, PostErrors};
use crate::client_session::{ClientSession, Inbox};
use crate::http_client::{Closer, Connection, Event, HttpRequest};
use crate::http_session::Hello;

/// A client with an open stream. Dropping it closes the stream.
#[derive(Debug)]
pub struct SseClient {
    address: SocketAddr,
    /// Its endpoint, as the stream announced it.
    pub endpoint: String,
    token: Option<String>,
    /// The answer to `initialize`, whole.
    pub welcome: Value,
    inbox: Inbox,
    post_errors: PostErrors,
    next_id: u64,
    stream: Closer,
}

impl SseClient {
    /// Opens the stream at this path and initializes.
    #[track_caller]
    pub fn open(address: SocketAddr, path: &str) -> Self {
        let hello = Hello { revision: "2024-11-05".to_owned(), ..Hello::default() };
        Self::introduce(address, path, &hello)
    }

    /// Opens the stream at this path and initializes with these parameters.
    #[track_caller]
    pub fn introduce(address: SocketAddr, path: &str, hello: &Hello) -> Self {
        let mut ask = HttpRequest::stream(path);
        if let Some(token) = &hello.token {
            ask = ask.header("Authorization", &format!("Bearer {token}"));
        }
        let mut connection = Connection::open(address);
        connection.send(&ask);
        let stream = connection.closer();
        let inbox = Inbox::new();
        let messages = inbox.sender();
        let (opened, endpoint) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut answer = connection.answer();
            let first = if answer.status == 200 { answer.next_message() } else { None };
            opened.send(first.ok_or(answer.status)).unwrap_or_default();
            while let Some(event) = answer.next_message() {
                if messages.send(event.data.into_bytes()).is_err() {
                    return;
                }
            }
        });
        let first: Event = match endpoint.recv() {
            Ok(Ok(event)) => event,
            Ok(Err(status)) => panic!("the stream was refused, or ended, with {status}"),
            Err(_) => panic!("no stream was opened"),
        };
        assert_eq!(first.kind.as_deref(), Some("endpoint"), "{first:?}");
        let mut client = Self {
            address,
            endpoint: first.data,
            token: hello.token.clone(),
            welcome: Value::Null,
            inbox,
            post_errors: PostErrors::default(),
            next_id: 1,
            stream,
        };
        client.welcome = client.ask("initialize", hello.params());
        client.tell("notifications/initialized", json!({}));
        client
    }

    /// Closes the stream, which ends the session.
    pub fn close(&self) {
        self.stream.close();
    }
}

impl ClientSession for SseClient {
    fn send_line(&mut self, line: &str) {
        let mut ask = HttpRequest::post(&self.endpoint, line);
        if let Some(token) = &self.token {
            ask = ask.header("Authorization", &format!("Bearer {token}"));
        }
        let posting =
            BackgroundPost { address: self.address, inbox: self.inbox.sender(), post_errors: &self.post_errors };
        posting.at_once(&ask);
    }

    fn find(&mut self, what: &str, wanted: &mut dyn FnMut(&[u8]) -> bool) -> Vec<u8> {
        let found = self.inbox.find(what, wanted);
        found.unwrap_or_else(|why| panic!("{why}\n--- troubles ---\n{}", self.post_errors.text()))
    }

    fn take_all(&mut self) -> Vec<Vec<u8>> {
        self.inbox.take_all()
    }

    fn fresh_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }
}

impl Drop for SseClient {
    fn drop(&mut self) {
        self.close();
    }
}
