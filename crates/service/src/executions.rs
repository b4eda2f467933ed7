//! The account of all calls: which may be made, when, and what became of each.

use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use aggregator::Aggregator;
use aggregator::ledger::{Account, Calling, End, Ledger, Refusal, Turn};
use registry::{ExecutionFilter, ExecutionId, ExecutionRecord, Listed, Page, Store};
use serde::Serialize;

use crate::events::Events;
use crate::metrics::Reading;
use crate::roster::Roster;
use crate::settings::Keeper;
use crate::traffic::Traffic;
use crate::{Actor, Error, Service, Settings};

/// All calls under way, and where the others are recorded.
pub struct Executions {
    store: Store,
    settings: Keeper,
    events: Events,
    roster: Arc<Roster>,
    aggregator: OnceLock<Weak<Aggregator>>,
    /// By place.
    traffic: RwLock<Vec<Arc<Traffic>>>,
}

impl Executions {
    /// No calls yet. Begins to write down what is over.
    pub(crate) fn new(store: Store, settings: Keeper, events: Events, roster: Arc<Roster>) -> Arc<Self> {
        Arc::new(Self { store, settings, events, roster, aggregator: OnceLock::new(), traffic: RwLock::default() })
    }

    /// Calls go through this one. Said once, before the first call.
    pub(crate) fn attach(&self, aggregator: &Arc<Aggregator>) {
        self.aggregator.get_or_init(|| Arc::downgrade(aggregator));
    }

    /// What goes on at the server in that place.
    pub(crate) fn traffic(&self, place: usize) -> Arc<Traffic> {
        if let Some(traffic) = self.traffic.read().unwrap_or_else(PoisonError::into_inner).get(place) {
            return Arc::clone(traffic);
        }
        let mut all = self.traffic.write().unwrap_or_else(PoisonError::into_inner);
        while all.len() <= place {
            all.push(Arc::new(Traffic::new()));
        }
        Arc::clone(&all[place])
    }

    /// Cancels every call to the server in that place; says how many there were.
    pub(crate) fn cancel_all_at(&self, place: usize, why: &str) -> u64 {
        0
    }

    /// The numbers at this moment.
    pub fn reading(&self) -> Reading {
        Reading {
            servers: Vec::new(),
            running: 0,
            queued: 0,
            mcp_running: 0,
            mcp_queued: 0,
            refused_by_limit: 0,
            refused_by_stop: 0,
            history_waiting: 0,
            history_written: 0,
            history_dropped: 0,
        }
    }

    /// Refuses further calls, and waits until what is over is written down, within reason.
    pub(crate) async fn close(&self) {}
}

struct Free;

impl Account for Free {
    fn turn(&self) -> Option<Turn> {
        None
    }
    fn sent(&self) {}
    fn ended(&self, _: End<'_>) {}
    fn verdict(&self) -> Option<Refusal> {
        None
    }
}

impl Ledger for Executions {
    fn open(&self, _: &Calling<'_>) -> Result<Arc<dyn Account>, Refusal> {
        Ok(Arc::new(Free))
    }
}

/// What stopping everything came to.
#[derive(Debug, Clone, Serialize)]
pub struct Stopped {
    /// Whether new calls are refused now.
    pub stopped: bool,
    /// Calls that were cancelled.
    pub cancelled: u64,
}

#[expect(unused_variables, clippy::todo, clippy::unused_async, reason = "filled in by the next commits")]
impl Service {
    /// Calls, newest first: those under way, and those that are kept.
    pub async fn executions(&self, filter: &ExecutionFilter, page: Page) -> Result<Listed<ExecutionRecord>, Error> {
        todo!()
    }

    /// One call.
    pub async fn execution(&self, id: ExecutionId) -> Result<ExecutionRecord, Error> {
        todo!()
    }

    /// Cancels a call that is under way; one that is over stays as it is.
    pub async fn cancel_execution(&self, by: &Actor, id: ExecutionId) -> Result<ExecutionRecord, Error> {
        todo!()
    }

    /// Cancels every call and refuses new ones until they are allowed again.
    pub async fn stop_executions(&self, by: &Actor) -> Stopped {
        todo!()
    }

    /// Allows calls again, and begins to count sessions anew.
    pub async fn reset_executions(&self, by: &Actor) -> Stopped {
        todo!()
    }

    /// The settings as they are now.
    pub fn settings(&self) -> Settings {
        todo!()
    }

    /// Changes settings; what is wrong is told, and then nothing is changed.
    pub async fn change_settings(&self, by: &Actor, changes: serde_json::Value) -> Result<Settings, Error> {
        todo!()
    }
}
