//! Answers of the server, and whose they are.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use protocol::Span;
use protocol::scan::member;

use super::{Connection, Response, remember};
use crate::pending::Pending;
use crate::request_id::parse_request_id;
use crate::response_handler::{ResponseHandler, ServerResponse};

/// What a server says that could not read what it was sent.
const PARSE_ERROR: &[u8] = b"-32700";
/// So long a server that said so may take to answer after all.
const SECOND_RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

impl Connection {
    /// An answer of the server, to be handed to who waits for it.
    pub(super) fn answer(
        self: &Arc<Self>,
        line: Bytes,
        id_at: Span,
        outcome: Result<Span, Span>,
        handlers: &mut Vec<Arc<dyn ResponseHandler>>,
    ) {
        let Some(waiting) = parse_request_id(id_at.of(&line)).and_then(|number| self.lock().answered(number)) else {
            if let Some(number) = self.not_understood(&line, id_at, outcome) {
                drop(tokio::spawn(Arc::clone(self).respond_after_grace(number, line, id_at, outcome)));
                return;
            }
            // Answered twice, answered after a cancellation, or never asked: nobody is waiting for it.
            tracing::debug!(server = %self.server(), id = %String::from_utf8_lossy(id_at.of(&line)), "dropped an answer to no open request");
            return self.next_turn();
        };
        self.hand_over(waiting, line, id_at, outcome, handlers);
    }

    /// Gives an answer to who waits for it.
    fn hand_over(
        &self,
        waiting: Pending,
        line: Bytes,
        id_at: Span,
        outcome: Result<Span, Span>,
        handlers: &mut Vec<Arc<dyn ResponseHandler>>,
    ) {
        match waiting {
            Pending::Call(call) => {
                self.activity.fetch_add(1, Ordering::Relaxed);
                call.handler.on_response(&call.id, ServerResponse { server: self, line: &line, id_at, outcome });
                remember(handlers, call.handler);
                self.next_turn();
            }
            // Whoever asked may have stopped waiting; then nobody misses the answer.
            Pending::OwnRequest(respondent) => drop(respondent.send(Ok(Response { line, outcome }))),
        }
    }

    /// Takes an error without an id for the answer to a request, if there is no better one soon.
    async fn respond_after_grace(self: Arc<Self>, number: u64, line: Bytes, id_at: Span, outcome: Result<Span, Span>) {
        tokio::time::sleep(SECOND_RESPONSE_TIMEOUT).await;
        let Some(waiting) = self.lock().answered(number) else { return };
        let mut handlers = Vec::new();
        self.hand_over(waiting, line, id_at, outcome, &mut handlers);
        handlers.iter().for_each(|handler| handler.flush());
    }

    /// The number of the request that the server could not read, and whose id it therefore does not know, if there is only
    /// one that it can mean. Nothing else is told like this: some answer notifications, too, which nobody asked them to.
    fn not_understood(&self, line: &[u8], id_at: Span, outcome: Result<Span, Span>) -> Option<u64> {
        let code = member(line, outcome.err()?, "code")?;
        let is_meant = id_at.of(line) == b"null" && code.of(line) == PARSE_ERROR;
        is_meant.then(|| self.lock().only_one()).flatten()
    }
}
