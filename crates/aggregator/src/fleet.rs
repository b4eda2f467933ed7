//! All servers: started, watched, stopped; and the current view of what exists.

use std::collections::HashMap;
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use catalog::{Config, Route, ServerEntry, ServerName, ServerState, Snapshot, Tool};
use protocol::reply;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use upstream::failure::Cause;
use upstream::lineage::{self, Lineage};
use upstream::watchdog::Watchdog;
use upstream::{Connection, Ending, Life, Manners, Phase, Report, Stop, Upstream, Watcher};

use crate::call;
use crate::client::Client;
use crate::cycle::{self, Chain};
use crate::dispatch::Options;
use crate::waiting_room::WaitingRooms;

/// How long a list waits for servers that are still starting, counted from our own start.
const LIST_PATIENCE: Duration = Duration::from_secs(10);

/// The log target of reports on failed servers, for a program that has a better place to tell them.
pub const FAILURES: &str = "failures";

/// What exists at one moment, and how to reach it.
pub struct View {
    /// The servers and their tools.
    pub snapshot: Snapshot,
    /// The way to each running server, in the same order.
    pub connections: Vec<Option<Arc<Connection>>>,
}

impl View {
    /// The tool that answers to `name` and the way to its server.
    pub fn resolve(&self, name: &str) -> Option<(Route, &Arc<Connection>)> {
        let route = self.snapshot.resolve(name)?;
        Some((route, self.connections[route.server].as_ref()?))
    }
}

/// All servers.
pub struct Fleet {
    views: watch::Sender<Arc<View>>,
    /// Serialises changes: a view is built from the one before.
    changing: Mutex<()>,
    options: Options,
    stop: watch::Sender<Stop>,
    lives: Mutex<JoinSet<()>>,
    watchdog: Arc<Watchdog>,
    clients: Mutex<Vec<Weak<Client>>>,
    reports: Mutex<HashMap<usize, Arc<Report>>>,
    /// Calls that wait for their server to start.
    pub(crate) waiting: WaitingRooms,
    list_deadline: Instant,
}

impl Fleet {
    /// Starts every server of `config`, all at once, and returns without waiting for any. `remote` is how servers that
    /// run elsewhere are reached, for programs that do.
    pub fn start(config: Config, options: Options, chain: &Chain, remote: Option<Life>) -> Arc<Self> {
        let seed = RandomState::new().hash_one(std::time::SystemTime::now());
        let above = std::env::var(lineage::VARIABLE).ok();
        let lineage = Arc::new(Lineage::new(std::process::id(), seed, above.as_deref()));
        let watchdog = Watchdog::start(&lineage.mark()).unwrap_or_else(|error| {
            tracing::warn!(%error, "could not start the watchdog; servers may survive if this process is killed");
            Watchdog::absent()
        });
        let fleet = Arc::new(Self {
            views: watch::Sender::new(Arc::new(first_view(&config, &options))),
            changing: Mutex::default(),
            stop: watch::Sender::new(Stop::Never),
            lives: Mutex::new(JoinSet::new()),
            watchdog: Arc::new(watchdog),
            clients: Mutex::default(),
            reports: Mutex::default(),
            waiting: WaitingRooms::new(config.servers.len()),
            list_deadline: Instant::now() + LIST_PATIENCE,
            options,
        });
        for (index, spec) in config.servers.into_iter().enumerate() {
            let upstream = Upstream {
                index,
                spec,
                environment: vec![
                    (OsString::from(lineage::VARIABLE), lineage.value_for(index).into()),
                    (OsString::from(cycle::VARIABLE), chain.as_value()),
                ],
                manners: Manners { introduction: fleet.introduction(), patience: fleet.options.start_timeout },
                lineage: Arc::clone(&lineage),
                watchdog: Arc::clone(&fleet.watchdog),
            };
            let life = upstream.run(Arc::clone(&fleet) as Arc<dyn Watcher>, fleet.stop.subscribe(), remote);
            let mourner = Mourner { fleet: Arc::clone(&fleet), index };
            lock(&fleet.lives).spawn(async move {
                let _mourner = mourner;
                life.await;
            });
        }
        fleet
    }

    /// What exists now.
    pub fn view(&self) -> Arc<View> {
        Arc::clone(&self.views.borrow())
    }

    /// Whether a list need not wait for anybody.
    pub fn is_settled(&self) -> bool {
        self.view().snapshot.is_settled() || Instant::now() >= self.list_deadline
    }

    /// Waits until every server is up or down, or has had its time.
    pub async fn all_settled(&self) {
        let mut views = self.views.subscribe();
        drop(timeout_at(self.list_deadline, views.wait_for(|view| view.snapshot.is_settled())).await);
    }

    /// Waits until every server is up or down, however long that takes. Each has a deadline of its own.
    pub async fn all_decided(&self) {
        drop(self.views.subscribe().wait_for(|view| view.snapshot.is_settled()).await);
    }

    /// Waits until one server is up or down. It has a deadline of its own.
    pub async fn settled(&self, server: usize) {
        let is_settled = |view: &Arc<View>| view.snapshot.servers()[server].state != ServerState::Initializing;
        drop(self.views.subscribe().wait_for(is_settled).await);
    }

    /// From now on `client` is told when tools change.
    pub fn tell(&self, client: &Arc<Client>) {
        lock(&self.clients).push(Arc::downgrade(client));
    }

    /// All there is to know about a server that failed, once its last words are in.
    pub fn report(&self, server: usize) -> Option<Arc<Report>> {
        lock(&self.reports).get(&server).cloned()
    }

    /// Asks every server to stop. Asking again, more urgently, is fine; less urgently has no effect.
    pub fn stop(&self, how: Stop) {
        self.stop.send_if_modified(|stop| {
            let more_urgent = how > *stop;
            *stop = how.max(*stop);
            more_urgent
        });
    }

    /// Waits until nothing of any server is left. Ask them to stop first.
    pub async fn ended(&self) {
        let mut lives = std::mem::take(&mut *lock(&self.lives));
        while let Some(life) = lives.join_next().await {
            if let Err(error) = life {
                tracing::error!(%error, "the task of a server broke");
            }
        }
        let watchdog = Arc::clone(&self.watchdog);
        drop(tokio::task::spawn_blocking(move || watchdog.dismiss()).await);
    }

    /// How we introduce ourselves to servers.
    fn introduction(&self) -> Bytes {
        let info = reply::object([
            ("name", reply::string(&self.options.name)),
            ("version", reply::string(&self.options.version)),
        ]);
        Bytes::from(info)
    }

    /// Builds the next view beside the current one and swaps it in. Tells clients if their list is out of date.
    fn change(&self, index: usize, apply: impl FnOnce(&mut ServerEntry, &mut Option<Arc<Connection>>)) {
        let changing = lock(&self.changing);
        let before = self.view();
        let mut servers = before.snapshot.servers().to_vec();
        let mut connections = before.connections.clone();
        apply(&mut servers[index], &mut connections[index]);
        let (was, is) = (&before.snapshot.servers()[index], &servers[index]);
        if was.state == is.state && was.tools == is.tools {
            return;
        }
        let same_tools = servers[index].tools == before.snapshot.servers()[index].tools;
        let was_starting = before.snapshot.servers()[index].state == ServerState::Initializing;

        let snapshot = Snapshot::new(servers, self.options.separator.clone());
        // Not before all have started: until then nobody looks at the names, and each look has its price.
        if snapshot.is_settled() {
            warn_of_shadows(&before.snapshot, &snapshot);
        }
        self.views.send_replace(Arc::new(View { snapshot, connections }));
        drop(changing);
        if was_starting {
            call::resume(self, self.waiting.open(index));
        }
        if !same_tools {
            self.tell_clients(was_starting);
        }
    }

    fn tell_clients(&self, while_starting: bool) {
        let mut clients = lock(&self.clients);
        clients.retain(|client| client.strong_count() > 0);
        let present: Vec<_> = clients.iter().filter_map(Weak::upgrade).collect();
        drop(clients);
        for client in present {
            client.tools_changed(while_starting);
        }
    }
}

impl Watcher for Fleet {
    fn running(&self, index: usize, connection: &Arc<Connection>, tools: Vec<Tool>) {
        self.change(index, |server, slot| {
            server.state = ServerState::Running;
            server.tools = tools.into();
            *slot = Some(Arc::clone(connection));
        });
    }

    fn tools_changed(&self, index: usize, tools: Vec<Tool>) {
        self.change(index, |server, _| server.tools = tools.into());
    }

    fn ended(&self, index: usize, ending: &Arc<Ending>) {
        self.change(index, |server, slot| {
            server.state = match &**ending {
                Ending::Stopped => ServerState::Stopped,
                Ending::Failed { phase: phase @ (Phase::Startup | Phase::Initialization), cause } => {
                    ServerState::Failed(format!("{phase}: {cause}").into())
                }
                Ending::Failed { phase: Phase::Runtime, cause } => ServerState::Failed(cause.to_string().into()),
            };
            server.tools = [].into();
            *slot = None;
        });
    }

    fn reported(&self, index: usize, report: Report) {
        let view = self.view();
        tracing::error!(target: FAILURES, "server `{}` {report}", view.snapshot.servers()[index].name);
        lock(&self.reports).insert(index, Arc::new(report));
    }
}

/// Makes sure that a server whose task ends has ended for everybody. Usually it has, and there is nothing to do; if its
/// task broke, its calls fail instead of waiting for ever.
struct Mourner {
    fleet: Arc<Fleet>,
    index: usize,
}

impl Drop for Mourner {
    fn drop(&mut self) {
        let view = self.fleet.view();
        let state = &view.snapshot.servers()[self.index].state;
        if matches!(state, ServerState::Failed(_) | ServerState::Stopped) {
            return;
        }
        let ending = Arc::new(Ending::Failed { phase: Phase::Runtime, cause: Cause::Broken });
        Watcher::ended(&*self.fleet, self.index, &ending);
        if let Some(connection) = &view.connections[self.index] {
            connection.end(&ending);
        }
        self.fleet.reported(
            self.index,
            Report { phase: Phase::Runtime, cause: Cause::Broken.to_string(), last_words: Vec::new(), hint: None },
        );
    }
}

fn first_view(config: &Config, options: &Options) -> View {
    let entry =
        |name: &ServerName| ServerEntry { name: name.clone(), state: ServerState::Initializing, tools: [].into() };
    let servers: Vec<_> = config.servers.iter().map(|spec| entry(&spec.name)).collect();
    let connections = vec![None; servers.len()];
    View { snapshot: Snapshot::new(servers, options.separator.clone()), connections }
}

/// Two tools with the same full name can exist (`a` + `b:c`, `a:b` + `c`). The user should know which one is hidden.
fn warn_of_shadows(before: &Snapshot, now: &Snapshot) {
    for &route in now.shadowed() {
        let name = now.listed_name(route, catalog::NameStyle::Canonical);
        let is_news =
            !before.shadowed().iter().any(|&old| before.listed_name(old, catalog::NameStyle::Canonical) == name);
        if is_news {
            let server = &now.servers()[route.server].name;
            tracing::warn!(%server, tool = %name, "hidden by a tool of another server that has the same full name");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
