//! Requests over HTTP whose answers are read in the background, for clients that wait for messages and not for streams.

use std::net::SocketAddr;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use crate::driver::shown;
use crate::http_client::{Answer, Ask, Closer, Connection};

/// What went wrong in the background; shown when a test fails.
#[derive(Clone, Debug, Default)]
pub(crate) struct Troubles {
    lines: Arc<Mutex<Vec<String>>>,
}

impl Troubles {
    fn add(&self, trouble: String) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(trouble);
    }

    pub(crate) fn text(&self) -> String {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }
}

/// Who sends, and where what comes back goes.
#[derive(Debug)]
pub(crate) struct Posting<'p> {
    pub(crate) address: SocketAddr,
    pub(crate) inbox: Sender<Vec<u8>>,
    pub(crate) troubles: &'p Troubles,
}

impl Posting<'_> {
    /// Sends a request; every message of its answer goes to the inbox, whatever the status.
    #[track_caller]
    pub(crate) fn in_background(&self, ask: &Ask) -> Closer {
        let mut connection = Connection::open(self.address);
        connection.send(ask);
        let closer = connection.closer();
        let (inbox, troubles) = (self.inbox.clone(), self.troubles.clone());
        std::thread::spawn(move || match connection.try_answer() {
            Ok(Some(answer)) => deliver(answer, &inbox, &troubles),
            Ok(None) => troubles.add("a connection was closed instead of an answer".to_owned()),
            Err(error) => troubles.add(format!("no answer came: {error}")),
        });
        closer
    }

    /// Sends a request that opens a stream and waits for its head. `None`, and the status, if it is refused.
    #[track_caller]
    pub(crate) fn stream(&self, ask: &Ask) -> Result<Closer, u16> {
        let mut connection = Connection::open(self.address);
        connection.send(ask);
        let closer = connection.closer();
        let (inbox, troubles) = (self.inbox.clone(), self.troubles.clone());
        let (opened, status) = channel();
        std::thread::spawn(move || {
            let answer = connection.answer();
            // Whoever asked waits for this.
            opened.send(answer.status).unwrap_or_default();
            deliver(answer, &inbox, &troubles);
        });
        match status.recv() {
            Ok(200) => Ok(closer),
            Ok(status) => Err(status),
            Err(_) => panic!("no answer came to {ask:?}"),
        }
    }

    /// Sends what needs no answer and waits until it was accepted.
    #[track_caller]
    pub(crate) fn at_once(&self, ask: &Ask) -> u16 {
        let mut connection = Connection::open(self.address);
        let mut answer = connection.ask(ask);
        if answer.status != 202 {
            let (status, body) = (answer.status, answer.bytes());
            self.troubles.add(format!("{status} to a message without an answer: {}", shown(&body)));
            return status;
        }
        202
    }
}

fn deliver(mut answer: Answer<'_>, inbox: &Sender<Vec<u8>>, troubles: &Troubles) {
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
        return troubles.add(format!("the body of an answer {status} broke off"));
    };
    if status != 200 {
        troubles.add(format!("status {status}: {}", shown(&body)));
    }
    // The client may be gone; then nobody misses it.
    inbox.send(body).unwrap_or_default();
}
