//! Who is connected: what it said of itself, what it follows, and the way to it.

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use catalog::{Kind, NamePolicy, NameStyle, Scope};
use protocol::bridge::meta::ClientMeta;
use protocol::reply::{self, code};
use protocol::{Lifecycle, Revision};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use upstream::Requester;

use crate::client_sink::{ClientSink, Message, Outbound};
use crate::connected_clients::ConnectedClient;
use crate::level::Level;
use crate::responder::Responder;
use crate::server_requests::ServerRequests;
use crate::surface::{DiscoveredTools, Found, Surface};

/// So many requests may wait for servers to start; further ones get what there is.
const MAX_DEFERRED: usize = 100;

/// What is known of a client before it says anything.
pub struct ClientSetup {
    /// The way for what is about none of its requests.
    pub sink: Arc<dyn ClientSink>,
    /// Which names it is offered.
    pub names: NamePolicy,
    /// Which servers it sees.
    pub scope: Scope,
    /// On whose behalf it acts: the name of its token, or nothing.
    pub principal: Arc<str>,
    /// There is no other client, and there will be none.
    pub is_alone: bool,
    /// How much of the tools it sees.
    pub surface: Surface,
}

/// Something that whoever made a client finds again with its calls.
pub type CallOrigin = Arc<dyn Any + Send + Sync>;

/// One connected client.
pub struct Client {
    number: u64,
    /// Who is to be asked what servers want to know of it.
    respondent: u64,
    setup: ClientSetup,
    call_origin: Option<CallOrigin>,
    state: Mutex<State>,
    /// What servers want to know of it.
    pub(crate) server_requests: ServerRequests,
    /// Requests that will still be answered.
    open: AtomicUsize,
    answered: Notify,
    left: watch::Sender<bool>,
}

struct State {
    /// What it calls itself.
    name: Box<str>,
    style: NameStyle,
    revision: Revision,
    /// What it said of itself; a modern client says it with every request instead.
    client_meta: Option<ClientMeta>,
    /// It said so itself; only then may we speak without being asked.
    is_initialized: bool,
    /// The lists it has asked for, so that it wants to know when they change.
    listed: [bool; 4],
    level: Option<Level>,
    /// What is kept of it where it is kept who is connected.
    connected: Option<Arc<ConnectedClient>>,
    /// What it has found, where that is added to its list.
    discovered: DiscoveredTools,
    /// Requests that wait for something of ours, by ticket.
    deferred: HashMap<u64, DeferredRequest>,
    last_ticket: u64,
}

struct DeferredRequest {
    id: Bytes,
    to: Arc<Responder>,
    task: AbortHandle,
    /// Nobody wants an answer any more.
    is_cancelled: bool,
}

impl Client {
    /// A client that has said nothing yet.
    pub fn new(setup: ClientSetup) -> Arc<Self> {
        let number = next_number();
        Self::make(setup, number, number, None)
    }

    /// The same, made for a purpose that its [`CallOrigin`] tells. There is no person behind it who could be asked.
    pub fn with_origin(setup: ClientSetup, call_origin: CallOrigin) -> Arc<Self> {
        let client = Self::make(setup, next_number(), NOBODY, Some(call_origin));
        client.refuse_server_requests();
        client
    }

    fn make(setup: ClientSetup, number: u64, respondent: u64, call_origin: Option<CallOrigin>) -> Arc<Self> {
        let state = State {
            name: Box::default(),
            style: setup.names.style_for(""),
            revision: Revision::NEWEST_WITH_SESSIONS,
            client_meta: None,
            is_initialized: false,
            listed: [false; 4],
            level: None,
            connected: None,
            discovered: DiscoveredTools::default(),
            deferred: HashMap::new(),
            last_ticket: 0,
        };
        Arc::new(Self {
            number,
            respondent,
            setup,
            call_origin,
            state: Mutex::new(state),
            server_requests: ServerRequests::default(),
            open: AtomicUsize::new(0),
            answered: Notify::new(),
            left: watch::Sender::new(false),
        })
    }

    /// Its number, which no other client has.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Which servers it sees.
    pub fn scope(&self) -> Scope {
        self.setup.scope
    }

    /// How much of the tools it sees.
    pub fn surface(&self) -> Surface {
        self.setup.surface
    }

    /// It has found these tools, the best first: they are on its list from now on.
    pub(crate) fn found(&self, tools: Vec<Found>) {
        if self.lock().discovered.add(tools) {
            self.list_changed(Kind::Tool, false);
        }
    }

    /// What it has found, newest first.
    pub(crate) fn discovered(&self) -> Vec<Found> {
        self.lock().discovered.tools()
    }

    /// What it calls itself.
    pub fn name(&self) -> Box<str> {
        self.lock().name.clone()
    }

    /// On whose behalf it acts.
    pub fn principal(&self) -> &Arc<str> {
        &self.setup.principal
    }

    /// What it was made for, if it was made for something.
    pub fn call_origin(&self) -> Option<&CallOrigin> {
        self.call_origin.as_ref()
    }

    /// Whether there is no other client.
    pub fn is_alone(&self) -> bool {
        self.setup.is_alone
    }

    /// Who is behind its requests.
    pub fn requester(&self) -> Requester {
        Requester { client: self.number, respondent: self.respondent, is_alone: self.setup.is_alone }
    }

    /// The way for what is about none of its requests.
    pub fn sink(&self) -> &Arc<dyn ClientSink> {
        &self.setup.sink
    }

    /// It introduced itself.
    pub fn set_initialized_as(&self, name: &str, revision: Revision, client_meta: ClientMeta) {
        let mut state = self.lock();
        state.name = name.into();
        state.style = self.setup.names.style_for(name);
        state.revision = revision;
        state.client_meta = Some(client_meta);
    }

    /// Its introduction was not accepted.
    pub fn clear_initialize(&self) {
        let mut state = self.lock();
        state.client_meta = None;
        state.connected = None;
    }

    /// What is kept of it where it is kept who is connected.
    pub fn connected(&self) -> Option<Arc<ConnectedClient>> {
        self.lock().connected.clone()
    }

    pub(crate) fn set_connected(&self, connected: Option<Arc<ConnectedClient>>) {
        self.lock().connected = connected;
    }

    /// A modern client tells its name with every request.
    pub fn named(&self, name: &str) {
        let mut state = self.lock();
        state.style = self.setup.names.style_for(name);
        if *state.name != *name {
            state.name = name.into();
        }
    }

    /// Whether it has introduced itself.
    pub fn has_initialize(&self) -> bool {
        self.lock().client_meta.is_some()
    }

    /// What it said of itself, as a modern server wants to hear it with every request. Who is never asked offers nothing.
    pub fn client_meta(&self) -> ClientMeta {
        let refuse_server_requests = self.server_requests.is_closed();
        let state = self.lock();
        let mut client_meta = state.client_meta.clone().unwrap_or_else(|| ClientMeta {
            capabilities: Bytes::from_static(b"{}"),
            info: None,
            log_level: None,
        });
        client_meta.log_level = state.level.map(|level| level.as_str().to_owned());
        if refuse_server_requests {
            client_meta.capabilities = Bytes::from_static(b"{}");
        }
        client_meta
    }

    /// It is ready to hear from us.
    pub fn initialized(self: &Arc<Self>) {
        self.lock().is_initialized = true;
        self.server_requests.send_waiting(self);
    }

    /// It is asked nothing, now or any more: what it offers is for who can relay it.
    pub fn refuse_server_requests(&self) {
        self.server_requests.close();
    }

    /// It speaks the newer way, in which nobody asks clients.
    pub fn mark_modern(&self) {
        self.server_requests.close_to_unrelated();
    }

    /// Whether it may be asked something.
    pub fn is_initialized(&self) -> bool {
        self.lock().is_initialized
    }

    /// The names it is offered.
    pub fn style(&self) -> NameStyle {
        self.lock().style
    }

    /// The revision it speaks.
    pub fn revision(&self) -> Revision {
        self.lock().revision
    }

    /// The least level of log messages it wants, if it said so.
    pub fn level(&self) -> Option<Level> {
        self.lock().level
    }

    /// It wants log messages from this level on.
    pub fn set_level(&self, level: Level) {
        self.lock().level = Some(level);
    }

    /// It has this list now.
    pub fn listed(&self, kind: Kind) {
        self.lock().listed[kind as usize] = true;
    }

    /// One of our lists has changed. While servers are still starting, only a client that already has it cares.
    pub fn list_changed(&self, kind: Kind, while_starting: bool) {
        let cares = {
            let state = self.lock();
            state.listed[kind as usize] || (state.is_initialized && !while_starting)
        };
        if cares {
            self.notify(&reply::notification(kind.changed(), None));
        }
    }

    /// Tells it something that is about none of its requests. One that has stopped reading altogether misses it.
    pub fn notify(&self, message: &[u8]) {
        self.send_notification(Message::Own(message));
    }

    /// Passes on a line of a server that is about none of its requests. Those who are told the same share its bytes.
    pub fn pass(&self, line: &Bytes) {
        self.send_notification(Message::Spliced { line, edits: &[] });
    }

    fn send_notification(&self, message: Message<'_>) {
        let sink = self.sink();
        if !*self.left.borrow() && !sink.is_full() {
            sink.send(Outbound::Notification, message);
            sink.flush();
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
    pub async fn wait_until_answered(&self) {
        self.until(|| self.open.load(Ordering::Relaxed) == 0).await;
    }

    /// Lets a request wait for something without holding up the others. It can be cancelled while it waits. If `task`
    /// breaks, the request is answered all the same.
    pub fn defer(self: &Arc<Self>, id: Bytes, to: &Arc<Responder>, task: impl Future<Output = ()> + Send + 'static) {
        self.request_opened();
        // Held until the entry is made, so that the task cannot end before it is there to be removed.
        let mut state = self.lock();
        state.last_ticket += 1;
        let mut waiting = DeferGuard { client: Arc::clone(self), ticket: state.last_ticket, is_done: false };
        let ticket = waiting.ticket;
        let task = tokio::spawn(async move {
            // The whole of it belongs to the task, not only the flag.
            let waiting = &mut waiting;
            task.await;
            waiting.is_done = true;
        });
        state
            .deferred
            .insert(ticket, DeferredRequest { id, to: Arc::clone(to), task: task.abort_handle(), is_cancelled: false });
    }

    /// Whether it has let so many requests wait that further ones get what there is.
    pub fn has_many_deferred(&self) -> bool {
        self.lock().deferred.len() >= MAX_DEFERRED
    }

    /// Gives up a request that waits; whether there was one.
    pub fn cancel_deferred(&self, id: &[u8]) -> bool {
        let mut state = self.lock();
        let deferred = state.deferred.values_mut().find(|deferred| &deferred.id[..] == id && !deferred.is_cancelled);
        let Some(deferred) = deferred else { return false };
        deferred.cancel();
        true
    }

    /// Gives up everything that waits.
    pub fn cancel_all_deferred(&self) {
        self.lock().deferred.values_mut().for_each(DeferredRequest::cancel);
    }

    /// It is leaving: what waits gets what there is, and it is told no more news.
    pub async fn leave(&self) {
        self.left.send_replace(true);
        self.until(|| self.lock().deferred.is_empty()).await;
    }

    /// Waits until it leaves.
    pub async fn leaving(&self) {
        // The sender is ours, so there is always somebody to hear from.
        drop(self.left.subscribe().wait_for(|&left| left).await);
    }

    /// It is gone, or as good as.
    pub fn has_left(&self) -> bool {
        *self.left.borrow()
    }

    async fn until(&self, met: impl Fn() -> bool) {
        loop {
            let mut answered = std::pin::pin!(self.answered.notified());
            answered.as_mut().enable();
            if met() {
                return;
            }
            answered.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeferredRequest {
    /// The rest goes with the task: what it still says on its way, such as taking a question back, comes first.
    fn cancel(&mut self) {
        self.is_cancelled = true;
        self.task.abort();
    }

    /// Its task has ended without an answer.
    fn end(self) {
        if self.is_cancelled {
            return self.to.give_up(&self.id);
        }
        let text = "Internal error: the request broke";
        self.to.respond(&reply::error(&self.id, code::INTERNAL_ERROR, text, None));
        self.to.flush();
    }
}

/// A request that waits. However its task ends, the request does too.
struct DeferGuard {
    client: Arc<Client>,
    ticket: u64,
    is_done: bool,
}

impl Drop for DeferGuard {
    fn drop(&mut self) {
        let deferred = self.client.lock().deferred.remove(&self.ticket);
        if let Some(deferred) = deferred.filter(|_| !self.is_done) {
            deferred.end();
        }
        self.client.request_closed();
    }
}

/// Who is asked if nobody can be. What a server asks is refused whichever of them it is about, so they need not take
/// turns at it.
const NOBODY: u64 = 0;

/// A number nobody else has.
pub(crate) fn next_number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// In which way a message was meant, by what it carries.
pub(crate) fn lifecycle_of(params: &protocol::Params) -> Lifecycle {
    if params.version.is_some() { Lifecycle::SelfContained } else { Lifecycle::Session }
}
