//! HTTP requests whose responses are read in the background, for clients that wait for messages and not for streams.

use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use crate::driver::shown;
use crate::http_client::{Answer, Closer, Connection, HttpRequest};

/// Errors in the background, displayed when a test fails.
#[derive(Clone, Debug, Default)]
pub(crate) struct PostErrors {
    lines: Arc<Mutex<Vec<String>>>,
}

impl PostErrors {
    fn add(&self, error: String) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(error);
    }

    pub(crate) fn text(&self) -> String {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }
}

/// The sender, and the inbox for responses.
#[derive(Debug)]
pub(crate) struct BackgroundPost<'p> {
    pub(crate) address: SocketAddr,
    pub(crate) inbox: Sender<Vec<u8>>,
    pub(crate) post_errors: &'p PostErrors,
}

impl BackgroundPost<'_> {
    /// Sends a request; every message of its answer goes to the inbox, whatever the status.
    #[track_caller]
    pub(crate) fn in_background(&self, ask: &HttpRequest) -> Closer {
        let mut connection = Connection::open(self.address);
        connection.send(ask);
        let closer = connection.closer();
        let (inbox, post_errors) = (self.inbox.clone(), self.post_errors.clone());
        std::thread::spawn(move || match connection.try_answer() {
            Ok(Some(answer)) => deliver(answer, &inbox, &post_errors),
            Ok(None) => post_errors.add("a connection was closed instead of an answer".to_owned()),
            Err(error) => post_errors.add(format!("no answer came: {error}")),
        });
        closer
    }

    /// Sends a request that opens a stream and waits for its head. `None`, and the status, if it is refused.
    #[track_caller]
    pub(crate) fn stream(&self, ask: &HttpRequest) -> Result<Closer, u16> {
        let mut connection = Connection::open(self.address);
        connection.send(ask);
        let closer = connection.closer();
        let (inbox, post_errors) = (self.inbox.clone(), self.post_errors.clone());
        let (opened, status) = channel();
        std::thread::spawn(move || {
            let answer = connection.answer();
            // The caller waits for this.
            opened.send(answer.status).unwrap_or_default();
            deliver(answer, &inbox, &post_errors);
        });
        match status.recv() {
            Ok(200) => Ok(closer),
            Ok(status) => Err(status),
            Err(_) => panic!("no answer came to {ask:?}"),
        }
    }

    /// Sends a message that needs no response, and waits until it is accepted.
    #[track_caller]
    pub(crate) fn at_once(&self, ask: &HttpRequest) -> u16 {
        let mut connection = Connection::open(self.address);
        let mut answer = connection.ask(ask);
        if answer.status != 202 {
            let (status, body) = (answer.status, answer.bytes());
            self.post_errors.add(format!("{status} to a message without an answer: {}", shown(&body)));
            return status;
        }
        202
    }
}

fn deliver(mut answer: Answer<'_>, inbox: &Sender<Vec<u8>>, post_errors: &PostErrors) {
    let status = answer.status;
    if answer.is_stream() {
        while let Some(event) = answer.next_message() {
            if inbox.send(event.data.into_bytes()).is_err() {
                return;
            }
        }
        return;
    }
    let Ok(body) = answer.try_bytes() else {
        return post_errors.add(format!("the body of an answer {status} broke off"));
    };
    if status != 200 {
        post_errors.add(format!("status {status}: {}", shown(&body)));
    }
    // The client may have been dropped.
    inbox.send(body).unwrap_or_default();
}
