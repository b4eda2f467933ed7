//! All servers, and the current view of their catalogs.
//!
//! - here: the view, and who is notified when it changes
//! - `slots`: the slots of servers: registering, starting, renaming, removing
//! - `name_conflicts`: items that cannot be listed because another server has the same name or URI
//! - `disabled_tools`: tools that are not listed though their servers have them
//! - `instances`: the runs of servers that not everybody shares
//! - `profiles`: what the clients of a profile see
//! - `observer`: handles the events of running servers

mod disabled_tools;
mod instances;
pub(crate) mod name_conflicts;
mod observer;
mod profiles;
mod slots;
#[cfg(test)]
mod tests;

pub use instances::InstanceView;
pub(crate) use instances::{Entered, Instances};
use name_conflicts::NameConflicts;
use profiles::{Changed, ProfileViews};
pub(crate) use slots::ServerSlots;
use slots::raise;
pub use slots::{UpstreamEvent, UpstreamHandle};

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use catalog::{Config, Kind, Offer, Scope, ServerEntry, ServerState, Snapshot};
use protocol::{Envelope, Lifecycle};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use upstream::loop_detection::LoopDetector;
use upstream::watchdog::Watchdog;
use upstream::{
    Connection, Connector, INSTANCE_MARK_VARIABLE, InstanceMark, Phase, Report, ServerLimits, Stop,
    UpstreamObserver as _,
};

use crate::call;
use crate::client::Client;
use crate::client_limits::ClientLimits;
use crate::cycle::Chain;
use crate::dispatch::Options;
use crate::level::Level;
use crate::logs::{self, Levels};
use crate::subscriptions::Subscriptions;
use crate::surface::Surface;
use crate::tasks::Tasks;

/// How long a list waits for servers that are still starting, counted from our own start.
const LIST_START_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an instance may be idle, unless that is set.
const INSTANCE_IDLE_MS: u64 = 300_000;

/// How long `initialize` waits for servers that are still starting, counted the same way: their instructions can be
/// sent to a client only once.
const INITIALIZE_START_TIMEOUT: Duration = Duration::from_secs(3);

/// Up to this many names are built at their first lookup, which takes about a millisecond. More are built before the
/// view is published.
const NAMED_BY_READERS: usize = 1_000;

/// How often a view is built concurrently with other changes. After that, other changes wait.
const MAX_ATTEMPTS: usize = 3;

/// The log target of reports on failed servers, for a program that prints them in another way.
pub const FAILURES_TARGET: &str = "failures";

/// The catalogs at one moment, and the connections behind them: of everything, or of what clients of a profile see.
pub struct View {
    /// The servers and their tools.
    pub snapshot: Arc<Snapshot>,
    /// The connection to each running server, in the same order.
    pub connections: Vec<Option<Arc<Connection>>>,
    /// Whether each server supports tasks.
    has_tasks: Vec<bool>,
    /// The same view for the clients of each profile.
    profiles: ProfileViews,
    /// The same for clients that see nothing.
    nothing: OnceLock<Arc<Self>>,
}

impl View {
    fn new(snapshot: Snapshot, connections: Vec<Option<Arc<Connection>>>) -> Self {
        let has_tasks = snapshot
            .servers()
            .iter()
            .map(|server| LIFECYCLES.iter().any(|&lifecycle| offers_tasks(&server.offer, lifecycle)));
        let has_tasks = has_tasks.collect();
        let (profiles, nothing) = (ProfileViews::new(), OnceLock::new());
        Self { snapshot: Arc::new(snapshot), connections, has_tasks, profiles, nothing }
    }
}

const LIFECYCLES: [Lifecycle; 2] = [Lifecycle::Session, Lifecycle::SelfContained];

/// Whether a server supports tasks that a client of `lifecycle` can use.
fn offers_tasks(offer: &Offer, lifecycle: Lifecycle) -> bool {
    let offer = offer.for_lifecycle(lifecycle);
    let has_extension = || offer.has_within("extensions", "io.modelcontextprotocol/tasks");
    offer.lifecycle == lifecycle && (offer.has("tasks") || has_extension())
}

/// All servers.
pub struct Fleet {
    itself: Weak<Self>,
    views: watch::Sender<Arc<View>>,
    /// Serialises changes: a view is built from the one before.
    changing: Mutex<()>,
    pub(crate) slots: ServerSlots,
    options: Options,
    /// How urgently everything is to stop.
    stop: watch::Sender<Stop>,
    tasks_of_servers: Mutex<JoinSet<()>>,
    /// How long an instance may be idle, in milliseconds.
    instance_idle_ms: AtomicU64,
    /// How many runs of instances were begun.
    instances_begun: AtomicUsize,
    /// The configuration chain that every server inherits.
    chain: OsString,
    instance_mark: Arc<InstanceMark>,
    loop_detector: Arc<LoopDetector>,
    name_conflicts: NameConflicts,
    watchdog: Arc<Watchdog>,
    /// Connects to remote servers, in programs that support them.
    remote: Option<Connector>,
    /// Clients to notify, by number.
    clients: Mutex<BTreeMap<u64, Weak<Client>>>,
    reports: Mutex<HashMap<usize, Arc<Report>>>,
    /// Connections that get no more requests, but may still have pending ones.
    retired: Mutex<Vec<Weak<Connection>>>,
    /// The lifecycle of the only client, once it is known.
    client_lifecycle: watch::Sender<Option<Lifecycle>>,
    list_deadline: Instant,
    initialize_deadline: Instant,
    /// The servers missing from the last response to each list, because they were still starting.
    reported_missing: Mutex<[Vec<usize>; 4]>,
    pub(crate) subscriptions: Mutex<Subscriptions>,
    /// Held while the owners of many URIs are searched: one request at a time.
    pub(crate) searching: tokio::sync::Mutex<()>,
    /// Held while a large list is written: one at a time.
    pub(crate) writing: tokio::sync::Mutex<()>,
    pub(crate) tasks: Mutex<Tasks>,
    /// The log levels requested of servers.
    pub(crate) levels: Mutex<Levels>,
}

impl Fleet {
    /// Starts every server of `config`, all at once, and returns without waiting for any. `remote` connects to remote
    /// servers, in programs that support them.
    pub fn start(config: Config, options: Options, chain: &Chain, remote: Option<Connector>) -> Arc<Self> {
        let fleet = Self::empty(options, chain, remote);
        let names = config.servers.iter().map(|spec| &spec.name).chain(config.unset.iter().map(|server| &server.name));
        fleet.register_all(names.cloned().collect());
        let first_unset = config.servers.len();
        for (index, spec) in config.servers.into_iter().enumerate() {
            fleet.begin_unknown(index, spec);
        }
        for (index, server) in (first_unset..).zip(config.unset) {
            fleet.fail_unset(index, server.reason);
        }
        fleet
    }

    /// Fails a server whose variables are not set, as one whose program does not exist.
    fn fail_unset(&self, index: usize, cause: String) {
        let phase = Phase::Startup;
        self.set_state_here(index, ServerState::Failed(format!("{phase}: {cause}").into()), None);
        let hint = Some("set it where this program is started, or give a default: `${NAME:-default}`");
        self.on_report(index, Report { phase, cause, stderr_lines: Vec::new(), hint });
    }

    /// The full name of a server's tool in the merged list.
    pub fn full_name(&self, server: &str, tool: &str) -> String {
        catalog::names::canonical(server, &self.options.separator, tool)
    }

    /// Detects loops between aggregators.
    pub fn loop_detector(&self) -> &LoopDetector {
        &self.loop_detector
    }

    /// A fleet without servers.
    pub fn empty(options: Options, chain: &Chain, remote: Option<Connector>) -> Arc<Self> {
        Self::made(options, chain, remote, None)
    }

    /// A separate, empty fleet of the same aggregator.
    pub fn beside(&self, options: Options, chain: &Chain, remote: Option<Connector>) -> Arc<Self> {
        // Servers are counted by slot index, and the indexes of the two fleets overlap.
        let options = Options { server_limits: options.server_limits.apart(), ..options };
        Self::made(options, chain, remote, Some(Arc::clone(&self.loop_detector)))
    }

    fn made(
        options: Options,
        chain: &Chain,
        remote: Option<Connector>,
        loop_detector: Option<Arc<LoopDetector>>,
    ) -> Arc<Self> {
        let seed = RandomState::new().hash_one(std::time::SystemTime::now());
        let above = std::env::var(INSTANCE_MARK_VARIABLE).ok();
        let instance_mark = Arc::new(InstanceMark::new(std::process::id(), seed, above.as_deref()));
        let watchdog = Watchdog::start(&instance_mark.mark()).unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to start the watchdog; servers may survive if this process is killed");
            Watchdog::absent()
        });
        let nothing = Snapshot::new(Vec::new(), options.separator.clone());
        Arc::new_cyclic(|itself| Self {
            itself: Weak::clone(itself),
            views: watch::Sender::new(Arc::new(View::new(nothing, Vec::new()))),
            changing: Mutex::default(),
            slots: ServerSlots::default(),
            stop: watch::Sender::new(Stop::Never),
            tasks_of_servers: Mutex::new(JoinSet::new()),
            instance_idle_ms: AtomicU64::new(INSTANCE_IDLE_MS),
            instances_begun: AtomicUsize::new(0),
            chain: chain.as_value(),
            loop_detector: loop_detector.unwrap_or_else(|| Arc::new(LoopDetector::new(&instance_mark))),
            name_conflicts: NameConflicts::default(),
            instance_mark,
            watchdog: Arc::new(watchdog),
            remote,
            clients: Mutex::default(),
            reports: Mutex::default(),
            retired: Mutex::default(),
            client_lifecycle: watch::Sender::new(None),
            list_deadline: Instant::now() + LIST_START_TIMEOUT,
            initialize_deadline: Instant::now() + INITIALIZE_START_TIMEOUT,
            reported_missing: Mutex::default(),
            subscriptions: Mutex::default(),
            searching: tokio::sync::Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            tasks: Mutex::default(),
            levels: Mutex::default(),
            options,
        })
    }

    /// Records the lifecycle of the only client; the first one counts.
    pub(crate) fn note_client_lifecycle(&self, lifecycle: Lifecycle) {
        self.client_lifecycle.send_if_modified(|known| {
            let is_news = known.is_none();
            known.get_or_insert(lifecycle);
            is_news
        });
    }

    /// Limits on what servers may make us store.
    pub fn server_limits(&self) -> &ServerLimits {
        &self.options.server_limits
    }

    pub(crate) fn client_limits(&self) -> &ClientLimits {
        &self.options.client_limits
    }

    /// The current view.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.views.borrow())
    }

    /// Whether a list for `client` need not wait for any server.
    pub(crate) fn is_settled(&self, client: &Client) -> bool {
        has_settled(&self.view_of(client), client.scope()) || Instant::now() >= self.list_deadline
    }

    /// Waits until every server that `client` sees is up or down, or has used up its time.
    pub(crate) async fn all_settled(&self, client: &Client) {
        let mut views = self.views.subscribe();
        let settled = views.wait_for(|view| has_settled(&view.seen_by(client), client.scope()));
        drop(timeout_at(self.list_deadline, settled).await);
    }

    /// Logs that a list is answered without the servers that are still starting; once for the same servers.
    pub(crate) fn report_incomplete(&self, snapshot: &Snapshot, scope: Scope, kind: Kind) {
        // The lists of a profile leave servers out. Those of everything are reported.
        if snapshot.profile().is_some() {
            return;
        }
        let servers = snapshot.servers().iter().enumerate();
        let missing = servers.filter(|(index, server)| scope.sees(*index) && server.state == ServerState::Initializing);
        let (missing, names): (Vec<usize>, Vec<&str>) =
            missing.map(|(index, server)| (index, server.name.as_str())).unzip();
        let reported = &mut lock(&self.reported_missing)[kind as usize];
        if *reported == missing {
            return;
        }
        if !missing.is_empty() {
            tracing::warn!(
                still_starting = %names.join(", "),
                "answered `{}` with an incomplete list; clients are notified when it changes",
                kind.list_method(),
            );
        }
        *reported = missing;
    }

    /// Whether `initialize` of `client` need not wait for any server.
    pub(crate) fn is_known(&self, client: &Client) -> bool {
        let is_late = || client.scope() == Scope::All && Instant::now() >= self.initialize_deadline;
        has_settled(&self.view_of(client), client.scope()) || is_late()
    }

    /// Waits until `initialize` can be answered. A client that sees a single server waits for that one.
    pub(crate) async fn known(&self, client: &Client) {
        let mut views = self.views.subscribe();
        let settled = views.wait_for(|view| has_settled(&view.seen_by(client), client.scope()));
        match client.scope() {
            Scope::All => drop(timeout_at(self.initialize_deadline, settled).await),
            Scope::One(_) => drop(settled.await),
        }
    }

    /// Whether any server that `client` sees supports tasks that it can use in that lifecycle.
    pub(crate) fn offers_tasks(&self, client: &Client, lifecycle: Lifecycle) -> bool {
        let (view, scope) = (self.view_of(client), client.scope());
        let mut seen = view.snapshot.servers().iter().enumerate().filter(|(index, _)| scope.sees(*index));
        seen.any(|(_, server)| offers_tasks(&server.offer, lifecycle))
    }

    /// Whether a running server supports tasks.
    pub(crate) fn has_tasks(&self, server: usize) -> bool {
        self.view().has_tasks[server]
    }

    /// The clients to notify.
    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        lock(&self.clients).values().filter_map(Weak::upgrade).collect()
    }

    /// The connections to all running servers that serve clients, and to their instances.
    pub(crate) fn connected(&self) -> Vec<Arc<Connection>> {
        let mut connections: Vec<_> = self.view().connections.iter().flatten().cloned().collect();
        connections.extend(self.connections_to_instances());
        connections
    }

    /// Every connection that may have pending requests, including retired ones.
    pub(crate) fn at_work(&self) -> Vec<Arc<Connection>> {
        let mut connections = self.connected();
        connections.extend(lock(&self.retired).iter().filter_map(Weak::upgrade));
        let modern: Vec<_> = connections.iter().filter_map(|connection| connection.modern().cloned()).collect();
        connections.extend(modern);
        connections
    }

    /// Runs a small background task; it ends with the servers.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut stop = self.stop.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                () = task => {}
                _ = stop.wait_for(|&stop| stop > Stop::Never) => {}
            }
        });
    }

    /// Waits until every server is up or down, however long that takes. Each has a deadline of its own.
    pub async fn all_decided(&self) {
        drop(self.views.subscribe().wait_for(|view| view.snapshot.is_settled()).await);
    }

    /// Waits until one server is up or down. It has a deadline of its own.
    pub async fn settled(&self, server: usize) {
        let is_settled = |view: &Arc<View>| !view.snapshot.servers()[server].state.is_starting_or_asleep();
        drop(self.views.subscribe().wait_for(is_settled).await);
    }

    /// Notifies `client` of changes from now on.
    pub fn add_client(&self, client: &Arc<Client>) {
        lock(&self.clients).insert(client.number(), Arc::downgrade(client));
    }

    /// Stops notifying `client`, which has disconnected.
    pub(crate) fn remove_client(&self, client: &Client) {
        lock(&self.clients).remove(&client.number());
    }

    /// The report of a server that failed, once its stderr is read.
    pub fn report(&self, server: usize) -> Option<Arc<Report>> {
        lock(&self.reports).get(&server).cloned()
    }

    /// Requests every server to stop. A later, more urgent request takes effect; a less urgent one does not.
    pub fn stop(&self, how: Stop) {
        raise(&self.stop, how);
        self.slots.for_each(|slot| slot.stop(how));
    }

    /// Waits until all servers have ended. Call [`Fleet::stop`] first.
    pub async fn ended(&self) {
        let mut tasks_of_servers = std::mem::take(&mut *lock(&self.tasks_of_servers));
        while let Some(joined) = tasks_of_servers.join_next().await {
            if let Err(error) = joined {
                tracing::error!(%error, "the task of a server panicked");
            }
        }
        let watchdog = Arc::clone(&self.watchdog);
        drop(tokio::task::spawn_blocking(move || watchdog.dismiss()).await);
    }

    /// Builds the next view from the current one and swaps it in. Notifies clients whose list is out of date.
    ///
    /// `apply` is called again if something else changed while names were built.
    fn change(&self, index: usize, mut apply: impl FnMut(&mut ServerEntry, &mut Option<Arc<Connection>>)) {
        for attempt in 0.. {
            // Building many names takes long. Other changes do not wait for it, unless they keep interrupting it.
            let is_alone = attempt == MAX_ATTEMPTS;
            let permit = is_alone.then(|| lock(&self.changing));
            let before = self.view();
            let mut servers = before.snapshot.servers().to_vec();
            let mut connections = before.connections.clone();
            apply(&mut servers[index], &mut connections[index]);
            self.note_catalog(index, &servers[index].offer);
            let enabled_offer = self.slots.at(index).remove_disabled(&mut servers[index]);
            let snapshot = self.snapshot(servers, &before);
            if snapshot.unnamed() > NAMED_BY_READERS {
                snapshot.make_names();
            }
            let view = View::new(snapshot, connections).with_profiles_of(&before, Some(index));
            let permit = permit.unwrap_or_else(|| lock(&self.changing));
            if Arc::ptr_eq(&before, &self.view()) {
                self.slots.at(index).keep(enabled_offer);
                return self.publish(index, &before, &Arc::new(view), permit);
            }
        }
    }

    /// Makes the next view the current one, and notifies the clients concerned.
    fn publish(&self, index: usize, before: &View, view: &Arc<View>, changing: MutexGuard<'_, ()>) {
        let (was, is) = (&before.snapshot.servers()[index], &view.snapshot.servers()[index]);
        if was == is {
            return;
        }
        let changed = view.changed_by_server(before, index);
        let is_decided = !is.state.is_starting_or_asleep();
        let is_stopped = is.state == ServerState::Stopped;
        self.views.send_replace(Arc::clone(view));
        // While the view cannot change: a startup queue must accept calls exactly as long as there is something to
        // wait for.
        let waiting =
            if is_decided { self.slots.at(index).waiting.open() } else { self.slots.at(index).waiting.close() };
        drop(changing);
        call::resume(waiting);
        // Not before all have started: until then names are not used, and the check is expensive. Nor while servers
        // are stopped one by one: the conflicts that this uncovers do not matter.
        if view.snapshot.is_settled() && !is_stopped {
            self.name_conflicts.report_new(&view.snapshot);
        }
        self.notify_changed(|client| changed.of(client));
    }

    /// Counts what a server offers towards the limits, even if it was not listed just now.
    fn note_catalog(&self, index: usize, offer: &Offer) {
        let instructions = offer.instructions.as_ref().map_or(0, |text| text.len());
        self.options.server_limits.note_instructions(index, instructions);
        let items = || Kind::ALL.into_iter().flat_map(|kind| items_kept(offer, kind));
        match items().next() {
            Some(_) => self
                .options
                .server_limits
                .note_offer(index, || items().map(|item| item.definition.len() + item.derived_bytes()).sum()),
            None => self.options.server_limits.forget_offer(index),
        }
    }

    fn snapshot(&self, servers: Vec<ServerEntry>, before: &View) -> Snapshot {
        let snapshot = Snapshot::new(servers, self.options.separator.clone()).following(&before.snapshot);
        if self.options.servers_can_change { snapshot.with_changeable_servers() } else { snapshot }
    }

    /// Notifies clients that the tools of the small surface have changed.
    pub fn surface_changed(&self) {
        self.notify_changed(|client| match client.surface(&self.view_of(client)) {
            Surface::Full => Changed::default(),
            _ => Changed::tools(),
        });
    }

    /// Notifies clients of the lists that have changed for them.
    fn notify_changed(&self, changed: impl Fn(&Client) -> Changed) {
        for client in self.clients() {
            let Changed { kinds, was_starting } = changed(&client);
            for kind in kinds {
                client.list_changed(kind, was_starting);
            }
        }
        self.notify_listeners(|client| changed(client).kinds);
    }

    /// Forwards a log message that belongs to no request to all clients that want it.
    fn log_message(&self, server: &Arc<Connection>, line: &Bytes, envelope: &Envelope) {
        // A client that set no level does not receive what other clients requested.
        let is_chatter = self.is_lowered(&server.key())
            && logs::level_of(line, &envelope.params).is_some_and(|level| level < Level::Info);
        // Built once, and shared by all clients that see several servers.
        let mut labelled = None;
        for client in self.clients() {
            if self.is_seen_by(&client, server.index())
                && client.is_in(server.audience())
                && client.is_initialized()
                && !(is_chatter && client.level().is_none())
                && logs::is_wanted(&client, line, envelope)
            {
                client.pass(match client.scope() {
                    Scope::One(_) => line,
                    Scope::All => labelled.get_or_insert_with(|| logs::labelled(Scope::All, server, line, envelope)),
                });
            }
        }
        // A modern client receives it only while its request is pending at that server and no other client's is.
        if let Some(handler) = server.only_handler()
            && !self.clients().iter().any(|client| client.number() == handler.requester().client)
        {
            handler.on_notification(upstream::Notification { server, line, envelope, progress: None });
            handler.flush();
        }
    }

    /// Notifies the client that received a URL elicitation that it is complete.
    fn elicitation_complete(&self, server: &Connection, line: &Bytes, envelope: &Envelope) {
        let id = envelope.params.span.and_then(|params| protocol::scan::member(line, params, "elicitationId"));
        let Some(id) = id.and_then(|id| protocol::text::decode(id.of(line))) else { return };
        for client in self.clients() {
            if client.is_in(server.audience()) && client.server_requests.take_elicitation(server.index(), &id) {
                client.pass(line);
            }
        }
    }

    /// Notifications that belong to no pending request, in `mcp-aggregator`.
    pub(crate) fn on_any_notification(
        &self,
        server: &Arc<Connection>,
        method: &str,
        line: &Bytes,
        envelope: &Envelope,
    ) {
        match method {
            "notifications/message" => self.log_message(server, line, envelope),
            "notifications/resources/updated" => self.resource_updated(&server.key(), line, envelope),
            "notifications/tasks/status" => self.task_status(&server.key(), line, envelope),
            "notifications/elicitation/complete" => self.elicitation_complete(server, line, envelope),
            _ => self.unknown_notice(server, line),
        }
    }

    /// The same in the tools-only program, where none of them matter.
    pub(crate) fn on_tools_notification(&self, server: &Arc<Connection>, method: &str, _: &Bytes, _: &Envelope) {
        tracing::debug!(server = %server.server(), method, "dropped a notification");
    }

    /// Forwards an unknown notification to clients that see only that server.
    fn unknown_notice(&self, server: &Connection, line: &Bytes) {
        for client in self.clients() {
            let is_only = client.is_in(server.audience()) && client.scope() == Scope::One(server.index());
            // What an unknown notification is about is unknown, too.
            if (is_only || client.is_alone()) && client.profile().is_none() {
                client.pass(line);
            }
        }
    }
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Fleet").finish_non_exhaustive()
    }
}

/// The stored items of one kind of a server, including those of its modern handshake where they differ.
fn items_kept(offer: &Offer, kind: Kind) -> impl Iterator<Item = &catalog::Item> {
    let (own, modern) = (offer.items(kind), offer.for_lifecycle(Lifecycle::SelfContained).items(kind));
    let others = (!Arc::ptr_eq(own, modern)).then_some(modern);
    own.iter().chain(others.into_iter().flat_map(|items| items.iter()))
}

fn has_settled(view: &View, scope: Scope) -> bool {
    match scope {
        Scope::All => view.snapshot.is_settled(),
        Scope::One(server) => view.snapshot.servers()[server].state != ServerState::Initializing,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
