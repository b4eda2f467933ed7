//! A tool called from here: by REST, the command line, a document or an assistant.
//!
//! - here: a call from its name to its result, within its limits, made again where that does no harm
//! - `resolution`: which tool is meant; `attempt`: the call as a client of our own makes it
//! - `failing`: what is told when it goes wrong

mod attempt;
mod failing;
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

use crate::executions::{Asked, Ended, Execution, Executions, Origin, QUEUE_PATIENCE, Refused, Verdict};
use crate::{Actor, Error, Service};
pub(crate) use attempt::Attempt;
use attempt::{Answer, line_of};
use failing::Concluded;
use resolution::{Miss, Target};

/// A server that has a limit of its own keeps to it itself; we step in only if it does not.
const GRACE: Duration = Duration::from_secs(2);

/// A server that is away is waited for if it is tried again within this time, and for a moment more.
const SOON: Duration = Duration::from_millis(1_500);
const A_MOMENT: Duration = Duration::from_millis(20);

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
struct UnderWay {
    whole: Arc<Executions>,
    aggregator: Arc<Aggregator>,
    execution: Arc<Execution>,
    client: Option<Arc<Client>>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.withdraw();
        self.execution.finish(Ended::given_up(self.execution.verdict().as_ref()));
    }
}

impl UnderWay {
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
        failing::check(&call)?;
        let aggregator = self.aggregator().ok_or(Error::ExecutionStopped)?;
        let error = match self.resolve(&aggregator.fleet.view(), &call) {
            Ok(target) => {
                let execution = self.enter(&call, &target)?;
                let mut under_way = UnderWay { whole: Arc::clone(self), aggregator, execution, client: None };
                return self.conclude(&call, &target, asked, &mut under_way).await;
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
        under_way: &mut UnderWay,
    ) -> Result<Outcome, Error> {
        let Concluded { outcome, ended } = self.carry_through(call, target, asked, under_way).await;
        under_way.execution.finish(ended);
        Ok(Outcome { result: outcome?, metadata: metadata(&under_way.execution, target) })
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
        let waiting = self.asked(call, place, server.clone(), tool);
        let execution = self.begin_waiting(waiting, session_of(call).as_deref());
        let execution = execution.map_err(|refused| failing::refused(&refused))?;
        let mut under_way =
            UnderWay { whole: Arc::clone(self), aggregator: Arc::clone(&aggregator), execution, client: None };
        let execution = Arc::clone(&under_way.execution);
        let is_late = tokio::select! {
            biased;
            verdict = execution.called_off() => {
                let Concluded { outcome, ended } = failing::called_off(&execution, &verdict);
                execution.finish(ended);
                return Err(outcome.expect_err("what was called off has no result"));
            }
            settled = timeout(self.limit(call, place), aggregator.fleet.settled(place)) => settled.is_err(),
        };
        let found = if is_late { Err(Miss::Down(place)) } else { self.resolve(&aggregator.fleet.view(), call) };
        let found = found.map_err(|miss| self.explain(miss, call)).and_then(|target| {
            let in_line = self.stands_in_line_again(&execution);
            in_line.map(|()| target).map_err(|full| failing::refused(&Refused::Full(full)))
        });
        match found {
            Ok(target) => self.conclude(call, &target, asked, &mut under_way).await,
            Err(error) => {
                let ended = Ended::unanswered(ExecutionStatus::Error, error.to_string()).of_kind("server_unavailable");
                execution.finish(ended);
                Err(error)
            }
        }
    }

    fn enter(&self, call: &Call, target: &Target) -> Result<Arc<Execution>, Error> {
        let asked = self.asked(call, target.place, target.server.clone(), &target.tool);
        self.begin(asked, session_of(call).as_deref()).map_err(|refused| failing::refused(&refused))
    }

    /// Keeps that a call was not made because its server is not there.
    fn note_refusal(&self, call: &Call, error: &Error) {
        let Error::ServerUnavailable { server_id, name, sentence, .. } = error else { return };
        let Some(standing) = self.roster().find(server_id) else { return };
        let tool = call.name.strip_prefix(name.as_str()).and_then(|rest| rest.strip_prefix('.'));
        let server = (Some(standing.id), Arc::clone(&standing.name));
        let asked = self.asked(call, standing.place, server, tool.unwrap_or(&call.name));
        let ended = Ended::unanswered(ExecutionStatus::Error, sentence.clone()).of_kind("server_unavailable");
        self.enter_ended(asked, ended);
    }

    fn asked(&self, call: &Call, place: usize, server: (Option<ServerId>, Arc<str>), tool: &str) -> Asked {
        let keeps_payloads = self.settings().store_payloads;
        Asked {
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
    async fn carry_through(&self, call: &Call, target: &Target, asked: Instant, under_way: &mut UnderWay) -> Concluded {
        let execution = Arc::clone(&under_way.execution);
        let mut clock = Clock { asked, turn: None };
        if let Some(concluded) = self.wait_for_turn(call, clock, under_way).await {
            return concluded;
        }
        clock.turn = Some(Instant::now());
        let line = line_of(target, call, &under_way.aggregator.options);
        let pauses = self.settings().retry_backoff_ms.clone();
        let (mut retries, mut broke_off) = (0, false);
        loop {
            let (attempt, answer) = Attempt::make(&under_way.aggregator, &execution, call, &line);
            under_way.client = Some(attempt);
            let answer = tokio::select! {
                biased;
                verdict = execution.called_off() => return failing::called_off(&execution, &verdict),
                answer = answer => answer,
                limit = self.too_late(call, target.place, clock) => return self.end_late(under_way, limit),
            };
            under_way.client = None;
            let mut failure = match answer {
                Answer::Result(line, result) => return failing::result(&execution, &line, result),
                Answer::Refused(line, error) => return failing::refused_by_server(&execution, &line, error),
                Answer::Nothing(failure) => failure,
            };
            if broke_off {
                failure.was_sent_before();
            }
            broke_off |= failure.is_lost && !failure.is_untouched;
            let may_repeat = failure.may_pass() && (failure.is_untouched && (!failure.is_absent || retries > 0))
                || failure.is_lost && target.is_repeatable;
            let pause = pauses.get(retries).copied().map(Duration::from_millis);
            let pause = if failure.is_absent { pause.and_then(|_| self.soon_tried(target.place)) } else { pause };
            let (deadline, _) = self.deadline(call, target.place, clock);
            let Some(pause) = pause.filter(|&pause| may_repeat && Instant::now() + pause < deadline) else {
                return self.failed(&execution, &failure);
            };
            retries += 1;
            // Meanwhile others may run: a server that is away keeps nobody else waiting.
            execution.will_be_retried(failure.ended.kind.as_deref().unwrap_or_default());
            tokio::select! {
                biased;
                verdict = execution.called_off() => return failing::called_off(&execution, &verdict),
                () = sleep(pause) => {}
            }
            if self.stands_in_line_again(&execution).is_err() {
                return self.failed(&execution, &failure);
            }
            if let Some(concluded) = self.wait_for_turn(call, clock, under_way).await {
                return concluded;
            }
        }
    }

    /// Waits until it is a call's turn; how it ended, if it did before that.
    async fn wait_for_turn(&self, call: &Call, clock: Clock, under_way: &mut UnderWay) -> Option<Concluded> {
        let execution = Arc::clone(&under_way.execution);
        let turn = execution.take_turn()?;
        tokio::select! {
            biased;
            verdict = execution.called_off() => return Some(failing::called_off(&execution, &verdict)),
            turn = timeout(QUEUE_PATIENCE, turn) => if turn.is_err() { return Some(failing::waited_too_long()) },
            limit = self.too_late(call, execution.place(), clock) => return Some(self.end_late(under_way, limit)),
        }
        execution.has_its_turn();
        None
    }

    /// How long it is until a server that is not there is tried again, if that is worth waiting for: who calls one that is
    /// away is told so at once.
    fn soon_tried(&self, place: usize) -> Option<Duration> {
        let retry_at = self.roster().at(place)?.retry_at?;
        let left = retry_at.since(Timestamp::now());
        (left <= SOON).then_some(left + A_MOMENT)
    }

    /// How long a call may take. What it says itself counts first, then what its server's configuration says.
    fn limit(&self, call: &Call, place: usize) -> Duration {
        let own = || self.own_limit(place).map(|limit| limit + GRACE);
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
    async fn too_late(&self, call: &Call, place: usize, clock: Clock) -> Duration {
        loop {
            let (deadline, limit) = self.deadline(call, place, clock);
            if Instant::now() >= deadline {
                return limit;
            }
            sleep_until(deadline).await;
        }
    }

    /// A call has taken too long.
    fn end_late(&self, under_way: &mut UnderWay, limit: Duration) -> Concluded {
        let verdict = Verdict::TooSlow(limit);
        self.call_off(&under_way.execution, verdict.clone());
        under_way.withdraw();
        failing::called_off(&under_way.execution, &verdict)
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
