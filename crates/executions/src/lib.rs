//! Executions of all calls: which may be made, when, and how each ended.
//!
//! # Layout
//! - [`Executions`] (here): all of them: begun, ended, counted; `operations`: listed, cancelled, stopped
//! - `calls`: tool calls from REST, the command line, a document or an assistant
//! - `execution`: one call; `outcome`: how it ended; `cancel_reason`: why one is refused, or must end
//! - `live`: running calls; `concurrency`: how many may run at once; `sessions`: how many a session has made
//! - [`limits`]: how many calls an identity, a profile, a server or a tool may have
//! - `watch`: long calls; `merged_list`: calls in memory and stored ones, as one list
//! - `recorder`: writes ended calls; [`traces`]: spans of calls, for a collector; [`metrics`]: metrics of calls
//! - `server_table`: the status of servers; `settings`: the limits
//! - `ids`: cheap ids
//!
//! An [`ExecutionObserver`] is notified of calls, and an [`OperatorLog`] stores what operators do.

mod calls;
mod cancel_reason;
mod concurrency;
mod error;
mod execution;
#[cfg(test)]
mod fake;
mod ids;
pub mod limits;
mod live;
mod merged_list;
pub mod metrics;
mod operations;
mod outcome;
mod recorder;
mod server_table;
mod sessions;
mod settings;
#[cfg(test)]
mod tests;
pub mod traces;
mod watch;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use aggregator::Aggregator;
use aggregator::interceptor::{CallInterceptor, CallStart, CallTracker, Refusal};
use protocol::scan::member;
use protocol::trace::TraceContext;
use registry::{AuditNote, ExecutionRecord, Principal, Source, Store};
use tokio::sync::Notify;

pub use calls::{Call, Metadata, Outcome, with_local_times};
use cancel_reason::{CancelReason, Refused};
use concurrency::{ConcurrencyLimit, Full, Slot};
pub use error::Error;
use execution::{Execution, ExecutionTracker, NewExecution, Origin, QUEUE_TIMEOUT};
use ids::unpredictable;
use limits::{CallLimits, CallSubjects};
use live::Live;
use metrics::{Reading, ServerCounters};
pub use operations::Stopped;
pub use outcome::MAX_PAYLOAD_BYTES;
use outcome::{Ended, message_of, reason_of};
use recorder::Recorder;
pub use server_table::{ServerEntry, ServerTable};
use sessions::Sessions;
use settings::LiveSettings;
pub use settings::Settings;
use traces::{TraceSetup, Traces};

/// A call that moves between two queues is in neither for a moment; it is looked up this often.
const CANCEL_LOOKUPS: u32 = 20;
const CANCEL_LOOKUP_INTERVAL: Duration = Duration::from_millis(10);

/// Is notified of the progress of calls.
pub trait ExecutionObserver: Send + Sync {
    /// Whether there are listeners: otherwise records need not be built.
    fn has_listeners(&self) -> bool;

    /// A call has progressed.
    fn on_progress(&self, execution: ExecutionRecord);
}

/// Stores what operators do with calls.
pub trait OperatorLog: Send + Sync {
    /// Writes an audit note, and whether calls are refused from now on if that changed. The action has taken effect:
    /// if the database is unreachable, the note is written later.
    fn write(&self, note: AuditNote, is_stopped: Option<bool>) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The configuration of executions.
pub struct Setup {
    /// The registry.
    pub store: Store,
    /// The initial limits.
    pub settings: Settings,
    /// The table of servers.
    pub server_table: Arc<ServerTable>,
    /// Is notified of the progress of calls.
    pub observer: Arc<dyn ExecutionObserver>,
    /// Stores what operators do.
    pub operator_log: Arc<dyn OperatorLog>,
    /// Where calls are traced, if they are.
    pub traces: Option<TraceSetup>,
}

/// Who makes a call, as far as limits are concerned.
#[derive(Clone, Copy)]
pub(crate) struct Caller<'c> {
    /// The identity.
    pub(crate) principal: &'c Principal,
    /// The profile whose view it has.
    pub(crate) profile: Option<&'c str>,
    /// The session of a document or an assistant.
    pub(crate) session: Option<&'c str>,
}

impl<'c> Caller<'c> {
    /// A principal who is not an MCP client: only its own profile narrows what it sees.
    pub(crate) fn of(principal: &'c Principal, session: Option<&'c str>) -> Self {
        Self { principal, profile: principal.profile().map(|profile| &**profile), session }
    }
}

/// All running calls, and the recorder of the others.
pub struct Executions {
    myself: Weak<Self>,
    store: Store,
    settings: LiveSettings,
    observer: Arc<dyn ExecutionObserver>,
    operator_log: Arc<dyn OperatorLog>,
    server_table: Arc<ServerTable>,
    aggregator: OnceLock<Weak<Aggregator>>,
    /// By slot index.
    counters: RwLock<Vec<Arc<ServerCounters>>>,
    live: Live,
    /// For calls from REST, the command line, documents and assistants.
    concurrency: Arc<ConcurrencyLimit>,
    /// For calls of MCP clients.
    mcp_concurrency: Arc<ConcurrencyLimit>,
    sessions: Sessions,
    limits: Arc<CallLimits>,
    recorder: Arc<Recorder>,
    /// Where calls are traced, if they are.
    traces: Option<Traces>,
    is_stopped: AtomicBool,
    /// A copy of the setting, for every call to read.
    keeps_payloads: AtomicBool,
    refused_by_limit: AtomicU64,
    refused_by_stop: AtomicU64,
    /// The task for long calls is running.
    is_watched: AtomicBool,
    begun: Arc<Notify>,
}

impl Executions {
    /// Without calls yet. Starts the recorder; must be called in a runtime.
    pub fn new(setup: Setup) -> Arc<Self> {
        let Setup { store, settings, server_table, observer, operator_log, traces } = setup;
        let live_settings = LiveSettings::new(settings.clone());
        let recorder = Arc::new(Recorder::default());
        tokio::spawn(Arc::clone(&recorder).run(store.clone(), live_settings.clone()));
        let limits = Arc::<CallLimits>::default();
        tokio::spawn(limits::keep_stored(Arc::downgrade(&limits), store.clone()));
        let made = Arc::new_cyclic(|myself| Self {
            myself: myself.clone(),
            store,
            settings: live_settings,
            observer,
            operator_log,
            server_table,
            aggregator: OnceLock::new(),
            counters: RwLock::default(),
            live: Live::default(),
            concurrency: ConcurrencyLimit::new(0, 0),
            mcp_concurrency: ConcurrencyLimit::new(0, 0),
            sessions: Sessions::default(),
            limits,
            recorder,
            traces: traces.map(Traces::new),
            is_stopped: AtomicBool::new(false),
            keeps_payloads: AtomicBool::new(false),
            refused_by_limit: AtomicU64::new(0),
            refused_by_stop: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            begun: Arc::default(),
        });
        made.apply_settings(settings);
        tokio::spawn(watch::watch(made.myself.clone(), Arc::clone(&made.begun)));
        made
    }

    /// Sets the aggregator. Called once, before the first call.
    pub fn attach(&self, aggregator: &Arc<Aggregator>) {
        self.aggregator.get_or_init(|| Arc::downgrade(aggregator));
    }

    /// The aggregator for calls.
    pub(crate) fn aggregator(&self) -> Option<Arc<Aggregator>> {
        self.aggregator.get().and_then(Weak::upgrade)
    }

    /// The registry.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// All servers.
    pub(crate) fn server_table(&self) -> &ServerTable {
        &self.server_table
    }

    /// The limits by identity, profile, server and tool.
    pub fn limits(&self) -> &CallLimits {
        &self.limits
    }

    /// The current settings.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.now()
    }

    /// Applies other settings.
    pub fn apply_settings(&self, settings: Settings) {
        self.keeps_payloads.store(settings.store_payloads, Ordering::Relaxed);
        let queue_limit = settings.queue_limit as usize;
        self.concurrency.set_limits(settings.concurrent_limit as usize, queue_limit);
        let of_mcp = usize::try_from(settings.mcp_concurrent_limit).unwrap_or(usize::MAX);
        self.mcp_concurrency.set_limits(of_mcp, queue_limit);
        self.settings.put(settings);
        self.recorder.apply_limits();
    }

    /// Counts a health check of the server in that slot.
    pub fn count_health_check(&self, slot_index: usize, is_healthy: bool) {
        self.count(slot_index, |counters| counters.checked(is_healthy));
    }

    /// Updates the counters of the server in that slot.
    pub(crate) fn count(&self, slot_index: usize, add: impl Fn(&ServerCounters)) {
        if let Some(counters) = self.counters.read().unwrap_or_else(PoisonError::into_inner).get(slot_index) {
            return add(counters);
        }
        let mut all = self.counters.write().unwrap_or_else(PoisonError::into_inner);
        while all.len() <= slot_index {
            all.push(Arc::default());
        }
        add(&all[slot_index]);
    }

    /// Begins a call, or refuses it. It counts against the limits of its caller.
    pub(crate) fn begin(&self, new: NewExecution, caller: Caller<'_>) -> Result<Arc<Execution>, Refused> {
        let concurrency = self.concurrency_for(new.origin.source);
        let (slot, turn) = concurrency.enter(new.slot_index).map_err(|full| self.counted(Refused::Full(full)))?;
        let execution = self.admit(new, caller, Some(slot))?;
        if let Some(turn) = turn {
            execution.set_turn(turn);
        }
        Ok(execution)
    }

    /// Begins a call that waits for its server, and needs no concurrency slot yet.
    pub(crate) fn begin_waiting(&self, new: NewExecution, caller: Caller<'_>) -> Result<Arc<Execution>, Refused> {
        self.admit(new, caller, None)
    }

    fn counted(&self, refused: Refused) -> Refused {
        let counter = if refused == Refused::Stopped { &self.refused_by_stop } else { &self.refused_by_limit };
        counter.fetch_add(1, Ordering::Relaxed);
        refused
    }

    fn admit(
        &self,
        new: NewExecution,
        Caller { principal, profile, session }: Caller<'_>,
        slot: Option<Slot>,
    ) -> Result<Arc<Execution>, Refused> {
        // A call that is refused for another reason counts against no limit.
        if self.is_stopped.load(Ordering::Relaxed) {
            return Err(self.counted(Refused::Stopped));
        }
        let subjects = CallSubjects::of(principal, profile, &new.server.1, &new.tool);
        let running = self.limits.admit(subjects, || self.count_session(session));
        let running = running.map_err(|refused| self.counted(refused))?;
        let execution = Arc::new(Execution::new(self.itself(), new, slot));
        execution.set_running(running);
        self.live.add(&execution);
        // Checked last: a stop sets the flag before it looks for calls, so it finds this one or is seen here.
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

    /// Counts a call of a session, unless the session has reached its limit.
    fn count_session(&self, session: Option<&str>) -> Result<(), Refused> {
        if let Some(session) = session
            && let Ok(limit) = u64::try_from(self.settings.now().session_limit)
            && !self.sessions.count(session, limit)
        {
            return Err(Refused::SessionOver(limit));
        }
        Ok(())
    }

    fn itself(&self) -> Arc<Self> {
        self.myself.upgrade().expect("somebody has it who asks it for something")
    }

    /// All running calls.
    #[cfg(test)]
    pub(crate) fn live(&self) -> Vec<Arc<Execution>> {
        self.live.all()
    }

    /// A retry needs a concurrency slot again.
    pub(crate) fn queue_again(&self, execution: &Execution) -> Result<(), Full> {
        let (slot, turn) = self.concurrency_for(execution.source()).enter(execution.slot_index())?;
        execution.set_slot(slot);
        if let Some(turn) = turn {
            execution.set_turn(turn);
        }
        Ok(())
    }

    fn concurrency_for(&self, source: Source) -> &Arc<ConcurrencyLimit> {
        if source == Source::Mcp { &self.mcp_concurrency } else { &self.concurrency }
    }

    /// Records a call that ended before it began.
    pub(crate) fn enter_ended(&self, new: NewExecution, ended: Ended) {
        Arc::new(Execution::new(self.itself(), new, None)).finish(ended);
    }

    /// Records the end of a call.
    fn record_end(&self, execution: &Arc<Execution>) {
        // Added there before it is removed here: a reader that looks in the opposite order misses none.
        self.recorder.add(execution.record(), execution.is_noted());
        self.live.remove(execution.id);
        if let Some(traces) = &self.traces {
            execution.export(traces);
        }
    }

    /// Ends a call by our own decision. Returns whether it had not ended already.
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

    /// Cancels a call in the aggregator. Returns whether it was found there.
    pub(crate) fn cut_short(&self, execution: &Execution, why: &str) -> bool {
        let (Some(aggregator), Some((client, id))) = (self.aggregator(), execution.request()) else { return false };
        aggregator.cut_short(&client, &id, why)
    }

    /// Cancels every call to the server in that slot; returns their number.
    pub fn cancel_all_at(&self, slot_index: usize, why: &str) -> u64 {
        self.cancel_those(why, |execution| execution.slot_index() == slot_index)
    }

    fn cancel_those(&self, why: &str, are_meant: impl Fn(&Execution) -> bool) -> u64 {
        let meant = self.live.all().into_iter().filter(|execution| are_meant(execution));
        let cancel_reason = CancelReason::Cancelled(why.into());
        meant.filter(|execution| self.cancel_with(execution, cancel_reason.clone())).count() as u64
    }

    /// Why records of calls cannot be written just now, if so.
    pub fn write_error(&self) -> Option<String> {
        self.recorder.last_error()
    }

    /// The current metrics. Servers without calls and checks are left out.
    pub fn reading(&self) -> Reading {
        let all = self.counters.read().unwrap_or_else(PoisonError::into_inner).clone();
        let of = |(slot_index, counters): (usize, &Arc<ServerCounters>)| {
            self.server_table.at(slot_index).map(|server| counters.read(server.name.to_string()))
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
            limits: self.limits.reading(),
            history_waiting,
            history_written,
            history_dropped,
            traces: self.traces.as_ref().map(Traces::reading),
        }
    }

    /// Refuses further calls, and waits a limited time until ended calls are written and traced.
    pub async fn close(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        let traced = async {
            if let Some(traces) = &self.traces {
                traces.close().await;
            }
        };
        tokio::join!(self.recorder.close(), self.limits.close(&self.store), traced);
    }
}

impl Drop for Executions {
    /// Wakes the tasks for long calls and for limits, which then end.
    fn drop(&mut self) {
        self.begun.notify_one();
        self.limits.wake_storing();
    }
}

/// Cancels a call that was just moving between two queues.
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
        let keeps_payloads = self.keeps_payloads.load(Ordering::Relaxed);
        let arguments =
            call.params.filter(|_| keeps_payloads).and_then(|params| member(call.line, params, "arguments"));
        let principal = call.client.principal();
        let connected = call.client.connected();
        if let Some(connected) = &connected {
            connected.count_call();
        }
        let new = NewExecution {
            slot_index: call.server,
            server: self.name_of(call.server),
            tool: Arc::clone(call.tool),
            origin: Origin {
                source: Source::Mcp,
                caller: (!principal.is_local()).then(|| Arc::clone(principal.name())),
                client: connected.and_then(|connected| connected.name()),
                document: None,
            },
            arguments: arguments.and_then(|span| outcome::stored_payload(span.of(call.line))),
            keeps_result: keeps_payloads,
            trace: self.traces.as_ref().and_then(|_| TraceContext::of(call.line, call.meta)),
        };
        let profile = call.client.profile().map(|profile| &**profile);
        let caller = Caller { principal, profile, session: None };
        let execution = self.begin(new, caller).map_err(|refused| refused.refusal())?;
        execution.goes_as(call.client, call.id, call.line.len());
        Ok(Arc::new(ExecutionTracker(execution)))
    }
}

impl Executions {
    /// The id and name of the server in a slot.
    pub(crate) fn name_of(&self, slot_index: usize) -> (Option<registry::ServerId>, Arc<str>) {
        if let Some((id, name)) = self.server_table.name_at(slot_index) {
            return (Some(id), name);
        }
        let view = self.aggregator().map(|aggregator| aggregator.fleet.view());
        let name = view.and_then(|view| Some(view.snapshot.servers().get(slot_index)?.name.as_str().into()));
        (None, name.unwrap_or_else(|| "?".into()))
    }
}
