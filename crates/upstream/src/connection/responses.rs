//! Responses of the server, and the requests they belong to.

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

/// The error code of a server that could not parse a message.
const PARSE_ERROR: &[u8] = b"-32700";
/// How long a server may take to send a proper response after such an error.
const SECOND_RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

impl Connection {
    /// Hands a response to the request that waits for it.
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
            // Answered twice, after a cancellation, or never requested: no request waits for it.
            tracing::debug!(server = %self.server(), id = %String::from_utf8_lossy(id_at.of(&line)), "dropped a response without a pending request");
            return self.next_turn();
        };
        self.hand_over(waiting, line, id_at, outcome, handlers);
    }

    /// Delivers a response to its request.
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
            // The receiver may have been dropped; then the response is not needed.
            Pending::OwnRequest(respondent) => drop(respondent.send(Ok(Response { line, outcome }))),
        }
    }

    /// Treats an error without an id as the response to a request, if there is no better one soon.
    async fn respond_after_grace(self: Arc<Self>, number: u64, line: Bytes, id_at: Span, outcome: Result<Span, Span>) {
        tokio::time::sleep(SECOND_RESPONSE_TIMEOUT).await;
        let Some(waiting) = self.lock().answered(number) else { return };
        let mut handlers = Vec::new();
        self.hand_over(waiting, line, id_at, outcome, &mut handlers);
        handlers.iter().for_each(|handler| handler.flush());
    }

    /// The number of the request that the server could not parse, and whose id it therefore does not know, if only one
    /// is possible. Other errors without an id are not attributed: some servers respond to notifications, too.
    fn not_understood(&self, line: &[u8], id_at: Span, outcome: Result<Span, Span>) -> Option<u64> {
        let code = member(line, outcome.err()?, "code")?;
        let is_meant = id_at.of(line) == b"null" && code.of(line) == PARSE_ERROR;
        is_meant.then(|| self.lock().only_one()).flatten()
    }
}
