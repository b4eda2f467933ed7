//! Events of the service, for listeners.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use executions::ExecutionObserver;
use registry::{ExecutionRecord, Status};
use serde::Serialize;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tool_search::Change;

/// How many events are buffered for a slow listener; a slower one misses some and is notified of that.
const EVENT_BUFFER: usize = 1024;

/// An event of the service.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Event {
    /// A server was registered.
    ServerRegistered {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
    },
    /// The registration of a server changed.
    ServerUpdated {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
    },
    /// A server was removed.
    ServerRemoved {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
    },
    /// The status of a server changed.
    ServerStatusChanged {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
        /// The previous status.
        previous: Status,
        /// The new status.
        status: Status,
        /// What went wrong.
        error_message: Option<String>,
    },
    /// A person must sign in to a server.
    ServerSignInRequired {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
        /// What the server or its provider reported.
        error_message: Option<String>,
        /// The command that signs in.
        command: String,
    },
    /// Somebody signed in to a server.
    ServerSignedIn {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
    },
    /// Somebody signed out of a server.
    ServerSignedOut {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
    },
    /// The progress of the preparation before a server can start.
    ServerProgress {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
        /// A message for people.
        message: String,
    },
    /// The tools of a server changed.
    ToolsChanged {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
        /// How many tools it has now.
        tool_count: usize,
    },
    /// The skills changed, and tools are classified again.
    SkillsChanged {
        /// The number of skills now.
        skill_count: usize,
    },
    /// A profile was created or changed.
    ProfileChanged {
        /// Its name.
        name: String,
    },
    /// A profile was removed.
    ProfileRemoved {
        /// Its name.
        name: String,
    },
    /// The state of a call changed.
    Execution(Box<ExecutionRecord>),
    /// A notice for operators.
    Notice {
        /// The server it is about.
        server_id: Option<String>,
        /// A message for people.
        message: String,
    },
}

impl Event {
    /// Its name.
    pub fn name(&self) -> String {
        match self {
            Self::ServerRegistered { .. } => "server.registered".to_owned(),
            Self::ServerUpdated { .. } => "server.updated".to_owned(),
            Self::ServerRemoved { .. } => "server.removed".to_owned(),
            Self::ServerStatusChanged { .. } => "server.status_changed".to_owned(),
            Self::ServerSignInRequired { .. } => "server.sign_in_required".to_owned(),
            Self::ServerSignedIn { .. } => "server.signed_in".to_owned(),
            Self::ServerSignedOut { .. } => "server.signed_out".to_owned(),
            Self::ServerProgress { .. } => "server.progress".to_owned(),
            Self::ToolsChanged { .. } => "tools.changed".to_owned(),
            Self::SkillsChanged { .. } => "skills.changed".to_owned(),
            Self::ProfileChanged { .. } => "profile.changed".to_owned(),
            Self::ProfileRemoved { .. } => "profile.removed".to_owned(),
            Self::Execution(execution) => format!("execution.{}", execution.status),
            Self::Notice { .. } => "notice".to_owned(),
        }
    }

    /// What it changes for the tool search, if anything.
    fn change_of_tools(&self) -> Option<Change> {
        match self {
            Self::ToolsChanged { server_id, .. }
            | Self::ServerUpdated { server_id, .. }
            | Self::ServerRemoved { server_id, .. } => server_id.parse().ok().map(Change::Server),
            Self::SkillsChanged { .. } => Some(Change::Skills),
            Self::ServerRegistered { .. }
            | Self::ServerStatusChanged { .. }
            | Self::ServerSignInRequired { .. }
            | Self::ServerSignedIn { .. }
            | Self::ServerSignedOut { .. }
            | Self::ServerProgress { .. }
            | Self::ProfileChanged { .. }
            | Self::ProfileRemoved { .. }
            | Self::Execution(_)
            | Self::Notice { .. } => None,
        }
    }
}

/// The event channel.
#[derive(Debug, Clone)]
pub struct Events {
    all: broadcast::Sender<Event>,
    /// The number of listeners. The channel knows it, too, but querying it takes a lock.
    listeners: Arc<AtomicUsize>,
    /// The events that affect the tool search. Calls are not among them: their cost must not increase by it.
    of_tools: broadcast::Sender<Change>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            all: broadcast::Sender::new(EVENT_BUFFER),
            listeners: Arc::default(),
            of_tools: broadcast::Sender::new(EVENT_BUFFER),
        }
    }
}

impl Events {
    /// Sends an event to all listeners.
    pub fn emit(&self, event: Event) {
        // There may be no listener.
        if let Some(change) = event.change_of_tools() {
            self.of_tools.send(change).ok();
        }
        self.all.send(event).ok();
    }

    /// Changes of tools and skills from now on.
    pub(crate) fn changes_of_tools(&self) -> broadcast::Receiver<Change> {
        self.of_tools.subscribe()
    }

    /// All events from now on.
    pub fn listen(&self) -> Listener {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        Listener { events: self.all.subscribe(), listeners: Arc::clone(&self.listeners) }
    }
}

impl ExecutionObserver for Events {
    fn has_listeners(&self) -> bool {
        self.listeners.load(Ordering::SeqCst) > 0
    }

    fn on_progress(&self, execution: ExecutionRecord) {
        self.emit(Event::Execution(Box::new(execution)));
    }
}

/// Receives all events.
#[derive(Debug)]
pub struct Listener {
    events: broadcast::Receiver<Event>,
    listeners: Arc<AtomicUsize>,
}

impl Listener {
    /// The next event.
    pub async fn recv(&mut self) -> Result<Event, RecvError> {
        self.events.recv().await
    }

    /// The next event, if there is one already.
    pub fn try_recv(&mut self) -> Result<Event, TryRecvError> {
        self.events.try_recv()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.listeners.fetch_sub(1, Ordering::SeqCst);
    }
}
