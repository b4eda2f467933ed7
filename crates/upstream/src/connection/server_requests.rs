//! Requests of the server: which client answers them, and the return of the response.

use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use protocol::envelope::Envelope;
use protocol::reply::{self, code};
use protocol::splice::Edit;
use protocol::{RequestEnvelope, Span, text};

use super::cancellation::cancellation;
use super::{Connection, remember};
use crate::limits::{Limit, OverLimit};
use crate::pending::RequestOwner;
use crate::response_handler::{ResponseHandler, ServerRequest};

/// How many server requests may be open at once. A server that sends more does not wait for responses.
const MAX_SERVER_REQUESTS: usize = 1000;
/// Bytes of a server's request id. It is stored, compared and sent back.
const MAX_REQUEST_ID_BYTES: usize = 1 << 10;

/// How often a client with an open server request is checked, and for how long in a row it may be unreachable.
const DESERTED_POLL_INTERVAL: Duration = Duration::from_secs(5);
const DESERTED_AFTER: Duration = Duration::from_secs(60);

/// Ends the calls that a server request belongs to if its client has disconnected for good: a server that waits for
/// the response would never finish them. A client that only waits for a result may reconnect and fetch it.
async fn end_if_deserted(server: Weak<Connection>, id: Box<[u8]>, handler: Weak<dyn ResponseHandler>) {
    let mut missed = Duration::ZERO;
    loop {
        tokio::time::sleep(DESERTED_POLL_INTERVAL).await;
        let (Some(server), Some(handler)) = (server.upgrade(), handler.upgrade()) else { return };
        if !server.is_asking(&id, &handler) {
            return;
        }
        missed = if handler.is_unreachable() { missed + DESERTED_POLL_INTERVAL } else { Duration::ZERO };
        if missed >= DESERTED_AFTER {
            return server.end_calls_of(&handler);
        }
    }
}

impl Connection {
    /// Handles a request of the server: a ping is answered at once, anything else is sent to the client it belongs to.
    pub(super) fn receive_server_request(
        self: &Arc<Self>,
        line: Bytes,
        envelope: RequestEnvelope,
        about: Option<u64>,
        handlers: &mut Vec<Arc<dyn ResponseHandler>>,
    ) {
        let RequestEnvelope { id, method, .. } = envelope;
        if id.end - id.start > MAX_REQUEST_ID_BYTES {
            if self.note_too_large() {
                tracing::warn!(server = %self.server(), length = id.end - id.start, most = MAX_REQUEST_ID_BYTES, "ignored a request whose id is too long, and will ignore further ones");
            }
            return;
        }
        if text::token_is(method.of(&line), "ping") {
            return self.send_response(&reply::result(id.of(&line), b"{}"));
        }
        if let Err(over) = self.reserve_request(line.len()) {
            if self.note_too_large() {
                tracing::warn!(server = %self.server(), length = line.len(), %over, "refused a request of the server, and will refuse further ones");
            }
            let text = format!("server `{}` sends too many requests: {over}", self.server());
            return self.send_response(&reply::error(id.of(&line), code::INTERNAL_ERROR, &text, None));
        }
        let request = ServerRequest::new(Arc::clone(self), line, envelope);
        let owner = self.lock().owner(about);
        match owner {
            RequestOwner::Handler(handler) => {
                if !self.remember_server_request(&request, &handler) {
                    return request
                        .refuse(code::INVALID_REQUEST, "Too many requests are pending, or one with this id is");
                }
                remember(handlers, Arc::clone(&handler));
                let id = Box::from(request.id().of(&request.line));
                // The only client is connected, or everything ends.
                if !handler.requester().is_alone {
                    tokio::spawn(end_if_deserted(Arc::downgrade(self), id, Arc::downgrade(&handler)));
                }
                handler.on_server_request(request);
            }
            RequestOwner::Ambiguous => {
                tracing::warn!(server = %self.server(), method = %request.method(), "refused a request that could be for several clients; the server serves one client at a time from now on");
                request.refuse(
                    code::INTERNAL_ERROR,
                    "Several clients have pending requests, so it is unclear which one to ask; try again",
                );
            }
            RequestOwner::Nobody => match self.observer.upgrade() {
                Some(observer) => observer.on_server_request(self.index, request),
                None => drop(request),
            },
        }
    }

    /// Reserves memory for one more request of the server, until it is answered.
    fn reserve_request(&self, bytes: usize) -> Result<(), OverLimit> {
        let all = self.open_request_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let checked = self.limits.check(Limit::Requests, "with it, its requests that wait for answers are", all);
        checked.inspect_err(|_| self.release_request(bytes))
    }

    /// Releases the memory of an answered request.
    pub(crate) fn release_request(&self, bytes: usize) {
        self.open_request_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The handler of all open requests, if there is only one.
    pub fn only_handler(&self) -> Option<Arc<dyn ResponseHandler>> {
        match self.lock().only_handler() {
            RequestOwner::Handler(handler) => Some(handler),
            RequestOwner::Nobody | RequestOwner::Ambiguous => None,
        }
    }

    /// Whether the server request `id` is still open at that handler.
    fn is_asking(&self, id: &[u8], handler: &Arc<dyn ResponseHandler>) -> bool {
        let server_requests = self.server_requests.lock().unwrap_or_else(PoisonError::into_inner);
        server_requests.get(id).is_some_and(|receive_server_request| {
            std::ptr::addr_eq(Arc::as_ptr(receive_server_request), Arc::as_ptr(handler))
        })
    }

    /// Records the handler of a server request, so that it can be cancelled.
    pub fn remember_server_request(&self, request: &ServerRequest, handler: &Arc<dyn ResponseHandler>) -> bool {
        let mut server_requests = self.server_requests.lock().unwrap_or_else(PoisonError::into_inner);
        if server_requests.len() >= MAX_SERVER_REQUESTS {
            return false;
        }
        match server_requests.entry(Box::from(request.id().of(&request.line))) {
            Entry::Vacant(free) => {
                free.insert(Arc::clone(handler));
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// Handles the server's cancellation of its request `id`.
    pub(super) fn withdraw_server_request(&self, id: &[u8], line: &Bytes, id_at: Span) -> bool {
        let Some(handler) = self.server_requests.lock().unwrap_or_else(PoisonError::into_inner).remove(id) else {
            return false;
        };
        handler.on_server_request_cancelled(self, id, line, id_at);
        handler.flush();
        true
    }

    /// Cancels all server requests: the server has ended and needs no responses.
    pub(super) fn withdraw_server_requests(&self) {
        let server_requests = std::mem::take(&mut *self.server_requests.lock().unwrap_or_else(PoisonError::into_inner));
        for (id, handler) in server_requests {
            self.cancel_server_request(&*handler, &id, "the server that sent the request has ended");
        }
    }

    /// Cancels the server requests that belong to a request that we have ended.
    pub(super) fn withdraw_server_requests_to(&self, handler: &Arc<dyn ResponseHandler>, why: &str) {
        let is_asked = |receive_server_request: &Arc<dyn ResponseHandler>| {
            std::ptr::addr_eq(Arc::as_ptr(receive_server_request), Arc::as_ptr(handler))
        };
        let moot: Vec<_> = {
            let mut server_requests = self.server_requests.lock().unwrap_or_else(PoisonError::into_inner);
            server_requests.extract_if(|_, receive_server_request| is_asked(receive_server_request)).collect()
        };
        for (id, handler) in moot {
            self.cancel_server_request(&*handler, &id, why);
            self.send_response(&reply::error(&id, code::INTERNAL_ERROR, why, None));
        }
    }

    fn cancel_server_request(&self, handler: &dyn ResponseHandler, id: &[u8], why: &str) {
        let line = cancellation(id, why);
        if let Some(id_at) = Envelope::scan(&line).ok().and_then(|envelope| envelope.params.request_id) {
            handler.on_server_request_cancelled(self, id, &line, id_at);
            handler.flush();
        }
    }

    /// Forwards a client's response, with another id at `id_at`.
    pub(crate) fn answer_server_request(&self, id: &[u8], line: &Bytes, id_at: Span) {
        self.server_requests.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.transport.send_spliced(None, line, &[Edit { span: id_at, with: id }]);
        self.transport.flush();
    }

    /// Answers a server request ourselves.
    pub(crate) fn close_server_request(&self, id: &[u8], answer: impl FnOnce(&[u8]) -> Vec<u8>) {
        self.server_requests.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        self.send_response(&answer(id));
    }

    /// A server that floods us with requests and reads no responses must not fill our memory.
    fn send_response(&self, answer: &[u8]) {
        if !self.transport.is_full() {
            self.transport.send(None, answer);
            self.transport.flush();
        }
    }
}

#[cfg(test)]
mod tests;
