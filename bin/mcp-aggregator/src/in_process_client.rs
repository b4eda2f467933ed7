//! Sends requests to running servers in the same way as any client.

use std::io;
use std::sync::Arc;

use aggregator::{Aggregator, LocalClient};
use bytes::Bytes;
use protocol::{Envelope, Kind, Span, reply};

use crate::failure::Failure;

/// A client in this process.
pub(crate) struct InProcessClient {
    local: LocalClient,
    /// The id of the last request; each has its own.
    id: u64,
}

/// A response: the line, and the span of its result or error.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) line: Bytes,
    pub(crate) outcome: Result<Span, Span>,
}

impl Answer {
    /// The bytes of the result, or of the error object.
    pub(crate) fn bytes(&self) -> Result<&[u8], &[u8]> {
        self.outcome.map(|result| result.of(&self.line)).map_err(|error| error.of(&self.line))
    }
}

impl InProcessClient {
    /// Connects to the aggregator.
    pub(crate) fn new(aggregator: &Arc<Aggregator>) -> Result<Self, Failure> {
        Ok(Self { local: LocalClient::connect(aggregator).map_err(broken)?, id: 0 })
    }

    /// Sends a request, and waits for the response. Other messages go to `aside`.
    pub(crate) async fn ask(
        &mut self,
        method: &str,
        params: Option<&[u8]>,
        aside: impl Fn(&[u8]),
    ) -> Result<Answer, Failure> {
        self.id += 1;
        let id = self.id.to_string();
        let is_answer = |message: &[u8]| {
            let answers = outcome_of(message, id.as_bytes()).is_some();
            if !answers {
                aside(message);
            }
            answers
        };
        let line =
            self.local.request(message(reply::request(self.id, method, params)), is_answer).await.map_err(broken)?;
        let outcome = outcome_of(&line, id.as_bytes()).ok_or_else(|| broken(io::ErrorKind::InvalidData.into()))?;
        Ok(Answer { line, outcome })
    }

    /// Cancels the last request, also at its server.
    pub(crate) fn cancel(&self, why: &str) {
        let params = reply::object([("requestId", self.id.to_string().into_bytes()), ("reason", reply::string(why))]);
        self.local.send(message(reply::notification("notifications/cancelled", Some(&params))));
    }
}

/// The response in `message`, if it answers the request `id`.
fn outcome_of(message: &[u8], id: &[u8]) -> Option<Result<Span, Span>> {
    match Envelope::scan(message).ok()?.kind {
        Kind::Response { id: answered, outcome } if answered.of(message) == id => Some(outcome),
        Kind::Response { .. } | Kind::Request { .. } | Kind::Notification { .. } => None,
    }
}

/// A message without its final newline, as the aggregator expects it.
fn message(mut line: Vec<u8>) -> Bytes {
    line.truncate(line.trim_ascii_end().len());
    Bytes::from(line)
}

#[expect(clippy::needless_pass_by_value, reason = "it is a function for `map_err`")]
fn broken(error: io::Error) -> Failure {
    Failure::new(format!("could not talk to the servers: {error}"))
}
