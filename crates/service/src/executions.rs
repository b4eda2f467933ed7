//! The account of all calls: which may be made, when, and what became of each.

use registry::{ExecutionFilter, ExecutionId, ExecutionRecord, Listed, Page};
use serde::Serialize;

use crate::{Actor, Error, Service, Settings};

/// All calls under way, and where the others are recorded.
#[derive(Debug, Default)]
pub struct Executions {}

/// What stopping everything came to.
#[derive(Debug, Clone, Serialize)]
pub struct Stopped {
    /// Whether new calls are refused now.
    pub stopped: bool,
    /// Calls that were cancelled.
    pub cancelled: u64,
}

#[expect(unused_variables, clippy::todo, clippy::unused_async, reason = "filled in by the next commits")]
impl Service {
    /// Calls, newest first: those under way, and those that are kept.
    pub async fn executions(&self, filter: &ExecutionFilter, page: Page) -> Result<Listed<ExecutionRecord>, Error> {
        todo!()
    }

    /// One call.
    pub async fn execution(&self, id: ExecutionId) -> Result<ExecutionRecord, Error> {
        todo!()
    }

    /// Cancels a call that is under way; one that is over stays as it is.
    pub async fn cancel_execution(&self, by: &Actor, id: ExecutionId) -> Result<ExecutionRecord, Error> {
        todo!()
    }

    /// Cancels every call and refuses new ones until they are allowed again.
    pub async fn stop_executions(&self, by: &Actor) -> Stopped {
        todo!()
    }

    /// Allows calls again, and begins to count sessions anew.
    pub async fn reset_executions(&self, by: &Actor) -> Stopped {
        todo!()
    }

    /// The settings as they are now.
    pub fn settings(&self) -> Settings {
        todo!()
    }

    /// Changes settings; what is wrong is told, and then nothing is changed.
    pub async fn change_settings(&self, by: &Actor, changes: serde_json::Value) -> Result<Settings, Error> {
        todo!()
    }
}
