//! The interface of requesters: responses, notifications and server requests.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use protocol::{Envelope, RequestEnvelope, Span, text};

use crate::connection::Connection;
use crate::failure::CallError;

/// The identity behind a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requester {
    /// The client, which may cancel it.
    pub client: u64,
    /// Identifies the person who answers server requests about it. Requests with different numbers here may belong to
    /// different people.
    pub respondent: u64,
    /// No other client exists, so every server request is for this one.
    pub is_alone: bool,
}

impl Requester {
    /// The respondent of clients that accept no server requests. These are refused whichever client they concern, so
    /// such clients need not take turns at a server.
    pub const NO_RESPONDENT: u64 = 0;

    /// Whether it accepts server requests.
    pub(crate) fn can_answer(&self) -> bool {
        self.respondent != Self::NO_RESPONDENT
    }
}

/// Receives the responses to its requests. Every request ends in one of `on_response`, `on_failure`, `on_cancelled`.
pub trait ResponseHandler: Send + Sync {
    /// Its identity.
    fn requester(&self) -> Requester;
    /// A request waits in our queue for its turn, because the server is busy with another client's. Called while the
    /// connection is locked, so the handler must not call into it.
    fn on_held(&self) {}
    /// Its turn has come: it is sent to the server now.
    fn on_released(&self) {}
    /// The server's response to the request that the requester knows as `id`.
    fn on_response(&self, id: &[u8], response: ServerResponse<'_>);
    /// There will be no response.
    fn on_failure(&self, id: &[u8], error: &CallError);
    /// The client cancelled it.
    fn on_cancelled(&self, id: &[u8]);
    /// The server sends a notification about a pending request.
    fn on_notification(&self, notification: Notification<'_>);
    /// The server sends a request about a pending request.
    fn on_server_request(&self, request: ServerRequest);
    /// The server cancels its request `id` with `line`, where the id is at `id_at`.
    fn on_server_request_cancelled(&self, server: &Connection, id: &[u8], line: &Bytes, id_at: Span);
    /// All messages that have arrived for now were delivered.
    fn flush(&self);
    /// Whether the client has shown no sign of waiting for the response for a while.
    fn is_idle(&self) -> bool {
        false
    }
    /// Whether a server request sent to it cannot be answered. A client that may retry with the answer at any time, as
    /// modern clients do, is reachable.
    fn is_unreachable(&self) -> bool {
        self.is_idle()
    }
    /// If the requester reads slower than servers respond: a future to wait for before delivering more.
    fn catch_up(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>>;
}

/// A handler that wraps another. It implements what it changes; all else is delegated.
pub trait ResponseFilter: Send + Sync {
    /// The wrapped handler.
    type Inner: ResponseHandler;
    /// The wrapped handler.
    fn inner(&self) -> &Self::Inner;
    /// See [`ResponseHandler::on_response`].
    fn on_response(&self, id: &[u8], response: ServerResponse<'_>) {
        self.inner().on_response(id, response);
    }
    /// See [`ResponseHandler::on_server_request`].
    fn on_server_request(&self, request: ServerRequest) {
        self.inner().on_server_request(request);
    }
}

impl<F: ResponseFilter> ResponseHandler for F {
    fn requester(&self) -> Requester {
        self.inner().requester()
    }

    fn on_held(&self) {
        self.inner().on_held();
    }

    fn on_released(&self) {
        self.inner().on_released();
    }

    fn on_response(&self, id: &[u8], response: ServerResponse<'_>) {
        ResponseFilter::on_response(self, id, response);
    }

    fn on_failure(&self, id: &[u8], error: &CallError) {
        self.inner().on_failure(id, error);
    }

    fn on_cancelled(&self, id: &[u8]) {
        self.inner().on_cancelled(id);
    }

    fn on_notification(&self, notification: Notification<'_>) {
        self.inner().on_notification(notification);
    }

    fn on_server_request(&self, request: ServerRequest) {
        ResponseFilter::on_server_request(self, request);
    }

    fn on_server_request_cancelled(&self, server: &Connection, id: &[u8], line: &Bytes, id_at: Span) {
        self.inner().on_server_request_cancelled(server, id, line, id_at);
    }

    fn flush(&self) {
        self.inner().flush();
    }

    fn is_idle(&self) -> bool {
        self.inner().is_idle()
    }

    fn is_unreachable(&self) -> bool {
        self.inner().is_unreachable()
    }

    fn catch_up(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        self.inner().catch_up()
    }
}

impl std::fmt::Debug for dyn ResponseHandler {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "ResponseHandler({:?})", self.requester())
    }
}

/// A complete response, as the server wrote it.
#[derive(Debug, Clone, Copy)]
pub struct ServerResponse<'a> {
    /// The server that responds.
    pub server: &'a Connection,
    /// The message.
    pub line: &'a Bytes,
    /// The span of our id; the requester replaces it with its own.
    pub id_at: Span,
    /// The span of the `result` or the `error`.
    pub outcome: Result<Span, Span>,
}

/// A notification about an open request.
#[derive(Debug, Clone, Copy)]
pub struct Notification<'n> {
    /// The server that sends it.
    pub server: &'n Connection,
    /// The message.
    pub line: &'n Bytes,
    /// Its envelope.
    pub envelope: &'n Envelope,
    /// For progress: the token the requester chose, and the span of ours in the message.
    pub progress: Option<(&'n [u8], Span)>,
}

/// A request of a server, for a client. It must be answered, or dropped: then it is refused.
#[derive(Debug)]
pub struct ServerRequest {
    /// The server that sends it.
    pub server: Arc<Connection>,
    /// The message.
    pub line: Bytes,
    /// Its envelope.
    pub envelope: RequestEnvelope,
    is_answered: bool,
    /// The bytes reserved for it.
    bytes: usize,
}

impl ServerRequest {
    /// A request of `server` for which bytes were reserved.
    pub(crate) fn new(server: Arc<Connection>, line: Bytes, envelope: RequestEnvelope) -> Self {
        Self { server, envelope, is_answered: false, bytes: line.len(), line }
    }

    /// The span of the server's id.
    pub fn id(&self) -> Span {
        self.envelope.id
    }

    /// Its method.
    pub fn method(&self) -> String {
        text::decode(self.envelope.method.of(&self.line)).unwrap_or_default().into_owned()
    }

    /// Forwards the response in `line`, which has another id at `id_at`.
    pub fn answer(mut self, line: &Bytes, id_at: Span) {
        self.is_answered = true;
        self.server.answer_server_request(self.id().of(&self.line), line, id_at);
    }

    /// Answers with `result`, which is JSON.
    pub fn answer_with(mut self, result: &[u8]) {
        self.is_answered = true;
        self.server.close_server_request(self.id().of(&self.line), |id| protocol::reply::result(id, result));
    }

    /// Responds with an error.
    pub fn refuse(mut self, code: i32, why: &str) {
        self.refuse_now(code, why);
    }

    fn refuse_now(&mut self, code: i32, why: &str) {
        self.is_answered = true;
        self.server.close_server_request(self.id().of(&self.line), |id| protocol::reply::error(id, code, why, None));
    }

    /// Drops it without a response: the server has cancelled it itself.
    pub fn forget(mut self) {
        self.is_answered = true;
    }
}

impl Drop for ServerRequest {
    fn drop(&mut self) {
        if !self.is_answered {
            self.refuse_now(protocol::reply::code::INTERNAL_ERROR, "The client disconnected, so nobody can answer");
        }
        self.server.release_request(self.bytes);
    }
}
