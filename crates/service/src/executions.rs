//! The account of all calls: which may be made, when, and what became of each.
//!
//! # Layout
//! - here: all of them: entered, ended, counted; `operating`: looked at, cancelled, stopped
//! - `execution`: one call; `outcome`: how it ended; `cancel_reason`: why one is refused, or must end
//! - `live`: those that are not over; `concurrency`: how many may run at once; `sessions`: how many a session has made
//! - `watch`: those that take long; `listing`: those in memory and those that are kept, as one list
//! - `ids`: ids that cost little

mod cancel_reason;
mod concurrency;
mod execution;
mod ids;
mod live;
mod merged_list;
mod operations;
mod outcome;
mod sessions;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use aggregator::Aggregator;
use aggregator::interceptor::{CallInterceptor, CallStart, CallTracker, Refusal};
use protocol::scan::member;
use protocol::trace::TraceContext;
use registry::{Source, Store};
use tokio::sync::Notify;

pub(crate) use cancel_reason::{CancelReason, Refused};
use concurrency::{ConcurrencyLimit, Full, Slot};
use execution::ExecutionTracker;
pub(crate) use execution::{Execution, NewExecution, Origin, QUEUE_TIMEOUT};
pub(crate) use ids::unpredictable;
use live::Live;
pub use operations::Stopped;
pub use outcome::MAX_PAYLOAD_BYTES;
pub(crate) use outcome::{Ended, message_of, reason_of};
use sessions::Sessions;

use crate::Settings;
use crate::calls::Attempt;
use crate::events::Events;
use crate::metrics::{Reading, ServerCounters};
use crate::recorder::Recorder;
use crate::server_table::ServerTable;
use crate::settings::LiveSettings;
use crate::status_writer::StatusWriter;
use crate::traces::{TraceSetup, Traces};

/// A call that is on its way from one place to the next is found nowhere for a moment; so often it is looked for.
const CANCEL_LOOKUPS: u32 = 20;
const CANCEL_LOOKUP_INTERVAL: Duration = Duration::from_millis(10);

/// All calls under way, and where the others are recorded.
pub struct Executions {
    myself: Weak<Self>,
    store: Store,
    settings: LiveSettings,
    events: Events,
    server_table: Arc<ServerTable>,
    aggregator: OnceLock<Weak<Aggregator>>,
    /// By place.
    counters: RwLock<Vec<Arc<ServerCounters>>>,
    live: Live,
    /// For calls from REST, the command line, documents and assistants.
    concurrency: Arc<ConcurrencyLimit>,
    /// For calls of MCP clients.
    mcp_concurrency: Arc<ConcurrencyLimit>,
    sessions: Sessions,
    recorder: Arc<Recorder>,
    /// What waits until the database is reachable.
    status_writer: Arc<StatusWriter>,
    /// Where calls are traced, if they are.
    traces: Option<Traces>,
    is_stopped: AtomicBool,
    /// What the settings say, for every call to see.
    keeps_payloads: AtomicBool,
    refused_by_limit: AtomicU64,
    refused_by_stop: AtomicU64,
    /// Somebody looks after calls that take long.
    is_watched: AtomicBool,
    begun: Arc<Notify>,
}

impl Executions {
    /// No calls yet. Begins to write down what is over; must be called where tasks can be started.
    pub(crate) fn new(
        store: Store,
        settings: LiveSettings,
        events: Events,
        server_table: Arc<ServerTable>,
        traces: Option<TraceSetup>,
    ) -> Arc<Self> {
        let recorder = Arc::new(Recorder::default());
        tokio::spawn(Arc::clone(&recorder).run(store.clone(), settings.clone()));
        let made = Arc::new_cyclic(|myself| Self {
            myself: myself.clone(),
            store,
            settings,
            events,
            server_table,
            aggregator: OnceLock::new(),
            counters: RwLock::default(),
            live: Live::default(),
            concurrency: ConcurrencyLimit::new(0, 0),
            mcp_concurrency: ConcurrencyLimit::new(0, 0),
            sessions: Sessions::default(),
            recorder,
            status_writer: Arc::default(),
            traces: traces.map(Traces::new),
            is_stopped: AtomicBool::new(false),
            keeps_payloads: AtomicBool::new(false),
            refused_by_limit: AtomicU64::new(0),
            refused_by_stop: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            begun: Arc::default(),
        });
        made.apply_settings();
        tokio::spawn(watch::watch(made.myself.clone(), Arc::clone(&made.begun)));
        made
    }

    /// Calls go through this one. Said once, before the first call.
    pub(crate) fn attach(&self, aggregator: &Arc<Aggregator>) {
        self.aggregator.get_or_init(|| Arc::downgrade(aggregator));
    }

    /// What calls go through.
    pub(crate) fn aggregator(&self) -> Option<Arc<Aggregator>> {
        self.aggregator.get().and_then(Weak::upgrade)
    }

    /// Where things are kept.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// What waits until the database is reachable.
    pub(crate) fn status_writer(&self) -> &Arc<StatusWriter> {
        &self.status_writer
    }

    /// All servers.
    pub(crate) fn server_table(&self) -> &ServerTable {
        &self.server_table
    }

    /// The settings as they are now.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.now()
    }

    /// Other limits may hold from now on.
    pub(crate) fn apply_settings(&self) {
        let settings = self.settings.now();
        self.keeps_payloads.store(settings.store_payloads, Ordering::Relaxed);
        let queue_limit = settings.queue_limit as usize;
        self.concurrency.set_limits(settings.concurrent_limit as usize, queue_limit);
        let of_mcp = usize::try_from(settings.mcp_concurrent_limit).unwrap_or(usize::MAX);
        self.mcp_concurrency.set_limits(of_mcp, queue_limit);
        self.recorder.apply_limits();
    }

    /// Counts something for the server in that place.
    pub(crate) fn count(&self, place: usize, add: impl Fn(&ServerCounters)) {
        if let Some(counters) = self.counters.read().unwrap_or_else(PoisonError::into_inner).get(place) {
            return add(counters);
        }
        let mut all = self.counters.write().unwrap_or_else(PoisonError::into_inner);
        while all.len() <= place {
            all.push(Arc::default());
        }
        add(&all[place]);
    }

    /// Enters a call, or refuses it. A `session` is counted against its limit.
    pub(crate) fn begin(&self, asked: NewExecution, session: Option<&str>) -> Result<Arc<Execution>, Refused> {
        let concurrency = self.concurrency_for(asked.origin.source);
        let (slot, turn) = concurrency.enter(asked.place).map_err(|full| self.counted(Refused::Full(full)))?;
        let execution = self.admit(asked, session, Some(slot))?;
        if let Some(turn) = turn {
            execution.set_turn(turn);
        }
        Ok(execution)
    }

    /// Enters a call that waits for its server, and does not need its turn yet.
    pub(crate) fn begin_waiting(&self, asked: NewExecution, session: Option<&str>) -> Result<Arc<Execution>, Refused> {
        self.admit(asked, session, None)
    }

    fn counted(&self, refused: Refused) -> Refused {
        let counter = if refused == Refused::Stopped { &self.refused_by_stop } else { &self.refused_by_limit };
        counter.fetch_add(1, Ordering::Relaxed);
        refused
    }

    fn admit(&self, asked: NewExecution, session: Option<&str>, slot: Option<Slot>) -> Result<Arc<Execution>, Refused> {
        if let Some(session) = session
            && let Ok(limit) = u64::try_from(self.settings.now().session_limit)
            && !self.sessions.count(session, limit)
        {
            return Err(self.counted(Refused::SessionOver(limit)));
        }
        let execution = Arc::new(Execution::new(self.itself(), asked, slot));
        self.live.add(&execution);
        // Looked at last: whoever stops everything looks for calls after saying so, and finds this one or is seen here.
        if self.is_stopped.load(Ordering::SeqCst) {
            self.live.remove(execution.id);
            return Err(self.counted(Refused::Stopped));
        }
        if !self.is_watched.swap(true, Ordering::SeqCst) {
            self.begun.notify_one();
        }
        execution.announce();
        Ok(execution)
    }

    fn itself(&self) -> Arc<Self> {
        self.myself.upgrade().expect("somebody has it who asks it for something")
    }

    /// All that are not over.
    #[cfg(test)]
    pub(crate) fn live(&self) -> Vec<Arc<Execution>> {
        self.live.all()
    }

    /// A call that is to be made again needs its turn again.
    pub(crate) fn queue_again(&self, execution: &Execution) -> Result<(), Full> {
        let (slot, turn) = self.concurrency_for(execution.source()).enter(execution.place())?;
        execution.set_slot(slot);
        if let Some(turn) = turn {
            execution.set_turn(turn);
        }
        Ok(())
    }

    fn concurrency_for(&self, source: Source) -> &Arc<ConcurrencyLimit> {
        if source == Source::Mcp { &self.mcp_concurrency } else { &self.concurrency }
    }

    /// Enters a call that was over before it began.
    pub(crate) fn enter_ended(&self, asked: NewExecution, ended: Ended) {
        Arc::new(Execution::new(self.itself(), asked, None)).finish(ended);
    }

    /// A call has ended.
    fn record_end(&self, execution: &Arc<Execution>) {
        // First there, then not here: whoever looks in this order misses none.
        self.recorder.add(execution.record(), execution.is_noted());
        self.live.remove(execution.id);
        if let Some(traces) = &self.traces {
            execution.export(traces);
        }
    }

    /// Ends a call by our own decision; whether it was not over already.
    pub(crate) fn cancel_with(&self, execution: &Arc<Execution>, cancel_reason: CancelReason) -> bool {
        let why = cancel_reason.message();
        if !execution.request_cancel(cancel_reason) {
            return false;
        }
        if !self.cut_short(execution, &why) && execution.source() == Source::Mcp {
            tokio::spawn(cancel_when_found(self.myself.clone(), Arc::clone(execution), why));
        }
        true
    }

    /// Takes a call out of the aggregator; whether it was found there.
    pub(crate) fn cut_short(&self, execution: &Execution, why: &str) -> bool {
        let (Some(aggregator), Some((client, id))) = (self.aggregator(), execution.request()) else { return false };
        aggregator.cut_short(&client, &id, why)
    }

    /// Cancels every call to the server in that place; says how many there were.
    pub(crate) fn cancel_all_at(&self, place: usize, why: &str) -> u64 {
        self.cancel_those(why, |execution| execution.place() == place)
    }

    fn cancel_those(&self, why: &str, are_meant: impl Fn(&Execution) -> bool) -> u64 {
        let meant = self.live.all().into_iter().filter(|execution| are_meant(execution));
        let cancel_reason = CancelReason::Cancelled(why.into());
        meant.filter(|execution| self.cancel_with(execution, cancel_reason.clone())).count() as u64
    }

    /// Why records of calls cannot be written just now, if that is so.
    pub(crate) fn write_error(&self) -> Option<String> {
        self.recorder.last_error()
    }

    /// The numbers at this moment. Servers that were never called or looked at are left out.
    pub fn reading(&self) -> Reading {
        let all = self.counters.read().unwrap_or_else(PoisonError::into_inner).clone();
        let of = |(place, counters): (usize, &Arc<ServerCounters>)| {
            self.server_table.at(place).map(|server| counters.read(server.name.to_string()))
        };
        let (running, queued) = self.concurrency.count();
        let (mcp_running, mcp_queued) = self.mcp_concurrency.count();
        let (history_waiting, history_written, history_dropped) = self.recorder.count();
        Reading {
            servers: all.iter().enumerate().filter_map(of).collect(),
            running: running as u64,
            queued: queued as u64,
            mcp_running: mcp_running as u64,
            mcp_queued: mcp_queued as u64,
            refused_by_limit: self.refused_by_limit.load(Ordering::Relaxed),
            refused_by_stop: self.refused_by_stop.load(Ordering::Relaxed),
            history_waiting,
            history_written,
            history_dropped,
            traces: self.traces.as_ref().map(Traces::reading),
        }
    }

    /// Refuses further calls, and waits until what is over is written down and traced, within reason.
    pub(crate) async fn close(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        let traced = async {
            if let Some(traces) = &self.traces {
                traces.close().await;
            }
        };
        tokio::join!(self.recorder.close(), traced);
    }
}

impl Drop for Executions {
    /// Whoever waits for the next call waits in vain.
    fn drop(&mut self) {
        self.begun.notify_one();
    }
}

/// A call that is to end was just on its way from one place to the next.
async fn cancel_when_found(whole: Weak<Executions>, execution: Arc<Execution>, why: String) {
    for _ in 0..CANCEL_LOOKUPS {
        tokio::time::sleep(CANCEL_LOOKUP_INTERVAL).await;
        let Some(whole) = whole.upgrade() else { return };
        if execution.is_over() || whole.cut_short(&execution, &why) {
            return;
        }
    }
    tracing::debug!(id = %execution.id, "a call that was cancelled was not found");
}

impl CallInterceptor for Executions {
    fn open(&self, call: &CallStart<'_>) -> Result<Arc<dyn CallTracker>, Refusal> {
        if let Some(call_origin) = call.client.call_origin()
            && let Ok(attempt) = Arc::clone(call_origin).downcast::<Attempt>()
        {
            attempt.goes_as(call.client, call.id, call.line.len());
            return Ok(attempt);
        }
        let keeps_payloads = self.keeps_payloads.load(Ordering::Relaxed);
        let arguments =
            call.params.filter(|_| keeps_payloads).and_then(|params| member(call.line, params, "arguments"));
        let principal = call.client.principal();
        let connected = call.client.connected();
        if let Some(connected) = &connected {
            connected.count_call();
        }
        let asked = NewExecution {
            place: call.server,
            server: self.name_of(call.server),
            tool: Arc::clone(call.tool),
            origin: Origin {
                source: Source::Mcp,
                caller: (!principal.is_empty()).then(|| Arc::clone(principal)),
                client: connected.and_then(|connected| connected.name()),
                document: None,
            },
            arguments: arguments.and_then(|span| outcome::stored_payload(span.of(call.line))),
            keeps_result: keeps_payloads,
            trace: self.traces.as_ref().and_then(|_| TraceContext::of(call.line, call.meta)),
        };
        let execution = self.begin(asked, None).map_err(|refused| refused.refusal())?;
        execution.goes_as(call.client, call.id, call.line.len());
        Ok(Arc::new(ExecutionTracker(execution)))
    }
}

impl Executions {
    /// The id and name of the server in a place.
    pub(crate) fn name_of(&self, place: usize) -> (Option<registry::ServerId>, Arc<str>) {
        if let Some((id, name)) = self.server_table.name_at(place) {
            return (Some(id), name);
        }
        let view = self.aggregator().map(|aggregator| aggregator.fleet.view());
        let name = view.and_then(|view| Some(view.snapshot.servers().get(place)?.name.as_str().into()));
        (None, name.unwrap_or_else(|| "?".into()))
    }
}
