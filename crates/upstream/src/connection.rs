//! Requests on their way to one server, each under an id of ours, and where its answer goes.
//!
//! A client's id never reaches the server and ours never reaches a client: each outgoing request gets the next number,
//! and a table remembers whose it is. Progress tokens are the same number, so one table serves both.
//!
//! # Layout
//! - here: requests of callers, and what the server sends, sorted
//! - `answers`: what comes back, and for whom
//! - `turns`: requests that wait until a server is done with somebody else's
//! - `withdrawal`: requests that are given up
//! - `own`: questions of our own
//! - `hearing`: notifications of the server
//! - `receive_server_request`: questions of the server
//! - `batch`: several messages at once
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

use bytes::{Bytes, BytesMut};
use catalog::{Kind as ItemKind, Offer, Secrets, ServerName};
use protocol::envelope::{Envelope, EnvelopeError, Kind, Reason, salvage_id};
use protocol::splice::{Edit, Piece, in_order, splice};
use protocol::{Lifecycle, Line, Lines, Span};
use tokio::sync::watch;
use tokio::time::Instant;

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

/// So much of a server's last words is told to who waits for its answer.
const MAX_STDERR_IN_ERROR: usize = 300;

/// A request of a caller, to be forwarded with a few spans replaced.
#[derive(Debug, Clone, Copy)]
pub struct Request<'r> {
    /// The line as the caller wrote it.
    pub line: &'r Bytes,
    /// Where the caller's id stands.
    pub id: Span,
    /// What the caller knows it as: usually what stands at `id`.
    pub known_as: &'r [u8],
    /// A span that the server knows under another token: a name.
    pub renamed: Option<Edit<'r>>,
    /// Where the progress token stands, if progress is wanted.
    pub progress: Option<Span>,
}

/// The answer to a request of our own.
#[derive(Debug)]
pub struct Response {
    /// The whole message.
    pub line: Bytes,
    /// Where its `result`, or its `error`, stands.
    pub outcome: Result<Span, Span>,
}

/// Whom questions were put to, by the server's id.
type ServerRequests = HashMap<Box<[u8]>, Arc<dyn ResponseHandler>>;

/// Our side of the conversation with one server.
#[derive(Debug)]
pub struct Connection {
    /// It may get another name while we talk.
    server: Mutex<ServerName>,
    index: usize,
    transport: UpstreamTransport,
    pending: Mutex<PendingRequests>,
    /// Whom the server's questions were put to, by the server's id.
    server_requests: Mutex<ServerRequests>,
    observer: Weak<dyn UpstreamObserver>,
    /// Known once the server has been met.
    lifecycle: OnceLock<Lifecycle>,
    /// What we say of ourselves with every request of our own to a modern server.
    client_meta: protocol::bridge::meta::ClientMeta,
    changes: Changes,
    pub(crate) listen_stream: ListenStream,
    /// How long a request of a caller may take, if there is a limit.
    limit: Option<Duration>,
    /// What the server may make us hold.
    limits: Arc<ServerLimits>,
    undelivered: Arc<Undelivered>,
    /// Bytes of its requests that wait for a client's answer.
    open_request_bytes: AtomicUsize,
    /// A warning about a notification that is too large was given.
    warned_of_size: AtomicBool,
    secrets: Secrets,
    /// How often the server did something for a caller: whoever watches it sees from it that the server is alive.
    activity: AtomicU64,
    /// Signs that the server is gone.
    pub liveness: Arc<Liveness>,
    /// The same server in its modern handshake, if it was met in the legacy way and speaks both.
    modern: OnceLock<Arc<Connection>>,
    /// Requests of modern clients go there.
    uses_modern: AtomicBool,
    /// A warning about junk on stdout was given; one is enough.
    warned: AtomicBool,
    /// The server has ended: what it left in the pipe is little, and is read without waiting for slow callers.
    read_on: watch::Sender<bool>,
    /// It is known how the server ended.
    is_over: watch::Sender<bool>,
    /// The last thing it said before it ended, beside its answers.
    stderr_lines: OnceLock<Box<str>>,
}

/// What a connection needs to know of its surroundings.
#[derive(Debug, Clone)]
pub struct ConnectionContext {
    /// The server's key in the configuration.
    pub server: ServerName,
    /// Its place there.
    pub index: usize,
    /// Who hears what is about no request.
    pub observer: Weak<dyn UpstreamObserver>,
    /// What we say of ourselves to a modern server.
    pub client_meta: protocol::bridge::meta::ClientMeta,
    /// How long a request of a caller may take.
    pub limit: Option<Duration>,
    /// What it may make us hold.
    pub limits: Arc<ServerLimits>,
    /// What must not be told of the server.
    pub secrets: Secrets,
    /// Signs that the server is gone; connections to the same server share them.
    pub liveness: Arc<Liveness>,
}

impl Connection {
    /// A conversation that has not begun.
    pub fn new(connection_context: ConnectionContext, transport: UpstreamTransport) -> Self {
        let ConnectionContext { server, index, observer, client_meta, limit, limits, secrets, liveness } =
            connection_context;
        Self {
            server: Mutex::new(server),
            index,
            transport,
            pending: Mutex::default(),
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

    /// The server has ended, and this is the last thing it said. Whoever waits for an answer is told.
    pub(crate) fn set_last_stderr_line(&self, words: &str) {
        let words = words.trim().chars().take(MAX_STDERR_IN_ERROR).collect::<String>();
        if !words.is_empty() {
            self.stderr_lines.get_or_init(|| words.into());
        }
    }

    fn ended(&self, ending: &Arc<Ending>) -> CallError {
        CallError::Ended { server: self.server(), ending: Arc::clone(ending), said: self.stderr_lines.get().cloned() }
    }

    /// What is told of the server in this text, without its secrets.
    pub fn hide(&self, text: &str) -> String {
        self.secrets.hide(text).into_owned()
    }

    /// Who is at the other end.
    pub fn server(&self) -> ServerName {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on the server has another name.
    pub fn rename(&self, name: ServerName) {
        if let Some(modern) = self.modern() {
            modern.rename(name.clone());
        }
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }

    /// The connection that takes requests of clients of `lifecycle`: a server that was met in both ways has one for each.
    pub fn for_lifecycle(self: &Arc<Self>, lifecycle: Lifecycle) -> &Arc<Self> {
        match self.modern.get() {
            Some(modern) if lifecycle == Lifecycle::SelfContained && self.uses_modern.load(Ordering::Relaxed) => modern,
            _ => self,
        }
    }

    /// The same server was also met in the modern way. It is not used before [`Connection::use_modern`].
    pub fn set_modern(&self, modern: Arc<Self>) {
        self.modern.get_or_init(|| modern);
    }

    /// Whether requests of modern clients go to the modern handshake.
    pub fn use_modern(&self, is_used: bool) {
        self.uses_modern.store(is_used, Ordering::Relaxed);
    }

    /// The connection of the modern handshake, whether or not it is used.
    pub fn modern(&self) -> Option<&Arc<Self>> {
        self.modern.get()
    }

    /// The server's place in the configuration.
    pub fn index(&self) -> usize {
        self.index
    }

    /// How long a request may take, if there is a limit.
    pub fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// What it may make us hold.
    pub fn limits(&self) -> &Arc<ServerLimits> {
        &self.limits
    }

    /// How the server is talked to. Legacy until something else is known.
    pub fn lifecycle(&self) -> Lifecycle {
        self.lifecycle.get().copied().unwrap_or(Lifecycle::Session)
    }

    /// The server is talked to like this from now on; what was settled first stays.
    pub fn set_lifecycle(&self, lifecycle: Lifecycle) {
        let settled = self.lifecycle.get_or_init(|| lifecycle);
        debug_assert_eq!(*settled, lifecycle, "an era is settled once");
    }

    /// Whether the server went away over the first thing it was told, so that nothing of it is known.
    pub fn ended_over_greeting(&self, ending: &Ending) -> bool {
        let ended_itself = matches!(
            ending,
            Ending::Failed {
                phase: Phase::Initialization,
                cause: Cause::Exited(_) | Cause::ClosedOutput | Cause::ClosedInput
            }
        );
        ended_itself && self.lifecycle.get().is_none()
    }

    /// How many requests of callers are open.
    pub fn open_calls(&self) -> usize {
        let own = self.lock().calls().count();
        own + self.modern().map_or(0, |modern| modern.open_calls())
    }

    /// How many answers and signs of progress callers have got from the server. If it is more than it was, it is alive.
    pub fn activity(&self) -> u64 {
        self.activity.load(Ordering::Relaxed) + self.modern().map_or(0, |modern| modern.activity())
    }

    /// Lets out what was sent.
    pub fn flush(&self) {
        self.transport.flush();
    }

    /// Sends a caller's request and tells its number. It leaves with the next flush.
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
            open.hold(number, spliced(line, edits));
            // Before anybody can release it: the two must be heard in this order.
            handler.on_held();
            drop(open);
            tokio::spawn(Arc::clone(self).await_turn(number));
        } else {
            // Not while the table is locked: whoever answers needs it.
            drop(open);
            self.transport.send_spliced(Some(number), line, edits);
        }
        Ok(number)
    }

    /// Nothing more will be answered: every request still open fails, and every later one.
    pub fn end(&self, ending: &Arc<Ending>) {
        if let Some(modern) = self.modern() {
            modern.end(ending);
        }
        let waiting = {
            let mut open = self.lock();
            // Whoever says so first knows best.
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

    /// The server broke off. If somebody will soon know what became of it, waits for that: whoever has a request there is
    /// to hear the cause, and not the symptom.
    pub async fn await_ending(&self) {
        let ending_timeout = self.observer.upgrade().map(|observer| observer.ending_timeout()).unwrap_or_default();
        if !ending_timeout.is_zero() {
            drop(tokio::time::timeout(ending_timeout, self.is_over.subscribe().wait_for(|&is_over| is_over)).await);
        }
    }

    /// Reads what the server says until it stops saying anything.
    pub async fn listen(self: Arc<Self>, mut source: Source) {
        // How long a line may be is decided while it grows.
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
            // One flush for all that came in one read; and a caller who cannot keep up slows its server down, not us.
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

    /// Takes one message that came by another way than a pipe: on the stream that answers the request `about`, or on
    /// none. Waits for a caller who cannot keep up.
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

    /// Whether the request of ours under `number` is still to be answered.
    pub fn is_open(&self, number: u64) -> bool {
        self.lock().is_open(number)
    }

    /// There will be no answer to the request of ours under `number`. A question of our own simply ends.
    pub fn fail(&self, number: u64, error: &CallError) {
        let waiting = self.lock().close(number);
        match (waiting, error) {
            (Some(Pending::Call(call)), error) => {
                call.handler.on_failure(&call.id, error);
                call.handler.flush();
            }
            // Nobody waits any more if the receiver is gone.
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

    /// What was sent will not be answered, but what is sent from now on may be.
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

    /// The server has ended: read what is left, whether callers keep up or not.
    pub fn read_on(&self) {
        self.read_on.send_replace(true);
    }

    /// Waits until the server says that something has changed, and tells what.
    pub(crate) async fn changed(&self) -> ChangeSet {
        self.changes.next().await
    }

    /// The server had forgotten us, and got to know us anew: it says `client_meta` of itself now, and must be told again
    /// whatever it was told.
    pub fn reinitialized(self: &Arc<Self>, offer: Offer) {
        self.changes.note_server_offer(offer);
        if let Some(observer) = self.observer.upgrade() {
            observer.on_reinitialized(self);
        }
    }

    /// These may no longer be what we know of them.
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
            Ok(envelope @ Envelope { kind: Kind::Request { id, method }, .. }) => {
                self.receive_server_request(line, id, method, envelope, about, handlers);
            }
            Err(EnvelopeError { reason: Reason::Batch, .. }) => self.receive_batch(&line, about, handlers),
            Err(fault) => {
                let EnvelopeError { reason, id } = fault;
                let id = id.map(|id| id.of(&line)).or_else(|| salvage_id(&line, &line));
                self.fail_unreadable(id, Unreadable::Faulty(reason), &line);
            }
        }
    }

    /// A line that cannot be passed on. If it was somebody's answer, they are told; if it was chatter, the user is, once.
    fn fail_unreadable(&self, id: Option<&[u8]>, problem: Unreadable, line: &[u8]) {
        let excerpt: String = String::from_utf8_lossy(&line[..line.len().min(240)]).chars().take(120).collect();
        if self.warned.swap(true, Ordering::Relaxed) {
            tracing::debug!(server = %self.server(), %problem, ?excerpt, "ignored a line that is no message");
        } else {
            tracing::warn!(server = %self.server(), %problem, ?excerpt, "the server sends what is no JSON-RPC message; ignored from here on");
        }
        if let Some(number) = id.and_then(parse_request_id) {
            self.fail(number, &CallError::Unreadable { server: self.server(), problem });
        }
    }

    fn lock(&self) -> MutexGuard<'_, PendingRequests> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `line` with some spans replaced.
fn spliced(line: &[u8], edits: &[Edit<'_>]) -> Bytes {
    let mut body = BytesMut::with_capacity(line.len() + 32);
    splice(line.len(), edits, |piece| match piece {
        Piece::Kept(span) => body.extend_from_slice(span.of(line)),
        Piece::New(bytes) => body.extend_from_slice(bytes),
    });
    body.freeze()
}

fn remember(handlers: &mut Vec<Arc<dyn ResponseHandler>>, handler: Arc<dyn ResponseHandler>) {
    if !handlers.iter().any(|known| std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(&handler))) {
        handlers.push(handler);
    }
}
