//! Where servers live. Each has a place, by whose number everybody knows it: it may start and end there many times, but
//! when it is removed the place stays empty, so that whoever still remembers the number never meets somebody else.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use catalog::{Offer, ServerEntry, ServerName, ServerSpec, ServerState};
use protocol::{Lifecycle, reply};
use tokio::sync::{Notify, mpsc, watch};
use upstream::{
    Connection, ContainerHandle, Ending, Handshake, ProcessInfo, Report, Stop, Upstream, UpstreamObserver, process_mark,
};

use super::disabled_tools::DisabledTools;
use super::observer::EndGuard;
use super::{Fleet, View, lock};
use crate::cycle;
use crate::startup_queue::StartupQueue;

/// What happens to a server while it lives, for who keeps it.
#[derive(Debug, Clone)]
pub enum UpstreamEvent {
    /// It is ready, and offers this.
    Running(Arc<Offer>),
    /// It offers something else now.
    Changed(Arc<Offer>),
    /// It cannot start yet: says how far what has to be done before is.
    Preparing(String),
    /// It lives in this container.
    ContainerStarted(Arc<dyn ContainerHandle>),
    /// It is being started, and this can be seen of it.
    ProcessStarted(ProcessInfo),
    /// It has ended.
    Ended(Arc<Ending>),
    /// It failed, and this is all there is to know.
    Reported(Arc<Report>),
}

/// One life of a server.
#[derive(Debug)]
pub struct UpstreamHandle {
    stop: watch::Sender<Stop>,
    events: mpsc::UnboundedReceiver<UpstreamEvent>,
}

impl UpstreamHandle {
    /// What happens next; nothing more when nothing of the server is left.
    pub async fn next(&mut self) -> Option<UpstreamEvent> {
        self.events.recv().await
    }

    /// Asks the server to end.
    pub fn stop(&self, how: Stop) {
        raise(&self.stop, how);
    }
}

/// All places, in order.
#[derive(Default)]
pub(crate) struct ServerSlots(RwLock<Vec<Arc<ServerSlot>>>);

/// The place of one server.
pub(crate) struct ServerSlot {
    /// Calls that wait until the server is up or down.
    pub(crate) waiting: StartupQueue,
    /// Only one at a time may change what is subscribed to.
    pub(crate) subscribing: tokio::sync::Mutex<()>,
    /// Somebody needs the server, which is dormant.
    needed: Notify,
    current: Mutex<CurrentRun>,
    /// Tools that are not on offer.
    pub(super) disabled_tools: Mutex<DisabledTools>,
}

/// The life that is lived there now.
struct CurrentRun {
    stop: watch::Sender<Stop>,
    events: Option<mpsc::UnboundedSender<UpstreamEvent>>,
    /// It is known from before, or will be needed again, so what it offers stays on offer.
    stays_on_offer: bool,
    /// Everybody was told that it has ended.
    has_ended: bool,
}

impl ServerSlots {
    pub(crate) fn at(&self, index: usize) -> Arc<ServerSlot> {
        Arc::clone(&self.read()[index])
    }

    pub(crate) fn for_each(&self, act: impl FnMut(&Arc<ServerSlot>)) {
        self.read().iter().for_each(act);
    }

    /// Whether `is_meant` holds for any, tried one after the other.
    pub(crate) fn any(&self, is_meant: impl FnMut(&Arc<ServerSlot>) -> bool) -> bool {
        self.read().iter().any(is_meant)
    }

    fn add(&self) -> usize {
        let mut slots = self.0.write().unwrap_or_else(PoisonError::into_inner);
        slots.push(Arc::new(ServerSlot::new()));
        slots.len() - 1
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Vec<Arc<ServerSlot>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerSlot {
    fn new() -> Self {
        let current =
            CurrentRun { stop: watch::Sender::new(Stop::Never), events: None, stays_on_offer: false, has_ended: true };
        Self {
            waiting: StartupQueue::default(),
            subscribing: tokio::sync::Mutex::default(),
            needed: Notify::new(),
            current: Mutex::new(current),
            disabled_tools: Mutex::default(),
        }
    }

    pub(super) fn stop(&self, how: Stop) {
        raise(&lock(&self.current).stop, how);
    }

    pub(super) fn send_event(&self, event: UpstreamEvent) {
        if let Some(keeper) = &lock(&self.current).events {
            // A keeper that does not listen does not want to know.
            keeper.send(event).ok();
        }
    }

    /// The life that is lived here has ended; whether what the server offers stays on offer.
    pub(super) fn end(&self) -> bool {
        let mut current = lock(&self.current);
        current.has_ended = true;
        current.stays_on_offer
    }

    /// Whether everybody was told that the life lived here has ended.
    pub(super) fn has_ended(&self) -> bool {
        lock(&self.current).has_ended
    }

    /// Whoever kept the server hears nothing more.
    pub(super) fn close_events(&self) {
        lock(&self.current).events = None;
    }
}

impl Fleet {
    /// Gives a place to a server that does not live yet.
    pub fn register(&self, name: ServerName, state: ServerState, offer: Arc<Offer>) -> usize {
        self.register_as(vec![ServerEntry { name, state, offer }])
    }

    /// Gives places to servers that are about to start.
    pub(super) fn register_all(&self, names: Vec<ServerName>) {
        let nothing = Arc::new(Offer::new(Lifecycle::Session));
        let entry = |name| ServerEntry { name, state: ServerState::Initializing, offer: Arc::clone(&nothing) };
        self.register_as(names.into_iter().map(entry).collect());
    }

    fn register_as(&self, entries: Vec<ServerEntry>) -> usize {
        let _changing = lock(&self.changing);
        let before = self.view();
        let mut servers = before.snapshot.servers().to_vec();
        let first = servers.len();
        for entry in entries {
            let index = self.slots.add();
            debug_assert_eq!(index, servers.len(), "a place and its server have the same number");
            if entry.state.is_on_its_way() {
                self.slots.at(index).waiting.close();
            }
            servers.push(entry);
        }
        let mut connections = before.connections.clone();
        connections.resize(servers.len(), None);
        self.views.send_replace(Arc::new(View::new(self.snapshot(servers, &before), connections)));
        first
    }

    /// Starts the server at `index`, where nothing must live now. If what it offers is `known`, that is on offer until
    /// it says otherwise.
    pub fn begin(self: &Arc<Self>, index: usize, spec: ServerSpec, known: Option<Arc<Offer>>) -> UpstreamHandle {
        let slot = self.slots.at(index);
        let (keeper, events) = mpsc::unbounded_channel();
        let (stop, stopping) = watch::channel(Stop::Never);
        *lock(&slot.current) =
            CurrentRun { stop: stop.clone(), events: Some(keeper), stays_on_offer: known.is_some(), has_ended: false };
        raise(&stop, *self.stop.borrow());
        self.change(index, move |server, _| match &known {
            Some(offer) => (server.state, server.offer) = (ServerState::Waking, Arc::clone(offer)),
            None => server.state = ServerState::Initializing,
        });
        let start_timeout = spec.start_timeout.unwrap_or(self.options.start_timeout);
        let upstream = Upstream {
            index,
            spec,
            environment: vec![
                (OsString::from(process_mark::VARIABLE), self.instance_mark.value_for(index).into()),
                (OsString::from(cycle::VARIABLE), self.chain.clone()),
            ],
            withheld: self.options.withheld,
            handshake: Handshake {
                client_info: self.client_info(),
                capabilities: Bytes::from_static(self.options.capabilities.as_bytes()),
                start_timeout,
                tools_only: self.options.method_set.is_tools_only,
                client_lifecycle: self.options.awaits_client.then(|| self.client_lifecycle.subscribe()),
            },
            instance_mark: Arc::clone(&self.instance_mark),
            loop_detector: Arc::clone(&self.loop_detector),
            watchdog: Arc::clone(&self.watchdog),
            limits: Arc::clone(&self.options.server_limits),
            cleans_up_leftovers: self.options.is_growing,
        };
        let (observer, remote) = (Arc::clone(self) as Arc<dyn UpstreamObserver>, self.remote.clone());
        let mourner = EndGuard { fleet: Arc::clone(self), index };
        let mut tasks_of_servers = lock(&self.tasks_of_servers);
        // Those that are over need not be remembered.
        while tasks_of_servers.try_join_next().is_some() {}
        tasks_of_servers.spawn(async move {
            let _mourner = mourner;
            // Begun in here: a life that is brought along is kept twice, where it came from and where it is lived.
            upstream.run(observer, stopping, remote).await;
        });
        drop(tasks_of_servers);
        UpstreamHandle { stop, events }
    }

    /// How a server stands that does not live now, and what is on offer nevertheless.
    pub fn set_state(&self, index: usize, state: ServerState, offer: Option<Arc<Offer>>) {
        let next = (state, offer.unwrap_or_else(|| Arc::new(Offer::new(Lifecycle::Session))));
        self.change(index, |server, _| (server.state, server.offer) = next.clone());
    }

    /// A server that still lives gets nothing more to do, and stands like this from now on. What it is doing goes on.
    pub fn retire(&self, index: usize, state: ServerState, offer: Option<Arc<Offer>>) -> Option<Arc<Connection>> {
        let mut connection = None;
        let next = (state, offer.unwrap_or_else(|| Arc::new(Offer::new(Lifecycle::Session))));
        self.change(index, |server, slot| {
            connection = slot.take();
            (server.state, server.offer) = next.clone();
        });
        let mut retired = lock(&self.retired);
        retired.retain(|connection| connection.strong_count() > 0);
        retired.extend(connection.as_ref().map(Arc::downgrade));
        drop(retired);
        connection
    }

    /// These tools of a server are not on offer from now on, and its others are: they are neither listed nor called.
    pub fn set_disabled_tools(&self, index: usize, tools: BTreeSet<String>) {
        self.slots.at(index).set_disabled_tools(tools);
        self.change(index, |_, _| {});
    }

    /// What a server offers stays on offer when its present life ends, or does not.
    pub fn keep_offer(&self, index: usize, stays: bool) {
        lock(&self.slots.at(index).current).stays_on_offer = stays;
    }

    /// From now on the server has another name, and so has everything it offers.
    pub fn rename(&self, index: usize, name: &ServerName) {
        if let Some(connection) = &self.view().connections[index] {
            connection.rename(name.clone());
        }
        self.change(index, |server, _| server.name = name.clone());
    }

    /// The server at `index`, which must not live now, is gone for good.
    pub fn remove(&self, index: usize) {
        self.set_state(index, ServerState::Removed, None);
        lock(&self.reports).remove(&index);
        self.levels().forget(index);
    }

    /// Somebody needs the server at `index`.
    pub(crate) fn need(&self, index: usize) {
        self.slots.at(index).needed.notify_one();
    }

    /// Whether anybody waits for the server at `index`.
    pub fn is_awaited(&self, index: usize) -> bool {
        !self.slots.at(index).waiting.is_empty()
    }

    /// Waits until somebody needs the server at `index`, or needed it while it was on its way.
    pub async fn needed(&self, index: usize) {
        self.slots.at(index).needed.notified().await;
    }

    /// How we introduce ourselves to servers.
    fn client_info(&self) -> Bytes {
        let info = reply::object([
            ("name", reply::string(&self.options.name)),
            ("version", reply::string(&self.options.version)),
        ]);
        Bytes::from(info)
    }
}

/// Makes a stop more urgent, never less.
pub(super) fn raise(stop: &watch::Sender<Stop>, how: Stop) {
    stop.send_if_modified(|stop| {
        let more_urgent = how > *stop;
        *stop = how.max(*stop);
        more_urgent
    });
}
