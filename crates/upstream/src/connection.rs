//! Requests on their way to one server, each under an id of ours, and where its answer goes.
//!
//! A client's id never reaches the server and ours never reaches a client: each outgoing request gets the next number,
//! and a table remembers whose it is. Progress tokens are the same number, so one table serves both.

use std::collections::HashMap;
use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use catalog::ServerName;
use protocol::envelope::{Envelope, Fault, Kind, salvage_id};
use protocol::reply::{self, code};
use protocol::splice::Edit;
use protocol::{Line, Lines, Span, text};
use tokio::sync::{Notify, oneshot, watch};

use crate::failure::{CallError, Ending, Unreadable};
use crate::stream::Source;
use crate::wire::Wire;

/// Somebody who made requests and gets the answers. Every request ends in one of `answered`, `failed`, `cancelled`.
pub trait Caller: Send + Sync {
    /// The number of the client behind the requests, which it may cancel.
    fn client(&self) -> u64;
    /// The server's answer, whole. `id_at` is where our id stands; `id` is the caller's own to put there.
    fn answered(&self, id: &[u8], line: &Bytes, id_at: Span);
    /// There will be no answer.
    fn failed(&self, id: &[u8], error: &CallError);
    /// The client gave it up.
    fn cancelled(&self, id: &[u8]);
    /// A progress notification. `token_at` is where our token stands; `token` is the caller's own to put there.
    fn progressed(&self, token: &[u8], line: &Bytes, token_at: Span);
    /// All that has arrived for now was handed over.
    fn flush(&self);
    /// If the caller reads slower than servers answer: something to wait for before handing over more.
    fn catching_up(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>>;
}

/// A request of a caller, to be forwarded with a few spans replaced.
#[derive(Debug, Clone, Copy)]
pub struct Request<'r> {
    /// The line as the caller wrote it.
    pub line: &'r Bytes,
    /// Where the caller's id stands.
    pub id: Span,
    /// Where the name stands that the server knows under another.
    pub name: Span,
    /// The name token the server knows.
    pub server_name: &'r [u8],
    /// Where the progress token stands, if progress is wanted.
    pub progress: Option<Span>,
}

/// Our side of the conversation with one server.
#[derive(Debug)]
pub struct Connection {
    server: ServerName,
    wire: Wire,
    open: Mutex<Open>,
    tools_changed: Notify,
    /// A warning about junk on stdout was given; one is enough.
    warned: AtomicBool,
    /// The server has ended: what it left in the pipe is little, and is read without waiting for slow callers.
    read_on: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Open {
    last_id: u64,
    waiting: HashMap<u64, Waiting>,
    /// Set once, when nothing can be answered any more.
    ended: Option<Arc<Ending>>,
}

enum Waiting {
    /// The id and token are copies: a few bytes must not keep the whole request in memory until it is answered.
    Caller {
        caller: Arc<dyn Caller>,
        id: Box<[u8]>,
        progress: Option<Box<[u8]>>,
    },
    Ourselves(oneshot::Sender<Answer>),
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Caller { id, .. } => write!(out, "Caller({})", String::from_utf8_lossy(id)),
            Self::Ourselves(_) => out.write_str("Ourselves"),
        }
    }
}

/// The answer to a request of our own.
#[derive(Debug)]
pub struct Answer {
    /// The whole message.
    pub line: Bytes,
    /// Where its `result`, or its `error`, stands.
    pub outcome: Result<Span, Span>,
}

impl Connection {
    /// A conversation that has not begun.
    pub fn new(server: ServerName, wire: Wire) -> Self {
        Self {
            server,
            wire,
            open: Mutex::default(),
            tools_changed: Notify::new(),
            warned: AtomicBool::new(false),
            read_on: watch::Sender::new(false),
        }
    }

    /// Who is at the other end.
    pub fn server(&self) -> &ServerName {
        &self.server
    }

    /// Lets out what was sent.
    pub fn flush(&self) {
        self.wire.flush();
    }

    /// Sends a caller's request. It leaves with the next flush.
    pub fn forward(&self, request: Request<'_>, caller: &Arc<dyn Caller>) -> Result<(), CallError> {
        if self.wire.is_full() {
            return Err(CallError::Congested { server: self.server.clone(), waiting: self.wire.waiting() });
        }
        let line = request.line;
        let own = |span: Span| Box::from(span.of(line));
        let waiting =
            Waiting::Caller { caller: Arc::clone(caller), id: own(request.id), progress: request.progress.map(own) };
        let number = self.expect(waiting)?;
        let id = Digits::new(number);
        let mut edits = [
            Edit { span: request.id, with: id.as_bytes() },
            Edit { span: request.name, with: request.server_name },
            Edit { span: request.progress.unwrap_or(request.id), with: id.as_bytes() },
        ];
        let count = if request.progress.is_some() { 3 } else { 2 };
        self.wire.send_spliced(Some(number), line, &mut edits[..count]);
        Ok(())
    }

    /// Gives up the request that `client` made under `id`: the server is told in the client's own words, with `id_at` in
    /// `line` replaced by the id it knows, and what it still says about it is dropped.
    pub fn cancel(&self, client: u64, id: &[u8], line: &Bytes, id_at: Span) -> bool {
        // Cancellations are rare, so they search; that keeps calls free of a second table.
        let found = {
            let mut open = self.lock();
            let ours = open.waiting.iter().find_map(|(&ours, waiting)| match waiting {
                Waiting::Caller { caller, id: own, .. } if &own[..] == id && caller.client() == client => Some(ours),
                _ => None,
            });
            ours.and_then(|ours| Some((ours, open.waiting.remove(&ours)?)))
        };
        let Some((ours, Waiting::Caller { caller, .. })) = found else { return false };
        // A server that reads nothing would not hear it either.
        if !self.wire.is_full() {
            self.wire.send_spliced(None, line, &mut [Edit { span: id_at, with: Digits::new(ours).as_bytes() }]);
            self.wire.flush();
        }
        caller.cancelled(id);
        true
    }

    /// Asks the server something ourselves; `None` if it ended before it answered.
    pub async fn ask(&self, method: &str, params: Option<&[u8]>) -> Option<Answer> {
        let (sender, receiver) = oneshot::channel();
        let id = self.expect(Waiting::Ourselves(sender)).ok()?;
        let _abandoned = Abandon { connection: self, id };
        self.wire.send(Some(id), &reply::request(id, method, params));
        self.wire.flush();
        receiver.await.ok()
    }

    /// Tells the server something.
    pub fn tell(&self, method: &str, params: Option<&[u8]>) {
        self.wire.send(None, &reply::notification(method, params));
        self.wire.flush();
    }

    /// Waits until the server says that its tools have changed.
    pub async fn tools_changed(&self) {
        self.tools_changed.notified().await;
    }

    /// Nothing more will be answered: every request still open fails, and every later one.
    pub fn end(&self, ending: &Arc<Ending>) {
        let waiting = {
            let mut open = self.lock();
            open.ended = Some(Arc::clone(ending));
            std::mem::take(&mut open.waiting)
        };
        let error = CallError::Ended { server: self.server.clone(), ending: Arc::clone(ending) };
        let mut callers = Vec::new();
        for waiting in waiting.into_values() {
            if let Waiting::Caller { caller, id, .. } = waiting {
                caller.failed(&id, &error);
                remember(&mut callers, caller);
            }
        }
        callers.iter().for_each(|caller| caller.flush());
    }

    /// Reads what the server says until it stops saying anything.
    pub async fn listen(self: Arc<Self>, mut source: Source) {
        let (mut lines, mut callers) = (Lines::default(), Vec::new());
        let mut read_on = self.read_on.subscribe();
        while matches!(source.read_into(lines.space()).await, Ok(1..)) {
            while let Some(line) = lines.next_line() {
                self.receive(line, &mut callers);
            }
            // One flush for all that came in one read; and a caller who cannot keep up slows its server down, not us.
            for caller in callers.drain(..) {
                caller.flush();
                if let Some(caught_up) = caller.catching_up() {
                    tokio::select! {
                        () = caught_up => {}
                        _ = read_on.wait_for(|&read_on| read_on) => {}
                    }
                }
            }
        }
        if let Some(line) = lines.rest() {
            self.receive(line, &mut callers);
            callers.iter().for_each(|caller| caller.flush());
        }
    }

    /// Takes one message that came by another way than a pipe, and waits for a caller who cannot keep up.
    pub async fn take(&self, message: Bytes) {
        let mut callers = Vec::new();
        self.receive(Line::Whole(message), &mut callers);
        for caller in callers {
            caller.flush();
            if let Some(caught_up) = caller.catching_up() {
                caught_up.await;
            }
        }
    }

    /// Whether the request of ours under `number` is still to be answered.
    pub fn is_open(&self, number: u64) -> bool {
        self.lock().waiting.contains_key(&number)
    }

    /// There will be no answer to the request of ours under `number`. A question of our own simply ends.
    pub fn fail(&self, number: u64, error: &CallError) {
        let waiting = self.lock().waiting.remove(&number);
        if let Some(Waiting::Caller { caller, id, .. }) = waiting {
            caller.failed(&id, error);
            caller.flush();
        }
    }

    /// The server has ended: read what is left, whether callers keep up or not.
    pub fn read_on(&self) {
        self.read_on.send_replace(true);
    }

    fn receive(&self, line: Line, callers: &mut Vec<Arc<dyn Caller>>) {
        let line = match line {
            Line::Whole(line) => line,
            Line::TooLong { head, tail, length } => {
                return self.fail_unreadable(salvage_id(&head, &tail), Unreadable::TooLong(length), &head);
            }
        };
        match Envelope::scan(&line) {
            Ok(Envelope { kind: Kind::Response { id, outcome }, .. }) => self.answer(line, id, outcome, callers),
            Ok(Envelope { kind: Kind::Notification { method }, params }) => {
                self.notice(&line, method, params.progress_token, callers);
            }
            Ok(Envelope { kind: Kind::Request { id, method }, .. }) => self.asked(&line, id, method),
            Err(fault) => {
                let Fault { reason, id } = fault;
                let id = id.map(|id| id.of(&line)).or_else(|| salvage_id(&line, &line));
                self.fail_unreadable(id, Unreadable::Faulty(reason), &line);
            }
        }
    }

    fn answer(&self, line: Bytes, id_at: Span, outcome: Result<Span, Span>, callers: &mut Vec<Arc<dyn Caller>>) {
        let number = our_number(id_at.of(&line));
        let Some(waiting) = number.and_then(|number| self.lock().waiting.remove(&number)) else {
            // Answered twice, answered after a cancellation, or never asked: nobody is waiting for it.
            tracing::debug!(server = %self.server, id = %String::from_utf8_lossy(id_at.of(&line)), "dropped an answer to no open request");
            return;
        };
        match waiting {
            Waiting::Caller { caller, id, .. } => {
                caller.answered(&id, &line, id_at);
                remember(callers, caller);
            }
            // Whoever asked may have stopped waiting; then nobody misses the answer.
            Waiting::Ourselves(asker) => drop(asker.send(Answer { line, outcome })),
        }
    }

    fn notice(&self, line: &Bytes, method: Span, token: Option<Span>, callers: &mut Vec<Arc<dyn Caller>>) {
        match text::decode(method.of(line)).as_deref() {
            Some("notifications/progress") => {
                let Some(token_at) = token else { return };
                let wanted = our_number(token_at.of(line)).and_then(|number| match self.lock().waiting.get(&number) {
                    Some(Waiting::Caller { caller, progress: Some(token), .. }) => {
                        Some((Arc::clone(caller), token.clone()))
                    }
                    _ => None,
                });
                if let Some((caller, token)) = wanted {
                    caller.progressed(&token, line, token_at);
                    remember(callers, caller);
                }
            }
            Some("notifications/tools/list_changed") => self.tools_changed.notify_one(),
            method => {
                tracing::debug!(server = %self.server, method = method.unwrap_or("?"), "notification not passed on");
            }
        }
    }

    /// A request of the server's: we are alive, and offer nothing else.
    fn asked(&self, line: &Bytes, id: Span, method: Span) {
        let answer = match text::decode(method.of(line)).as_deref() {
            Some("ping") => reply::result(id.of(line), b"{}"),
            method => {
                let message = format!("Method not found: {}", method.unwrap_or("?"));
                reply::error(id.of(line), code::METHOD_NOT_FOUND, &message, None)
            }
        };
        // A server that floods us with questions and reads no answers must not fill our memory.
        if !self.wire.is_congested() {
            self.wire.send(None, &answer);
            self.wire.flush();
        }
    }

    /// A line that cannot be passed on. If it was somebody's answer, they are told; if it was chatter, the user is, once.
    fn fail_unreadable(&self, id: Option<&[u8]>, problem: Unreadable, line: &[u8]) {
        let excerpt: String = String::from_utf8_lossy(&line[..line.len().min(240)]).chars().take(120).collect();
        if self.warned.swap(true, Ordering::Relaxed) {
            tracing::debug!(server = %self.server, %problem, ?excerpt, "ignored a line that is no message");
        } else {
            tracing::warn!(server = %self.server, %problem, ?excerpt, "the server sends what is no JSON-RPC message; ignored from here on");
        }
        let waiting = id.and_then(our_number).and_then(|number| self.lock().waiting.remove(&number));
        if let Some(Waiting::Caller { caller, id, .. }) = waiting {
            caller.failed(&id, &CallError::Unreadable { server: self.server.clone(), problem });
            caller.flush();
        }
    }

    fn expect(&self, waiting: Waiting) -> Result<u64, CallError> {
        let mut open = self.lock();
        if let Some(ending) = &open.ended {
            return Err(CallError::Ended { server: self.server.clone(), ending: Arc::clone(ending) });
        }
        open.last_id += 1;
        let id = open.last_id;
        open.waiting.insert(id, waiting);
        Ok(id)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets a question of ours when nobody waits for its answer any more.
struct Abandon<'c> {
    connection: &'c Connection,
    id: u64,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.connection.lock().waiting.remove(&self.id);
    }
}

fn remember(callers: &mut Vec<Arc<dyn Caller>>, caller: Arc<dyn Caller>) {
    if !callers.iter().any(|known| std::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(&caller))) {
        callers.push(caller);
    }
}

/// The number in an id or token of ours. A server must give it back as it got it; some make it a string or a float on
/// the way, and what they mean is clear.
fn our_number(token: &[u8]) -> Option<u64> {
    let inner = token.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(token);
    let digits = inner.strip_suffix(b".0").unwrap_or(inner);
    let is_plain = digits.iter().all(u8::is_ascii_digit);
    is_plain.then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
}

/// A number in decimal, without an allocation.
struct Digits {
    text: [u8; 20],
    length: usize,
}

impl Digits {
    fn new(number: u64) -> Self {
        let mut text = [0; 20];
        let mut rest = &mut text[..];
        write!(rest, "{number}").expect("twenty digits hold any u64");
        let length = 20 - rest.len();
        Self { text, length }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.text[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_and_read_back() {
        for number in [0, 7, 10, u64::MAX] {
            assert_eq!(our_number(Digits::new(number).as_bytes()), Some(number));
        }
        for sloppy in ["\"7\"", "7.0"] {
            assert_eq!(our_number(sloppy.as_bytes()), Some(7), "{sloppy}");
        }
        for foreign in ["-7", "+7", "7.5", "7e0", "null", "", "\"\"", "\"x\"", "18446744073709551616"] {
            assert_eq!(our_number(foreign.as_bytes()), None, "{foreign}");
        }
    }
}
