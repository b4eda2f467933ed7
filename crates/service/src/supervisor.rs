//! The supervisor of one registered server: connects it, checks it, retries, and lets it sleep.
//!
//! ```text
//!            needed                handshake, lists               2 checks fail
//!   Asleep ---------> Connecting -------------------> Connected <---------------> Degraded
//!     ^                ^      |                        |    |     a check passes     |
//!     |                |      | fails                  |    | lost                   | 3 checks fail, and
//!     |        after a |      v                        |    |                        | no call is in progress
//!     |          delay '--- Waiting <------------------|----'                        v
//!     |                                                |                         Connecting
//!     '------------------------------------------------'
//!                        lazy and idle
//!
//!   start      -> Connecting     if it is enabled; Asleep, if it is lazy and its tools are known; Disabled, if it is
//!   Connecting -> Failed         a retry cannot help: credentials, a variable that is not set
//!   Connecting -> Disabled       it never worked, and failed too often
//!   any        -> SignInRequired the server or its provider demands a sign-in, or somebody signed out
//!   SignInRequired -> Connecting somebody signed in, or another config
//!   Connected  -> Connecting     it was lost after it had been stable: it is retried at once
//!   Failed     -> Connecting     another config
//!   any        -> Connecting     connect, enable
//!   any        -> Disconnected   disconnect, and the end of the service
//!   any        -> Disabled       disable
//!   any        -> (removed)      remove
//! ```
//!
//! The state of a server is the position in the code: [`Supervisor::run`] goes from step to step, and each step is a
//! function that waits for the events that are possible in it. Commands of administrators arrive in a queue that every
//! step reads. The state machine is in two files only:
//! - here: the steps in which the server is not connected
//! - `connected`: those in which it is being connected, or is
//!
//! What the steps use:
//! - `status`: [`ServerStatus`], the status; `publisher`: publishes it to everything else
//! - `handle`: the supervisor's handle, and the commands it accepts
//! - `monitor`: what is checked while a server is connected; `health`: health checks; `backoff`: when to retry
//! - [`tool_records`]: conversion between a server's offer and the registry's records

mod backoff;
mod connected;
mod handle;
mod health;
mod monitor;
mod publisher;
mod status;
pub(crate) mod tool_records;

use std::sync::Arc;
use std::time::Duration;

use catalog::{Offer, ServerName, ServerState};
use registry::{ServerRecord, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

use crate::context::ServiceContext;
use crate::spec;
pub(crate) use handle::{Command, ConfigUpdate, CurrentState, End, Reply, SupervisorHandle, TargetState};
pub(crate) use health::HealthRecord;
use publisher::StatusPublisher;
pub(crate) use status::ServerStatus;

/// How long running calls may take when their server is to end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// Supervises one server.
pub(crate) struct Supervisor {
    context: Arc<ServiceContext>,
    handle: Arc<SupervisorHandle>,
    commands: mpsc::Receiver<Command>,
    stopping: watch::Receiver<bool>,
    /// Its status, and the publication of it.
    publisher: StatusPublisher,
    /// Connections in a row that were closed because the server was unhealthy, and never had a passing check.
    unhealthy_connections: u32,
    /// Callers that wait for the result of the attempt.
    awaiting: Vec<Reply>,
}

/// The next step.
enum Step {
    /// Connect it; its known offer stays listed meanwhile.
    Connect(Option<Arc<Offer>>),
    /// Wait for commands.
    Inactive(Inactive),
    /// Wait until it is needed.
    Sleep,
    /// Retry after a delay.
    Wait(Duration),
    /// It is removed.
    Remove(Vec<oneshot::Sender<()>>),
    /// The service stops.
    Stop,
}

/// An inactive status.
struct Inactive {
    status: ServerStatus,
    /// The answer for callers that wait until it is connected. They get it when the status is published, which they may
    /// read next.
    refusal: Option<String>,
    /// Callers that wait for it.
    done: Vec<oneshot::Sender<()>>,
}

impl Step {
    /// Waits for commands, without a waiting caller.
    fn inactive(status: ServerStatus) -> Self {
        Self::Inactive(Inactive { status, refusal: None, done: Vec::new() })
    }

    /// The same, after a failed attempt to connect.
    fn refused(status: ServerStatus, refusal: String) -> Self {
        Self::Inactive(Inactive { status, refusal: Some(refusal), done: Vec::new() })
    }
}

impl Supervisor {
    pub(crate) fn new(
        context: &Arc<ServiceContext>,
        slot_index: usize,
        record: ServerRecord,
        known: Option<Arc<Offer>>,
    ) -> (Self, Arc<SupervisorHandle>) {
        let current = CurrentState {
            is_lazy: spec::is_lazy(record.connection_config.reveal()),
            status: ServerStatus::of(&record),
            since: Timestamp::now(),
            health: HealthRecord { last_check: record.last_health_check, ..HealthRecord::default() },
            container_handle: None,
            progress: None,
            usage_meter: None,
            tail: None,
            record,
        };
        let (handle, commands) = SupervisorHandle::new(slot_index, current.clone());
        let supervisor = Self {
            context: Arc::clone(context),
            handle: Arc::clone(&handle),
            commands,
            stopping: context.stopping.subscribe(),
            publisher: StatusPublisher::new(Arc::clone(context), Arc::clone(&handle), current, known),
            unhealthy_connections: 0,
            awaiting: Vec::new(),
        };
        (supervisor, handle)
    }

    /// Supervises the server until it is removed or the service stops.
    pub(crate) async fn run(mut self) {
        let mut step = self.first_step();
        loop {
            step = match step {
                Step::Connect(known) => self.connect(known).await,
                Step::Inactive(inactive) => self.stay_inactive(inactive).await,
                Step::Sleep => self.sleep_until_needed().await,
                Step::Wait(delay) => self.wait(delay).await,
                Step::Remove(done) => return self.remove(done).await,
                Step::Stop => return self.stop(),
            };
        }
    }

    fn first_step(&self) -> Step {
        let record = self.publisher.record();
        if !record.enabled {
            return Step::inactive(ServerStatus::Disabled { why: record.error_message.clone() });
        }
        match record.auto_connect {
            true if self.publisher.current.is_lazy && self.publisher.known.is_some() => Step::Sleep,
            true => Step::Connect(None),
            false => Step::inactive(ServerStatus::Disconnected),
        }
    }

    /// It is not connected, and stays so until a command arrives.
    async fn stay_inactive(&mut self, inactive: Inactive) -> Step {
        let Inactive { status, refusal, done } = inactive;
        self.publisher.set(status);
        self.publisher.withdraw_offer().await;
        // Nothing of it is listed any more, so nobody calls an instance.
        self.context.fleet.end_instances(self.handle.slot_index, Duration::ZERO).await;
        self.reply_to_waiting(Err(refusal.as_deref().unwrap_or("it was not connected")));
        notify_all(done);
        loop {
            match self.next_command().await {
                Command::Connect(reply) => {
                    if let Some(step) = self.reset_and_connect(reply) {
                        return step;
                    }
                }
                Command::End(end) => return self.after_end_requests(vec![end]).await,
                Command::Update(update) => {
                    let must_reconnect = self.update_config(update).await;
                    let is_waiting_for_people = matches!(
                        self.publisher.status(),
                        ServerStatus::Failed { .. } | ServerStatus::SignInRequired { .. }
                    );
                    if must_reconnect && is_waiting_for_people {
                        self.reset_failures();
                        return Step::Connect(None);
                    }
                    // Its name, or whether it is enabled, may have changed.
                    self.publisher.withdraw_offer().await;
                }
                Command::SignedIn => {
                    if let ServerStatus::SignInRequired { .. } | ServerStatus::Failed { .. } = self.publisher.status() {
                        self.reset_failures();
                        return Step::Connect(None);
                    }
                }
                Command::SignedOut(why) => {
                    if let ServerStatus::Failed { .. } = self.publisher.status() {
                        return Step::inactive(ServerStatus::SignInRequired { why });
                    }
                }
                Command::Refresh => {}
                Command::Stop => return Step::Stop,
            }
        }
    }

    /// It is asleep, and its known offer is listed. A call wakes it.
    async fn sleep_until_needed(&mut self) -> Step {
        let Some(known) = self.publisher.known.clone() else { return Step::Connect(None) };
        match spec::resolve(self.publisher.record()) {
            Ok(spec) => self.context.fleet.share(self.handle.slot_index, &spec, DRAIN_TIMEOUT).await,
            Err(why) => return self.stop_retrying(&why),
        }
        self.publisher.set(ServerStatus::Asleep);
        self.context.fleet.set_state(self.handle.slot_index, ServerState::Asleep, Some(Arc::clone(&known))).await;
        self.reply_to_waiting(Ok(()));
        let (context, slot_index) = (Arc::clone(&self.context), self.handle.slot_index);
        loop {
            // A call that arrived during the transition counts, too.
            if context.fleet.is_awaited(slot_index) {
                return Step::Connect(Some(known));
            }
            let command = tokio::select! {
                () = context.fleet.needed(slot_index) => continue,
                command = self.next_command() => command,
            };
            match command {
                Command::Connect(reply) => {
                    self.awaiting.push(reply);
                    return Step::Connect(Some(known));
                }
                Command::End(end) => return self.after_end_requests(vec![end]).await,
                Command::Update(update) => {
                    let must_reconnect = self.update_config(update).await;
                    if must_reconnect {
                        self.publisher.known = None;
                        return Step::Connect(None);
                    }
                }
                Command::Refresh => return Step::Connect(Some(known)),
                // The token is read when the server is started.
                Command::SignedIn => {}
                Command::SignedOut(why) => return Step::inactive(ServerStatus::SignInRequired { why }),
                Command::Stop => return Step::Stop,
            }
        }
    }

    /// It failed, and is retried after a delay.
    async fn wait(&mut self, delay: Duration) -> Step {
        let mut pause = std::pin::pin!(sleep(delay));
        loop {
            let command = tokio::select! {
                () = &mut pause => return Step::Connect(None),
                command = self.next_command() => command,
            };
            match command {
                Command::Connect(reply) => {
                    if let Some(step) = self.reset_and_connect(reply) {
                        return step;
                    }
                }
                Command::End(end) => return self.after_end_requests(vec![end]).await,
                Command::Update(update) => {
                    if self.update_config(update).await {
                        self.reset_failures();
                        return Step::Connect(None);
                    }
                }
                Command::SignedIn => {
                    self.reset_failures();
                    return Step::Connect(None);
                }
                Command::SignedOut(why) => return Step::inactive(ServerStatus::SignInRequired { why }),
                Command::Refresh => {}
                Command::Stop => return Step::Stop,
            }
        }
    }

    /// An administrator connects it: earlier failures do not count.
    fn reset_and_connect(&mut self, reply: Reply) -> Option<Step> {
        if !self.publisher.record().enabled {
            // The caller may have been cancelled.
            drop(reply.send(Err("it is disabled; enable it first".to_owned())));
            return None;
        }
        self.awaiting.push(reply);
        self.reset_failures();
        Some(Step::Connect(None))
    }

    /// Resets the failure counters.
    fn reset_failures(&mut self) {
        (self.publisher.failures, self.unhealthy_connections) = (0, 0);
    }

    /// The next step after an administrator ended the connection.
    async fn after_end_requests(&mut self, ends: Vec<End>) -> Step {
        self.end_instances(ends.iter().any(|end| end.force)).await;
        let goal = ends.iter().map(|end| end.goal).max().unwrap_or(TargetState::Disconnected);
        let done = ends.into_iter().map(|end| end.done).collect();
        match goal {
            TargetState::Removed => Step::Remove(done),
            TargetState::Disabled => {
                Step::Inactive(Inactive { status: ServerStatus::Disabled { why: None }, refusal: None, done })
            }
            TargetState::Disconnected => {
                let record = self.publisher.record();
                let disabled = || ServerStatus::Disabled { why: record.error_message.clone() };
                let status = if record.enabled { ServerStatus::Disconnected } else { disabled() };
                Step::Inactive(Inactive { status, refusal: None, done })
            }
        }
    }

    /// Ends its instances: no new calls are sent, and running ones may finish unless that is forced.
    async fn end_instances(&mut self, force: bool) {
        if self.context.fleet.instance_views(self.handle.slot_index).is_empty() {
            return;
        }
        self.publisher.withdraw_offer_as(&ServerStatus::Disconnected).await;
        let drain_timeout = if force { Duration::ZERO } else { DRAIN_TIMEOUT };
        self.context.fleet.drain_instances(self.handle.slot_index, drain_timeout).await;
        self.cancel_calls();
        self.context.fleet.end_instances(self.handle.slot_index, Duration::ZERO).await;
    }

    /// Applies another registration. Returns whether the server must be reconnected.
    async fn update_config(&mut self, update: ConfigUpdate) -> bool {
        let ConfigUpdate { record, reconnect, done } = update;
        let ServerRecord {
            name,
            description,
            transport,
            connection_config,
            health_check_url,
            deployment,
            origin,
            enabled,
            auto_connect,
            auto_disabled,
            auto_disabled_at,
            worked_at,
            updated_at,
            ..
        } = *record;
        if enabled && !self.publisher.record().enabled {
            self.reset_failures();
            self.publisher.current.record.failure_count = 0;
        }
        let kept = &mut self.publisher.current.record;
        let is_renamed = kept.name != name;
        *kept = ServerRecord {
            name,
            description,
            transport,
            connection_config,
            health_check_url,
            deployment,
            origin,
            enabled,
            auto_connect,
            auto_disabled,
            auto_disabled_at,
            // An edit may have made the registry forget that another program worked.
            worked_at: if reconnect { worked_at } else { kept.worked_at },
            updated_at,
            ..kept.clone()
        };
        self.publisher.current.is_lazy = spec::is_lazy(self.publisher.record().connection_config.reveal());
        if is_renamed && let Ok(name) = ServerName::new(&self.publisher.record().name) {
            self.context.fleet.rename(self.handle.slot_index, &name).await;
        }
        self.publisher.publish();
        notify_all(vec![done]);
        reconnect
    }

    /// The next command. Once the service stops, that is the only one.
    async fn next_command(&mut self) -> Command {
        tokio::select! {
            biased;
            _ = self.stopping.wait_for(|&is_stopping| is_stopping) => Command::Stop,
            command = self.commands.recv() => command.unwrap_or(Command::Stop),
        }
    }

    async fn remove(self, done: Vec<oneshot::Sender<()>>) {
        self.context.fleet.remove(self.handle.slot_index).await;
        if let Some(sign_ins) = &self.context.sign_ins {
            sign_ins.setup.oauth.forget(&spec::grant_key(self.publisher.record()));
        }
        self.context.forget(self.handle.slot_index);
        self.context.status_writer.forget(self.handle.id);
        notify_all(done);
    }

    fn stop(mut self) {
        if !matches!(self.publisher.status(), ServerStatus::Disabled { .. } | ServerStatus::SignInRequired { .. }) {
            self.publisher.set(ServerStatus::Disconnected);
        }
    }

    /// Reports the result of the attempt to all waiting callers.
    fn reply_to_waiting(&mut self, outcome: Result<(), &str>) {
        for reply in self.awaiting.drain(..) {
            // The caller may have been cancelled.
            drop(reply.send(outcome.map_err(str::to_owned)));
        }
    }
}

/// Notifies all waiting callers. Some may have been cancelled.
fn notify_all(waiting: Vec<oneshot::Sender<()>>) {
    for done in waiting {
        done.send(()).ok();
    }
}
