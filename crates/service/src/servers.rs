//! What an administrator does with servers.

use registry::{HistoryEvent, Listed, Page, ServerRecord, Status, ToolRecord, Transport};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Actor, Error, Service};

/// A server to be registered, as it was sent.
#[derive(Debug, Clone, Deserialize)]
pub struct Registration {
    /// `^[a-z][a-z0-9_-]*$`, at most 255 characters, unique.
    pub name: String,
    /// What it is for.
    #[serde(default)]
    pub description: Option<String>,
    /// How it is reached, in any case.
    pub transport_type: Transport,
    /// Where and with what.
    pub connection_config: Map<String, Value>,
    /// Asked instead of the server whether it is well.
    #[serde(default)]
    pub health_check_url: Option<String>,
    /// Connect at once.
    #[serde(default = "yes")]
    pub auto_connect: bool,
    /// It may be connected.
    #[serde(default = "yes")]
    pub enabled: bool,
}

fn yes() -> bool {
    true
}

/// What is to be different about a server; absent stays, null removes.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Update {
    /// Its new name.
    #[serde(default)]
    pub name: Option<String>,
    /// Its new description.
    #[serde(default)]
    pub description: Option<Option<String>>,
    /// How it is reached from now on.
    #[serde(default)]
    pub transport_type: Option<Transport>,
    /// Where and with what. Members that hold the mask keep what was there.
    #[serde(default)]
    pub connection_config: Option<Map<String, Value>>,
    /// What to ask for its health.
    #[serde(default)]
    pub health_check_url: Option<Option<String>>,
    /// Connect without being asked.
    #[serde(default)]
    pub auto_connect: Option<bool>,
    /// It may be connected.
    #[serde(default)]
    pub enabled: Option<bool>,
}

/// A server as it is shown: what is kept, and how it is right now.
#[derive(Debug, Clone, Serialize)]
pub struct ServerView {
    /// What is kept, with the status as it is right now.
    #[serde(flatten)]
    pub record: ServerRecord,
    /// When the next attempt to connect is made, if one is.
    pub next_retry_at: Option<registry::Timestamp>,
    /// It starts when it is needed.
    pub lazy: bool,
    /// Its tools, where they were asked for or just discovered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolRecord>>,
}

/// How well a server is.
#[derive(Debug, Clone, Serialize)]
pub struct ServerHealth {
    /// Its id.
    pub server_id: String,
    /// Its name.
    pub name: String,
    /// How things stand.
    pub status: Status,
    /// Whether it is connected and was well when last looked at.
    pub is_healthy: bool,
    /// When it was last looked at.
    pub last_check: Option<registry::Timestamp>,
    /// How long its answer took, in milliseconds.
    pub latency_ms: Option<f64>,
    /// Health checks that failed in a row.
    pub consecutive_failures: u32,
    /// Attempts to connect that failed in a row.
    pub failure_count: u32,
    /// When the next attempt to connect is made.
    pub next_retry_at: Option<registry::Timestamp>,
    /// What is wrong.
    pub error_message: Option<String>,
    /// What is odd, such as a health address that answers 404.
    pub warning: Option<String>,
}

/// What a try at a connection showed. Nothing is kept of it.
#[derive(Debug, Clone, Serialize)]
pub struct TestReport {
    /// Whether it worked.
    pub success: bool,
    /// How long it took, in milliseconds.
    pub duration_ms: f64,
    /// Who it is, as it says itself.
    pub server_info: Option<Value>,
    /// The names of its tools.
    pub tools: Vec<String>,
    /// What went wrong, with the end of its stderr.
    pub error: Option<String>,
}

/// How everything stands.
#[derive(Debug, Clone, Serialize)]
pub struct State {
    /// Servers there are.
    pub total_servers: u64,
    /// Connected, degraded ones included.
    pub connected_servers: u64,
    /// Neither connected nor failed.
    pub disconnected_servers: u64,
    /// Failed.
    pub error_servers: u64,
    /// Tools of connected servers.
    pub total_tools: u64,
    /// Of these, those whose skills are known.
    pub classified_tools: u64,
    /// Of these, the others.
    pub unclassified_tools: u64,
    /// When tools were last discovered.
    pub last_sync: Option<registry::Timestamp>,
    /// For how long the service has run.
    pub uptime_seconds: f64,
}

#[expect(unused_variables, clippy::todo, clippy::unused_async, reason = "filled in by the next commits")]
impl Service {
    /// Registers a server and, if wanted, connects it: waits up to 1.5 s for its tools.
    pub async fn register(&self, by: &Actor, new: Registration) -> Result<ServerView, Error> {
        todo!()
    }

    /// All servers, in order, and how many there are in all.
    pub async fn servers(
        &self,
        status: Option<Status>,
        with_tools: bool,
        page: Page,
    ) -> Result<Listed<ServerView>, Error> {
        todo!()
    }

    /// One server, by id or name.
    pub async fn server(&self, id_or_name: &str) -> Result<ServerView, Error> {
        todo!()
    }

    /// Changes a server; it is connected anew only if that is needed.
    pub async fn update(&self, by: &Actor, id_or_name: &str, update: Update) -> Result<ServerView, Error> {
        todo!()
    }

    /// Removes a server with all that is known of it. Calls in flight have up to 30 s.
    pub async fn remove(&self, by: &Actor, id_or_name: &str, force: bool) -> Result<(), Error> {
        todo!()
    }

    /// Connects it, and waits for how that goes.
    pub async fn connect(&self, by: &Actor, id_or_name: &str) -> Result<ServerView, Error> {
        todo!()
    }

    /// Disconnects it: waits up to 30 s for calls in flight, or cancels them. Doing it again is fine.
    pub async fn disconnect(&self, by: &Actor, id_or_name: &str, force: bool) -> Result<ServerView, Error> {
        todo!()
    }

    /// Allows it to be connected, forgets failures, and connects it.
    pub async fn enable(&self, by: &Actor, id_or_name: &str) -> Result<ServerView, Error> {
        todo!()
    }

    /// Disconnects it and keeps it so.
    pub async fn disable(&self, by: &Actor, id_or_name: &str) -> Result<ServerView, Error> {
        todo!()
    }

    /// Tries a connection of its own beside the one there may be.
    pub async fn test(&self, id_or_name: &str) -> Result<TestReport, Error> {
        todo!()
    }

    /// Tries what is not registered.
    pub async fn test_unregistered(&self, new: Registration) -> Result<TestReport, Error> {
        todo!()
    }

    /// Has its tools discovered anew, in the background.
    pub async fn refresh_tools(&self, by: &Actor, id_or_name: &str) -> Result<(), Error> {
        todo!()
    }

    /// The tools of one server or of all; of connected servers only, unless one is asked for by name.
    pub async fn tools(&self, server: Option<&str>) -> Result<Vec<ToolRecord>, Error> {
        todo!()
    }

    /// How well one server is.
    pub async fn server_health(&self, id_or_name: &str) -> Result<ServerHealth, Error> {
        todo!()
    }

    /// What happened to its connection, newest first.
    pub async fn history(&self, id_or_name: &str, page: Page) -> Result<Listed<HistoryEvent>, Error> {
        todo!()
    }

    /// How everything stands.
    pub fn state(&self) -> State {
        todo!()
    }
}
