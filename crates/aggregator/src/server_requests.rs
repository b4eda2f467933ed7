//! Server requests to a client: sent under an id of ours, answered under the server's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use catalog::Scope;
use protocol::bridge::{elicitation, label};
use protocol::reply::{self, code};
use protocol::splice::{Edit, in_order};
use protocol::{Envelope, Params, Span};
use tokio::sync::oneshot;
use upstream::{Connection, ServerRequest};

use crate::client::Client;
use crate::client_sink::{ClientSink, Message, Outbound};

/// How many server requests may be pending at one client.
const MAX_OPEN_REQUESTS: usize = 1000;
/// How many URL elicitations are remembered, to forward their completion.
pub const MAX_REMEMBERED_ELICITATIONS: usize = 100;
/// Bytes of the id of an elicitation that is remembered.
const MAX_ELICITATION_ID_BYTES: usize = 1 << 10;

/// The server requests of one client.
#[derive(Default)]
pub(crate) struct ServerRequests(Mutex<State>);

#[derive(Default)]
struct State {
    last: u64,
    open: HashMap<u64, OpenRequest>,
    /// Requests that arrived before the client was initialized.
    early: Vec<ServerRequest>,
    /// All requests to this client are refused.
    is_closed: bool,
    /// Requests that belong to none of the client's requests are refused.
    is_closed_to_unrelated: bool,
    /// URL elicitations sent to this client, with their server.
    elicitations: Vec<(usize, String)>,
}

struct OpenRequest {
    by: RequestedBy,
    /// The server's progress token, if it requested progress.
    progress: Option<Box<[u8]>>,
    sink: Arc<dyn ClientSink>,
}

enum RequestedBy {
    Server(Box<ServerRequest>),
    /// The bridge sends a request for a server that cannot.
    Bridge(oneshot::Sender<Result<Bytes, Bytes>>),
}

impl ServerRequests {
    /// Sends a server request to the client, if the client can answer it.
    pub(crate) fn put(&self, client: &Arc<Client>, sink: &Arc<dyn ClientSink>, request: ServerRequest) {
        let method = request.method();
        if self.lock().is_closed {
            return request.refuse(code::METHOD_NOT_FOUND, &format!("Method not found: {method}"));
        }
        let params = request.envelope.params;
        let whole = params.span.map_or(&b"{}"[..], |span| span.of(&request.line));
        if !elicitation::is_offered(&client.client_meta().capabilities, &method, whole) {
            let why = format!("The client does not support what `{method}` needs");
            return request.refuse(code::METHOD_NOT_FOUND, &why);
        }
        let line = labelled(client, &request, &method);
        let Ok(Envelope { kind: protocol::Kind::Request { id, .. }, params }) = Envelope::scan(&line) else {
            return request.refuse(code::INTERNAL_ERROR, "The request could not be passed on");
        };
        let mut state = self.lock();
        if state.open.len() >= MAX_OPEN_REQUESTS {
            drop(state);
            return request.refuse(code::INTERNAL_ERROR, "The client already has too many requests to answer");
        }
        if method == "elicitation/create"
            && let Some(params) = request.envelope.params.span
        {
            state.remember_elicitation(request.server.index(), &request.line, params);
        }
        state.last += 1;
        let number = state.last;
        let progress = params.wanted_progress.map(|token| Box::from(token.of(&line)));
        state.open.insert(
            number,
            OpenRequest { by: RequestedBy::Server(Box::new(request)), progress, sink: Arc::clone(sink) },
        );
        drop(state);
        let digits = number.to_string();
        let mut edits = [Edit { span: id, with: digits.as_bytes() }; 2];
        let mut count = 1;
        if let Some(span) = params.wanted_progress {
            edits[1] = Edit { span, with: digits.as_bytes() };
            count = 2;
        }
        sink.send(Outbound::Notification, Message::Spliced { line: &line, edits: in_order(&mut edits[..count]) });
        sink.flush();
    }

    /// Sends a request that arrived before the client was initialized, once it is.
    pub(crate) fn send_when_ready(&self, client: &Arc<Client>, request: ServerRequest) {
        {
            let mut state = self.lock();
            if state.is_closed_to_unrelated {
                drop(state);
                return request.refuse(
                    code::METHOD_NOT_FOUND,
                    "A server can send requests to a client only about the client's own requests",
                );
            }
            if !client.is_initialized() && !state.is_closed && state.early.len() < MAX_OPEN_REQUESTS {
                return state.early.push(request);
            }
        }
        self.put(client, client.sink(), request);
    }

    /// Sends the waiting requests: the client is initialized.
    pub(crate) fn send_waiting(&self, client: &Arc<Client>) {
        let early = std::mem::take(&mut self.lock().early);
        for request in early {
            self.put(client, client.sink(), request);
        }
    }

    /// Sends a request to the client for a server that cannot send requests itself.
    pub(crate) fn ask(client: &Arc<Client>, sink: &Arc<dyn ClientSink>, method: &str, params: &[u8]) -> BridgeRequest {
        let (sender, answer) = oneshot::channel();
        let number = {
            let mut state = client.server_requests.lock();
            state.last += 1;
            let asked = OpenRequest { by: RequestedBy::Bridge(sender), progress: None, sink: Arc::clone(sink) };
            let number = state.last;
            if state.is_closed {
                return BridgeRequest { client: Arc::clone(client), number, answer };
            }
            state.open.insert(number, asked);
            number
        };
        sink.send(Outbound::Notification, Message::Own(&reply::request(number, method, Some(params))));
        sink.flush();
        BridgeRequest { client: Arc::clone(client), number, answer }
    }

    /// Handles a response of the client; the id is at `id_at`.
    pub(crate) fn answered(&self, line: &Bytes, id_at: Span, outcome: Result<Span, Span>) {
        let Some(asked) = number(id_at.of(line)).and_then(|number| self.lock().open.remove(&number)) else {
            return tracing::debug!("dropped a response of the client to an unknown request");
        };
        match asked.by {
            RequestedBy::Server(request) => request.answer(line, id_at),
            RequestedBy::Bridge(respondent) => {
                let taken = |span: Span| line.slice(span.start..span.end);
                // The receiver was dropped if the request was cancelled.
                drop(respondent.send(outcome.map(taken).map_err(taken)));
            }
        }
    }

    /// Forwards the client's progress on a server request.
    pub(crate) fn progressed(&self, line: &Bytes, params: &Params) {
        let Some(token_at) = params.progress_token else { return };
        let state = self.lock();
        let Some(asked) = number(token_at.of(line)).and_then(|number| state.open.get(&number)) else { return };
        let (RequestedBy::Server(request), Some(token)) = (&asked.by, &asked.progress) else { return };
        let mut message = Vec::with_capacity(line.len());
        Message::Spliced { line, edits: &[Edit { span: token_at, with: token }] }.write_to(&mut message);
        request.server.pass(&Bytes::from(message));
    }

    /// Cancels the request that the server sent under `id`.
    pub(crate) fn withdraw(&self, server: &Connection, id: &[u8], line: &Bytes, id_at: Span) {
        let is_meant =
            |request: &ServerRequest| std::ptr::eq(&*request.server, server) && request.id().of(&request.line) == id;
        let mut state = self.lock();
        let number = state.open.iter().find_map(|(&number, asked)| match &asked.by {
            RequestedBy::Server(request) if is_meant(request) => Some(number),
            RequestedBy::Server(_) | RequestedBy::Bridge(_) => None,
        });
        if let Some(at) = state.early.iter().position(is_meant) {
            return state.early.remove(at).forget();
        }
        let Some((number, asked)) = number.and_then(|number| Some((number, state.open.remove(&number)?))) else {
            return;
        };
        drop(state);
        let digits = number.to_string();
        asked.sink.send(
            Outbound::Notification,
            Message::Spliced { line, edits: &[Edit { span: id_at, with: digits.as_bytes() }] },
        );
        asked.sink.flush();
        if let RequestedBy::Server(request) = asked.by {
            request.forget();
        }
    }

    /// Records an elicitation that a response contains. Returns whether the client accepts server requests at all.
    pub(crate) fn note_elicitation(&self, server: &Connection, line: &[u8], params: Span) -> bool {
        let mut state = self.lock();
        if !state.is_closed {
            state.remember_elicitation(server.index(), line, params);
        }
        !state.is_closed
    }

    /// Forgets the elicitation `id` of that server. Returns whether this client received it.
    pub(crate) fn take_elicitation(&self, server: usize, id: &str) -> bool {
        let mut state = self.lock();
        let known = state.elicitations.iter().position(|(by, known)| *by == server && known == id);
        known.map(|at| state.elicitations.remove(at)).is_some()
    }

    /// Refuses all further requests, and drops the pending ones.
    pub(crate) fn close(&self) {
        let (open, early) = {
            let mut state = self.lock();
            state.is_closed = true;
            (std::mem::take(&mut state.open), std::mem::take(&mut state.early))
        };
        // Dropped without the lock: each reports to its server.
        drop((open, early));
    }

    /// Whether all requests are refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// From now on, refuses requests that belong to none of the client's requests.
    pub(crate) fn close_to_unrelated(&self) {
        let early = {
            let mut state = self.lock();
            state.is_closed_to_unrelated = true;
            std::mem::take(&mut state.early)
        };
        for request in early {
            request.refuse(
                code::METHOD_NOT_FOUND,
                "A server can send requests to a client only about the client's own requests",
            );
        }
    }

    /// Drops everything: the client has disconnected.
    pub(crate) fn give_up(&self) {
        let state = std::mem::take(&mut *self.lock());
        // Dropped without the lock: each reports to its server.
        drop(state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request of the bridge. If it is dropped before it is answered, it is cancelled.
pub(crate) struct BridgeRequest {
    client: Arc<Client>,
    number: u64,
    answer: oneshot::Receiver<Result<Bytes, Bytes>>,
}

impl BridgeRequest {
    /// The `result` or the `error` of the client's response; `None` if the client has disconnected.
    pub(crate) async fn answer(mut self) -> Option<Result<Bytes, Bytes>> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for BridgeRequest {
    fn drop(&mut self) {
        let Some(asked) = self.client.server_requests.lock().open.remove(&self.number) else { return };
        let why = reply::string("the request it belongs to has ended");
        let params = reply::object([("requestId", self.number.to_string().into_bytes()), ("reason", why)]);
        let notice = reply::notification("notifications/cancelled", Some(&params));
        asked.sink.send(Outbound::Notification, Message::Own(&notice));
        asked.sink.flush();
    }
}

impl State {
    /// Remembers a URL elicitation: the server will report when it is complete.
    fn remember_elicitation(&mut self, server: usize, line: &[u8], params: Span) {
        let id = protocol::scan::member(line, params, "elicitationId");
        let id = id.filter(|id| id.end - id.start <= MAX_ELICITATION_ID_BYTES);
        let Some(id) = id.and_then(|id| protocol::text::decode(id.of(line))) else { return };
        if self.elicitations.len() >= MAX_REMEMBERED_ELICITATIONS {
            self.elicitations.remove(0);
        }
        self.elicitations.push((server, id.into_owned()));
    }
}

/// Adds the server's name for the person who answers, unless only one server can ask.
fn labelled(client: &Client, request: &ServerRequest, method: &str) -> Bytes {
    match client.scope() {
        Scope::All if method == "elicitation/create" => {
            label::elicitation(&request.line, &request.envelope.params, request.server.server().as_str())
        }
        Scope::All | Scope::One(_) => request.line.clone(),
    }
}

/// The number in an id of ours, as the client returns it.
fn number(token: &[u8]) -> Option<u64> {
    std::str::from_utf8(token).ok()?.trim_matches('"').parse().ok()
}
