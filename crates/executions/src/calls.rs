//! Tool calls from REST, the command line, a document or an assistant.
//!
//! - here: a call from its name to its result, within its limits, retried where that is safe
//! - `resolution`: finds the tool that a name means; `attempt`: the call as made by a client of our own
//! - `failure`: the errors of calls

mod attempt;
mod failure;
mod resolution;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use aggregator::{Aggregator, Client, View};
use protocol::trace::TraceContext;
use registry::{Actor, ExecutionId, ExecutionStatus, RawJson, ServerId, Source, Timestamp};
use serde::Serialize;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::{Caller, CancelReason, Ended, Error, Execution, Executions, NewExecution, Origin, QUEUE_TIMEOUT, Refused};
use attempt::{Attempt, AttemptOutcome, line_of};
use failure::Concluded;
pub use failure::with_local_times;
use resolution::{Miss, Target};

/// A server with its own time limit enforces it itself; we step in only if it does not.
const SERVER_TIMEOUT_GRACE: Duration = Duration::from_secs(2);

/// An unreachable server is waited for if it is retried within this time, and for a moment more.
const MAX_RECONNECT_WAIT: Duration = Duration::from_millis(1_500);
const RECONNECT_MARGIN: Duration = Duration::from_millis(20);

/// A call to be made.
#[derive(Debug, Clone)]
pub struct Call {
    /// `server.tool`, or the tool's own name.
    pub name: String,
    /// The server, by id or name, if the name alone is not sufficient.
    pub server: Option<String>,
    /// A JSON object, passed on byte for byte.
    pub arguments: RawJson,
    /// Where it comes from.
    pub source: Source,
    /// The actor it is made for.
    pub actor: Actor,
    /// The document it was made from, and the line there.
    pub document: Option<(String, Option<u32>)>,
    /// The session of a document or an assistant that it counts for. If absent: its document, or else its actor.
    pub session: Option<String>,
    /// A time limit instead of the settings' for this call.
    pub timeout_ms: Option<u64>,
    /// The trace it belongs to, if the caller provides one.
    pub trace: Option<TraceContext>,
}

/// The outcome of a call.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The server's `result`, byte for byte.
    pub result: RawJson,
    /// How it was routed, and how long it took.
    pub metadata: Metadata,
}

/// How a call was routed, and how long it took.
#[derive(Debug, Clone, Serialize)]
pub struct Metadata {
    /// The id of its execution record.
    pub execution_id: ExecutionId,
    /// The name of the server.
    pub routed_to: String,
    /// Its id.
    pub server_id: String,
    /// `namespace_resolved`, `server_specified` or `original_name`.
    pub routing_strategy: &'static str,
    /// Waiting for its turn.
    pub queue_time_ms: f64,
    /// From the end of the queue to the server.
    pub routing_time_ms: f64,
    /// At the server.
    pub execution_time_ms: f64,
    /// In all.
    pub total_time_ms: f64,
}

/// A call in progress. When it is dropped, the call ends.
struct CallGuard {
    whole: Arc<Executions>,
    aggregator: Arc<Aggregator>,
    execution: Arc<Execution>,
    client: Option<Arc<Client>>,
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.withdraw();
        self.execution.finish(Ended::given_up(self.execution.cancel_reason().as_ref()));
    }
}

impl CallGuard {
    /// Cancels it wherever it is.
    fn withdraw(&mut self) {
        let Some(client) = self.client.take() else { return };
        if !self.whole.cut_short(&self.execution, "nobody waits for the answer any more") {
            self.aggregator.abandon(&client);
        }
    }
}

/// What an actor sees of all servers.
fn view_of(aggregator: &Aggregator, actor: &Actor) -> Arc<View> {
    aggregator.fleet.view_for(actor.principal.profile().map(|profile| &**profile))
}

impl Executions {
    /// What an actor sees of all servers; `None` while there are none.
    fn view_of(&self, actor: &Actor) -> Option<Arc<View>> {
        self.aggregator().map(|aggregator| view_of(&aggregator, actor))
    }

    /// Makes a call and waits for its result, within its limits. If the future is dropped, the call is cancelled.
    pub async fn call(self: &Arc<Self>, call: Call) -> Result<Outcome, Error> {
        let requested_at = Instant::now();
        failure::check(&call)?;
        let aggregator = self.aggregator().ok_or(Error::ExecutionStopped)?;
        let error = match self.resolve(&view_of(&aggregator, &call.actor), &call) {
            Ok(target) => {
                let execution = self.enter(&call, &target)?;
                let mut call_guard = CallGuard { whole: Arc::clone(self), aggregator, execution, client: None };
                return self.conclude(&call, &target, requested_at, &mut call_guard).await;
            }
            Err(Miss::Starting(slot_index)) => {
                return self.call_when_ready(&call, slot_index, requested_at, aggregator).await;
            }
            Err(Miss::NoTool) => self.missing(&call).await,
            Err(miss) => self.explain(miss, &call),
        };
        self.note_refusal(&call, &error);
        Err(error)
    }

    async fn conclude(
        &self,
        call: &Call,
        target: &Target,
        requested_at: Instant,
        call_guard: &mut CallGuard,
    ) -> Result<Outcome, Error> {
        let Concluded { outcome, ended } = self.run_attempts(call, target, requested_at, call_guard).await;
        call_guard.execution.finish(ended);
        Ok(Outcome { result: outcome?, metadata: metadata(&call_guard.execution, target) })
    }

    /// Makes a call to a server that is about to be ready. It is counted from now on, but takes no concurrency slot
    /// meanwhile.
    async fn call_when_ready(
        self: &Arc<Self>,
        call: &Call,
        slot_index: usize,
        requested_at: Instant,
        aggregator: Arc<Aggregator>,
    ) -> Result<Outcome, Error> {
        let server = self.name_of(slot_index);
        let tool = call.name.strip_prefix(&*server.1).and_then(|rest| rest.strip_prefix('.')).unwrap_or(&call.name);
        let waiting = self.new_execution(call, slot_index, server.clone(), tool);
        let session = session_of(call);
        let caller = Caller::of(&call.actor.principal, session.as_deref());
        let execution = self.begin_waiting(waiting, caller);
        let execution = execution.map_err(|refused| failure::refused(&refused))?;
        let mut call_guard =
            CallGuard { whole: Arc::clone(self), aggregator: Arc::clone(&aggregator), execution, client: None };
        let execution = Arc::clone(&call_guard.execution);
        let is_late = tokio::select! {
            biased;
            cancel_reason = execution.cancel_requested() => {
                let Concluded { outcome, ended } = failure::cancel_requested(&execution, &cancel_reason);
                execution.finish(ended);
                return Err(outcome.expect_err("what was called off has no result"));
            }
            settled = timeout(self.limit(call, slot_index), aggregator.fleet.settled(slot_index)) => settled.is_err(),
        };
        let found = if is_late {
            Err(Miss::Unavailable(slot_index))
        } else {
            self.resolve(&view_of(&aggregator, &call.actor), call)
        };
        let found = found.map_err(|miss| self.explain(miss, call)).and_then(|target| {
            let in_line = self.queue_again(&execution);
            in_line.map(|()| target).map_err(|full| failure::refused(&Refused::Full(full)))
        });
        match found {
            Ok(target) => self.conclude(call, &target, requested_at, &mut call_guard).await,
            Err(error) => {
                let ended =
                    Ended::unanswered(ExecutionStatus::Error, error.to_string()).of_kind(error.kind_of_absence());
                execution.finish(ended);
                Err(error)
            }
        }
    }

    fn enter(&self, call: &Call, target: &Target) -> Result<Arc<Execution>, Error> {
        let new = self.new_execution(call, target.slot_index, target.server.clone(), &target.tool);
        let session = session_of(call);
        let caller = Caller::of(&call.actor.principal, session.as_deref());
        self.begin(new, caller).map_err(|refused| failure::refused(&refused))
    }

    /// Records that a call was not made because its server is unavailable.
    fn note_refusal(&self, call: &Call, error: &Error) {
        let Error::ServerUnavailable { server_id, name, sentence, .. } = error else { return };
        let Some(entry) = self.server_table().find(server_id) else { return };
        let tool = call.name.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix('.'));
        let server = (Some(entry.id), Arc::clone(&entry.name));
        let new = self.new_execution(call, entry.slot_index, server, tool.unwrap_or(&call.name));
        let ended = Ended::unanswered(ExecutionStatus::Error, sentence.clone()).of_kind(error.kind_of_absence());
        self.enter_ended(new, ended);
    }

    fn new_execution(
        &self,
        call: &Call,
        slot_index: usize,
        server: (Option<ServerId>, Arc<str>),
        tool: &str,
    ) -> NewExecution {
        let keeps_payloads = self.settings().store_payloads;
        NewExecution {
            slot_index,
            server,
            tool: tool.into(),
            origin: Origin {
                source: call.source,
                caller: Some(Arc::clone(&call.actor.name)),
                client: None,
                document: call.document.clone(),
            },
            arguments: keeps_payloads.then(|| call.arguments.clone()),
            keeps_result: keeps_payloads,
            trace: call.trace.clone(),
        }
    }

    /// From the end of the queue to the response.
    async fn run_attempts(
        &self,
        call: &Call,
        target: &Target,
        requested_at: Instant,
        call_guard: &mut CallGuard,
    ) -> Concluded {
        let execution = Arc::clone(&call_guard.execution);
        let mut clock = Clock { requested_at, turn: None };
        if let Some(concluded) = self.wait_for_turn(call, clock, call_guard).await {
            return concluded;
        }
        clock.turn = Some(Instant::now());
        let line = line_of(target, call, &call_guard.aggregator.options);
        let pauses = self.settings().retry_backoff_ms.clone();
        let (mut retries, mut broke_off) = (0, false);
        loop {
            let (attempt, answer) = Attempt::make(&call_guard.aggregator, &execution, call, &line);
            call_guard.client = Some(attempt);
            let answer = tokio::select! {
                biased;
                cancel_reason = execution.cancel_requested() => return failure::cancel_requested(&execution, &cancel_reason),
                answer = answer => answer,
                limit = self.until_timed_out(call, target.slot_index, clock) => return self.end_timed_out(call_guard, limit),
            };
            call_guard.client = None;
            let mut failure = match answer {
                AttemptOutcome::Result(line, result) => return failure::result(&execution, &line, result),
                AttemptOutcome::Refused(line, error) => return failure::refused_by_server(&execution, &line, error),
                AttemptOutcome::Nothing(failure) => failure,
            };
            if broke_off {
                failure.note_sent_before();
            }
            broke_off |= failure.is_lost && !failure.is_untouched;
            let may_repeat = failure.may_pass() && (failure.is_untouched && (!failure.is_absent || retries > 0))
                || failure.is_lost && target.is_repeatable;
            let pause = pauses.get(retries).copied().map(Duration::from_millis);
            let pause =
                if failure.is_absent { pause.and_then(|_| self.reconnect_wait(target.slot_index)) } else { pause };
            let (deadline, _) = self.deadline(call, target.slot_index, clock);
            let Some(pause) = pause.filter(|&pause| may_repeat && Instant::now() + pause < deadline) else {
                return self.failed(&execution, &failure);
            };
            retries += 1;
            // Other calls may run meanwhile: an unreachable server does not block them.
            execution.mark_retry(failure.ended.kind.as_deref().unwrap_or_default());
            tokio::select! {
                biased;
                cancel_reason = execution.cancel_requested() => return failure::cancel_requested(&execution, &cancel_reason),
                () = sleep(pause) => {}
            }
            if self.queue_again(&execution).is_err() {
                return self.failed(&execution, &failure);
            }
            if let Some(concluded) = self.wait_for_turn(call, clock, call_guard).await {
                return concluded;
            }
        }
    }

    /// Waits for a concurrency slot; returns how the call ended, if it did before that.
    async fn wait_for_turn(&self, call: &Call, clock: Clock, call_guard: &mut CallGuard) -> Option<Concluded> {
        let execution = Arc::clone(&call_guard.execution);
        let turn = execution.take_turn()?;
        tokio::select! {
            biased;
            cancel_reason = execution.cancel_requested() => return Some(failure::cancel_requested(&execution, &cancel_reason)),
            turn = timeout(QUEUE_TIMEOUT, turn) => if turn.is_err() { return Some(failure::waited_too_long()) },
            limit = self.until_timed_out(call, execution.slot_index(), clock) => return Some(self.end_timed_out(call_guard, limit)),
        }
        execution.mark_turn();
        None
    }

    /// How long it is until a disconnected server is retried, if that is worth waiting for: a call to an unreachable
    /// one fails at once.
    fn reconnect_wait(&self, slot_index: usize) -> Option<Duration> {
        let retry_at = self.server_table().at(slot_index)?.retry_at?;
        let left = retry_at.since(Timestamp::now());
        (left <= MAX_RECONNECT_WAIT).then_some(left + RECONNECT_MARGIN)
    }

    /// The time limit of a call: its own counts first, then that of its server's configuration.
    fn limit(&self, call: &Call, slot_index: usize) -> Duration {
        let own = || self.own_limit(slot_index).map(|limit| limit + SERVER_TIMEOUT_GRACE);
        let general = || Duration::from_millis(self.settings().timeout_ms);
        call.timeout_ms.map(Duration::from_millis).or_else(own).unwrap_or_else(general)
    }

    /// The deadline of a call, and its limit. The server's own limit applies to the time at the server.
    fn deadline(&self, call: &Call, slot_index: usize, clock: Clock) -> (Instant, Duration) {
        let limit = self.limit(call, slot_index);
        let is_servers_own = call.timeout_ms.is_none() && self.own_limit(slot_index).is_some();
        let began = if is_servers_own { clock.turn.unwrap_or_else(Instant::now) } else { clock.requested_at };
        (began + limit, limit)
    }

    /// Waits until a call exceeds its limit; returns the limit. The server's own limit may become known only when it
    /// has started.
    async fn until_timed_out(&self, call: &Call, slot_index: usize, clock: Clock) -> Duration {
        loop {
            let (deadline, limit) = self.deadline(call, slot_index, clock);
            if Instant::now() >= deadline {
                return limit;
            }
            sleep_until(deadline).await;
        }
    }

    /// Ends a call that exceeded its limit.
    fn end_timed_out(&self, call_guard: &mut CallGuard, limit: Duration) -> Concluded {
        let cancel_reason = CancelReason::TimedOut(limit);
        self.cancel_with(&call_guard.execution, cancel_reason.clone());
        call_guard.withdraw();
        failure::cancel_requested(&call_guard.execution, &cancel_reason)
    }
}

/// The start times of a call.
#[derive(Debug, Clone, Copy)]
struct Clock {
    requested_at: Instant,
    /// When it left the queue, if it did.
    turn: Option<Instant>,
}

/// The session that a call counts for: those of documents and assistants are limited.
fn session_of(call: &Call) -> Option<String> {
    if !matches!(call.source, Source::UserCodeblock | Source::AiAutonomous) {
        return None;
    }
    let document = call.document.as_ref().map(|(path, _)| path.as_str());
    let session = call.session.as_deref().or(document).unwrap_or(&call.actor.name);
    Some(format!("{} {session}", call.source))
}

fn metadata(execution: &Execution, target: &Target) -> Metadata {
    let times = execution.times();
    // Rounded to the microsecond: more digits are noise.
    let millis = |duration: Duration| (duration.as_secs_f64() * 1_000_000.0).round() / 1000.0;
    Metadata {
        execution_id: execution.id,
        routed_to: target.server.1.to_string(),
        server_id: target.server.0.map(|id| id.to_string()).unwrap_or_default(),
        routing_strategy: target.strategy,
        queue_time_ms: millis(times.queue),
        routing_time_ms: millis(times.routing),
        execution_time_ms: millis(times.execution),
        total_time_ms: millis(times.total),
    }
}
