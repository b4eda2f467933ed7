//! The instances of a server that not everybody shares: one run for each identity, or for each session of a client.
//!
//! The run in the server's slot then serves no client: it provides the catalog, and its health is checked. An instance
//! starts with the first request of its clients. It ends when it is idle, and with its session, its process or its
//! server. Each has a task of its own, so nothing of one instance concerns another.
//!
//! - here: the table of a server's instances, and the requests that wait for one
//! - `fleet`: what the fleet uses them for
//! - `task`: the life of one instance
//! - `observer`: handles the events of its run

mod fleet;
mod observer;
mod task;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use catalog::{Principal, ServerSpec, Share};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use upstream::{Audience, CallError, Connection, Ending, Stop, UpstreamKey};

use super::{Fleet, lock, raise};
use crate::client::Client;
use crate::startup_queue::{Enqueued, StartupQueue};
use crate::suspended_request::SuspendedRequest;

/// The name of the local user's instance in the config of its server.
pub(super) const LOCAL_INSTANCE: &str = "local";
/// How often the calls of instances that are to end are counted.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The instances of one server.
pub(crate) struct Instances {
    server: usize,
    share: Share,
    /// How many may run at once.
    most: usize,
    spec: Mutex<ServerSpec>,
    table: Mutex<Table>,
    /// The run that provides the catalog.
    catalog: Mutex<Option<Arc<Connection>>>,
    /// That run has provided the whole catalog. What a registry stores of it are only the tools.
    is_listed: AtomicBool,
    /// An instance has ended.
    ended: Notify,
}

#[derive(Default)]
struct Table {
    /// The server is ending: no instance starts any more.
    is_closed: bool,
    instances: HashMap<Audience, Arc<Instance>>,
}

/// One instance.
struct Instance {
    audience: Audience,
    /// Whom it acts for.
    principal: Arc<Principal>,
    /// The client whose session it belongs to.
    client: Option<Box<str>>,
    /// Requests that wait until it runs.
    waiting: StartupQueue,
    /// How many others wait until it runs.
    awaited_by: AtomicUsize,
    /// Serialises changes of subscriptions.
    subscribing: Arc<tokio::sync::Mutex<()>>,
    current: Mutex<Current>,
    /// Its phase has changed, or it is to leave.
    changed: Notify,
}

/// The current run of an instance.
struct Current {
    phase: Phase,
    since: SystemTime,
    /// It may still have calls while the instance ends.
    connection: Option<Arc<Connection>>,
    stop: Option<watch::Sender<Stop>>,
    process: Option<u32>,
    /// Its session or its server ends.
    is_leaving: bool,
}

/// The phase of an instance.
enum Phase {
    /// It is being started; requests wait.
    Starting,
    Running,
    /// It ends; requests wait, and start it again.
    Ending,
    /// It failed. Requests fail as well until the time has come.
    Failed {
        why: Box<str>,
        retry_at: Instant,
    },
}

/// The result of adding a request to an instance.
pub(crate) enum Entered {
    /// It waits until the instance runs.
    Waits,
    /// It can continue.
    Ready(Box<SuspendedRequest>),
    /// It fails.
    Refused(CallError),
}

/// An instance, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceView {
    /// The name of the identity; `None` for the local user.
    pub identity: Option<Arc<str>>,
    /// The name of the client whose session it belongs to, if it belongs to one.
    pub client: Option<Box<str>>,
    /// `starting`, `running`, `stopping` or `failed`.
    pub status: &'static str,
    /// Since when.
    pub since: SystemTime,
    /// How many requests are in progress.
    pub calls: usize,
    /// Its process, if it is one of ours.
    pub process: Option<u32>,
    /// Why it failed.
    pub error: Option<Box<str>>,
}

impl Instances {
    fn new(server: usize, spec: ServerSpec) -> Self {
        Self {
            server,
            share: spec.sharing.share,
            most: spec.sharing.max_instances,
            spec: Mutex::new(spec),
            table: Mutex::default(),
            catalog: Mutex::default(),
            is_listed: AtomicBool::new(false),
            ended: Notify::new(),
        }
    }

    /// The connection to the instance of a client, if it runs.
    pub(crate) fn running(&self, client: &Client) -> Option<Arc<Connection>> {
        self.running_for(&client.audience(self.share))
    }

    fn running_for(&self, audience: &Audience) -> Option<Arc<Connection>> {
        lock(&self.table).instances.get(audience)?.running()
    }

    /// Lets a request wait until the instance of its client runs. Starts the instance if need be.
    pub(crate) fn enter(self: &Arc<Self>, fleet: &Arc<Fleet>, call: SuspendedRequest) -> Entered {
        let mut table = lock(&self.table);
        if table.is_closed {
            // The server itself decides what becomes of it.
            return Entered::Ready(Box::new(call));
        }
        let instance = match self.provide(&mut table, fleet, call.client()) {
            Ok(instance) => instance,
            Err(error) => return Entered::Refused(error),
        };
        match instance.waiting.enter(call) {
            Enqueued::Waits => Entered::Waits,
            Enqueued::Full(waiting) => Entered::Refused(CallError::Congested { server: self.name(), waiting }),
            Enqueued::Settled(call) => Entered::Ready(call),
        }
    }

    /// The connection to the instance of a client, as soon as it runs. Starts the instance if need be.
    pub(crate) async fn reach(
        self: &Arc<Self>,
        fleet: &Arc<Fleet>,
        client: &Client,
    ) -> Result<Arc<Connection>, CallError> {
        let instance = {
            let mut table = lock(&self.table);
            if table.is_closed {
                return Err(self.stopped());
            }
            // Counted while the table is locked: an instance that is needed does not end.
            AwaitedInstance::new(self.provide(&mut table, fleet, client)?)
        };
        let instance = &instance.0;
        loop {
            let mut changed = std::pin::pin!(instance.changed.notified());
            changed.as_mut().enable();
            {
                let current = lock(&instance.current);
                match &current.phase {
                    _ if current.is_leaving => return Err(self.stopped()),
                    Phase::Running => return current.connection.clone().ok_or_else(|| self.stopped()),
                    Phase::Failed { why, retry_at } => return Err(self.failed(why, *retry_at)),
                    Phase::Starting | Phase::Ending => {}
                }
            }
            changed.await;
        }
    }

    /// The instance of a client, which runs or starts.
    fn provide(
        self: &Arc<Self>,
        table: &mut Table,
        fleet: &Arc<Fleet>,
        client: &Client,
    ) -> Result<Arc<Instance>, CallError> {
        let audience = client.audience(self.share);
        let known = table.instances.get(&audience).cloned();
        if let Some(instance) = &known {
            match &lock(&instance.current).phase {
                Phase::Failed { why, retry_at } if Instant::now() < *retry_at => {
                    return Err(self.failed(why, *retry_at));
                }
                Phase::Failed { .. } => {}
                Phase::Starting | Phase::Running | Phase::Ending => return Ok(Arc::clone(instance)),
            }
        }
        self.check_room(table)?;
        if let Some(instance) = known {
            instance.restart();
            return Ok(instance);
        }
        if client.is_abandoned() {
            return Err(CallError::Deserted { server: self.name() });
        }
        let instance = Arc::new(Instance::new(audience.clone(), client));
        if !task::spawn(fleet, self, &instance) {
            return Err(self.stopped());
        }
        table.instances.insert(audience, Arc::clone(&instance));
        fleet.need(self.server);
        Ok(instance)
    }

    /// Whether the whole catalog is needed, because the server is used, and is not known yet.
    fn wants_catalog(&self) -> bool {
        !self.is_listed.load(Ordering::Relaxed) && !lock(&self.table).instances.is_empty()
    }

    /// Fails if no further instance may start. Nobody's instance ends to make room.
    fn check_room(&self, table: &Table) -> Result<(), CallError> {
        let alive = table.instances.values().filter(|instance| !instance.has_failed()).count();
        if alive < self.most {
            return Ok(());
        }
        Err(CallError::TooManyInstances { server: self.name(), most: self.most })
    }

    /// Ends the instance of a session that has ended.
    fn end_session(&self, client: u64) {
        let instance = lock(&self.table).instances.get(&Audience::Session(client)).cloned();
        if let Some(instance) = instance {
            instance.leave(Stop::Gently);
        }
    }

    /// Starts no further instances, and waits until their calls are answered, but not longer than `deadline`.
    async fn drain(&self, fleet: &Fleet, deadline: Instant) {
        lock(&self.table).is_closed = true;
        let is_busy = || self.connections().iter().any(|connection| connection.open_calls() > 0);
        while is_busy() && Instant::now() < deadline && !fleet.is_stopping() {
            tokio::time::sleep(DRAIN_POLL_INTERVAL).await;
        }
    }

    /// Starts no further instances, and waits until all have ended.
    async fn end_all(&self) {
        lock(&self.table).is_closed = true;
        self.all().iter().for_each(|instance| instance.leave(Stop::Gently));
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if lock(&self.table).instances.is_empty() {
                return;
            }
            ended.await;
        }
    }

    /// Removes an instance that has ended.
    fn forget(&self, table: &mut Table, instance: &Arc<Instance>) {
        if table.instances.get(&instance.audience).is_some_and(|known| Arc::ptr_eq(known, instance)) {
            table.instances.remove(&instance.audience);
            lock(&instance.current).is_leaving = true;
            self.ended.notify_waiters();
            instance.changed.notify_waiters();
        }
    }

    fn all(&self) -> Vec<Arc<Instance>> {
        lock(&self.table).instances.values().cloned().collect()
    }

    /// The connections to all instances.
    fn connections(&self) -> Vec<Arc<Connection>> {
        self.all().iter().filter_map(|instance| lock(&instance.current).connection.clone()).collect()
    }

    /// Cancels a request that waits for an instance. Returns whether there was one.
    pub(crate) fn cancel(&self, client: u64, id: &[u8]) -> bool {
        self.all().iter().any(|instance| instance.waiting.cancel(client, id))
    }

    /// Cancels all requests of `client` that wait for an instance.
    fn cancel_all(&self, client: u64) {
        self.all().iter().for_each(|instance| instance.waiting.cancel_all(client));
    }

    /// The instances, for people.
    fn views(&self) -> Vec<InstanceView> {
        let mut views: Vec<_> = self.all().iter().map(|instance| instance.view()).collect();
        views.sort_by(|one, other| (&one.identity, one.since).cmp(&(&other.identity, other.since)));
        views
    }

    fn key(&self, audience: &Audience) -> UpstreamKey {
        UpstreamKey { server: self.server, audience: audience.clone() }
    }

    fn name(&self) -> catalog::ServerName {
        lock(&self.spec).name.clone()
    }

    fn failed(&self, why: &str, retry_at: Instant) -> CallError {
        let retry_in = retry_at.saturating_duration_since(Instant::now());
        CallError::InstanceFailed { server: self.name(), why: why.into(), retry_in }
    }

    fn stopped(&self) -> CallError {
        CallError::Ended { server: self.name(), ending: Arc::new(Ending::Stopped), said: None }
    }
}

impl Instance {
    fn new(audience: Audience, client: &Client) -> Self {
        let waiting = StartupQueue::default();
        waiting.close();
        let session = matches!(audience, Audience::Session(_)).then(|| client.name());
        Self {
            audience,
            principal: Arc::clone(client.principal()),
            client: session.filter(|name| !name.is_empty()),
            waiting,
            awaited_by: AtomicUsize::new(0),
            subscribing: Arc::default(),
            current: Mutex::new(Current {
                phase: Phase::Starting,
                since: SystemTime::now(),
                connection: None,
                stop: None,
                process: None,
                is_leaving: false,
            }),
            changed: Notify::new(),
        }
    }

    fn running(&self) -> Option<Arc<Connection>> {
        let current = lock(&self.current);
        current.connection.clone().filter(|_| matches!(current.phase, Phase::Running))
    }

    /// Whether anything waits until it runs. The table must be locked.
    fn is_awaited(&self) -> bool {
        !self.waiting.is_empty() || self.awaited_by.load(Ordering::Relaxed) > 0
    }

    fn has_failed(&self) -> bool {
        matches!(lock(&self.current).phase, Phase::Failed { .. })
    }

    /// Starts it again after it failed.
    fn restart(&self) {
        let mut current = lock(&self.current);
        current.enter(Phase::Starting);
        self.waiting.close();
        drop(current);
        self.changed.notify_waiters();
    }

    /// Ends it for good.
    fn leave(&self, how: Stop) {
        let mut current = lock(&self.current);
        current.is_leaving = true;
        if let Some(stop) = &current.stop {
            raise(stop, how);
        }
        drop(current);
        self.changed.notify_waiters();
    }

    fn view(&self) -> InstanceView {
        let current: MutexGuard<'_, Current> = lock(&self.current);
        let (status, error) = match &current.phase {
            Phase::Failed { why, .. } => ("failed", Some(why.clone())),
            _ if current.is_leaving => ("stopping", None),
            Phase::Starting => ("starting", None),
            Phase::Running => ("running", None),
            Phase::Ending => ("stopping", None),
        };
        InstanceView {
            identity: (!self.principal.is_local()).then(|| Arc::clone(self.principal.name())),
            client: self.client.clone(),
            status,
            since: current.since,
            calls: current.connection.as_ref().map_or(0, |connection| connection.open_calls()),
            process: current.process,
            error,
        }
    }
}

/// An instance that somebody waits for.
struct AwaitedInstance(Arc<Instance>);

impl AwaitedInstance {
    fn new(instance: Arc<Instance>) -> Self {
        instance.awaited_by.fetch_add(1, Ordering::Relaxed);
        Self(instance)
    }
}

impl Drop for AwaitedInstance {
    fn drop(&mut self) {
        self.0.awaited_by.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Current {
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = SystemTime::now();
    }
}
