//! Who is connected, and the way back to it.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use catalog::{NamePolicy, NameStyle};
use protocol::reply::{self, code};
use protocol::splice::Edit;
use protocol::{Revision, Span};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use upstream::{CallError, Caller, Outbox};

/// So many lists may wait for servers to start; further ones get what there is.
const MANY_WAITING: usize = 100;

/// Where answers go: to the client itself, or into the array that answers a batch.
pub trait Respond: Caller {
    /// A complete message of our own, newline included.
    fn send(&self, message: &[u8]);
    /// A complete message of our own in stretches, newline included, for what is too large to copy.
    fn send_parts(&self, parts: &[Bytes]);
    /// This object as what servers answer to.
    fn as_caller(self: Arc<Self>) -> Arc<dyn Caller>;
}

/// One connected client.
pub struct Client {
    number: u64,
    outbox: Outbox,
    names: NamePolicy,
    state: Mutex<State>,
    /// Requests that will still be answered.
    open: AtomicUsize,
    answered: Notify,
    left: watch::Sender<bool>,
}

struct State {
    style: NameStyle,
    revision: Revision,
    /// It said so itself; only then may we speak without being asked.
    is_initialized: bool,
    /// It has asked for our tools, so it wants to know when they change.
    has_listed: bool,
    /// Lists that wait for servers to start, by ticket.
    parked: HashMap<u64, Parked>,
    last_ticket: u64,
}

struct Parked {
    id: Bytes,
    to: Arc<dyn Respond>,
    task: AbortHandle,
}

impl Client {
    /// A client that has said nothing yet. Somebody must drain its outbox.
    pub fn new(outbox: Outbox, names: NamePolicy) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let state = State {
            style: names.style_for(""),
            revision: Revision::NEWEST,
            is_initialized: false,
            has_listed: false,
            parked: HashMap::new(),
            last_ticket: 0,
        };
        Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            outbox,
            names,
            state: Mutex::new(state),
            open: AtomicUsize::new(0),
            answered: Notify::new(),
            left: watch::Sender::new(false),
        }
    }

    /// The way out to the client.
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// It introduced itself.
    pub fn introduced(&self, name: &str, revision: Revision) {
        let mut state = self.lock();
        state.style = self.names.style_for(name);
        state.revision = revision;
    }

    /// It is ready to hear from us.
    pub fn initialized(&self) {
        self.lock().is_initialized = true;
    }

    /// The names it is offered.
    pub fn style(&self) -> NameStyle {
        self.lock().style
    }

    /// The revision it speaks.
    pub fn revision(&self) -> Revision {
        self.lock().revision
    }

    /// It has our tools now.
    pub fn listed(&self) {
        self.lock().has_listed = true;
    }

    /// Our tools have changed. While servers are still starting, only a client that has already listed them cares.
    pub fn tools_changed(&self, while_starting: bool) {
        let cares = {
            let state = self.lock();
            state.has_listed || (state.is_initialized && !while_starting)
        };
        // One that has stopped reading altogether learns of it when it asks again.
        if cares && !*self.left.borrow() && !self.outbox.is_full() {
            self.outbox.push(&reply::notification("notifications/tools/list_changed", None));
            self.outbox.flush();
        }
    }

    /// A request was accepted and will be answered.
    pub fn request_opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// A request was answered, or never will be.
    pub fn request_closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.answered.notify_waiters();
    }

    /// Waits until every request is answered.
    pub async fn all_answered(&self) {
        loop {
            let mut answered = std::pin::pin!(self.answered.notified());
            answered.as_mut().enable();
            if self.open.load(Ordering::Relaxed) == 0 {
                return;
            }
            answered.await;
        }
    }

    /// Lets a request wait for something without holding up the others. It can be cancelled while it waits.
    pub fn park(self: &Arc<Self>, id: Bytes, to: Arc<dyn Respond>, task: impl Future<Output = ()> + Send + 'static) {
        self.request_opened();
        let client = Arc::clone(self);
        // Held until the entry is made, so that the task cannot end before it is there to be removed.
        let mut state = self.lock();
        state.last_ticket += 1;
        let ticket = state.last_ticket;
        let task = tokio::spawn(async move {
            task.await;
            client.lock().parked.remove(&ticket);
            client.request_closed();
        });
        state.parked.insert(ticket, Parked { id, to, task: task.abort_handle() });
    }

    /// Whether it has let so many requests wait that further ones get what there is.
    pub fn has_many_waiting(&self) -> bool {
        self.lock().parked.len() >= MANY_WAITING
    }

    /// Gives up a request that waits; whether there was one.
    pub fn cancel_parked(&self, id: &[u8]) -> bool {
        let parked = {
            let mut state = self.lock();
            let ticket = state.parked.iter().find(|(_, parked)| &parked.id[..] == id).map(|(&ticket, _)| ticket);
            ticket.and_then(|ticket| state.parked.remove(&ticket))
        };
        let Some(parked) = parked else { return false };
        parked.task.abort();
        parked.to.cancelled(id);
        true
    }

    /// It is leaving: what waits gets what there is, and it is told no more news.
    pub async fn leave(&self) {
        self.left.send_replace(true);
        loop {
            let mut answered = std::pin::pin!(self.answered.notified());
            answered.as_mut().enable();
            if self.lock().parked.is_empty() {
                return;
            }
            answered.await;
        }
    }

    /// Waits until it leaves.
    pub async fn leaving(&self) {
        // The sender is ours, so there is always somebody to hear from.
        drop(self.left.subscribe().wait_for(|&left| left).await);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Caller for Client {
    fn client(&self) -> u64 {
        self.number
    }

    fn answered(&self, id: &[u8], line: &Bytes, id_at: Span) {
        self.outbox.push_spliced(line, &mut [Edit { span: id_at, with: id }]);
        self.request_closed();
    }

    fn failed(&self, id: &[u8], error: &CallError) {
        self.outbox.push(&failure(id, error));
        self.request_closed();
    }

    fn cancelled(&self, _id: &[u8]) {
        self.request_closed();
    }

    fn progressed(&self, token: &[u8], line: &Bytes, token_at: Span) {
        self.outbox.push_spliced(line, &mut [Edit { span: token_at, with: token }]);
    }

    fn flush(&self) {
        self.outbox.flush();
    }

    fn catching_up(&self) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        self.outbox.is_congested().then(|| Box::pin(self.outbox.caught_up()) as _)
    }
}

impl Respond for Client {
    fn send(&self, message: &[u8]) {
        self.outbox.push(message);
    }

    fn send_parts(&self, parts: &[Bytes]) {
        self.outbox.push_parts(parts);
    }

    fn as_caller(self: Arc<Self>) -> Arc<dyn Caller> {
        self
    }
}

/// A call that got no answer, as the JSON-RPC error its client sees.
pub fn failure(id: &[u8], error: &CallError) -> Vec<u8> {
    let retry: &[u8] = if error.is_safe_to_retry() { b"true" } else { b"false" };
    let data = reply::object([
        ("server", reply::string(error.server().as_ref())),
        ("reason", reply::string(error.reason())),
        ("safeToRetry", retry.to_vec()),
    ]);
    reply::error(id, code::INTERNAL_ERROR, &error.to_string(), Some(&data))
}
