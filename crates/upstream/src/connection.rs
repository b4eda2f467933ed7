//! Requests to one server, each under an id of ours, and the routing of its responses.
//!
//! A client's id never reaches the server and ours never reaches a client: each outgoing request gets the next number,
//! and a table maps it to its owner. Progress tokens are the same number, so one table serves both.
//!
//! # Layout
//! - here: requests of clients, and the dispatch of what the server sends
//! - `responses`: responses of the server, and their owners
//! - `exclusive`: requests that wait while a server is busy with another client's
//! - `cancellation`: cancelled requests
//! - `own_requests`: requests of our own
//! - `notifications`: notifications of the server
//! - `server_requests`: requests of the server
//! - `batch`: several messages in one array
//! - `incoming`: a message while it is being read, within the limits of its server

mod batch;
mod cancellation;
mod exclusive;
mod incoming;
mod notifications;
mod own_requests;
mod responses;
mod server_requests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use catalog::{Kind as ItemKind, Offer, Secrets, ServerName};
use protocol::envelope::{Envelope, EnvelopeError, Kind, Reason, salvage_id};
use protocol::splice::{Edit, in_order, spliced};
use protocol::{Lifecycle, Line, Lines, RequestEnvelope, Span};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::audience::{Audience, UpstreamKey};
use crate::changes::{ChangeSet, Changes};
use crate::failure::{CallError, Cause, Ending, Phase, Unreadable};
use crate::limits::{LARGE_MESSAGE, Limit, ServerLimits, Undelivered};
use crate::listen_stream::ListenStream;
use crate::liveness::Liveness;
use crate::pending::{Call, Pending, PendingRequests};
use crate::request_id::{Digits, parse_request_id};
use crate::response_handler::ResponseHandler;
use crate::server::UpstreamObserver;
use crate::stream::Source;
use crate::transport::UpstreamTransport;

pub use incoming::IncomingMessage;
pub(crate) use own_requests::NoResponse;

/// Characters of a server's last stderr line in the error of a pending call.
const MAX_STDERR_IN_ERROR: usize = 300;

/// A request of a client, to be forwarded with a few spans replaced.
#[derive(Debug, Clone, Copy)]
pub struct Request<'r> {
    /// The line as the requester wrote it.
    pub line: &'r Bytes,
    /// The span of the requester's id.
    pub id: Span,
    /// The id under which the requester knows it: usually the one at `id`.
    pub known_as: &'r [u8],
    /// A span to replace with the server's own name.
    pub renamed: Option<Edit<'r>>,
    /// The span of the progress token, if progress is requested.
    pub progress: Option<Span>,
}

/// The answer to a request of our own.
#[derive(Debug)]
pub struct Response {
    /// The whole message.
    pub line: Bytes,
    /// The span of its `result` or its `error`.
    pub outcome: Result<Span, Span>,
}

/// The handlers of open server requests, by the server's id.
type ServerRequests = HashMap<Box<[u8]>, Arc<dyn ResponseHandler>>;

/// Our side of the connection to one server.
#[derive(Debug)]
pub struct Connection {
    /// It may be renamed while connected.
    server: Mutex<ServerName>,
    index: usize,
    audience: Audience,
    transport: UpstreamTransport,
    pending: Mutex<PendingRequests>,
    /// The handlers of open server requests, by the server's id.
    server_requests: Mutex<ServerRequests>,
    observer: Weak<dyn UpstreamObserver>,
    /// Known once the handshake is done.
    lifecycle: OnceLock<Lifecycle>,
    /// The client meta in every request of our own to a modern server.
    client_meta: protocol::bridge::meta::ClientMeta,
    changes: Changes,
    pub(crate) listen_stream: ListenStream,
    /// How long a request of a client may take, if there is a limit.
    limit: Option<Duration>,
    /// Limits on what the server may make us store.
    limits: Arc<ServerLimits>,
    undelivered: Arc<Undelivered>,
    /// Bytes of its requests that wait for a client's answer.
    open_request_bytes: AtomicUsize,
    /// A warning about a notification that is too large was logged.
    warned_of_size: AtomicBool,
    secrets: Secrets,
    /// Counts responses and progress: an increase shows the supervisor that the server is alive.
    activity: AtomicU64,
    /// Signs that the server has disconnected.
    pub liveness: Arc<Liveness>,
    /// The connection of the modern handshake, if this one is legacy and the server supports both.
    modern: OnceLock<Arc<Connection>>,
    /// Requests of modern clients are sent to `modern`.
    uses_modern: AtomicBool,
    /// A warning about invalid output on stdout was logged; one is enough.
    warned: AtomicBool,
    /// The server has ended: what remains in the pipe is little, and is read without waiting for slow requesters.
    read_on: watch::Sender<bool>,
    /// The cause of the server's end is known.
    is_over: watch::Sender<bool>,
    /// The last line on stderr before it ended.
    stderr_lines: OnceLock<Box<str>>,
}

/// What a connection needs from its environment.
#[derive(Debug, Clone)]
pub struct ConnectionContext {
    /// The server's key in the configuration.
    pub server: ServerName,
    /// Its slot index.
    pub index: usize,
    /// Whom it serves.
    pub audience: Audience,
    /// Is notified of messages that belong to no request.
    pub observer: Weak<dyn UpstreamObserver>,
    /// Our client meta for a modern server.
    pub client_meta: protocol::bridge::meta::ClientMeta,
    /// How long a request of a client may take.
    pub limit: Option<Duration>,
    /// Limits on what it may make us store.
    pub limits: Arc<ServerLimits>,
    /// Values to remove from text of the server.
    pub secrets: Secrets,
    /// Signs that the server has disconnected; connections to the same server share them.
    pub liveness: Arc<Liveness>,
}

impl Connection {
    /// A connection without any traffic yet.
    pub fn new(connection_context: ConnectionContext, transport: UpstreamTransport) -> Self {
        let ConnectionContext { server, index, audience, observer, client_meta, limit, limits, secrets, liveness } =
            connection_context;
        Self {
            server: Mutex::new(server),
            index,
            transport,
            pending: Mutex::new(PendingRequests::of(&audience)),
            audience,
            server_requests: Mutex::default(),
            observer,
            lifecycle: OnceLock::new(),
            client_meta,
            changes: Changes::default(),
            listen_stream: ListenStream::default(),
            limit,
            undelivered: Undelivered::new(&limits),
            limits,
            open_request_bytes: AtomicUsize::new(0),
            warned_of_size: AtomicBool::new(false),
            secrets,
            activity: AtomicU64::new(0),
            liveness,
            modern: OnceLock::new(),
            uses_modern: AtomicBool::new(false),
            warned: AtomicBool::new(false),
            read_on: watch::Sender::new(false),
            is_over: watch::Sender::new(false),
            stderr_lines: OnceLock::new(),
        }
    }

    /// Records the last stderr line of a server that has ended. Pending requests fail with it.
    pub(crate) fn set_last_stderr_line(&self, words: &str) {
        let words = words.trim().chars().take(MAX_STDERR_IN_ERROR).collect::<String>();
        if !words.is_empty() {
            self.stderr_lines.get_or_init(|| words.into());
        }
    }

    fn ended(&self, ending: &Arc<Ending>) -> CallError {
        CallError::Ended { server: self.server(), ending: Arc::clone(ending), said: self.stderr_lines.get().cloned() }
    }

    /// The text without the server's secrets.
    pub fn hide(&self, text: &str) -> String {
        self.secrets.hide(text).into_owned()
    }

    /// The name of the server.
    pub fn server(&self) -> ServerName {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Renames the server.
    pub fn rename(&self, name: ServerName) {
        if let Some(modern) = self.modern() {
            modern.rename(name.clone());
        }
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }

    /// The connection for clients of `lifecycle`: a server with a handshake in both lifecycles has one for each.
    pub fn for_lifecycle(self: &Arc<Self>, lifecycle: Lifecycle) -> &Arc<Self> {
        match self.modern.get() {
            Some(modern) if lifecycle == Lifecycle::SelfContained && self.uses_modern.load(Ordering::Relaxed) => modern,
            _ => self,
        }
    }

    /// Sets the connection of the modern handshake. It is not used before [`Connection::use_modern`].
    pub fn set_modern(&self, modern: Arc<Self>) {
        self.modern.get_or_init(|| modern);
    }

    /// Sets whether requests of modern clients use the modern handshake.
    pub fn use_modern(&self, is_used: bool) {
        self.uses_modern.store(is_used, Ordering::Relaxed);
    }

    /// The connection of the modern handshake, whether or not it is used.
    pub fn modern(&self) -> Option<&Arc<Self>> {
        self.modern.get()
    }

    /// The server's slot index.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Whom it serves.
    pub fn audience(&self) -> &Audience {
        &self.audience
    }

    /// Which run of which server this is.
    pub fn key(&self) -> UpstreamKey {
        UpstreamKey { server: self.index, audience: self.audience.clone() }
    }

    /// How long a request may take, if there is a limit.
    pub fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Limits on what it may make us store.
    pub fn limits(&self) -> &Arc<ServerLimits> {
        &self.limits
    }

    /// The lifecycle of the server. Legacy until the handshake is done.
    pub fn lifecycle(&self) -> Lifecycle {
        self.lifecycle.get().copied().unwrap_or(Lifecycle::Session)
    }

    /// Sets the lifecycle; the first one set stays.
    pub fn set_lifecycle(&self, lifecycle: Lifecycle) {
        let settled = self.lifecycle.get_or_init(|| lifecycle);
        debug_assert_eq!(*settled, lifecycle, "a lifecycle is settled once");
    }

    /// Whether the server ended because of the first message it received, so that nothing is known of it.
    pub fn ended_on_first_message(&self, ending: &Ending) -> bool {
        let ended_itself = matches!(
            ending,
            Ending::Failed {
                phase: Phase::Initialization,
                cause: Cause::Exited(_) | Cause::ClosedOutput | Cause::ClosedInput
            }
        );
        ended_itself && self.lifecycle.get().is_none()
    }

    /// How many requests of clients are open.
    pub fn open_calls(&self) -> usize {
        let own = self.lock().calls().count();
        own + self.modern().map_or(0, |modern| modern.open_calls())
    }

    /// How many responses and progress notifications requesters have received. An increase shows that the server is
    /// alive.
    pub fn activity(&self) -> u64 {
        self.activity.load(Ordering::Relaxed) + self.modern().map_or(0, |modern| modern.activity())
    }

    /// Flushes what was sent.
    pub fn flush(&self) {
        self.transport.flush();
    }

    /// Sends a client's request and returns its number. It is written with the next flush.
    pub fn forward(
        self: &Arc<Self>,
        request: Request<'_>,
        handler: &Arc<dyn ResponseHandler>,
    ) -> Result<u64, CallError> {
        if self.transport.is_full() {
            return Err(CallError::Congested { server: self.server(), waiting: self.transport.waiting() });
        }
        let (line, requester) = (request.line, handler.requester());
        let call = Call {
            handler: Arc::clone(handler),
            id: Box::from(request.known_as),
            progress: request.progress.map(|span| Box::from(span.of(line))),
            requester,
            since: self.limit.map(|_| Instant::now()),
            is_held: false,
        };
        let mut open = self.lock();
        if let Some(ending) = &open.ended {
            return Err(self.ended(ending));
        }
        let queue_needed_for = open.queue_needed_for(requester);
        let number = open.enter(Pending::Call(call));
        let digits = Digits::new(number);
        let mut edits = [Edit { span: request.id, with: digits.as_bytes() }; 3];
        let mut count = 1;
        let progress = request.progress.map(|span| Edit { span, with: digits.as_bytes() });
        for edit in [request.renamed, progress].into_iter().flatten() {
            edits[count] = edit;
            count += 1;
        }
        let edits = in_order(&mut edits[..count]);
        if queue_needed_for {
            open.hold(number, spliced(line, edits).into());
            // Before it can be released: the two calls must come in this order.
            handler.on_held();
            drop(open);
            tokio::spawn(Arc::clone(self).await_turn(number));
        } else {
            // Not while the table is locked: a responding handler needs it.
            drop(open);
            self.transport.send_spliced(Some(number), line, edits);
        }
        Ok(number)
    }

    /// Fails every open request and every later one.
    pub fn end(&self, ending: &Arc<Ending>) {
        if let Some(modern) = self.modern() {
            modern.end(ending);
        }
        let waiting = {
            let mut open = self.lock();
            // The first reported cause is the most accurate.
            open.ended.get_or_insert_with(|| Arc::clone(ending));
            open.take_all()
        };
        let error = self.ended(ending);
        let mut handlers = Vec::new();
        for waiting in waiting {
            if let Pending::Call(call) = waiting {
                call.handler.on_failure(&call.id, &error);
                remember(&mut handlers, call.handler);
            }
        }
        handlers.iter().for_each(|handler| handler.flush());
        self.withdraw_server_requests();
        self.is_over.send_replace(true);
    }

    /// Waits for the cause after the server has disconnected, if it will be known soon: pending requests should fail
    /// with the cause, not the symptom.
    pub async fn await_ending(&self) {
        let ending_timeout = self.observer.upgrade().map(|observer| observer.ending_timeout()).unwrap_or_default();
        if !ending_timeout.is_zero() {
            drop(tokio::time::timeout(ending_timeout, self.is_over.subscribe().wait_for(|&is_over| is_over)).await);
        }
    }

    /// Reads messages until the server's output ends.
    pub async fn listen(self: Arc<Self>, mut source: Source) {
        // The limit of a line depends on its content, and is determined while it grows.
        let (mut lines, mut handlers) = (Lines::with_limit(usize::MAX), Vec::new());
        let mut incoming = self.incoming(None);
        let mut read_on = self.read_on.subscribe();
        while matches!(source.read_into(lines.space()).await, Ok(1..)) {
            while let Some(line) = lines.next_line() {
                match line {
                    Line::Whole(line) if line.len() <= LARGE_MESSAGE => {
                        self.receive(Line::Whole(line), None, &mut handlers);
                    }
                    line => self.receive_large(line, &mut incoming, &mut handlers),
                }
            }
            if lines.pending() > LARGE_MESSAGE && incoming.grow(lines.pending()).is_err() {
                lines.skip_line();
            }
            // One flush for everything that arrived in one read; a requester that cannot keep up slows its server
            // down, not us.
            for handler in handlers.drain(..) {
                handler.flush();
                if let Some(caught_up) = handler.catch_up() {
                    tokio::select! {
                        () = caught_up => {}
                        _ = read_on.wait_for(|&read_on| read_on) => {}
                    }
                }
            }
        }
        if let Some(line) = lines.rest() {
            self.receive_large(line, &mut incoming, &mut handlers);
            handlers.iter().for_each(|handler| handler.flush());
        }
    }

    /// Handles one message that did not arrive over a pipe: on the stream that answers the request `about`, or on
    /// none. Waits for a requester that cannot keep up.
    pub async fn take(self: &Arc<Self>, message: Bytes, about: Option<u64>) {
        let mut handlers = Vec::new();
        self.receive(Line::Whole(message), about, &mut handlers);
        for handler in handlers {
            handler.flush();
            if let Some(caught_up) = handler.catch_up() {
                caught_up.await;
            }
        }
    }

    /// Whether our request `number` is pending.
    pub fn is_open(&self, number: u64) -> bool {
        self.lock().is_open(number)
    }

    /// Fails our request `number`. A request of our own simply ends.
    pub fn fail(&self, number: u64, error: &CallError) {
        let waiting = self.lock().close(number);
        match (waiting, error) {
            (Some(Pending::Call(call)), error) => {
                call.handler.on_failure(&call.id, error);
                call.handler.flush();
            }
            // The receiver was dropped if the response is no longer wanted.
            (
                Some(Pending::OwnRequest(respondent)),
                CallError::Unreadable { problem: Unreadable::TooLong(over), .. },
            ) => {
                drop(respondent.send(Err(*over)));
            }
            _ => {}
        }
        self.next_turn();
    }

    /// Fails what was sent; later requests may succeed.
    pub fn fail_sent_requests(&self, error: &CallError) {
        let lost = self.lock().take_sent();
        let mut handlers = Vec::new();
        for waiting in lost {
            if let Pending::Call(call) = waiting {
                call.handler.on_failure(&call.id, error);
                remember(&mut handlers, call.handler);
            }
        }
        handlers.iter().for_each(|handler| handler.flush());
        self.withdraw_server_requests();
        self.next_turn();
    }

    /// The server has ended: reads what remains, whether requesters keep up or not.
    pub fn read_on(&self) {
        self.read_on.send_replace(true);
    }

    /// Waits until the server reports changes, and returns them.
    pub(crate) async fn changed(&self) -> ChangeSet {
        self.changes.next().await
    }

    /// Handles a new handshake after the server lost our session: it describes itself with `offer` now, and must
    /// receive all settings again.
    pub fn reinitialized(self: &Arc<Self>, offer: Offer) {
        self.changes.note_server_offer(offer);
        if let Some(observer) = self.observer.upgrade() {
            observer.on_reinitialized(self);
        }
    }

    /// Records that these lists may have changed.
    pub fn note_change(&self, kinds: &[ItemKind]) {
        self.changes.note(kinds);
    }

    fn receive(self: &Arc<Self>, line: Line, about: Option<u64>, handlers: &mut Vec<Arc<dyn ResponseHandler>>) {
        let line = match line {
            Line::Whole(line) => line,
            Line::TooLong { head, tail, .. } => {
                let over = self.limits.over(Limit::Message, "it is");
                return self.fail_unreadable(salvage_id(&head, &tail), Unreadable::TooLong(over), &head);
            }
        };
        match Envelope::scan(&line) {
            Ok(Envelope { kind: Kind::Response { id, outcome }, .. }) => self.answer(line, id, outcome, handlers),
            Ok(envelope @ Envelope { kind: Kind::Notification { method }, .. }) => {
                self.notice(&line, method, &envelope, about, handlers);
            }
            Ok(Envelope { kind: Kind::Request { id, method }, params }) => {
                let request = RequestEnvelope { id, method, params };
                self.receive_server_request(line, request, about, handlers);
            }
            Err(EnvelopeError { reason: Reason::Batch, .. }) => self.receive_batch(&line, about, handlers),
            Err(fault) => {
                let EnvelopeError { reason, id } = fault;
                let id = id.map(|id| id.of(&line)).or_else(|| salvage_id(&line, &line));
                self.fail_unreadable(id, Unreadable::Faulty(reason), &line);
            }
        }
    }

    /// Handles a line that cannot be forwarded. If it was a response, its request fails; if it was invalid output, the
    /// user is warned once.
    fn fail_unreadable(&self, id: Option<&[u8]>, problem: Unreadable, line: &[u8]) {
        let excerpt: String = String::from_utf8_lossy(&line[..line.len().min(240)]).chars().take(120).collect();
        if self.warned.swap(true, Ordering::Relaxed) {
            tracing::debug!(server = %self.server(), %problem, ?excerpt, "ignored a line that is not a message");
        } else {
            tracing::warn!(server = %self.server(), %problem, ?excerpt, "the server sends lines that are not JSON-RPC messages; ignoring them from here on");
        }
        if let Some(number) = id.and_then(parse_request_id) {
            self.fail(number, &CallError::Unreadable { server: self.server(), problem });
        }
    }

    fn lock(&self) -> MutexGuard<'_, PendingRequests> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn remember(handlers: &mut Vec<Arc<dyn ResponseHandler>>, handler: Arc<dyn ResponseHandler>) {
    if !handlers.iter().any(|known| std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(&handler))) {
        handlers.push(handler);
    }
}
