//! A tool called from here: by REST, the command line, a document or an assistant.
//!
//! - here: a call from its name to its result, within its limits, made again where that does no harm
//! - `resolution`: which tool is meant; `attempt`: the call as a client of our own makes it
//! - `failing`: what is told when it goes wrong

mod attempt;
mod failure;
mod resolution;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use aggregator::Aggregator;
use aggregator::client::Client;
use protocol::trace::TraceContext;
use registry::{ExecutionId, ExecutionStatus, RawJson, ServerId, Source, Timestamp};
use serde::Serialize;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::executions::{CancelReason, Ended, Execution, Executions, NewExecution, Origin, QUEUE_TIMEOUT, Refused};
use crate::{Actor, Error, Service};
pub(crate) use attempt::Attempt;
use attempt::{AttemptOutcome, line_of};
use failure::Concluded;
use resolution::{Miss, Target};

/// A server that has a limit of its own keeps to it itself; we step in only if it does not.
const SERVER_TIMEOUT_GRACE: Duration = Duration::from_secs(2);

/// A server that is away is waited for if it is tried again within this time, and for a moment more.
const MAX_RECONNECT_WAIT: Duration = Duration::from_millis(1_500);
const RECONNECT_MARGIN: Duration = Duration::from_millis(20);

/// A call to be made.
#[derive(Debug, Clone)]
pub struct Call {
    /// `server.tool`, or the tool's own name.
    pub name: String,
    /// The server, by id or name, if the name alone does not say it.
    pub server: Option<String>,
    /// A JSON object, passed on byte for byte.
    pub arguments: RawJson,
    /// Which way it came.
    pub source: Source,
    /// On whose behalf.
    pub actor: Actor,
    /// The document it was made from, and the line there.
    pub document: Option<(String, Option<u32>)>,
    /// The session of a document or an assistant that it counts for. If absent: its document, or else its actor.
    pub session: Option<String>,
    /// Another limit than the settings' for this call.
    pub timeout_ms: Option<u64>,
    /// The trace it belongs to, if whoever makes it says so.
    pub trace: Option<TraceContext>,
}

/// What became of it.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The server's `result`, byte for byte.
    pub result: RawJson,
    /// How it got there.
    pub metadata: Metadata,
}

/// How a call got there.
#[derive(Debug, Clone, Serialize)]
pub struct Metadata {
    /// Under which it is in the account of calls.
    pub execution_id: ExecutionId,
    /// The name of the server.
    pub routed_to: String,
    /// Its id.
    pub server_id: String,
    /// `namespace_resolved`, `server_specified` or `original_name`.
    pub routing_strategy: &'static str,
    /// Waiting for its turn.
    pub queue_time_ms: f64,
    /// From its turn to the server.
    pub routing_time_ms: f64,
    /// At the server.
    pub execution_time_ms: f64,
    /// In all.
    pub total_time_ms: f64,
}

impl Service {
    /// Makes a call and waits for its result, within its limits. May be given up while it waits: then the call is
    /// cancelled.
    pub async fn call(&self, call: Call) -> Result<Outcome, Error> {
        self.executions.call(call).await
    }
}

/// A call on its way. However its way ends, the call does too.
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
    /// Takes it back from wherever it is.
    fn withdraw(&mut self) {
        let Some(client) = self.client.take() else { return };
        if !self.whole.cut_short(&self.execution, "nobody waits for the answer any more") {
            self.aggregator.abandon(&client);
        }
    }
}

impl Executions {
    /// Makes a call and waits for its result.
    pub(crate) async fn call(self: &Arc<Self>, call: Call) -> Result<Outcome, Error> {
        let asked = Instant::now();
        failure::check(&call)?;
        let aggregator = self.aggregator().ok_or(Error::ExecutionStopped)?;
        let error = match self.resolve(&aggregator.fleet.view(), &call) {
            Ok(target) => {
                let execution = self.enter(&call, &target)?;
                let mut call_guard = CallGuard { whole: Arc::clone(self), aggregator, execution, client: None };
                return self.conclude(&call, &target, asked, &mut call_guard).await;
            }
            Err(Miss::Starting(place)) => return self.call_when_ready(&call, place, asked, aggregator).await,
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
        asked: Instant,
        call_guard: &mut CallGuard,
    ) -> Result<Outcome, Error> {
        let Concluded { outcome, ended } = self.run_attempts(call, target, asked, call_guard).await;
        call_guard.execution.finish(ended);
        Ok(Outcome { result: outcome?, metadata: metadata(&call_guard.execution, target) })
    }

    /// Makes a call to a server that is about to be ready. It counts from now on, but takes nobody's turn meanwhile.
    async fn call_when_ready(
        self: &Arc<Self>,
        call: &Call,
        place: usize,
        asked: Instant,
        aggregator: Arc<Aggregator>,
    ) -> Result<Outcome, Error> {
        let server = self.name_of(place);
        let tool = call.name.strip_prefix(&*server.1).and_then(|rest| rest.strip_prefix('.')).unwrap_or(&call.name);
        let waiting = self.new_execution(call, place, server.clone(), tool);
        let execution = self.begin_waiting(waiting, session_of(call).as_deref());
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
            settled = timeout(self.limit(call, place), aggregator.fleet.settled(place)) => settled.is_err(),
        };
        let found = if is_late { Err(Miss::Down(place)) } else { self.resolve(&aggregator.fleet.view(), call) };
        let found = found.map_err(|miss| self.explain(miss, call)).and_then(|target| {
            let in_line = self.queue_again(&execution);
            in_line.map(|()| target).map_err(|full| failure::refused(&Refused::Full(full)))
        });
        match found {
            Ok(target) => self.conclude(call, &target, asked, &mut call_guard).await,
            Err(error) => {
                let ended = Ended::unanswered(ExecutionStatus::Error, error.to_string()).of_kind("server_unavailable");
                execution.finish(ended);
                Err(error)
            }
        }
    }

    fn enter(&self, call: &Call, target: &Target) -> Result<Arc<Execution>, Error> {
        let asked = self.new_execution(call, target.place, target.server.clone(), &target.tool);
        self.begin(asked, session_of(call).as_deref()).map_err(|refused| failure::refused(&refused))
    }

    /// Keeps that a call was not made because its server is not there.
    fn note_refusal(&self, call: &Call, error: &Error) {
        let Error::ServerUnavailable { server_id, name, sentence, .. } = error else { return };
        let Some(entry) = self.server_table().find(server_id) else { return };
        let tool = call.name.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix('.'));
        let server = (Some(entry.id), Arc::clone(&entry.name));
        let asked = self.new_execution(call, entry.place, server, tool.unwrap_or(&call.name));
        let ended = Ended::unanswered(ExecutionStatus::Error, sentence.clone()).of_kind("server_unavailable");
        self.enter_ended(asked, ended);
    }

    fn new_execution(
        &self,
        call: &Call,
        place: usize,
        server: (Option<ServerId>, Arc<str>),
        tool: &str,
    ) -> NewExecution {
        let keeps_payloads = self.settings().store_payloads;
        NewExecution {
            place,
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

    /// From its turn to its answer.
    async fn run_attempts(
        &self,
        call: &Call,
        target: &Target,
        asked: Instant,
        call_guard: &mut CallGuard,
    ) -> Concluded {
        let execution = Arc::clone(&call_guard.execution);
        let mut clock = Clock { asked, turn: None };
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
                limit = self.until_timed_out(call, target.place, clock) => return self.end_timed_out(call_guard, limit),
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
            let pause = if failure.is_absent { pause.and_then(|_| self.reconnect_wait(target.place)) } else { pause };
            let (deadline, _) = self.deadline(call, target.place, clock);
            let Some(pause) = pause.filter(|&pause| may_repeat && Instant::now() + pause < deadline) else {
                return self.failed(&execution, &failure);
            };
            retries += 1;
            // Meanwhile others may run: a server that is away keeps nobody else waiting.
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

    /// Waits until it is a call's turn; how it ended, if it did before that.
    async fn wait_for_turn(&self, call: &Call, clock: Clock, call_guard: &mut CallGuard) -> Option<Concluded> {
        let execution = Arc::clone(&call_guard.execution);
        let turn = execution.take_turn()?;
        tokio::select! {
            biased;
            cancel_reason = execution.cancel_requested() => return Some(failure::cancel_requested(&execution, &cancel_reason)),
            turn = timeout(QUEUE_TIMEOUT, turn) => if turn.is_err() { return Some(failure::waited_too_long()) },
            limit = self.until_timed_out(call, execution.place(), clock) => return Some(self.end_timed_out(call_guard, limit)),
        }
        execution.mark_turn();
        None
    }

    /// How long it is until a server that is not there is tried again, if that is worth waiting for: who calls one that is
    /// away is told so at once.
    fn reconnect_wait(&self, place: usize) -> Option<Duration> {
        let retry_at = self.server_table().at(place)?.retry_at?;
        let left = retry_at.since(Timestamp::now());
        (left <= MAX_RECONNECT_WAIT).then_some(left + RECONNECT_MARGIN)
    }

    /// How long a call may take. What it says itself counts first, then what its server's configuration says.
    fn limit(&self, call: &Call, place: usize) -> Duration {
        let own = || self.own_limit(place).map(|limit| limit + SERVER_TIMEOUT_GRACE);
        let general = || Duration::from_millis(self.settings().timeout_ms);
        call.timeout_ms.map(Duration::from_millis).or_else(own).unwrap_or_else(general)
    }

    /// When a call has taken too long, and what its limit is. Its server's own limit is about the time at the server.
    fn deadline(&self, call: &Call, place: usize, clock: Clock) -> (Instant, Duration) {
        let limit = self.limit(call, place);
        let is_servers_own = call.timeout_ms.is_none() && self.own_limit(place).is_some();
        let began = if is_servers_own { clock.turn.unwrap_or_else(Instant::now) } else { clock.asked };
        (began + limit, limit)
    }

    /// Waits until a call has taken too long; says what the limit was. Its server's own limit may become known only
    /// when that has started.
    async fn until_timed_out(&self, call: &Call, place: usize, clock: Clock) -> Duration {
        loop {
            let (deadline, limit) = self.deadline(call, place, clock);
            if Instant::now() >= deadline {
                return limit;
            }
            sleep_until(deadline).await;
        }
    }

    /// A call has taken too long.
    fn end_timed_out(&self, call_guard: &mut CallGuard, limit: Duration) -> Concluded {
        let cancel_reason = CancelReason::TimedOut(limit);
        self.cancel_with(&call_guard.execution, cancel_reason.clone());
        call_guard.withdraw();
        failure::cancel_requested(&call_guard.execution, &cancel_reason)
    }
}

/// Since when a call is under way.
#[derive(Debug, Clone, Copy)]
struct Clock {
    asked: Instant,
    /// When it had its turn, if it did.
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
    // To the microsecond: more digits are noise.
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
