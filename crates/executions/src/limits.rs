//! Limits of calls, by identity, profile, server and tool: calls per second, calls in progress, calls per day.
//!
//! - [`CallLimits`] (here): all of them, as calls see them
//! - `table`: which limits a call counts against; `usage`: what counts against one of them; `bucket`: a token bucket
//! - `excess`: a limit that refuses a call; `counts`: stores the calls of the day, off the call path

mod bucket;
mod counts;
mod excess;
mod table;
#[cfg(test)]
mod tests;
mod usage;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use registry::{LimitKind, LimitRecord, Principal, Store};
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use counts::keep_stored;
pub(crate) use excess::LimitExcess;
pub use table::EACH;
use table::Table;
pub(crate) use table::{CallSubjects, RunningCall};
use usage::Now;

use crate::Error;

/// The name of the user of a service without tokens, who has none.
const LOCAL_USER: &str = "local";

/// What is between the name of a server and its tool's.
const TOOL_SEPARATOR: &str = ".";

/// All limits of calls.
#[derive(Debug)]
pub struct CallLimits {
    /// Whether there are any. Otherwise calls look at nothing else.
    is_active: AtomicBool,
    table: Mutex<Table>,
    started: Instant,
    /// Something is to be stored.
    unsaved: Arc<Notify>,
    /// Held while counts are being stored, so that older ones do not replace newer ones.
    storing: tokio::sync::Mutex<()>,
}

/// A limit with what counts against it.
#[derive(Debug, Clone, Serialize)]
pub struct LimitView {
    /// The limit.
    #[serde(flatten)]
    pub record: LimitRecord,
    /// How many calls it has refused since the service started.
    pub refused: u64,
    /// How many identities, profiles, servers or tools it counts. More than one only for a default.
    pub counted: u64,
    /// What counts for each of them: those with the most calls, if there are many.
    pub uses: Vec<LimitUse>,
}

/// What counts against a limit, for one identity, profile, server or tool.
#[derive(Debug, Clone, Serialize)]
pub struct LimitUse {
    /// The name.
    pub name: String,
    /// Calls in progress.
    pub running: u32,
    /// Calls of this day, in UTC.
    pub today: u64,
    /// How many calls may begin at once now, if the limit has a rate.
    pub available: Option<u64>,
}

/// Limits in metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitsReading {
    /// How many there are of each kind.
    pub limits: Vec<(LimitKind, u64)>,
    /// Refused calls, by kind and by the member of the limit.
    pub refused: Vec<(LimitKind, &'static str, u64)>,
}

impl Default for CallLimits {
    fn default() -> Self {
        Self {
            is_active: AtomicBool::new(false),
            table: Mutex::default(),
            started: Instant::now(),
            unsaved: Arc::default(),
            storing: tokio::sync::Mutex::default(),
        }
    }
}

impl CallLimits {
    /// Reads the limits, and the calls of this day.
    pub async fn load(&self, store: &Store) -> Result<(), Error> {
        let now = self.now();
        let (limits, counts) = (store.limits().await?, store.limit_counts(now.day()).await?);
        let mut table = self.lock();
        limits.iter().for_each(|record| table.put(record));
        counts.iter().for_each(|count| table.restore(count, now));
        self.activate(&table);
        Ok(())
    }

    /// Applies a limit that was stored.
    pub fn put(&self, record: &LimitRecord) {
        let mut table = self.lock();
        table.put(record);
        self.activate(&table);
    }

    /// Removes a limit that was deleted.
    pub fn remove(&self, kind: LimitKind, name: &str) {
        let mut table = self.lock();
        table.remove(kind, name);
        self.activate(&table);
    }

    /// Renames the limits of a server that was renamed, and of its tools.
    pub fn rename_server(&self, before: &str, after: &str) {
        self.lock().rename_server(before, after);
    }

    /// All limits, by kind and name.
    pub fn view(&self) -> Vec<LimitView> {
        self.lock().view(self.now())
    }

    /// The limit of this kind and name.
    pub fn find(&self, kind: LimitKind, name: &str) -> Option<LimitView> {
        self.view().into_iter().find(|view| view.record.kind == kind && view.record.name == name)
    }

    /// Their metrics.
    pub fn reading(&self) -> LimitsReading {
        let table = self.lock();
        LimitsReading { limits: table.counts(), refused: table.refused() }
    }

    /// Counts a call against its limits, unless one of them refuses it, or `also` does. Without limits, `also` decides.
    pub(crate) fn admit<E: From<LimitExcess>>(
        &self,
        call: CallSubjects<'_>,
        also: impl FnOnce() -> Result<(), E>,
    ) -> Result<Option<RunningCall>, E> {
        if !self.is_active.load(Ordering::Relaxed) {
            return also().map(|()| None);
        }
        let mut table = self.lock();
        let had_unsaved = table.has_unsaved();
        let running = table.admit(call, self.now(), also)??;
        let is_first = !had_unsaved && table.has_unsaved();
        drop(table);
        if is_first {
            self.unsaved.notify_one();
        }
        Ok(Some(running))
    }

    /// Wakes the task that stores counts, to end it.
    pub(crate) fn wake_storing(&self) {
        self.unsaved.notify_one();
    }

    fn activate(&self, table: &Table) {
        self.is_active.store(!table.is_empty(), Ordering::Relaxed);
    }

    fn now(&self) -> Now {
        // A clock before 1970 has no day to speak of.
        let utc = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Now { elapsed: self.started.elapsed(), utc }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'c> CallSubjects<'c> {
    /// What a call of a principal counts against.
    pub(crate) fn of(principal: &'c Principal, profile: Option<&'c str>, server: &'c str, tool: &'c str) -> Self {
        let identity = if principal.is_local() { LOCAL_USER } else { principal.id() };
        Self { identity, profile, server, tool }
    }
}
