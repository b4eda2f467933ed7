//! Making, listing and cancelling calls.

use executions::metrics::Reading;
use executions::{Call, Outcome, Stopped};
use registry::{Actor, ExecutionFilter, ExecutionId, ExecutionRecord, Listed, Page};

use crate::{Error, Event, Service};

impl Service {
    /// Makes a call and waits for its result, within its limits. If the future is dropped, the call is cancelled.
    pub async fn call(&self, call: Call) -> Result<Outcome, Error> {
        Ok(self.executions.call(call).await?)
    }

    /// Calls, newest first: running ones, and stored ones.
    pub async fn executions(&self, filter: &ExecutionFilter, page: Page) -> Result<Listed<ExecutionRecord>, Error> {
        if self.is_bound() {
            return self.visible_executions(filter, page).await;
        }
        Ok(self.executions.list(filter, page).await?)
    }

    /// One call.
    pub async fn execution(&self, id: ExecutionId) -> Result<ExecutionRecord, Error> {
        let execution = self.executions.find(id).await?;
        match self.is_visible_call(&self.view(), &execution) {
            true => Ok(execution),
            false => Err(Error::Call(executions::Error::ExecutionNotFound { id: id.to_string() })),
        }
    }

    /// Cancels a running call; a finished one stays as it is.
    pub async fn cancel_execution(&self, by: &Actor, id: ExecutionId) -> Result<ExecutionRecord, Error> {
        self.execution(id).await?;
        Ok(self.executions.cancel(by, id).await?)
    }

    /// Cancels every call and refuses new ones until they are allowed again.
    pub async fn stop_executions(&self, by: &Actor) -> Stopped {
        let stopped = self.executions.stop(by).await;
        let message = "all calls are stopped, and new ones are refused until they are allowed again".to_owned();
        self.events.emit(Event::Notice { server_id: None, message });
        stopped
    }

    /// Allows calls again, and resets the counters of sessions.
    pub async fn reset_executions(&self, by: &Actor) -> Stopped {
        let allowed = self.executions.reset(by).await;
        self.events.emit(Event::Notice { server_id: None, message: "calls are allowed again".to_owned() });
        allowed
    }

    /// Whether calls are refused until they are allowed again.
    pub fn executions_are_stopped(&self) -> bool {
        self.executions.is_stopped()
    }

    /// The current metrics of calls.
    pub fn reading(&self) -> Reading {
        self.executions.reading()
    }
}
