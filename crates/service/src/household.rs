//! What all keepers of servers share, and where they are found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use aggregator::cycle::Chain;
use aggregator::{Fleet, Options};
use catalog::{Offer, ServerName, ServerState};
use protocol::Era;
use registry::{Origin, Page, ServerRecord, Store, Timestamp, ToolFilter};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use upstream::{Life, Probe};

use crate::executions::Executions;
use crate::keeper::catalogue::offer_of;
use crate::keeper::{Handle, Keeper};
use crate::records::Records;
use crate::roster::Roster;
use crate::{Error, Event, Events, retention, settings, spec};

/// What all keepers share.
pub(crate) struct Household {
    pub(crate) store: Store,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) roster: Arc<Roster>,
    pub(crate) events: Events,
    pub(crate) settings: settings::Keeper,
    pub(crate) executions: Arc<Executions>,
    pub(crate) records: Arc<Records>,
    /// How an address is looked at, for programs that do.
    pub(crate) probe: Option<Probe>,
    /// What it takes to try a server apart from all others.
    pub(crate) options: Options,
    pub(crate) chain: Chain,
    pub(crate) remote: Option<Life>,
    /// By place, which is the order in which they came.
    keepers: RwLock<BTreeMap<usize, Arc<Handle>>>,
    tasks: Mutex<JoinSet<()>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Everything is to end.
    pub(crate) stopping: watch::Sender<bool>,
    last_sync: Mutex<Option<Timestamp>>,
    /// Why what the config file says is not what is done, if that is so.
    config_trouble: Mutex<Option<String>>,
    token_trouble: Mutex<Option<String>>,
    /// Names in the config file that belong to registered servers.
    overruled: Mutex<BTreeSet<String>>,
    /// Servers of the config file that the registry cannot keep, and why.
    unusable: Mutex<BTreeMap<String, String>>,
}

/// What a household begins with.
pub(crate) struct Founding {
    pub(crate) store: Store,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) roster: Arc<Roster>,
    pub(crate) events: Events,
    pub(crate) settings: settings::Keeper,
    pub(crate) executions: Arc<Executions>,
    pub(crate) probe: Option<Probe>,
    pub(crate) options: Options,
    pub(crate) chain: Chain,
    pub(crate) remote: Option<Life>,
}

impl Household {
    /// Nobody lives there yet.
    pub(crate) fn new(founding: Founding) -> Arc<Self> {
        let Founding { store, fleet, roster, events, settings, executions, probe, options, chain, remote } = founding;
        let records = Arc::clone(executions.records());
        let writer = tokio::spawn({
            let (records, store) = (Arc::clone(&records), store.clone());
            async move { records.write_all(&store).await }
        });
        let house = Arc::new(Self {
            writer: Mutex::new(Some(writer)),
            store,
            fleet,
            roster,
            events,
            settings,
            executions,
            records,
            probe,
            options,
            chain,
            remote,
            keepers: RwLock::default(),
            tasks: Mutex::new(JoinSet::new()),
            stopping: watch::Sender::new(false),
            last_sync: Mutex::default(),
            config_trouble: Mutex::default(),
            token_trouble: Mutex::default(),
            overruled: Mutex::default(),
            unusable: Mutex::default(),
        });
        house.spawn(retention::run(house.store.clone(), house.settings.clone(), house.stopping.subscribe()));
        house
    }

    /// Takes in a server that is in the registry: it has a place and a keeper from now on.
    pub(crate) async fn admit(self: &Arc<Self>, record: ServerRecord) -> Result<Arc<Handle>, Error> {
        let (keeper, handle) = self.prepare(record).await?;
        self.spawn(keeper.run());
        Ok(handle)
    }

    /// The same for one that was registered just now. Whoever listens hears that before anything that happens to it.
    pub(crate) async fn admit_new(self: &Arc<Self>, record: ServerRecord) -> Result<Arc<Handle>, Error> {
        let registered = Event::ServerRegistered { server_id: record.id.to_string(), name: record.name.clone() };
        let (keeper, handle) = self.prepare(record).await?;
        self.events.tell(registered);
        self.spawn(keeper.run());
        Ok(handle)
    }

    async fn prepare(self: &Arc<Self>, record: ServerRecord) -> Result<(Keeper, Arc<Handle>), Error> {
        let known = self.known_offer(&record).await?;
        let name = ServerName::new(&record.name)
            .map_err(|empty| Error::Registry(registry::Error::Invalid { what: empty.to_string() }))?;
        // Until its keeper says otherwise: lists wait for those that are about to start.
        let place = self.fleet.enrol(name, ServerState::Initializing, Arc::new(Offer::new(Era::Legacy)));
        let switched_off = self.switched_off(record.id).await?;
        if !switched_off.is_empty() {
            self.fleet.switch_off(place, switched_off);
        }
        let (keeper, handle) = Keeper::new(self, place, record, known);
        self.write().insert(place, Arc::clone(&handle));
        Ok((keeper, handle))
    }

    /// What is known of a server that need not be started to be offered.
    async fn known_offer(&self, record: &ServerRecord) -> Result<Option<Arc<Offer>>, Error> {
        if !spec::is_lazy(record.connection_config.reveal()) || record.tool_count == 0 {
            return Ok(None);
        }
        let tools =
            self.store.tools(&ToolFilter { server: Some(record.id), ..ToolFilter::default() }, Page::ALL).await?;
        Ok(offer_of(&tools.items))
    }

    /// The keeper of the server with that id or name.
    pub(crate) fn find(&self, id_or_name: &str) -> Result<Arc<Handle>, Error> {
        let keepers = self.read();
        let by = |is_meant: &dyn Fn(&ServerRecord) -> bool| {
            keepers.values().find(|handle| is_meant(&handle.shown().record)).cloned()
        };
        let found = match id_or_name.parse() {
            Ok(id) => by(&|record| record.id == id).or_else(|| by(&|record| record.name == id_or_name)),
            Err(_) => by(&|record| record.name == id_or_name),
        };
        found.ok_or_else(|| Error::ServerNotFound { key: id_or_name.to_owned() })
    }

    /// All keepers, in the order in which their servers came.
    pub(crate) fn all(&self) -> Vec<Arc<Handle>> {
        self.read().values().cloned().collect()
    }

    /// A server is gone.
    pub(crate) fn forget(&self, place: usize) {
        self.write().remove(&place);
        self.roster.forget(place);
    }

    /// Tools were discovered just now.
    pub(crate) fn synchronised(&self) {
        *self.last_sync.lock().unwrap_or_else(PoisonError::into_inner) = Some(Timestamp::now());
    }

    /// Notes why the file of tokens does not say who may come in, or that it does.
    pub(crate) fn note_token_trouble(&self, trouble: Option<String>) {
        *self.token_trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    /// Why the file of tokens does not say who may come in, if that is so.
    pub(crate) fn token_trouble(&self) -> Option<String> {
        self.token_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes why what the config file says is not what is done, or that it is.
    pub(crate) fn note_config_trouble(&self, trouble: Option<String>) {
        let mut noted = self.config_trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if *noted == trouble {
            return;
        }
        let message = trouble.clone().unwrap_or_else(|| "the config file is in force again".to_owned());
        *noted = trouble;
        drop(noted);
        self.events.tell(Event::Notice { server_id: None, message });
    }

    /// Why what the config file says is not what is done, if that is so.
    pub(crate) fn config_trouble(&self) -> Option<String> {
        let trouble = self.config_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        trouble.or_else(|| {
            let is_registered =
                |name: &&String| self.find(name).is_ok_and(|it| it.shown().record.origin == Origin::Registered);
            let overruled = self.overruled.lock().unwrap_or_else(PoisonError::into_inner);
            let names: Vec<String> = overruled.iter().filter(is_registered).map(|name| format!("`{name}`")).collect();
            let overruled = (!names.is_empty()).then(|| {
                let names = names.join(", ");
                format!(
                    "the config file names {names}, but the registered server of that name is used; rename one of them"
                )
            });
            let unusable = self.unusable.lock().unwrap_or_else(PoisonError::into_inner);
            let unusable =
                unusable.iter().map(|(name, why)| format!("the config file's server `{name}` is not used: {why}"));
            let told: Vec<String> = overruled.into_iter().chain(unusable).collect();
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
    pub(crate) fn note_overruled(&self, name: &str, is_overruled: bool) {
        let mut overruled = self.overruled.lock().unwrap_or_else(PoisonError::into_inner);
        if is_overruled {
            overruled.insert(name.to_owned());
        } else {
            overruled.remove(name);
        }
    }

    /// When tools were last discovered.
    pub(crate) fn last_sync(&self) -> Option<Timestamp> {
        *self.last_sync.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody should look.
    pub(crate) fn notice(&self, record: &ServerRecord, message: String) {
        tracing::warn!(server = %record.name, "{message}");
        self.events.tell(Event::Notice { server_id: Some(record.id.to_string()), message });
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
    pub(crate) async fn written(&self) {
        self.records.close();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer
            && writer.await.is_err()
        {
            tracing::error!("the task that writes down what happened broke");
        }
    }

    /// Waits until everything is to end.
    pub(crate) async fn stop_asked(&self) {
        // The sender lives as long as we do.
        drop(self.stopping.subscribe().wait_for(|&is_stopping| is_stopping).await);
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<usize, Arc<Handle>>> {
        self.keepers.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<usize, Arc<Handle>>> {
        self.keepers.write().unwrap_or_else(PoisonError::into_inner)
    }
}
