//! A keeper as everybody else sees it: what its server is like right now, and the orders it takes.

use std::sync::Arc;
use std::time::Duration;

use registry::{ServerId, ServerRecord, Status, Timestamp};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use upstream::ContainerHandle;
use upstream::stderr::Tail;

use super::HealthRecord;
use crate::usage::UsageMeter;

/// So many orders may wait for a keeper that is busy ending its server.
const COMMAND_QUEUE: usize = 16;

/// What an administrator wants of a server.
pub(crate) enum Command {
    /// Connect it now, and say how that went.
    Connect(Reply),
    /// End it.
    End(End),
    /// It is registered otherwise.
    Update(ConfigUpdate),
    /// Have what it offers discovered anew.
    Refresh,
    /// Everything ends.
    Stop,
}

/// Who wants to know how an attempt to connect went: why it did not work.
pub(crate) type Reply = oneshot::Sender<Result<(), String>>;

/// How a server is to end.
pub(crate) struct End {
    pub(crate) goal: TargetState,
    /// Calls in flight are cancelled, not waited for.
    pub(crate) force: bool,
    pub(crate) done: oneshot::Sender<()>,
}

/// What is to become of a server. What is later here includes what is earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TargetState {
    Disconnected,
    Disabled,
    Removed,
}

/// Another registration of the same server.
pub(crate) struct ConfigUpdate {
    pub(crate) record: Box<ServerRecord>,
    /// It is reached otherwise, so it must be connected anew.
    pub(crate) reconnect: bool,
    pub(crate) done: oneshot::Sender<()>,
}

/// The keeper of a server, to everybody else.
pub(crate) struct SupervisorHandle {
    pub(crate) id: ServerId,
    pub(crate) place: usize,
    /// One administrator at a time may change it.
    pub(crate) changing: tokio::sync::Mutex<()>,
    commands: mpsc::Sender<Command>,
    current: watch::Sender<Arc<CurrentState>>,
}

/// A server as it is right now.
#[derive(Debug, Clone)]
pub(crate) struct CurrentState {
    /// Its registration, and how things stand.
    pub(crate) record: ServerRecord,
    /// Since when they stand so.
    pub(crate) since: Timestamp,
    /// When the next attempt to connect is made.
    pub(crate) retry_at: Option<Timestamp>,
    pub(crate) is_lazy: bool,
    /// It starts when somebody needs it.
    pub(crate) is_asleep: bool,
    pub(crate) health: HealthRecord,
    /// The container it lives in.
    pub(crate) container_handle: Option<Arc<dyn ContainerHandle>>,
    /// What has to be done before it can start, and how far that is.
    pub(crate) progress: Option<String>,
    /// What its process uses, while there is one of ours.
    pub(crate) usage_meter: Option<Arc<UsageMeter>>,
    /// What it says on stderr, and said before it was last started.
    pub(crate) tail: Option<Tail>,
}

impl SupervisorHandle {
    /// A keeper to be, and where it gets its orders from.
    pub(super) fn new(place: usize, current: CurrentState) -> (Arc<Self>, mpsc::Receiver<Command>) {
        let (sender, commands) = mpsc::channel(COMMAND_QUEUE);
        let handle = Self {
            id: current.record.id,
            place,
            changing: tokio::sync::Mutex::default(),
            commands: sender,
            current: watch::Sender::new(Arc::new(current)),
        };
        (Arc::new(handle), commands)
    }

    /// How it is, from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<CurrentState>> {
        self.current.subscribe()
    }

    /// How it is right now.
    pub(crate) fn current(&self) -> Arc<CurrentState> {
        Arc::clone(&self.current.borrow())
    }

    /// Waits until it is connected, or the attempt has failed; but not longer than `limit`.
    pub(crate) async fn wait_until_settled(&self, limit: Duration) {
        let is_decided = |current: &Arc<CurrentState>| {
            let status = current.record.status;
            status.is_up() || matches!(status, Status::Error | Status::Disabled)
        };
        // The keeper's last word is as good as any if there is no other.
        drop(timeout(limit, self.current.subscribe().wait_for(is_decided)).await);
    }

    /// Gives an order. One to a keeper that is gone is lost, and so is what it would have answered with.
    pub(crate) async fn command(&self, command: Command) {
        drop(self.commands.send(command).await);
    }

    /// Has it connected; why it did not work, if it did not.
    pub(crate) async fn connect(&self) -> Result<(), String> {
        let (reply, outcome) = oneshot::channel();
        self.command(Command::Connect(reply)).await;
        outcome.await.unwrap_or_else(|_| Err("it was removed meanwhile".to_owned()))
    }

    /// Has it ended.
    pub(crate) async fn end(&self, goal: TargetState, force: bool) {
        let (done, ended) = oneshot::channel();
        self.command(Command::End(End { goal, force, done })).await;
        // A keeper that is gone has ended everything.
        ended.await.ok();
    }

    /// Has it taken over another registration.
    pub(crate) async fn update_config(&self, record: ServerRecord, reconnect: bool) {
        let (done, adopted) = oneshot::channel();
        self.command(Command::Update(ConfigUpdate { record: Box::new(record), reconnect, done })).await;
        // A keeper that is gone has nothing to adopt.
        adopted.await.ok();
    }

    /// This is how it is from now on.
    pub(super) fn set_current(&self, current: CurrentState) {
        self.current.send_replace(Arc::new(current));
    }
}
