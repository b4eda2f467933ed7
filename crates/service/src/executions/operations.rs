//! What an operator does with calls: looks at them, cancels one, stops all.

use std::sync::atomic::Ordering;

use registry::{AuditFilter, AuditNote, ExecutionFilter, ExecutionId, ExecutionRecord, Listed, Page};
use serde::Serialize;
use serde_json::json;

use super::merged_list::InMemory;
use super::{CANCEL_LOOKUP_INTERVAL, CANCEL_LOOKUPS, CancelReason, Executions};
use crate::status_writer::AuditedOperation;
use crate::{Actor, Error, Event, Service, audit};

/// What the audit log calls it when calls are stopped, and allowed again.
const STOP: &str = "executions.stop";
const RESET: &str = "executions.reset";

/// What stopping everything came to.
#[derive(Debug, Clone, Serialize)]
pub struct Stopped {
    /// Whether new calls are refused now.
    pub stopped: bool,
    /// Calls that were cancelled.
    pub cancelled: u64,
}

impl Service {
    /// Calls, newest first: those under way, and those that are kept.
    pub async fn executions(&self, filter: &ExecutionFilter, page: Page) -> Result<Listed<ExecutionRecord>, Error> {
        self.executions.list(filter, page).await
    }

    /// One call.
    pub async fn execution(&self, id: ExecutionId) -> Result<ExecutionRecord, Error> {
        self.executions.find(id).await
    }

    /// Cancels a call that is under way; one that is over stays as it is.
    pub async fn cancel_execution(&self, by: &Actor, id: ExecutionId) -> Result<ExecutionRecord, Error> {
        self.executions.cancel(by, id).await
    }

    /// Cancels every call and refuses new ones until they are allowed again.
    pub async fn stop_executions(&self, by: &Actor) -> Stopped {
        let stopped = self.executions.stop(by).await;
        let message = "all calls are stopped, and new ones are refused until somebody allows them again".to_owned();
        self.events.emit(Event::Notice { server_id: None, message });
        stopped
    }

    /// Allows calls again, and begins to count sessions anew.
    pub async fn reset_executions(&self, by: &Actor) -> Stopped {
        let allowed = self.executions.reset(by).await;
        self.events.emit(Event::Notice { server_id: None, message: "calls are allowed again".to_owned() });
        allowed
    }

    /// Whether calls are refused until they are allowed again.
    pub fn executions_are_stopped(&self) -> bool {
        self.executions.is_stopped.load(Ordering::SeqCst)
    }
}

impl Executions {
    /// Calls, newest first.
    pub(crate) async fn list(&self, filter: &ExecutionFilter, page: Page) -> Result<Listed<ExecutionRecord>, Error> {
        // First here, then there: a call that ends in between is seen twice, and not missed.
        let alive = self.live.all().into_iter().map(|execution| (execution.record(), execution.is_noted()));
        let alive = alive.collect::<Vec<_>>();
        let unwritten = self.recorder.unwritten().into_iter();
        let in_memory = InMemory::new(filter, alive.into_iter().chain(unwritten));
        let part = in_memory.part_to_read(page);
        let kept = self.store.executions(filter, part).await?;
        Ok(in_memory.merge(page, part, kept))
    }

    /// One call.
    pub(crate) async fn find(&self, id: ExecutionId) -> Result<ExecutionRecord, Error> {
        if let Some(execution) = self.live.get(id) {
            return Ok(execution.record());
        }
        if let Some((record, _)) = self.recorder.unwritten().into_iter().find(|(record, _)| record.id == id) {
            return Ok(record);
        }
        Ok(self.store.execution(id).await?)
    }

    /// Whether calls are refused until they are allowed again is as it was left.
    pub(crate) async fn load_stop_state(&self) -> Result<(), Error> {
        let is_stopped = match self.store.executions_stopped().await? {
            Some(kept) => kept,
            // Kept by a version that wrote only the audit log.
            None => self.last_time(STOP).await? > self.last_time(RESET).await?,
        };
        if is_stopped {
            tracing::warn!("executions are stopped since before the last start; a reset allows them again");
            self.is_stopped.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// The number of the last note of somebody having done that.
    async fn last_time(&self, action: &str) -> Result<Option<i64>, Error> {
        let filter = AuditFilter { action: Some(action.to_owned()), ..AuditFilter::default() };
        let notes = self.store.audit(&filter, Page::first(1)).await?;
        Ok(notes.items.first().map(|note| note.id))
    }

    /// Notes who did something, and whether calls are refused from now on if that changed. It is done already: if the
    /// database is unreachable, the row is written when it is back.
    async fn note(&self, note: AuditNote, is_stopped: Option<bool>) {
        let operation = AuditedOperation { note, is_stopped };
        if self.status_writer.should_queue() {
            return self.status_writer.operation(operation);
        }
        match operation.write(&self.store).await {
            Ok(()) => {}
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, action = operation.note.action, "the audit log is written later");
                self.status_writer.operation(operation);
            }
            Err(error) => tracing::error!(%error, action = operation.note.action, "could not write the audit log"),
        }
    }

    pub(crate) async fn cancel(&self, by: &Actor, id: ExecutionId) -> Result<ExecutionRecord, Error> {
        let Some(execution) = self.live.get(id) else { return self.find(id).await };
        if self.cancel_with(&execution, CancelReason::Cancelled("an operator ended it".into())) {
            // Usually at once; a call that was just on its way takes a moment.
            for _ in 0..CANCEL_LOOKUPS {
                if execution.is_over() {
                    break;
                }
                tokio::time::sleep(CANCEL_LOOKUP_INTERVAL).await;
            }
            let details = json!({ "server": **execution.server(), "tool": execution.tool() });
            self.note(audit::note(by, "execution.cancel", Some(&id.to_string()), Some(details)), None).await;
        }
        Ok(execution.record())
    }

    pub(crate) async fn stop(&self, by: &Actor) -> Stopped {
        self.is_stopped.store(true, Ordering::SeqCst);
        let cancelled = self.cancel_those("an operator stopped all executions", |_| true);
        self.note(audit::note(by, STOP, None, Some(json!({ "cancelled": cancelled }))), Some(true)).await;
        Stopped { stopped: true, cancelled }
    }

    pub(crate) async fn reset(&self, by: &Actor) -> Stopped {
        self.sessions.reset();
        self.is_stopped.store(false, Ordering::SeqCst);
        self.note(audit::note(by, RESET, None, None), Some(false)).await;
        Stopped { stopped: false, cancelled: 0 }
    }
}
