//! The handle of a supervisor: the current state of its server, and the commands it accepts.

use std::sync::Arc;
use std::time::Duration;

use registry::{ServerId, ServerRecord, Status, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use upstream::ContainerHandle;
use upstream::stderr::Tail;

use super::{HealthRecord, ServerStatus};
use crate::usage::UsageMeter;

/// How many commands may be queued for a supervisor that is busy ending its server.
const COMMAND_QUEUE: usize = 16;

/// A command of an administrator.
pub(crate) enum Command {
    /// Connect it now, and report the result.
    Connect(Reply),
    /// End it.
    End(End),
    /// Its registration has changed.
    Update(ConfigUpdate),
    /// Discover its offer again.
    Refresh,
    /// Somebody signed in to it.
    SignedIn,
    /// Its sign-in was removed, or is no longer accepted.
    SignedOut(String),
    /// The service stops.
    Stop,
}

/// Receives the result of an attempt to connect.
pub(crate) type Reply = oneshot::Sender<Result<(), String>>;

/// How a server is to end.
pub(crate) struct End {
    pub(crate) goal: TargetState,
    /// Calls in flight are cancelled, not waited for.
    pub(crate) force: bool,
    pub(crate) done: oneshot::Sender<()>,
}

/// The target state of a server. A later variant includes the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TargetState {
    Disconnected,
    Disabled,
    Removed,
}

/// Another registration of the same server.
pub(crate) struct ConfigUpdate {
    pub(crate) record: Box<ServerRecord>,
    /// Its connection config has changed, so it must be reconnected.
    pub(crate) reconnect: bool,
    pub(crate) done: oneshot::Sender<()>,
}

/// The handle of a server's supervisor.
pub(crate) struct SupervisorHandle {
    pub(crate) id: ServerId,
    pub(crate) slot_index: usize,
    /// Serialises changes by administrators.
    pub(crate) changing: tokio::sync::Mutex<()>,
    commands: mpsc::Sender<Command>,
    current: watch::Sender<Arc<CurrentState>>,
}

/// The current state of a server.
#[derive(Debug, Clone)]
pub(crate) struct CurrentState {
    /// Its registration, with the status in the registry's form.
    pub(crate) record: ServerRecord,
    /// Its status.
    pub(crate) status: ServerStatus,
    /// Since when it has this status.
    pub(crate) since: Timestamp,
    pub(crate) is_lazy: bool,
    pub(crate) health: HealthRecord,
    /// The container it runs in.
    pub(crate) container_handle: Option<Arc<dyn ContainerHandle>>,
    /// The progress of the preparation before it can start.
    pub(crate) progress: Option<String>,
    /// Measures its process, if it is one of ours.
    pub(crate) usage_meter: Option<Arc<UsageMeter>>,
    /// Its stderr, including that of earlier runs.
    pub(crate) tail: Option<Tail>,
}

impl SupervisorHandle {
    /// The handle of a supervisor that is about to run, and the receiver of its commands.
    pub(super) fn new(slot_index: usize, current: CurrentState) -> (Arc<Self>, mpsc::Receiver<Command>) {
        let (sender, commands) = mpsc::channel(COMMAND_QUEUE);
        let handle = Self {
            id: current.record.id,
            slot_index,
            changing: tokio::sync::Mutex::default(),
            commands: sender,
            current: watch::Sender::new(Arc::new(current)),
        };
        (Arc::new(handle), commands)
    }

    /// Subscribes to its state.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<CurrentState>> {
        self.current.subscribe()
    }

    /// Its current state.
    pub(crate) fn current(&self) -> Arc<CurrentState> {
        Arc::clone(&self.current.borrow())
    }

    /// Waits until it is connected, or the attempt has failed; but not longer than `limit`.
    pub(crate) async fn wait_until_settled(&self, limit: Duration) {
        let is_decided = |current: &Arc<CurrentState>| {
            let status = current.record.status;
            status.is_up() || matches!(status, Status::Error | Status::Disabled | Status::SignInRequired)
        };
        // If the supervisor has ended, the state at that time is as good as any.
        drop(timeout(limit, self.current.subscribe().wait_for(is_decided)).await);
    }

    /// Sends a command. If the supervisor has ended, it is lost, and so is its reply.
    pub(crate) async fn command(&self, command: Command) {
        drop(self.commands.send(command).await);
    }

    /// Connects the server; returns why it failed, if it did.
    pub(crate) async fn connect(&self) -> Result<(), String> {
        let (reply, outcome) = oneshot::channel();
        self.command(Command::Connect(reply)).await;
        outcome.await.unwrap_or_else(|_| Err("it was removed in the meantime".to_owned()))
    }

    /// Ends the server's connection.
    pub(crate) async fn end(&self, goal: TargetState, force: bool) {
        let (done, ended) = oneshot::channel();
        self.command(Command::End(End { goal, force, done })).await;
        // A supervisor that has ended has ended its server.
        ended.await.ok();
    }

    /// Applies another registration.
    pub(crate) async fn update_config(&self, record: ServerRecord, reconnect: bool) {
        let (done, adopted) = oneshot::channel();
        self.command(Command::Update(ConfigUpdate { record: Box::new(record), reconnect, done })).await;
        // A supervisor that has ended needs no registration.
        adopted.await.ok();
    }

    /// Sets its current state.
    pub(super) fn set_current(&self, current: CurrentState) {
        self.current.send_replace(Arc::new(current));
    }
}
