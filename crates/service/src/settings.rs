//! What can be changed while the service runs: limits, times, what is kept.

use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

/// All settings, with their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How long a call from REST, the command line, a document or an assistant may take, in milliseconds.
    pub timeout_ms: u64,
    /// The same for calls of MCP clients; none if absent.
    pub mcp_timeout_ms: Option<u64>,
    /// How many calls from REST, the command line, documents and assistants may run at once.
    pub concurrent_limit: u32,
    /// The same for calls of MCP clients; -1 means any number.
    pub mcp_concurrent_limit: i64,
    /// How many calls may wait for their turn.
    pub queue_limit: u32,
    /// How many calls a document or an assistant may make in one session; -1 means any number.
    pub session_limit: i64,
    /// How often connected servers are looked at, in seconds.
    pub health_check_interval_s: u64,
    /// How long a health check may take, in milliseconds.
    pub health_check_timeout_ms: u64,
    /// How long to wait before each further attempt to connect, in milliseconds.
    pub retry_backoff_ms: Vec<u64>,
    /// After so many failed attempts in a row a server is switched off.
    pub failure_threshold: u32,
    /// How long a lazy server may be idle before it is stopped, in seconds.
    pub idle_timeout_s: u64,
    /// Executions older than this are forgotten, in days.
    pub keep_executions_days: u32,
    /// More executions than this are forgotten, oldest first.
    pub keep_executions: u32,
    /// Whether arguments and results are kept with executions.
    pub store_payloads: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout_ms: 30_000,
            mcp_timeout_ms: None,
            concurrent_limit: 25,
            mcp_concurrent_limit: -1,
            queue_limit: 1000,
            session_limit: 25,
            health_check_interval_s: 30,
            health_check_timeout_ms: 5_000,
            retry_backoff_ms: vec![1_000, 5_000, 15_000],
            failure_threshold: 3,
            idle_timeout_s: 300,
            keep_executions_days: 30,
            keep_executions: 100_000,
            store_payloads: false,
        }
    }
}

/// The settings as they are now, shared by everybody who needs them.
#[derive(Debug, Clone, Default)]
pub struct Keeper(Arc<RwLock<Arc<Settings>>>);

impl Keeper {
    /// As they are now.
    pub fn now(&self) -> Arc<Settings> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// As they are from now on.
    pub(crate) fn put(&self, settings: Settings) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// The settings as they were left.
    pub(crate) async fn load(store: &registry::Store) -> Result<Self, crate::Error> {
        let kept = serde_json::Value::Object(store.settings().await?.into_iter().collect());
        let keeper = Self::default();
        keeper.put(serde_json::from_value(kept).unwrap_or_default());
        Ok(keeper)
    }
}
