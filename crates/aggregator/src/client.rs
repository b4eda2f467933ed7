//! One connected client: what it declared, what it subscribed to, and the sink for its messages.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use catalog::{Kind, NamePolicy, NameStyle, Principal, Scope, Share};
use protocol::bridge::meta::ClientMeta;
use protocol::reply::{self, code};
use protocol::{Lifecycle, Revision};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use upstream::{Audience, Requester};

use crate::client_sink::{ClientSink, Message, Outbound};
use crate::connected_clients::ConnectedClient;
use crate::fleet::View;
use crate::interceptor::CallTracker;
use crate::level::Level;
use crate::responder::Responder;
use crate::server_requests::ServerRequests;
use crate::surface::{DiscoveredTools, Found, Surface};

/// How many requests may wait for servers to start; further ones are answered with what is known.
pub const MAX_DEFERRED: usize = 100;

/// What is known of a client before its first message.
pub struct ClientSetup {
    /// The sink for messages that belong to none of its requests.
    pub sink: Arc<dyn ClientSink>,
    /// Which names it sees.
    pub names: NamePolicy,
    /// Which servers it sees.
    pub scope: Scope,
    /// The profile whose view it has, unless its principal is bound to another; everything without one.
    pub profile: Option<Arc<str>>,
    /// The principal it acts for.
    pub principal: Arc<Principal>,
    /// No other client exists or will exist.
    pub is_alone: bool,
    /// How much of the tools it sees.
    pub surface: Surface,
}

/// The origin of a client's requests.
pub(crate) enum CallOrigin {
    /// A program that is connected to us.
    Client,
    /// We make a request of our own.
    Internal,
    /// We make a call of our own that is tracked already, so the interceptor does not open it.
    TrackedCall(Arc<dyn CallTracker>),
}

/// One connected client.
pub struct Client {
    number: u64,
    /// The number under which servers' requests to it are grouped.
    respondent: u64,
    setup: ClientSetup,
    call_origin: CallOrigin,
    state: Mutex<State>,
    /// The server requests sent to it.
    pub(crate) server_requests: ServerRequests,
    /// Requests that have not been answered.
    open: AtomicUsize,
    answered: Notify,
    left: watch::Sender<bool>,
    /// Its session has ended.
    is_abandoned: AtomicBool,
}

struct State {
    /// The name it declared.
    name: Box<str>,
    style: NameStyle,
    revision: Revision,
    /// What it declared at `initialize`; a modern client sends it with every request instead.
    client_meta: Option<ClientMeta>,
    /// It sent `notifications/initialized`; only then may we send messages it did not request.
    is_initialized: bool,
    /// The lists it has requested, and whose changes it is therefore notified of.
    listed: [bool; 4],
    level: Option<Level>,
    /// Its entry among the connected clients, where these are tracked.
    connected: Option<Arc<ConnectedClient>>,
    /// The tools it has found, where these are added to its list.
    discovered: DiscoveredTools,
    /// Deferred requests, by ticket.
    deferred: HashMap<u64, DeferredRequest>,
    last_ticket: u64,
}

struct DeferredRequest {
    id: Bytes,
    to: Arc<Responder>,
    task: AbortHandle,
    /// The response is no longer wanted.
    is_cancelled: bool,
}

impl Client {
    /// A client that has sent nothing yet.
    pub fn new(setup: ClientSetup) -> Arc<Self> {
        let number = next_number();
        Self::make(setup, number, number, CallOrigin::Client)
    }

    /// A client for a request of our own. It has no user who could answer server requests.
    pub fn internal(setup: ClientSetup) -> Arc<Self> {
        Self::without_respondent(setup, CallOrigin::Internal)
    }

    /// A client for a call of our own that `tracker` tracks already.
    pub fn for_tracked_call(setup: ClientSetup, tracker: Arc<dyn CallTracker>) -> Arc<Self> {
        Self::without_respondent(setup, CallOrigin::TrackedCall(tracker))
    }

    fn without_respondent(setup: ClientSetup, call_origin: CallOrigin) -> Arc<Self> {
        let client = Self::make(setup, next_number(), Requester::NO_RESPONDENT, call_origin);
        client.refuse_server_requests();
        client
    }

    fn make(setup: ClientSetup, number: u64, respondent: u64, call_origin: CallOrigin) -> Arc<Self> {
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
            is_abandoned: AtomicBool::new(false),
        })
    }

    /// Its number, unique among clients.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Which servers it sees.
    pub fn scope(&self) -> Scope {
        self.setup.scope
    }

    /// The profile whose view it has; `None` if it sees everything. A principal's own profile cannot be left.
    pub fn profile(&self) -> Option<&Arc<str>> {
        self.setup.principal.profile().or(self.setup.profile.as_ref())
    }

    /// How much of the tools in its view it sees: what its profile says, or else what it chose.
    pub fn surface(&self, view: &View) -> Surface {
        let of_profile = view.snapshot.profile().and_then(|profile| profile.spec().surface.as_deref());
        of_profile.and_then(|surface| surface.parse().ok()).unwrap_or(self.setup.surface)
    }

    /// Adds found tools, best first, to its list.
    pub(crate) fn found(&self, tools: Vec<Found>) {
        if self.lock().discovered.add(tools) {
            self.list_changed(Kind::Tool, false);
        }
    }

    /// The tools it has found, newest first.
    pub(crate) fn discovered(&self) -> Vec<Found> {
        self.lock().discovered.tools()
    }

    /// The name it declared.
    pub fn name(&self) -> Box<str> {
        self.lock().name.clone()
    }

    /// The principal it acts for.
    pub fn principal(&self) -> &Arc<Principal> {
        &self.setup.principal
    }

    /// The audience of a server's run that serves it: its session's or its identity's. A client without a session has
    /// the instance of its identity.
    pub(crate) fn audience(&self, share: Share) -> Audience {
        match share {
            Share::All => Audience::Everybody,
            Share::Session if self.has_initialize() => Audience::Session(self.number),
            Share::User | Share::Session => Audience::Identity(Arc::clone(self.principal().id())),
        }
    }

    /// Whether a run of a server with this audience serves it.
    pub(crate) fn is_in(&self, audience: &Audience) -> bool {
        match audience {
            Audience::Everybody => true,
            Audience::Nobody => false,
            Audience::Identity(id) => id == self.principal().id(),
            Audience::Session(number) => *number == self.number,
        }
    }

    /// The origin of its requests.
    pub(crate) fn call_origin(&self) -> &CallOrigin {
        &self.call_origin
    }

    /// Whether no other client exists.
    pub fn is_alone(&self) -> bool {
        self.setup.is_alone
    }

    /// The requester that servers see behind its requests.
    pub fn requester(&self) -> Requester {
        Requester { client: self.number, respondent: self.respondent, is_alone: self.setup.is_alone }
    }

    /// The sink for messages that belong to none of its requests.
    pub fn sink(&self) -> &Arc<dyn ClientSink> {
        &self.setup.sink
    }

    /// Records its `initialize`.
    pub(crate) fn set_initialized_as(&self, name: &str, revision: Revision, client_meta: ClientMeta) {
        let mut state = self.lock();
        state.name = name.into();
        state.style = self.setup.names.style_for(name);
        state.revision = revision;
        state.client_meta = Some(client_meta);
    }

    /// Resets what was recorded, because its `initialize` was not accepted.
    pub(crate) fn clear_initialize(&self) {
        let mut state = self.lock();
        state.client_meta = None;
        state.connected = None;
    }

    /// Its entry among the connected clients, where these are tracked.
    pub fn connected(&self) -> Option<Arc<ConnectedClient>> {
        self.lock().connected.clone()
    }

    pub(crate) fn set_connected(&self, connected: Option<Arc<ConnectedClient>>) {
        self.lock().connected = connected;
    }

    /// Records the name that a modern client sends with every request.
    pub fn named(&self, name: &str) {
        let mut state = self.lock();
        state.style = self.setup.names.style_for(name);
        if *state.name != *name {
            state.name = name.into();
        }
    }

    /// Whether it has sent `initialize`.
    pub fn has_initialize(&self) -> bool {
        self.lock().client_meta.is_some()
    }

    /// What it declared, in the form a modern server expects with every request. A client that accepts no server
    /// requests has no capabilities.
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

    /// Records `notifications/initialized`: it accepts our messages from now on.
    pub fn initialized(self: &Arc<Self>) {
        self.lock().is_initialized = true;
        self.server_requests.send_waiting(self);
    }

    /// Refuses all server requests to it, pending and future ones.
    pub(crate) fn refuse_server_requests(&self) {
        self.server_requests.close();
    }

    /// Marks it as modern: modern clients receive no server requests.
    pub(crate) fn mark_modern(&self) {
        self.server_requests.close_to_unrelated();
    }

    /// Whether server requests may be sent to it.
    pub(crate) fn is_initialized(&self) -> bool {
        self.lock().is_initialized
    }

    /// The style of the names it sees.
    pub fn style(&self) -> NameStyle {
        self.lock().style
    }

    /// The revision it speaks.
    pub fn revision(&self) -> Revision {
        self.lock().revision
    }

    /// The minimum level of log messages it requested, if it did.
    pub fn level(&self) -> Option<Level> {
        self.lock().level
    }

    /// Sets the minimum level of its log messages.
    pub fn set_level(&self, level: Level) {
        self.lock().level = Some(level);
    }

    /// Records that it has received this list.
    pub fn listed(&self, kind: Kind) {
        self.lock().listed[kind as usize] = true;
    }

    /// Notifies it of a changed list. While servers are still starting, only a client that already has the list is
    /// notified.
    pub fn list_changed(&self, kind: Kind, while_starting: bool) {
        let cares = {
            let state = self.lock();
            state.listed[kind as usize] || (state.is_initialized && !while_starting)
        };
        if cares {
            self.notify(&reply::notification(kind.changed(), None));
        }
    }

    /// Sends a notification that belongs to none of its requests. A client that has stopped reading misses it.
    pub fn notify(&self, message: &[u8]) {
        self.send_notification(Message::Own(message));
    }

    /// Forwards a server's line that belongs to none of its requests. All recipients share its bytes.
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

    /// Counts a request that was accepted and will be answered.
    pub(crate) fn request_opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was answered, or never will be.
    pub(crate) fn request_closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.answered.notify_waiters();
    }

    /// Waits until every request is answered.
    pub(crate) async fn wait_until_answered(&self) {
        self.until(|| self.open.load(Ordering::Relaxed) == 0).await;
    }

    /// Lets a request wait without holding up the others. It can be cancelled while it waits. If `task` panics, the
    /// request is answered nevertheless.
    pub fn defer(self: &Arc<Self>, id: Bytes, to: &Arc<Responder>, task: impl Future<Output = ()> + Send + 'static) {
        self.request_opened();
        // Held until the entry is made, so that the task cannot end before its entry exists.
        let mut state = self.lock();
        state.last_ticket += 1;
        let mut waiting = DeferGuard { client: Arc::clone(self), ticket: state.last_ticket, is_done: false };
        let ticket = waiting.ticket;
        let task = tokio::spawn(async move {
            // Moves the whole guard into the task, not only the flag.
            let waiting = &mut waiting;
            task.await;
            waiting.is_done = true;
        });
        state
            .deferred
            .insert(ticket, DeferredRequest { id, to: Arc::clone(to), task: task.abort_handle(), is_cancelled: false });
    }

    /// Whether so many of its requests are deferred that further ones are answered with what is known.
    pub(crate) fn has_many_deferred(&self) -> bool {
        self.lock().deferred.len() >= MAX_DEFERRED
    }

    /// Cancels a deferred request. Returns whether there was one.
    pub(crate) fn cancel_deferred(&self, id: &[u8]) -> bool {
        let mut state = self.lock();
        let deferred = state.deferred.values_mut().find(|deferred| &deferred.id[..] == id && !deferred.is_cancelled);
        let Some(deferred) = deferred else { return false };
        deferred.cancel();
        true
    }

    /// Cancels all deferred requests.
    pub(crate) fn cancel_all_deferred(&self) {
        self.lock().deferred.values_mut().for_each(DeferredRequest::cancel);
    }

    /// Marks it as leaving: deferred requests are answered with what is known, and it receives no more notifications.
    pub async fn leave(&self) {
        self.left.send_replace(true);
        self.until(|| self.lock().deferred.is_empty()).await;
    }

    /// Waits until it leaves.
    pub async fn leaving(&self) {
        // The sender is a field of `self`, so the channel cannot be closed.
        drop(self.left.subscribe().wait_for(|&left| left).await);
    }

    /// Marks its session as ended: no instance of a server starts for it any more.
    pub(crate) fn mark_abandoned(&self) {
        self.is_abandoned.store(true, Ordering::Release);
    }

    /// Whether its session has ended.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Acquire)
    }

    /// Whether it has left or is leaving.
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
    /// The remaining cleanup happens in the task: messages it still sends, such as the cancellation of a server
    /// request, come first.
    fn cancel(&mut self) {
        self.is_cancelled = true;
        self.task.abort();
    }

    /// Cleans up after a task that ended without a response.
    fn end(self) {
        if self.is_cancelled {
            return self.to.give_up(&self.id);
        }
        let text = "Internal error: the request handler panicked";
        self.to.respond(&reply::error(&self.id, code::INTERNAL_ERROR, text, None));
        self.to.flush();
    }
}

/// Ends a deferred request however its task ends.
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

/// A unique number.
pub(crate) fn next_number() -> u64 {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// The lifecycle of a message, determined by its `_meta`.
pub(crate) fn lifecycle_of(params: &protocol::Params) -> Lifecycle {
    if params.version.is_some() { Lifecycle::SelfContained } else { Lifecycle::Session }
}
