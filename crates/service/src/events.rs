//! What happens, for who wants to know.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use registry::{ExecutionRecord, Status};
use serde::Serialize;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// So many events are kept for one who reads slowly; who is slower misses some, and is told so.
const EVENT_BUFFER: usize = 1024;

/// Something happened.
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
    /// Something about a server's registration changed.
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
    /// Things stand otherwise with a server.
    ServerStatusChanged {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
        /// How it was.
        previous: Status,
        /// How it is.
        status: Status,
        /// What went wrong.
        error_message: Option<String>,
    },
    /// Before a server can start something has to be done, and this is how far it is.
    ServerProgress {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
        /// A sentence for people.
        message: String,
    },
    /// What a server offers changed.
    ToolsChanged {
        /// Its id.
        server_id: String,
        /// Its name.
        name: String,
        /// How many tools it has now.
        tool_count: usize,
    },
    /// There are other skills, and tools are classified anew.
    SkillsChanged {
        /// How many tools may have now.
        skill_count: usize,
    },
    /// A call got further.
    Execution(Box<ExecutionRecord>),
    /// Somebody should look.
    Notice {
        /// The server it is about.
        server_id: Option<String>,
        /// A sentence for people.
        message: String,
    },
}

impl Event {
    /// What it is called.
    pub fn name(&self) -> String {
        match self {
            Self::ServerRegistered { .. } => "server.registered".to_owned(),
            Self::ServerUpdated { .. } => "server.updated".to_owned(),
            Self::ServerRemoved { .. } => "server.removed".to_owned(),
            Self::ServerStatusChanged { .. } => "server.status_changed".to_owned(),
            Self::ServerProgress { .. } => "server.progress".to_owned(),
            Self::ToolsChanged { .. } => "tools.changed".to_owned(),
            Self::SkillsChanged { .. } => "skills.changed".to_owned(),
            Self::Execution(execution) => format!("execution.{}", execution.status),
            Self::Notice { .. } => "notice".to_owned(),
        }
    }
}

/// Where events are told and heard.
#[derive(Debug, Clone)]
pub struct Events {
    all: broadcast::Sender<Event>,
    /// How many listen to all. The channel knows it, too, but whoever asks it waits for others who ask.
    listeners: Arc<AtomicUsize>,
    /// All but those of calls, which are many: who follows servers must not make every call dearer.
    of_servers: broadcast::Sender<Event>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            all: broadcast::Sender::new(EVENT_BUFFER),
            listeners: Arc::default(),
            of_servers: broadcast::Sender::new(EVENT_BUFFER),
        }
    }
}

impl Events {
    /// Tells everybody who listens.
    pub fn emit(&self, event: Event) {
        if !matches!(event, Event::Execution(_)) && self.of_servers.receiver_count() > 0 {
            self.of_servers.send(event.clone()).ok();
        }
        // Nobody may be listening.
        self.all.send(event).ok();
    }

    /// Whether anybody listens to what becomes of calls: what nobody hears need not be made.
    pub fn has_listeners(&self) -> bool {
        self.listeners.load(Ordering::SeqCst) > 0
    }

    /// Everything about servers from now on.
    pub(crate) fn listen_to_servers(&self) -> broadcast::Receiver<Event> {
        self.of_servers.subscribe()
    }

    /// Everything from now on.
    pub fn listen(&self) -> Listener {
        self.listeners.fetch_add(1, Ordering::SeqCst);
        Listener { events: self.all.subscribe(), listeners: Arc::clone(&self.listeners) }
    }
}

/// Somebody who hears everything.
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

    /// The next event, if it has happened already.
    pub fn try_recv(&mut self) -> Result<Event, TryRecvError> {
        self.events.try_recv()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.listeners.fetch_sub(1, Ordering::SeqCst);
    }
}
