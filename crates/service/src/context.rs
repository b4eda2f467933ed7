//! What all supervisors share, and the table of supervisors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use aggregator::cycle::Chain;
use aggregator::{Fleet, Options};
use catalog::{Offer, ServerName, ServerState};
use executions::{Error as CallError, Executions, ServerTable};
use protocol::Lifecycle;
use registry::{Origin, Page, ServerRecord, Store, Timestamp, ToolFilter};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use upstream::{Connector, Probe};

use crate::profiles::ProfileLayers;
use crate::sign_ins::SignIns;
use crate::status_writer::StatusWriter;
use crate::supervisor::tool_records::offer_of;
use crate::supervisor::{Supervisor, SupervisorHandle};
use crate::{Error, Event, Events, TestConnector, retention, settings, spec};

/// What all supervisors share.
pub(crate) struct ServiceContext {
    pub(crate) store: Store,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) server_table: Arc<ServerTable>,
    pub(crate) events: Events,
    pub(crate) settings: settings::LiveSettings,
    pub(crate) executions: Arc<Executions>,
    pub(crate) status_writer: Arc<StatusWriter>,
    /// Checks a health address, in programs that support it.
    pub(crate) probe: Option<Probe>,
    /// The options for testing a server separately.
    pub(crate) options: Options,
    pub(crate) chain: Chain,
    pub(crate) remote: Option<Connector>,
    pub(crate) test_connector: Option<TestConnector>,
    /// Signs in to servers, in programs that support it.
    pub(crate) sign_ins: Option<SignIns>,
    /// All profiles, by their source.
    pub(crate) profiles: ProfileLayers,
    /// Set when the service stops.
    pub(crate) stopping: watch::Sender<bool>,
    pub(crate) state: ContextState,
}

/// What changes while the service runs.
#[derive(Default)]
pub(crate) struct ContextState {
    /// By slot index, which is the order of registration.
    supervisors: RwLock<BTreeMap<usize, Arc<SupervisorHandle>>>,
    tasks: Mutex<JoinSet<()>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    last_sync: Mutex<Option<Timestamp>>,
    /// Why the config file is not applied, if so.
    config_error: Mutex<Option<String>>,
    token_error: Mutex<Option<String>>,
    /// Why the certificate for clients is not the one in its file, if so.
    certificate_error: Mutex<Option<String>>,
    /// Names in the config file that belong to registered servers.
    shadowed: Mutex<BTreeSet<String>>,
    /// Servers of the config file that the registry cannot store, and why.
    unusable: Mutex<BTreeMap<String, String>>,
}

impl ServiceContext {
    /// Starts the tasks of a context, which has no servers yet.
    pub(crate) fn start(mut self) -> Arc<Self> {
        let writer = tokio::spawn({
            let (status_writer, store) = (Arc::clone(&self.status_writer), self.store.clone());
            async move { status_writer.write_all(&store).await }
        });
        self.state.writer = Mutex::new(Some(writer));
        let context = Arc::new(self);
        context.spawn(retention::run(context.store.clone(), context.settings.clone(), context.stopping.subscribe()));
        context
    }

    /// Adds a server of the registry: it gets a slot and a supervisor.
    pub(crate) async fn add_server(self: &Arc<Self>, record: ServerRecord) -> Result<Arc<SupervisorHandle>, Error> {
        let (supervisor, handle) = self.prepare(record).await?;
        self.spawn(supervisor.run());
        Ok(handle)
    }

    /// The same for a newly registered one. Its registration event precedes all its other events.
    pub(crate) async fn add_new_server(self: &Arc<Self>, record: ServerRecord) -> Result<Arc<SupervisorHandle>, Error> {
        let registered = Event::ServerRegistered { server_id: record.id.to_string(), name: record.name.clone() };
        let (supervisor, handle) = self.prepare(record).await?;
        self.events.emit(registered);
        self.spawn(supervisor.run());
        Ok(handle)
    }

    /// Fails if no further server can be added before a restart.
    pub(crate) fn check_slots(&self) -> Result<(), Error> {
        match self.fleet.refusal_of_registration() {
            Some(message) => Err(Error::Call(CallError::LimitReached { message, context: serde_json::Map::new() })),
            None => Ok(()),
        }
    }

    async fn prepare(self: &Arc<Self>, record: ServerRecord) -> Result<(Supervisor, Arc<SupervisorHandle>), Error> {
        let known = self.stored_offer(&record).await?;
        let name = ServerName::new(&record.name)
            .map_err(|empty| Error::Registry(registry::Error::Invalid { what: empty.to_string() }))?;
        // Until its supervisor reports otherwise: lists wait for servers that are about to start.
        let slot_index = self.fleet.register(name, ServerState::Initializing, Arc::new(Offer::new(Lifecycle::Session)));
        let switched_off = self.disabled_tools(record.id).await?;
        if !switched_off.is_empty() {
            self.fleet.set_disabled_tools(slot_index, switched_off).await;
        }
        let (supervisor, handle) = Supervisor::new(self, slot_index, record, known);
        self.write().insert(slot_index, Arc::clone(&handle));
        Ok((supervisor, handle))
    }

    /// The stored offer of a server that need not be started to be listed.
    async fn stored_offer(&self, record: &ServerRecord) -> Result<Option<Arc<Offer>>, Error> {
        if !spec::is_lazy(record.connection_config.reveal()) || record.tool_count == 0 {
            return Ok(None);
        }
        let tools =
            self.store.tools(&ToolFilter { server: Some(record.id), ..ToolFilter::default() }, Page::ALL).await?;
        Ok(offer_of(&tools.items))
    }

    /// Connects a server for a test that keeps nothing.
    pub(crate) fn test_connector(&self) -> Option<Connector> {
        self.test_connector.as_ref().map(|make| make()).or_else(|| self.remote.clone())
    }

    /// The supervisor of the server with that id or name.
    pub(crate) fn find(&self, id_or_name: &str) -> Result<Arc<SupervisorHandle>, Error> {
        let supervisors = self.read();
        let by = |is_meant: &dyn Fn(&ServerRecord) -> bool| {
            supervisors.values().find(|handle| is_meant(&handle.current().record)).cloned()
        };
        let found = match id_or_name.parse() {
            Ok(id) => by(&|record| record.id == id).or_else(|| by(&|record| record.name == id_or_name)),
            Err(_) => by(&|record| record.name == id_or_name),
        };
        found.ok_or_else(|| Error::Call(CallError::ServerNotFound { key: id_or_name.to_owned() }))
    }

    /// The supervisor of the server in that slot.
    pub(crate) fn at(&self, slot_index: usize) -> Option<Arc<SupervisorHandle>> {
        self.read().get(&slot_index).cloned()
    }

    /// All supervisors, in the order of registration.
    pub(crate) fn all(&self) -> Vec<Arc<SupervisorHandle>> {
        self.read().values().cloned().collect()
    }

    /// Removes a server.
    pub(crate) fn forget(&self, slot_index: usize) {
        self.write().remove(&slot_index);
        self.server_table.forget(slot_index);
    }

    /// Records that tools were discovered just now.
    pub(crate) fn note_sync(&self) {
        *self.state.last_sync.lock().unwrap_or_else(PoisonError::into_inner) = Some(Timestamp::now());
    }

    /// Records why the tokens file is not applied, or that it is.
    pub(crate) fn note_token_error(&self, error: Option<String>) {
        *self.state.token_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    /// Why the tokens file is not applied, if so.
    pub(crate) fn token_error(&self) -> Option<String> {
        self.state.token_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records why the files with the certificate and its key are not applied, or that they are.
    pub(crate) fn note_certificate_error(&self, error: Option<String>) {
        *self.state.certificate_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    /// Why the files with the certificate and its key are not applied, if so.
    pub(crate) fn certificate_error(&self) -> Option<String> {
        self.state.certificate_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records why the config file is not applied, or that it is. Returns whether that has changed.
    pub(crate) fn note_config_error(&self, error: Option<String>) -> bool {
        let mut noted = self.state.config_error.lock().unwrap_or_else(PoisonError::into_inner);
        if *noted == error {
            return false;
        }
        let message = error.clone().unwrap_or_else(|| "the config file is valid again".to_owned());
        *noted = error;
        drop(noted);
        self.events.emit(Event::Notice { server_id: None, message });
        true
    }

    /// Why the config file is not applied, if so.
    pub(crate) fn config_error(&self) -> Option<String> {
        let error = self.state.config_error.lock().unwrap_or_else(PoisonError::into_inner).clone();
        error.or_else(|| {
            let is_registered =
                |name: &&String| self.find(name).is_ok_and(|it| it.current().record.origin == Origin::Registered);
            let shadowed = self.state.shadowed.lock().unwrap_or_else(PoisonError::into_inner);
            let names: Vec<String> = shadowed.iter().filter(is_registered).map(|name| format!("`{name}`")).collect();
            let shadowed = (!names.is_empty()).then(|| {
                let names = names.join(", ");
                format!(
                    "the config file defines {names}, but a registered server with that name is used; rename one of them"
                )
            });
            let unusable = self.state.unusable.lock().unwrap_or_else(PoisonError::into_inner);
            let unusable =
                unusable.iter().map(|(name, why)| format!("server `{name}` of the config file is not used: {why}"));
            let problems: Vec<String> = shadowed.into_iter().chain(unusable).collect();
            (!problems.is_empty()).then(|| problems.join("; "))
        })
    }

    /// Records why the registry cannot store a server of the config file, or that the problem is resolved.
    pub(crate) fn note_unusable(&self, name: &str, why: Option<&str>) {
        let mut unusable = self.state.unusable.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => drop(unusable.insert(name.to_owned(), why.to_owned())),
            None => drop(unusable.remove(name)),
        }
    }

    /// Records whether a server of the config file has the name of a registered one.
    pub(crate) fn note_shadowed(&self, name: &str, is_shadowed: bool) {
        let mut shadowed = self.state.shadowed.lock().unwrap_or_else(PoisonError::into_inner);
        if is_shadowed {
            shadowed.insert(name.to_owned());
        } else {
            shadowed.remove(name);
        }
    }

    /// When tools were last discovered.
    pub(crate) fn last_sync(&self) -> Option<Timestamp> {
        *self.state.last_sync.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Emits a notice for operators.
    pub(crate) fn notice(&self, record: &ServerRecord, message: String) {
        tracing::warn!(server = %record.name, "{message}");
        self.events.emit(Event::Notice { server_id: Some(record.id.to_string()), message });
    }

    /// Runs a task that is awaited at shutdown.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.state.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Finished tasks need not be kept.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// The same for a task that runs until the service stops.
    pub(crate) fn spawn_until_stop(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let context = Arc::clone(self);
        self.spawn(async move {
            tokio::select! {
                () = task => {}
                () = context.stop_requested() => {}
            }
        });
    }

    /// Waits until every task has ended. Request the stop first.
    pub(crate) async fn ended(&self) {
        let mut tasks = std::mem::take(&mut *self.state.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        while let Some(task) = tasks.join_next().await {
            if let Err(error) = task {
                tracing::error!(%error, "a task of the service panicked");
            }
        }
    }

    /// Waits until all status changes are written, as far as the database is reachable.
    pub(crate) async fn flush_status(&self) {
        self.status_writer.close();
        let writer = self.state.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer
            && writer.await.is_err()
        {
            tracing::error!("the task that writes the status panicked");
        }
    }

    /// Waits until the service stops.
    pub(crate) async fn stop_requested(&self) {
        // The sender lives as long as we do.
        drop(self.stopping.subscribe().wait_for(|&is_stopping| is_stopping).await);
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<usize, Arc<SupervisorHandle>>> {
        self.state.supervisors.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<usize, Arc<SupervisorHandle>>> {
        self.state.supervisors.write().unwrap_or_else(PoisonError::into_inner)
    }
}
