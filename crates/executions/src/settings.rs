//! The settings of calls. They may change while the service runs.

use std::sync::{Arc, PoisonError, RwLock};

/// Limits and timeouts of calls, and their retention, with defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a call from REST, the command line, a document or an assistant may take, in milliseconds, waiting for its
    /// turn included.
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
    /// How long to wait before each retry of a call, in milliseconds.
    pub retry_backoff_ms: Vec<u64>,
    /// Executions older than this are deleted, in days.
    pub keep_executions_days: u32,
    /// More executions than this are deleted, oldest first.
    pub keep_executions: u32,
    /// Whether arguments and results are stored with executions.
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
            retry_backoff_ms: vec![1_000, 5_000, 15_000],
            keep_executions_days: 30,
            keep_executions: 100_000,
            store_payloads: false,
        }
    }
}

/// The current settings, shared.
#[derive(Debug, Clone)]
pub(crate) struct LiveSettings(Arc<RwLock<Arc<Settings>>>);

impl LiveSettings {
    /// The initial settings.
    pub(crate) fn new(settings: Settings) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(settings))))
    }

    /// The current settings.
    pub(crate) fn now(&self) -> Arc<Settings> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the settings.
    pub(crate) fn put(&self, settings: Settings) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }
}
