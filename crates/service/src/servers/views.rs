//! What is told of servers.

use registry::{ServerRecord, Status};
use serde::Serialize;
use serde_json::Value;

use crate::containers::ContainerView;
use crate::tool_search::{ToolStates, ToolView};
use crate::usage::UsageView;

/// A server as it is shown: what is kept, and how it is right now.
#[derive(Debug, Clone, Serialize)]
pub struct ServerView {
    /// What is kept, with the status as it is right now.
    #[serde(flatten)]
    pub record: ServerRecord,
    /// Attempts to connect again since the first one failed; 0 while it is connected.
    pub retry_count: u32,
    /// When the next attempt to connect is made, if one is.
    pub next_retry_at: Option<registry::Timestamp>,
    /// It starts when it is needed.
    pub lazy: bool,
    /// It is lazy, and well: it starts when one of its tools is called.
    pub asleep: bool,
    /// The container it lives in.
    pub container: Option<ContainerView>,
    /// What it uses of the machine, if it is a process or a container of ours; only where that is asked for.
    pub usage: Option<UsageView>,
    /// What has to be done before it can start, and how far that is.
    pub progress: Option<String>,
    /// Its tools, where they were asked for or just discovered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolView>>,
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
    /// Health checks, or attempts to connect, that failed in a row: whichever are more.
    pub consecutive_failures: u32,
    /// Attempts to connect that failed in a row.
    pub failure_count: u32,
    /// Attempts to connect again since the first one failed.
    pub retry_count: u32,
    /// When the next attempt to connect is made.
    pub next_retry_at: Option<registry::Timestamp>,
    /// What is wrong.
    pub error_message: Option<String>,
    /// What is odd, such as a health address that fails while the server answers calls.
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
    /// What each of them does, in the same order, as far as it says so.
    #[serde(skip)]
    pub descriptions: Vec<Option<String>>,
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
    /// Of these, those that are about to be connected.
    pub connecting_servers: u64,
    /// Of these, those that start when they are needed.
    pub asleep_servers: u64,
    /// Of these, those that are switched off.
    pub disabled_servers: u64,
    /// Failed.
    pub error_servers: u64,
    /// Tools of connected servers.
    pub total_tools: u64,
    /// Of these, those whose skills are known.
    pub classified_tools: u64,
    /// Of these, the others.
    pub unclassified_tools: u64,
    /// The same in more detail: how far it is known what they are for.
    pub tool_states: ToolStates,
    /// When tools were last discovered.
    pub last_sync: Option<registry::Timestamp>,
    /// For how long the service has run.
    pub uptime_seconds: f64,
    /// Whether calls are refused until an operator allows them again.
    pub executions_stopped: bool,
}
