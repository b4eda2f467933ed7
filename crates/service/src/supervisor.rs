//! The life of one server, for as long as it is registered: connected, lost, tried again, switched off, removed.
//!
//! Where a server stands in its life is where the code stands: [`Supervisor::run`] goes from step to step, and each step is
//! a function that waits for what may happen in it. Orders of administrators arrive in a mailbox that every step reads.
//!
//! - here: the steps in which the server does not live
//! - `connected`: those in which it does
//! - `monitor`: what is watched meanwhile
//! - `handle`: the keeper as everybody else sees it, and the orders it takes
//! - `status`: how everybody hears of it
//! - `backoff`: when to try again; `health`: whether it is well; [`tool_records`]: what it offers, kept

mod backoff;
mod connected;
mod handle;
mod health;
mod monitor;
mod status;
pub(crate) mod tool_records;

use std::sync::Arc;
use std::time::Duration;

use catalog::{Offer, ServerName, ServerState};
use registry::{ServerRecord, Status, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

use crate::context::ServiceContext;
use crate::spec;
pub(crate) use handle::{Command, ConfigUpdate, CurrentState, End, Reply, SupervisorHandle, TargetState};
pub(crate) use health::HealthRecord;

/// Keeps one server.
pub(crate) struct Supervisor {
    context: Arc<ServiceContext>,
    handle: Arc<SupervisorHandle>,
    commands: mpsc::Receiver<Command>,
    stopping: watch::Receiver<bool>,
    current: CurrentState,
    /// What it last offered.
    known: Option<Arc<Offer>>,
    /// Attempts in a row that failed; a connection that did not last counts as one.
    failures: u32,
    /// Connections in a row that were given up because the server was not well, and never had been while they stood.
    unhealthy_connections: u32,
    /// Who wants to know how the attempt goes.
    awaiting: Vec<Reply>,
}

/// What comes next.
enum Step {
    /// Connect it; what it is known to offer stays on offer meanwhile.
    Connect(Option<Arc<Offer>>),
    /// Wait for orders.
    Inactive(Inactive),
    /// Wait until it is needed.
    Sleep,
    /// Try again after a while.
    Wait(Duration),
    /// It is removed.
    Remove(Vec<oneshot::Sender<()>>),
    /// Everything ends.
    Stop,
}

/// How it rests.
struct Inactive {
    status: Status,
    why: Option<String>,
    /// Who waits for it.
    done: Vec<oneshot::Sender<()>>,
}

impl Supervisor {
    pub(crate) fn new(
        context: &Arc<ServiceContext>,
        place: usize,
        record: ServerRecord,
        known: Option<Arc<Offer>>,
    ) -> (Self, Arc<SupervisorHandle>) {
        let current = CurrentState {
            is_lazy: spec::is_lazy(record.connection_config.reveal()),
            is_asleep: false,
            since: Timestamp::now(),
            retry_at: None,
            health: HealthRecord { last_check: record.last_health_check, ..HealthRecord::default() },
            container_handle: None,
            progress: None,
            usage_meter: None,
            tail: None,
            record,
        };
        let (handle, commands) = SupervisorHandle::new(place, current.clone());
        let supervisor = Self {
            context: Arc::clone(context),
            handle: Arc::clone(&handle),
            commands,
            stopping: context.stopping.subscribe(),
            current,
            known,
            failures: 0,
            unhealthy_connections: 0,
            awaiting: Vec::new(),
        };
        supervisor.publish();
        (supervisor, handle)
    }

    /// Keeps the server until it is removed or everything ends.
    pub(crate) async fn run(mut self) {
        let mut step = self.first_step();
        loop {
            step = match step {
                Step::Connect(known) => self.connect(known).await,
                Step::Inactive(inactive) => self.stay_inactive(inactive).await,
                Step::Sleep => {
                    let next = self.sleep_until_needed().await;
                    self.current.is_asleep = false;
                    next
                }
                Step::Wait(delay) => self.wait(delay).await,
                Step::Remove(done) => return self.remove(done),
                Step::Stop => return self.stop(),
            };
        }
    }

    fn first_step(&self) -> Step {
        let record = &self.current.record;
        if !record.enabled {
            let why = record.error_message.clone();
            return Step::Inactive(Inactive { status: Status::Disabled, why, done: Vec::new() });
        }
        match record.auto_connect {
            true if self.current.is_lazy && self.known.is_some() => Step::Sleep,
            true => Step::Connect(None),
            false => Step::Inactive(Inactive { status: Status::Disconnected, why: None, done: Vec::new() }),
        }
    }

    /// It is not connected, and stays so until somebody says otherwise.
    async fn stay_inactive(&mut self, inactive: Inactive) -> Step {
        let Inactive { status, why, done } = inactive;
        self.set_status(status, why, None);
        self.withdraw_offer();
        self.reply_to_waiting(Err("it was not connected"));
        notify_all(done);
        loop {
            match self.next_command().await {
                Command::Connect(reply) => {
                    if let Some(step) = self.reset_and_connect(reply) {
                        return step;
                    }
                }
                Command::End(end) => return self.after_end_requests(vec![end]),
                Command::Update(update) => {
                    let must_reconnect = self.update_config(update);
                    if must_reconnect && self.current.record.status == Status::Error {
                        self.reset_failures();
                        return Step::Connect(None);
                    }
                    // Its name, or whether it may be connected, may have changed.
                    self.withdraw_offer();
                }
                Command::Refresh => {}
                Command::Stop => return Step::Stop,
            }
        }
    }

    /// It sleeps, and what it is known to offer is on offer. Whoever needs it wakes it.
    async fn sleep_until_needed(&mut self) -> Step {
        let Some(known) = self.known.clone() else { return Step::Connect(None) };
        self.current.is_asleep = true;
        self.set_status(Status::Disconnected, None, None);
        self.context.fleet.set_state(self.handle.place, ServerState::Dormant, Some(Arc::clone(&known)));
        self.reply_to_waiting(Ok(()));
        let (context, place) = (Arc::clone(&self.context), self.handle.place);
        loop {
            // Who came while it was on its way has told so, too.
            if context.fleet.is_awaited(place) {
                return Step::Connect(Some(known));
            }
            let command = tokio::select! {
                () = context.fleet.needed(place) => continue,
                command = self.next_command() => command,
            };
            match command {
                Command::Connect(reply) => {
                    self.awaiting.push(reply);
                    return Step::Connect(Some(known));
                }
                Command::End(end) => return self.after_end_requests(vec![end]),
                Command::Update(update) => {
                    let must_reconnect = self.update_config(update);
                    if must_reconnect {
                        self.known = None;
                        return Step::Connect(None);
                    }
                }
                Command::Refresh => return Step::Connect(Some(known)),
                Command::Stop => return Step::Stop,
            }
        }
    }

    /// It failed, and is tried again after a while.
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
                Command::End(end) => return self.after_end_requests(vec![end]),
                Command::Update(update) => {
                    if self.update_config(update) {
                        self.reset_failures();
                        return Step::Connect(None);
                    }
                }
                Command::Refresh => {}
                Command::Stop => return Step::Stop,
            }
        }
    }

    /// An administrator wants it connected: what failed before does not count.
    fn reset_and_connect(&mut self, reply: Reply) -> Option<Step> {
        if !self.current.record.enabled {
            // Whoever asked may be gone.
            drop(reply.send(Err("it is disabled; enable it first".to_owned())));
            return None;
        }
        self.awaiting.push(reply);
        self.reset_failures();
        Some(Step::Connect(None))
    }

    /// What failed before does not count any more.
    fn reset_failures(&mut self) {
        (self.failures, self.unhealthy_connections) = (0, 0);
    }

    /// What comes after it was ended by somebody's will.
    fn after_end_requests(&mut self, ends: Vec<End>) -> Step {
        let goal = ends.iter().map(|end| end.goal).max().unwrap_or(TargetState::Disconnected);
        let done = ends.into_iter().map(|end| end.done).collect();
        match goal {
            TargetState::Removed => Step::Remove(done),
            TargetState::Disabled => Step::Inactive(Inactive { status: Status::Disabled, why: None, done }),
            TargetState::Disconnected => {
                let status = if self.current.record.enabled { Status::Disconnected } else { Status::Disabled };
                let why = self.current.record.error_message.clone().filter(|_| status == Status::Disabled);
                Step::Inactive(Inactive { status, why, done })
            }
        }
    }

    /// Takes over another registration; whether the server must be connected anew.
    fn update_config(&mut self, update: ConfigUpdate) -> bool {
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
        if enabled && !self.current.record.enabled {
            self.reset_failures();
            self.current.record.failure_count = 0;
        }
        let kept = &mut self.current.record;
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
        self.current.is_lazy = spec::is_lazy(self.current.record.connection_config.reveal());
        if is_renamed && let Ok(name) = ServerName::new(&self.current.record.name) {
            self.context.fleet.rename(self.handle.place, &name);
        }
        self.publish();
        notify_all(vec![done]);
        reconnect
    }

    /// The next order. Once everything ends, that is the only one.
    async fn next_command(&mut self) -> Command {
        tokio::select! {
            biased;
            _ = self.stopping.wait_for(|&is_stopping| is_stopping) => Command::Stop,
            command = self.commands.recv() => command.unwrap_or(Command::Stop),
        }
    }

    fn remove(self, done: Vec<oneshot::Sender<()>>) {
        self.context.fleet.remove(self.handle.place);
        self.context.forget(self.handle.place);
        self.context.status_writer.forget(self.handle.id);
        notify_all(done);
    }

    fn stop(mut self) {
        if self.current.record.status != Status::Disabled {
            self.set_status(Status::Disconnected, None, None);
        }
    }

    /// Tells everybody who waits for how the attempt goes.
    fn reply_to_waiting(&mut self, outcome: Result<(), &str>) {
        for reply in self.awaiting.drain(..) {
            // Whoever asked may be gone.
            drop(reply.send(outcome.map_err(str::to_owned)));
        }
    }
}

/// Tells everybody who waits that it is done. Some may be gone.
fn notify_all(waiting: Vec<oneshot::Sender<()>>) {
    for done in waiting {
        done.send(()).ok();
    }
}
