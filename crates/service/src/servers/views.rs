//! The views of servers.

use registry::{ServerRecord, Status};
use serde::Serialize;
use serde_json::Value;
use tool_search::{ToolStates, ToolView};

use crate::containers::ContainerView;
use crate::instances::InstanceView;
use crate::usage::UsageView;

/// A server: its stored record, and its current state.
#[derive(Debug, Clone, Serialize)]
pub struct ServerView {
    /// The stored record, with the current status.
    #[serde(flatten)]
    pub record: ServerRecord,
    /// Repeated attempts to connect since the first one failed; 0 while it is connected.
    pub retry_count: u32,
    /// When the next attempt to connect is made, if one is.
    pub next_retry_at: Option<registry::Timestamp>,
    /// It starts when it is needed.
    pub lazy: bool,
    /// It is lazy and not running: it starts when one of its tools is called.
    pub asleep: bool,
    /// Its instances, if not everybody shares it.
    pub instances: Vec<InstanceView>,
    /// The container it runs in.
    pub container: Option<ContainerView>,
    /// Its resource usage, if it is a process or a container of ours; only on request.
    pub usage: Option<UsageView>,
    /// The progress of the preparation before it can start.
    pub progress: Option<String>,
    /// Its tools, where they were requested or just discovered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<ToolView>>,
}

/// The health of a server.
#[derive(Debug, Clone, Serialize)]
pub struct ServerHealth {
    /// Its id.
    pub server_id: String,
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: Status,
    /// Whether it is connected and its last check passed.
    pub is_healthy: bool,
    /// When it was last checked.
    pub last_check: Option<registry::Timestamp>,
    /// How long its response took, in milliseconds.
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
    /// A warning, such as a health address that fails while the server answers calls.
    pub warning: Option<String>,
    /// Its instances, if not everybody shares it.
    pub instances: Vec<InstanceView>,
}

/// The result of a connection test. It is not stored.
#[derive(Debug, Clone, Serialize)]
pub struct TestReport {
    /// Whether it worked.
    pub success: bool,
    /// How long it took, in milliseconds.
    pub duration_ms: f64,
    /// Its server info.
    pub server_info: Option<Value>,
    /// The names of its tools.
    pub tools: Vec<String>,
    /// Their descriptions, in the same order, where they have any.
    #[serde(skip)]
    pub descriptions: Vec<Option<String>>,
    /// What went wrong, with the end of its stderr.
    pub error: Option<String>,
    /// Whether it failed only because a person has to sign in.
    pub sign_in_required: bool,
}

/// The state of the service.
#[derive(Debug, Clone, Serialize)]
pub struct ServiceState {
    /// All servers.
    pub total_servers: u64,
    /// Connected, degraded ones included.
    pub connected_servers: u64,
    /// Neither connected nor failed.
    pub disconnected_servers: u64,
    /// Of these, those that are about to be connected.
    pub connecting_servers: u64,
    /// Of these, those that start when they are needed.
    pub asleep_servers: u64,
    /// Of these, those that are disabled.
    pub disabled_servers: u64,
    /// Of these, those that a person must sign in to.
    pub sign_in_required_servers: u64,
    /// Failed.
    pub error_servers: u64,
    /// Tools of connected servers.
    pub total_tools: u64,
    /// Of these, those whose skills are known.
    pub classified_tools: u64,
    /// Of these, the others.
    pub unclassified_tools: u64,
    /// The classification states of the tools.
    pub tool_states: ToolStates,
    /// When tools were last discovered.
    pub last_sync: Option<registry::Timestamp>,
    /// For how long the service has run.
    pub uptime_seconds: f64,
    /// Whether calls are refused until an operator allows them again.
    pub executions_stopped: bool,
}
