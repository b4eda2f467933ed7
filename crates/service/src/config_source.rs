//! The config file as a source of read-only servers. Its servers have rows in the registry, so that they have tools
//! and a history like others; the rows follow the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aggregator::Accepted;
use aggregator::cycle::Chain;
use aggregator::load::{self, LoadError, Loaded};
use catalog::config::Warning;
use catalog::profile::profiles_of_config;
use catalog::{Config, Contact, Dialect, ProfileSpec, Transport as ConfigTransport};
use registry::{
    Actor, AuditNote, ConnectionConfig, NewServer, Origin, Page, ServerFilter, ServerId, ServerPatch, ServerRecord,
    Transport,
};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::context::ServiceContext;
use crate::servers::differences;
use crate::supervisor::{Command, TargetState};
use crate::{Error, Event, containers, profiles};

/// How often the file is checked.
const CONFIG_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A file that does not change for this long is completely written.
const WRITE_SETTLE_TIME: Duration = Duration::from_millis(200);

/// The actor in the audit log.
const CONFIG_FILE_ACTOR: &str = "config file";

/// After this many missed reads the file is deleted, and not just being replaced.
const MAX_MISSED_READS: u32 = 3;

/// A config file: a source of read-only servers.
pub struct ConfigFile {
    path: PathBuf,
    chain: Chain,
    entries: Vec<Entry>,
    source: Vec<u8>,
    profiles: Vec<(String, ProfileSpec)>,
    warnings: Vec<Warning>,
    /// Whether it can be read again. A pipe cannot.
    is_regular: bool,
}

impl ConfigFile {
    /// Reads the file at `path`. A server whose variables are not set fails alone, when it is started; all other
    /// problems of the file are errors.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        // Messages about the file must not depend on the folder we were started in.
        let path = &std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let Loaded { config, chain, source } = load::load_each(path, Accepted::All)?;
        // A file that is just being replaced is not there for a moment.
        let is_regular = !path.metadata().is_ok_and(|metadata| !metadata.is_file());
        let invalid = |source| LoadError::Invalid { path: path.to_owned(), source };
        let written = Config::entries(&source, Accepted::All).map_err(invalid)?;
        let profiles = profiles_of_config(&source).map_err(invalid)?;
        let entry = |(name, value): (String, Value)| match value {
            Value::Object(entry) => Some(Entry {
                transport: transport(&config, &name, &entry),
                is_enabled: !is_disabled(&entry),
                name,
                config: entry,
            }),
            // The parser refuses a file with anything else.
            _ => None,
        };
        let entries = written.into_iter().filter_map(entry).collect();
        Ok(Self { path: path.to_owned(), chain, entries, source, profiles, warnings: config.warnings, is_regular })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its content.
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// Its profiles.
    pub fn profiles(&self) -> &[(String, ProfileSpec)] {
        &self.profiles
    }

    /// Its position in a chain of aggregators.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }
}

/// A server of the file.
#[derive(Debug, Clone, PartialEq)]
struct Entry {
    name: String,
    transport: Transport,
    /// As it is written in the file.
    config: Map<String, Value>,
    is_enabled: bool,
}

/// Adds the servers of the file and then those of the registry, and follows the file from then on.
pub(crate) async fn open(context: &Arc<ServiceContext>, config: Option<ConfigFile>) -> Result<(), Error> {
    let (file, entries) = match config {
        Some(ConfigFile { path, entries, warnings, is_regular, .. }) => {
            log_new_warnings(&[], &warnings);
            (Some((path, warnings)).filter(|_| is_regular), entries)
        }
        None => (None, Vec::new()),
    };
    let known = context.store.servers(&ServerFilter::default(), Page::ALL).await?.items;
    let (mut registered, of_file): (Vec<_>, Vec<_>) =
        known.into_iter().partition(|record| record.origin == Origin::Registered);
    for gone in of_file.iter().filter(|record| !entries.iter().any(|entry| entry.name == record.name)) {
        delete_row(context, gone.id, &gone.name).await?;
    }
    for entry in &entries {
        let row = of_file.iter().find(|record| record.name == entry.name);
        if let Some(record) = update_row(context, entry, row).await? {
            context.add_server(record).await?;
        }
    }
    registered.sort_by_key(|record| record.registered_at);
    for record in registered {
        context.add_server(record).await?;
    }
    // A pipe was read to its end: its servers stay as they are.
    if let Some((path, warnings)) = file {
        let watcher = ConfigWatcher { context: Arc::clone(context), path, entries, warnings };
        context.spawn(watcher.watch());
    }
    Ok(())
}

/// Updates the row of a server to match the file. Does nothing if its name belongs to a registered server.
async fn update_row(
    context: &ServiceContext,
    entry: &Entry,
    row: Option<&ServerRecord>,
) -> Result<Option<ServerRecord>, Error> {
    let Some(row) = row else { return insert_row(context, entry).await };
    let was = Entry::of(row);
    if was == *entry {
        return Ok(Some(row.clone()));
    }
    let patch = ServerPatch {
        transport: Some(entry.transport),
        connection_config: Some(ConnectionConfig::from(entry.config.clone())),
        deployment: Some(new_server(entry).deployment),
        // A server that was disabled at run time is only enabled by a change in the file; but one that failed may work
        // now.
        enabled: (was.is_enabled != entry.is_enabled || row.auto_disabled).then_some(entry.is_enabled),
        ..ServerPatch::default()
    };
    let mut change = context.store.transaction("change a server of the config file").await?;
    let record = change.update_server(row.id, patch).await?;
    let details = differences(row, &record);
    change.commit_audited(note("server.update", &record.name, Some(details))).await?;
    Ok(Some(record))
}

fn note(action: &str, server: &str, details: Option<Value>) -> AuditNote {
    AuditNote::new(&Actor::internal(CONFIG_FILE_ACTOR), action, Some(server), details)
}

/// Deletes the row of a server that was removed from the file. It may be deleted already.
async fn delete_row(context: &ServiceContext, id: ServerId, name: &str) -> Result<(), Error> {
    let mut change = context.store.transaction("remove a server of the config file").await?;
    match change.delete_server(id).await {
        Ok(()) => Ok(change.commit_audited(note("server.remove", name, None)).await?),
        Err(registry::Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn insert_row(context: &ServiceContext, entry: &Entry) -> Result<Option<ServerRecord>, Error> {
    let mut change = context.store.transaction("register a server of the config file").await?;
    match change.insert_server(new_server(entry)).await {
        Ok(record) => {
            let details = json!({ "transport_type": record.transport });
            change.commit_audited(note("server.register", &record.name, Some(details))).await?;
            Ok(Some(record))
        }
        Err(registry::Error::AlreadyExists { name }) => {
            context.note_shadowed(&name, true);
            tracing::error!(server = %name, "the config file has a server with a name that is registered; the registered one is used");
            Ok(None)
        }
        Err(registry::Error::Invalid { what }) => {
            context.note_unusable(&entry.name, Some(&what));
            tracing::error!(server = %entry.name, "the config file has a server that cannot be used: {what}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn new_server(entry: &Entry) -> NewServer {
    let config = ConnectionConfig::from(entry.config.clone());
    NewServer {
        enabled: entry.is_enabled,
        origin: Origin::Config,
        ..NewServer::new(entry.name.clone(), entry.transport, config)
    }
}

/// Follows the file while the service runs.
struct ConfigWatcher {
    context: Arc<ServiceContext>,
    path: PathBuf,
    /// The last valid content of the file, as far as it was applied.
    entries: Vec<Entry>,
    /// What was logged about it.
    warnings: Vec<Warning>,
}

/// Longer than the clock resolution of any file system.
const RACY_STAMP_AGE: Duration = Duration::from_secs(2);

/// Identifies a state of the file.
type Stamp = (SystemTime, u64);

impl ConfigWatcher {
    async fn watch(mut self) {
        // The current content was read a while ago, so the file is checked once in any case.
        let mut seen: Option<Stamp> = None;
        let mut missed = 0;
        let context = Arc::clone(&self.context);
        loop {
            tokio::select! {
                () = sleep(CONFIG_POLL_INTERVAL) => {}
                () = context.stop_requested() => return,
            }
            let Some(stamp) = stamp(&self.path).await else {
                missed += 1;
                if missed == MAX_MISSED_READS {
                    self.report_error("the config file does not exist any more; its last version stays in effect");
                }
                continue;
            };
            if missed >= MAX_MISSED_READS {
                self.context.note_config_error(None);
                seen = None;
            }
            missed = 0;
            if Some(stamp) == seen {
                continue;
            }
            sleep(WRITE_SETTLE_TIME).await;
            if self::stamp(&self.path).await != Some(stamp) {
                continue;
            }
            // A file that is written again within one tick of the file system's clock may keep its stamp, so a fresh
            // stamp proves nothing yet.
            if self.reload().await && is_old(stamp) {
                seen = Some(stamp);
            }
        }
    }

    /// Applies the current content of the file. Returns whether that is done.
    async fn reload(&mut self) -> bool {
        let path = self.path.clone();
        let loading = tokio::task::spawn_blocking(move || ConfigFile::load(&path)).await;
        let wanted = match loading.expect("reading a file does not panic") {
            Ok(file) => {
                log_new_warnings(&self.warnings, &file.warnings);
                self.warnings = file.warnings;
                profiles::follow_config(&self.context, &file.profiles).await;
                file.entries
            }
            // It is being replaced.
            Err(LoadError::NotFound(_)) => return false,
            Err(error) => {
                self.report_error(&format!(
                    "the config file has changed but is not valid, so its last version stays in effect: {error}"
                ));
                return true;
            }
        };
        if wanted == self.entries {
            self.context.note_config_error(None);
            return true;
        }
        tracing::info!(path = %self.path.display(), "the config file has changed");
        match self.apply(wanted).await {
            Ok(()) => {
                self.context.note_config_error(None);
                true
            }
            Err(error) => {
                self.report_error(&format!(
                    "the config file has changed but could not be applied; will retry: {error}"
                ));
                false
            }
        }
    }

    fn report_error(&self, what: &str) {
        if self.context.note_config_error(Some(format!("{}: {what}", self.path.display()))) {
            tracing::error!(path = %self.path.display(), "{what}");
        }
    }

    async fn apply(&mut self, wanted: Vec<Entry>) -> Result<(), Error> {
        let gone: Vec<_> =
            self.entries.iter().filter(|old| !wanted.iter().any(|new| new.name == old.name)).cloned().collect();
        for entry in gone {
            self.remove(&entry).await?;
            self.entries.retain(|known| known.name != entry.name);
        }
        for entry in wanted {
            if self.entries.contains(&entry) {
                continue;
            }
            self.put(&entry).await?;
            self.entries.retain(|known| known.name != entry.name);
            self.entries.push(entry);
        }
        Ok(())
    }

    async fn put(&self, entry: &Entry) -> Result<(), Error> {
        let of_file =
            self.context.find(&entry.name).ok().filter(|handle| handle.current().record.origin == Origin::Config);
        let Some(handle) = of_file else {
            if let Some(record) = insert_row(&self.context, entry).await? {
                self.context.add_new_server(record).await?;
            }
            return Ok(());
        };
        let _changing = handle.changing.lock().await;
        let before = handle.current().record.clone();
        let Some(record) = update_row(&self.context, entry, Some(&before)).await? else { return Ok(()) };
        let is_enabled = record.enabled;
        let (server_id, name) = (record.id.to_string(), record.name.clone());
        handle.update_config(record, true).await;
        match (before.enabled, is_enabled) {
            (true, false) => handle.end(TargetState::Disabled, false).await,
            (false, true) => {
                // The result is not awaited.
                let (reply, _) = oneshot::channel();
                handle.command(Command::Connect(reply)).await;
            }
            _ => {}
        }
        self.context.events.emit(Event::ServerUpdated { server_id, name });
        Ok(())
    }

    async fn remove(&self, entry: &Entry) -> Result<(), Error> {
        self.context.note_shadowed(&entry.name, false);
        self.context.note_unusable(&entry.name, None);
        let Ok(handle) = self.context.find(&entry.name) else { return Ok(()) };
        if handle.current().record.origin != Origin::Config {
            return Ok(());
        }
        delete_row(&self.context, handle.id, &entry.name).await?;
        handle.end(TargetState::Removed, false).await;
        self.context.events.emit(Event::ServerRemoved { server_id: handle.id.to_string(), name: entry.name.clone() });
        Ok(())
    }
}

/// Logs the warnings that were not there before. The file is read more often than it changes.
fn log_new_warnings(logged: &[Warning], warnings: &[Warning]) {
    for warning in warnings.iter().filter(|warning| !logged.contains(warning)) {
        tracing::warn!("config: {warning}");
    }
}

/// Whether a file with this stamp gets another one if it is written now.
fn is_old((modified, _): Stamp) -> bool {
    // If the clock went back the age is unknown, and the file is read again at each check.
    modified.elapsed().is_ok_and(|age| age > RACY_STAMP_AGE)
}

/// The stamp of the file; `None` for other types, such as a pipe.
async fn stamp(path: &Path) -> Option<Stamp> {
    let path = path.to_owned();
    let looking = tokio::task::spawn_blocking(move || std::fs::metadata(path)).await;
    let metadata = looking.expect("looking at a file does not panic").ok().filter(std::fs::Metadata::is_file)?;
    Some((metadata.modified().ok()?, metadata.len()))
}

impl Entry {
    /// The content of the file when the row was written.
    fn of(row: &ServerRecord) -> Self {
        let config = row.connection_config.reveal().clone();
        Self { name: row.name.clone(), transport: row.transport, is_enabled: !is_disabled(&config), config }
    }
}

fn is_disabled(config: &Map<String, Value>) -> bool {
    config.get("disabled") == Some(&Value::Bool(true)) || config.get("enabled") == Some(&Value::Bool(false))
}

/// The registry's transport type of a server in the file.
fn transport(checked: &Config, name: &str, config: &Map<String, Value>) -> Transport {
    // A disabled server is not validated as strictly.
    let is_sse = || config.get("type").and_then(Value::as_str) == Some("sse");
    let is_over_http = || config.get("type").and_then(Value::as_str).is_some_and(|word| word != "stdio");
    match checked.servers.iter().find(|spec| spec.name.as_str() == name).map(|spec| &spec.transport) {
        Some(ConfigTransport::Stdio(_)) => Transport::Stdio,
        Some(ConfigTransport::Remote(remote)) if remote.dialect == Dialect::Sse => Transport::Sse,
        Some(ConfigTransport::Container(container)) => match &container.contact {
            Contact::Stdio => Transport::Stdio,
            Contact::Http { dialect: Dialect::Sse, .. } => Transport::Sse,
            Contact::Http { .. } => Transport::Http,
        },
        None if containers::is_contained(config) && !is_over_http() => Transport::Stdio,
        None if config.contains_key("command") => Transport::Stdio,
        None if is_sse() => Transport::Sse,
        Some(ConfigTransport::Remote(_)) | None => Transport::Http,
    }
}
