//! The slots of servers. A server is known by the index of its slot: it may start and end there many times. The slot
//! of a removed server stays empty, so that a stored index never refers to another server.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use catalog::{Kind, Offer, ServerEntry, ServerName, ServerSpec, ServerState, Share};
use protocol::{Lifecycle, reply};
use tokio::sync::{Notify, mpsc, watch};
use upstream::{
    Audience, Connection, ContainerHandle, Ending, Handshake, INSTANCE_MARK_VARIABLE, ProcessInfo, Report, Stop,
    Upstream, UpstreamObserver,
};

use super::disabled_tools::DisabledTools;
use super::instances::{Instances, LOCAL_INSTANCE};
use super::observer::EndGuard;
use super::{Fleet, View, lock};
use crate::cycle;
use crate::startup_queue::StartupQueue;

/// How many servers may be removed before no further one can be added. Each keeps its slot, and with it an entry in every
/// snapshot, because its index may still be stored: in calls, tasks and request states that clients return.
const MAX_REMOVED_SERVERS: usize = 10_000;

/// What the run is called in its config that provides the catalog of a server with instances.
const CATALOG_INSTANCE: &str = "catalog";

/// An event of a running server, for its supervisor.
#[derive(Debug, Clone)]
pub enum UpstreamEvent {
    /// It is ready, and offers this.
    Running(Arc<Offer>),
    /// It offers something else now.
    Changed(Arc<Offer>),
    /// It cannot start yet; the progress of the preparation.
    Preparing(String),
    /// It runs in this container.
    ContainerStarted(Arc<dyn ContainerHandle>),
    /// It is being started, with this process information.
    ProcessStarted(ProcessInfo),
    /// It has ended.
    Ended(Arc<Ending>),
    /// It failed, with this report.
    Reported(Arc<Report>),
}

/// One run of a server.
#[derive(Debug)]
pub struct UpstreamHandle {
    stop: watch::Sender<Stop>,
    events: mpsc::UnboundedReceiver<UpstreamEvent>,
}

impl UpstreamHandle {
    /// The next event; `None` when the server has ended completely.
    pub async fn next(&mut self) -> Option<UpstreamEvent> {
        self.events.recv().await
    }

    /// Requests the server to stop.
    pub fn stop(&self, how: Stop) {
        raise(&self.stop, how);
    }
}

/// All slots, in order.
#[derive(Default)]
pub(crate) struct ServerSlots(RwLock<Vec<Arc<ServerSlot>>>);

/// The slot of one server.
pub(crate) struct ServerSlot {
    /// Calls that wait until the server is up or down.
    pub(crate) waiting: StartupQueue,
    /// Serialises changes of subscriptions.
    pub(crate) subscribing: Arc<tokio::sync::Mutex<()>>,
    /// A server that is asleep is needed.
    needed: Notify,
    current: Mutex<CurrentRun>,
    /// A run has ended completely.
    over: Notify,
    /// Tools that are not listed.
    pub(super) disabled_tools: Mutex<DisabledTools>,
    /// Its instances, if not everybody shares it. Its own run then serves no client.
    pub(super) instances: Mutex<Option<Arc<Instances>>>,
}

/// The current run of the server.
struct CurrentRun {
    stop: watch::Sender<Stop>,
    events: Option<mpsc::UnboundedSender<UpstreamEvent>>,
    /// The server was known before or will be needed again, so its offer stays listed.
    stays_on_offer: bool,
    /// The end of this run was reported.
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
            subscribing: Arc::default(),
            needed: Notify::new(),
            current: Mutex::new(current),
            over: Notify::new(),
            disabled_tools: Mutex::default(),
            instances: Mutex::default(),
        }
    }

    pub(super) fn stop(&self, how: Stop) {
        raise(&lock(&self.current).stop, how);
    }

    pub(super) fn send_event(&self, event: UpstreamEvent) {
        if let Some(supervisor) = &lock(&self.current).events {
            // A supervisor that dropped its receiver does not need events.
            supervisor.send(event).ok();
        }
    }

    /// Marks the current run as ended. Returns whether the server's offer stays listed.
    pub(super) fn end(&self) -> bool {
        let mut current = lock(&self.current);
        current.has_ended = true;
        current.stays_on_offer
    }

    /// Whether the end of the current run was reported.
    pub(super) fn has_ended(&self) -> bool {
        lock(&self.current).has_ended
    }

    /// Closes the channel to the supervisor: the current run has ended completely.
    pub(super) fn close_events(&self) {
        lock(&self.current).events = None;
        self.over.notify_waiters();
    }

    /// Waits until the current run has ended completely.
    async fn run_over(&self) {
        loop {
            let mut over = std::pin::pin!(self.over.notified());
            over.as_mut().enable();
            if lock(&self.current).events.is_none() {
                return;
            }
            over.await;
        }
    }
}

impl Fleet {
    /// Adds a slot for a server that is not running yet.
    pub fn register(&self, name: ServerName, state: ServerState, offer: Arc<Offer>) -> usize {
        self.register_as(vec![ServerEntry { name, state, offer }])
    }

    /// Adds slots for servers that are about to start.
    pub(super) fn register_all(&self, names: Vec<ServerName>) {
        let nothing = Arc::new(Offer::new(Lifecycle::Session));
        let entry = |name| ServerEntry { name, state: ServerState::Initializing, offer: Arc::clone(&nothing) };
        self.register_as(names.into_iter().map(entry).collect());
    }

    /// Why no further server can be added, if so.
    pub fn refusal_of_registration(&self) -> Option<String> {
        let is_removed = |server: &&ServerEntry| server.state == ServerState::Removed;
        let removed = self.view().snapshot.servers().iter().filter(is_removed).count();
        (removed >= MAX_REMOVED_SERVERS).then(|| {
            format!(
                "{MAX_REMOVED_SERVERS} servers were removed since mcp-aggregator started, which is the limit; restart \
                 it to add more"
            )
        })
    }

    pub(super) fn register_as(&self, entries: Vec<ServerEntry>) -> usize {
        let _changing = lock(&self.changing);
        let before = self.view();
        let mut servers = before.snapshot.servers().to_vec();
        let first = servers.len();
        for entry in entries {
            let index = self.slots.add();
            debug_assert_eq!(index, servers.len(), "a place and its server have the same number");
            if entry.state.is_starting_or_asleep() {
                self.slots.at(index).waiting.close();
            }
            servers.push(entry);
        }
        let mut connections = before.connections.clone();
        connections.resize(servers.len(), None);
        let view = View::new(self.snapshot(servers, &before), connections).with_profiles_of(&before, None);
        self.views.send_replace(Arc::new(view));
        first
    }

    /// Starts the server at `index`, which must not be running. If its offer is `known`, that is listed until the
    /// server reports another.
    pub async fn begin(self: &Arc<Self>, index: usize, spec: ServerSpec, known: Option<Arc<Offer>>) -> UpstreamHandle {
        let (handle, stopping) = self.begin_run(index, known.is_some());
        let next = known.clone();
        let change = move |fleet: &Self| fleet.change(index, |server, _| mark_starting(server, known.as_ref()));
        self.change_beside_calls(index, next.as_deref(), change).await;
        self.spawn_server(index, spec, stopping);
        handle
    }

    /// Starts the server at `index` again, once its last run is over. Nobody supervises it.
    pub async fn restart(self: &Arc<Self>, index: usize, spec: ServerSpec) {
        self.slots.at(index).run_over().await;
        drop(self.begin(index, spec, None).await);
    }

    /// As [`begin`](Self::begin), for a server that has no offer yet.
    pub(super) fn begin_unknown(self: &Arc<Self>, index: usize, spec: ServerSpec) {
        let (_, stopping) = self.begin_run(index, false);
        self.change(index, |server, _| mark_starting(server, None));
        self.spawn_server(index, spec, stopping);
    }

    /// Prepares the slot for the next run.
    fn begin_run(&self, index: usize, stays_on_offer: bool) -> (UpstreamHandle, watch::Receiver<Stop>) {
        let slot = self.slots.at(index);
        let (supervisor, events) = mpsc::unbounded_channel();
        let (stop, stopping) = watch::channel(Stop::Never);
        *lock(&slot.current) =
            CurrentRun { stop: stop.clone(), events: Some(supervisor), stays_on_offer, has_ended: false };
        raise(&stop, *self.stop.borrow());
        (UpstreamHandle { stop, events }, stopping)
    }

    fn spawn_server(self: &Arc<Self>, index: usize, spec: ServerSpec, stopping: watch::Receiver<Stop>) {
        let (audience, spec) = match self.instances_of(index) {
            Some(_) => (Audience::Nobody, spec.for_instance(CATALOG_INSTANCE)),
            // A program with one client.
            None if spec.sharing.share != Share::All => (Audience::Everybody, spec.for_instance(LOCAL_INSTANCE)),
            None => (Audience::Everybody, spec),
        };
        let upstream = self.upstream(index, audience, index, spec);
        let (observer, remote) = (Arc::clone(self) as Arc<dyn UpstreamObserver>, self.remote.clone());
        let end_guard = EndGuard { fleet: Arc::clone(self), index };
        let mut tasks_of_servers = lock(&self.tasks_of_servers);
        // Finished tasks need not be kept.
        while tasks_of_servers.try_join_next().is_some() {}
        tasks_of_servers.spawn(async move {
            let _end_guard = end_guard;
            // Started inside the task: the future of a connector would otherwise be stored twice, in the caller and in
            // the task.
            upstream.run(observer, stopping, remote).await;
        });
    }

    /// A server that is about to run. Its processes are marked with `mark_number`.
    pub(super) fn upstream(&self, index: usize, audience: Audience, mark_number: usize, spec: ServerSpec) -> Upstream {
        let start_timeout = spec.start_timeout.unwrap_or(self.options.start_timeout);
        Upstream {
            index,
            audience,
            mark_number,
            spec,
            environment: vec![
                (OsString::from(INSTANCE_MARK_VARIABLE), self.instance_mark.value_for(mark_number).into()),
                (OsString::from(cycle::VARIABLE), self.chain.clone()),
            ],
            withheld: self.options.withheld,
            handshake: Handshake {
                client_info: self.client_info(),
                capabilities: Bytes::from_static(self.options.capabilities.as_bytes()),
                start_timeout,
                tools_only: self.options.method_set.is_tools_only,
                skips_lists: false,
                client_lifecycle: self.options.awaits_client.then(|| self.client_lifecycle.subscribe()),
            },
            instance_mark: Arc::clone(&self.instance_mark),
            loop_detector: Arc::clone(&self.loop_detector),
            watchdog: Arc::clone(&self.watchdog),
            limits: Arc::clone(&self.options.server_limits),
            cleans_up_leftovers: self.options.servers_can_change,
        }
    }

    /// Sets the state of a server that is not running, and what is listed for it.
    pub async fn set_state(self: &Arc<Self>, index: usize, state: ServerState, offer: Option<Arc<Offer>>) {
        let next = offer.clone();
        self.change_beside_calls(index, next.as_deref(), move |fleet| fleet.set_state_here(index, state, offer)).await;
    }

    /// The same on the current thread.
    pub(super) fn set_state_here(&self, index: usize, state: ServerState, offer: Option<Arc<Offer>>) {
        let next = (state, offer.unwrap_or_else(|| Arc::new(Offer::new(Lifecycle::Session))));
        self.change(index, |server, _| (server.state, server.offer) = next.clone());
    }

    /// Sets the state of a server that still runs and sends it no more requests. Pending ones continue.
    pub async fn retire(
        self: &Arc<Self>,
        index: usize,
        state: ServerState,
        offer: Option<Arc<Offer>>,
    ) -> Option<Arc<Connection>> {
        let retired = Arc::new(Mutex::new(None));
        let (next, result) = (offer.clone(), Arc::clone(&retired));
        let retire = move |fleet: &Self| *lock(&result) = fleet.retire_here(index, state, offer);
        self.change_beside_calls(index, next.as_deref(), retire).await;
        lock(&retired).take()
    }

    fn retire_here(&self, index: usize, state: ServerState, offer: Option<Arc<Offer>>) -> Option<Arc<Connection>> {
        let mut connection = None;
        let next = (state, offer.unwrap_or_else(|| Arc::new(Offer::new(Lifecycle::Session))));
        self.change(index, |server, slot| {
            connection = slot.take().or_else(|| self.slots.at(index).take_catalog_connection());
            (server.state, server.offer) = next.clone();
        });
        let mut retired = lock(&self.retired);
        retired.retain(|connection| connection.strong_count() > 0);
        retired.extend(connection.as_ref().map(Arc::downgrade));
        drop(retired);
        connection
    }

    /// Disables these tools of a server and enables its others: disabled tools are neither listed nor called.
    pub async fn set_disabled_tools(self: &Arc<Self>, index: usize, tools: BTreeSet<String>) {
        self.slots.at(index).set_disabled_tools(tools);
        self.change_beside_calls(index, None, move |fleet| fleet.change(index, |_, _| {})).await;
    }

    /// Sets whether a server's offer stays listed when its current run ends.
    pub fn keep_offer(&self, index: usize, stays: bool) {
        lock(&self.slots.at(index).current).stays_on_offer = stays;
    }

    /// Renames the server, and with it all its items.
    pub async fn rename(self: &Arc<Self>, index: usize, name: &ServerName) {
        if let Some(connection) = self.connection(index) {
            connection.rename(name.clone());
        }
        self.rename_instances(index, name);
        let name = name.clone();
        self.change_beside_calls(index, None, move |fleet| fleet.change(index, |server, _| server.name = name.clone()))
            .await;
    }

    /// Removes the server at `index`, which must not be running, for good.
    pub async fn remove(self: &Arc<Self>, index: usize) {
        self.set_state(index, ServerState::Removed, None).await;
        self.end_instances(index, Duration::ZERO).await;
        *lock(&self.slots.at(index).instances) = None;
        lock(&self.reports).remove(&index);
        self.levels().forget(index);
    }

    /// Makes a change of one server: on a thread that serves no calls, if many items are listed for it or will be.
    async fn change_beside_calls(
        self: &Arc<Self>,
        index: usize,
        next: Option<&Offer>,
        change: impl FnOnce(&Self) + Send + 'static,
    ) {
        let views = 1 + self.view().profiles.len();
        let is_large = self.is_large(index) || next.is_some_and(|offer| is_large_for(offer, views));
        let fleet = Arc::clone(self);
        upstream::beside_calls(is_large, move || change(&fleet)).await;
    }

    /// Whether a change of a server is costly: many items are listed for it, or would be if none of its tools were
    /// disabled, or it may change who has one of many contested names.
    pub(super) fn is_large(&self, index: usize) -> bool {
        let view = self.view();
        // The view of each profile changes as well.
        upstream::are_many(view.snapshot.contested())
            || self.slots.at(index).is_large(&view.snapshot.servers()[index].offer, 1 + view.profiles.len())
    }

    /// Reports that the server at `index` is needed.
    pub(crate) fn need(&self, index: usize) {
        self.slots.at(index).needed.notify_one();
    }

    /// Whether calls wait for the server at `index`, or its instances for its catalog.
    pub fn is_awaited(&self, index: usize) -> bool {
        !self.slots.at(index).waiting.is_empty() || self.wants_catalog(index)
    }

    /// Waits until the server at `index` is needed, or was needed while it was starting.
    pub async fn needed(&self, index: usize) {
        self.slots.at(index).needed.notified().await;
    }

    /// The client info that servers receive.
    fn client_info(&self) -> Bytes {
        let info = reply::object([
            ("name", reply::string(&self.options.name)),
            ("version", reply::string(&self.options.version)),
        ]);
        Bytes::from(info)
    }
}

/// Whether a change of so many views of an offer is costly.
pub(super) fn is_large_for(offer: &Offer, views: usize) -> bool {
    upstream::are_many(Kind::ALL.into_iter().map(|kind| offer.items(kind).len() * views).sum())
}

fn mark_starting(server: &mut ServerEntry, known: Option<&Arc<Offer>>) {
    match known {
        Some(offer) => (server.state, server.offer) = (ServerState::Starting, Arc::clone(offer)),
        None => server.state = ServerState::Initializing,
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
