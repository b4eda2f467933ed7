//! What all keepers of servers share, and where they are found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use aggregator::cycle::Chain;
use aggregator::{Fleet, Options};
use catalog::{Offer, ServerName, ServerState};
use protocol::Lifecycle;
use registry::{Origin, Page, ServerRecord, Store, Timestamp, ToolFilter};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use upstream::{Connector, Probe};

use crate::executions::Executions;
use crate::server_table::ServerTable;
use crate::status_writer::StatusWriter;
use crate::supervisor::tool_records::offer_of;
use crate::supervisor::{Supervisor, SupervisorHandle};
use crate::{Error, Event, Events, retention, settings, spec};

/// What all keepers share.
pub(crate) struct ServiceContext {
    pub(crate) store: Store,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) server_table: Arc<ServerTable>,
    pub(crate) events: Events,
    pub(crate) settings: settings::LiveSettings,
    pub(crate) executions: Arc<Executions>,
    pub(crate) status_writer: Arc<StatusWriter>,
    /// How an address is looked at, for programs that do.
    pub(crate) probe: Option<Probe>,
    /// What it takes to try a server apart from all others.
    pub(crate) options: Options,
    pub(crate) chain: Chain,
    pub(crate) remote: Option<Connector>,
    /// By place, which is the order in which they came.
    supervisors: RwLock<BTreeMap<usize, Arc<SupervisorHandle>>>,
    tasks: Mutex<JoinSet<()>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Everything is to end.
    pub(crate) stopping: watch::Sender<bool>,
    last_sync: Mutex<Option<Timestamp>>,
    /// Why what the config file says is not what is done, if that is so.
    config_error: Mutex<Option<String>>,
    token_error: Mutex<Option<String>>,
    /// Names in the config file that belong to registered servers.
    shadowed: Mutex<BTreeSet<String>>,
    /// Servers of the config file that the registry cannot keep, and why.
    unusable: Mutex<BTreeMap<String, String>>,
}

/// What a household begins with.
pub(crate) struct ContextParts {
    pub(crate) store: Store,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) server_table: Arc<ServerTable>,
    pub(crate) events: Events,
    pub(crate) settings: settings::LiveSettings,
    pub(crate) executions: Arc<Executions>,
    pub(crate) probe: Option<Probe>,
    pub(crate) options: Options,
    pub(crate) chain: Chain,
    pub(crate) remote: Option<Connector>,
}

impl ServiceContext {
    /// Nobody lives there yet.
    pub(crate) fn new(parts: ContextParts) -> Arc<Self> {
        let ContextParts { store, fleet, server_table, events, settings, executions, probe, options, chain, remote } =
            parts;
        let status_writer = Arc::clone(executions.status_writer());
        let writer = tokio::spawn({
            let (status_writer, store) = (Arc::clone(&status_writer), store.clone());
            async move { status_writer.write_all(&store).await }
        });
        let context = Arc::new(Self {
            writer: Mutex::new(Some(writer)),
            store,
            fleet,
            server_table,
            events,
            settings,
            executions,
            status_writer,
            probe,
            options,
            chain,
            remote,
            supervisors: RwLock::default(),
            tasks: Mutex::new(JoinSet::new()),
            stopping: watch::Sender::new(false),
            last_sync: Mutex::default(),
            config_error: Mutex::default(),
            token_error: Mutex::default(),
            shadowed: Mutex::default(),
            unusable: Mutex::default(),
        });
        context.spawn(retention::run(context.store.clone(), context.settings.clone(), context.stopping.subscribe()));
        context
    }

    /// Takes in a server that is in the registry: it has a place and a keeper from now on.
    pub(crate) async fn add_server(self: &Arc<Self>, record: ServerRecord) -> Result<Arc<SupervisorHandle>, Error> {
        let (supervisor, handle) = self.prepare(record).await?;
        self.spawn(supervisor.run());
        Ok(handle)
    }

    /// The same for one that was registered just now. Whoever listens hears that before anything that happens to it.
    pub(crate) async fn add_new_server(self: &Arc<Self>, record: ServerRecord) -> Result<Arc<SupervisorHandle>, Error> {
        let registered = Event::ServerRegistered { server_id: record.id.to_string(), name: record.name.clone() };
        let (supervisor, handle) = self.prepare(record).await?;
        self.events.emit(registered);
        self.spawn(supervisor.run());
        Ok(handle)
    }

    async fn prepare(self: &Arc<Self>, record: ServerRecord) -> Result<(Supervisor, Arc<SupervisorHandle>), Error> {
        let known = self.stored_offer(&record).await?;
        let name = ServerName::new(&record.name)
            .map_err(|empty| Error::Registry(registry::Error::Invalid { what: empty.to_string() }))?;
        // Until its keeper says otherwise: lists wait for those that are about to start.
        let place = self.fleet.register(name, ServerState::Initializing, Arc::new(Offer::new(Lifecycle::Session)));
        let switched_off = self.disabled_tools(record.id).await?;
        if !switched_off.is_empty() {
            self.fleet.set_disabled_tools(place, switched_off);
        }
        let (supervisor, handle) = Supervisor::new(self, place, record, known);
        self.write().insert(place, Arc::clone(&handle));
        Ok((supervisor, handle))
    }

    /// What is known of a server that need not be started to be offered.
    async fn stored_offer(&self, record: &ServerRecord) -> Result<Option<Arc<Offer>>, Error> {
        if !spec::is_lazy(record.connection_config.reveal()) || record.tool_count == 0 {
            return Ok(None);
        }
        let tools =
            self.store.tools(&ToolFilter { server: Some(record.id), ..ToolFilter::default() }, Page::ALL).await?;
        Ok(offer_of(&tools.items))
    }

    /// The keeper of the server with that id or name.
    pub(crate) fn find(&self, id_or_name: &str) -> Result<Arc<SupervisorHandle>, Error> {
        let supervisors = self.read();
        let by = |is_meant: &dyn Fn(&ServerRecord) -> bool| {
            supervisors.values().find(|handle| is_meant(&handle.current().record)).cloned()
        };
        let found = match id_or_name.parse() {
            Ok(id) => by(&|record| record.id == id).or_else(|| by(&|record| record.name == id_or_name)),
            Err(_) => by(&|record| record.name == id_or_name),
        };
        found.ok_or_else(|| Error::ServerNotFound { key: id_or_name.to_owned() })
    }

    /// All keepers, in the order in which their servers came.
    pub(crate) fn all(&self) -> Vec<Arc<SupervisorHandle>> {
        self.read().values().cloned().collect()
    }

    /// A server is gone.
    pub(crate) fn forget(&self, place: usize) {
        self.write().remove(&place);
        self.server_table.forget(place);
    }

    /// Tools were discovered just now.
    pub(crate) fn note_sync(&self) {
        *self.last_sync.lock().unwrap_or_else(PoisonError::into_inner) = Some(Timestamp::now());
    }

    /// Notes why the file of tokens does not say who may come in, or that it does.
    pub(crate) fn note_token_error(&self, trouble: Option<String>) {
        *self.token_error.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Why the file of tokens does not say who may come in, if that is so.
    pub(crate) fn token_error(&self) -> Option<String> {
        self.token_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes why what the config file says is not what is done, or that it is.
    pub(crate) fn note_config_error(&self, trouble: Option<String>) {
        let mut noted = self.config_error.lock().unwrap_or_else(PoisonError::into_inner);
        if *noted == trouble {
            return;
        }
        let message = trouble.clone().unwrap_or_else(|| "the config file is in force again".to_owned());
        *noted = trouble;
        drop(noted);
        self.events.emit(Event::Notice { server_id: None, message });
    }

    /// Why what the config file says is not what is done, if that is so.
    pub(crate) fn config_error(&self) -> Option<String> {
        let trouble = self.config_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        trouble.or_else(|| {
            let is_registered =
                |name: &&String| self.find(name).is_ok_and(|it| it.current().record.origin == Origin::Registered);
            let shadowed = self.shadowed.lock().unwrap_or_else(PoisonError::into_inner);
            let names: Vec<String> = shadowed.iter().filter(is_registered).map(|name| format!("`{name}`")).collect();
            let shadowed = (!names.is_empty()).then(|| {
                let names = names.join(", ");
                format!(
                    "the config file names {names}, but the registered server of that name is used; rename one of them"
                )
            });
            let unusable = self.unusable.lock().unwrap_or_else(PoisonError::into_inner);
            let unusable =
                unusable.iter().map(|(name, why)| format!("the config file's server `{name}` is not used: {why}"));
            let told: Vec<String> = shadowed.into_iter().chain(unusable).collect();
            (!told.is_empty()).then(|| told.join("; "))
        })
    }

    /// The registry cannot keep a server of the config file for this reason, or the file does not name it any more.
    pub(crate) fn note_unusable(&self, name: &str, why: Option<&str>) {
        let mut unusable = self.unusable.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => drop(unusable.insert(name.to_owned(), why.to_owned())),
            None => drop(unusable.remove(name)),
        }
    }

    /// The config file names a server that is registered, or does so no more.
    pub(crate) fn note_shadowed(&self, name: &str, is_shadowed: bool) {
        let mut shadowed = self.shadowed.lock().unwrap_or_else(PoisonError::into_inner);
        if is_shadowed {
            shadowed.insert(name.to_owned());
        } else {
            shadowed.remove(name);
        }
    }

    /// When tools were last discovered.
    pub(crate) fn last_sync(&self) -> Option<Timestamp> {
        *self.last_sync.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody should look.
    pub(crate) fn notice(&self, record: &ServerRecord, message: String) {
        tracing::warn!(server = %record.name, "{message}");
        self.events.emit(Event::Notice { server_id: Some(record.id.to_string()), message });
    }

    /// Runs something that is waited for at the end.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that are over need not be remembered.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Waits until every task has ended. Ask them to, first.
    pub(crate) async fn ended(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        while let Some(task) = tasks.join_next().await {
            if let Err(error) = task {
                tracing::error!(%error, "a task of the service broke");
            }
        }
    }

    /// Waits until everything that happened is written down, as far as the database is there.
    pub(crate) async fn flush_status(&self) {
        self.status_writer.close();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer
            && writer.await.is_err()
        {
            tracing::error!("the task that writes down what happened broke");
        }
    }

    /// Waits until everything is to end.
    pub(crate) async fn stop_requested(&self) {
        // The sender lives as long as we do.
        drop(self.stopping.subscribe().wait_for(|&is_stopping| is_stopping).await);
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<usize, Arc<SupervisorHandle>>> {
        self.supervisors.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<usize, Arc<SupervisorHandle>>> {
        self.supervisors.write().unwrap_or_else(PoisonError::into_inner)
    }
}
