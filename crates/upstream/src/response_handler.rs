//! Who made requests, and what reaches them besides the answer: notices and questions of the server.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use protocol::envelope::{Envelope, Kind};
use protocol::{Span, text};

use crate::connection::Connection;
use crate::failure::CallError;

/// Who is behind a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requester {
    /// The client, which may cancel it.
    pub client: u64,
    /// Who is to be asked what the server wants to know about it. Requests with different numbers here belong to
    /// different people, as far as anybody can tell.
    pub respondent: u64,
    /// There is no other client, so every question is for this one.
    pub is_alone: bool,
}

/// Somebody who made requests and gets the answers. Every request ends in one of `answered`, `failed`, `cancelled`.
pub trait ResponseHandler: Send + Sync {
    /// Who it is.
    fn requester(&self) -> Requester;
    /// A request waits with us for its turn, because the server is busy with somebody else. Said while nothing of the server
    /// can change, so whoever hears it must not ask for anything there.
    fn on_held(&self) {}
    /// Its turn has come: the server gets it now.
    fn on_released(&self) {}
    /// The server's answer to the request that the caller knows as `id`.
    fn on_response(&self, id: &[u8], response: ServerResponse<'_>);
    /// There will be no answer.
    fn on_failure(&self, id: &[u8], error: &CallError);
    /// The client gave it up.
    fn on_cancelled(&self, id: &[u8]);
    /// The server says something about a request that is still open.
    fn on_notification(&self, notification: Notification<'_>);
    /// The server wants to know something for a request that is still open.
    fn on_server_request(&self, request: ServerRequest);
    /// The server no longer wants to know what it asked under `id`, and says so in `line`, where the id stands at `id_at`.
    fn on_server_request_cancelled(&self, server: &Connection, id: &[u8], line: &Bytes, id_at: Span);
    /// All that has arrived for now was handed over.
    fn flush(&self);
    /// Whether nobody has waited for the answer for a while, or made any other sign of being there.
    fn is_idle(&self) -> bool {
        false
    }
    /// Whether a question that was put to it has nobody to answer it. One who may come back with the answer at any time, as
    /// modern clients do, is no such.
    fn is_unreachable(&self) -> bool {
        self.is_idle()
    }
    /// If the caller reads slower than servers answer: something to wait for before handing over more.
    fn catch_up(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>>;
}

impl std::fmt::Debug for dyn ResponseHandler {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Caller({:?})", self.requester())
    }
}

/// An answer, whole, as the server wrote it.
#[derive(Debug, Clone, Copy)]
pub struct ServerResponse<'a> {
    /// Who answers.
    pub server: &'a Connection,
    /// The message.
    pub line: &'a Bytes,
    /// Where our id stands; the caller puts its own there.
    pub id_at: Span,
    /// Where the `result`, or the `error`, stands.
    pub outcome: Result<Span, Span>,
}

/// A notification about an open request.
#[derive(Debug, Clone, Copy)]
pub struct Notification<'n> {
    /// Who says it.
    pub server: &'n Connection,
    /// The message.
    pub line: &'n Bytes,
    /// What it says.
    pub envelope: &'n Envelope,
    /// For progress: the token the caller chose, and where ours stands in the message.
    pub progress: Option<(&'n [u8], Span)>,
}

/// A request of a server, to be put to a client. It must be answered, or dropped: then it is refused.
#[derive(Debug)]
pub struct ServerRequest {
    /// Who asks.
    pub server: Arc<Connection>,
    /// The message.
    pub line: Bytes,
    /// What it says.
    pub envelope: Envelope,
    is_answered: bool,
    /// What was reserved for it.
    bytes: usize,
}

impl ServerRequest {
    /// A request of `server` for which room was reserved.
    pub(crate) fn new(server: Arc<Connection>, line: Bytes, envelope: Envelope) -> Self {
        Self { server, envelope, is_answered: false, bytes: line.len(), line }
    }

    /// Where the server's id stands.
    pub fn id(&self) -> Span {
        match self.envelope.kind {
            Kind::Request { id, .. } | Kind::Response { id, .. } => id,
            Kind::Notification { method } => method,
        }
    }

    /// What is asked.
    pub fn method(&self) -> String {
        match self.envelope.kind {
            Kind::Request { method, .. } => text::decode(method.of(&self.line)).unwrap_or_default().into_owned(),
            Kind::Notification { .. } | Kind::Response { .. } => String::new(),
        }
    }

    /// Passes on the answer in `line`, which stands there under another id at `id_at`.
    pub fn answer(mut self, line: &Bytes, id_at: Span) {
        self.is_answered = true;
        self.server.answer_server_request(self.id().of(&self.line), line, id_at);
    }

    /// Answers with `result`, which is JSON.
    pub fn answer_with(mut self, result: &[u8]) {
        self.is_answered = true;
        self.server.close_server_request(self.id().of(&self.line), |id| protocol::reply::result(id, result));
    }

    /// Answers that it cannot be answered.
    pub fn refuse(mut self, code: i32, why: &str) {
        self.refuse_now(code, why);
    }

    fn refuse_now(&mut self, code: i32, why: &str) {
        self.is_answered = true;
        self.server.close_server_request(self.id().of(&self.line), |id| protocol::reply::error(id, code, why, None));
    }

    /// The server has given it up itself.
    pub fn forget(mut self) {
        self.is_answered = true;
    }
}

impl Drop for ServerRequest {
    fn drop(&mut self) {
        if !self.is_answered {
            self.refuse_now(protocol::reply::code::INTERNAL_ERROR, "The client is gone, so nobody can answer");
        }
        self.server.release_request(self.bytes);
    }
}
