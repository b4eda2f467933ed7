//! Operations of operators on calls: list, cancel one, stop all.

use std::sync::atomic::Ordering;

use registry::{Actor, AuditFilter, AuditNote, ExecutionFilter, ExecutionId, ExecutionRecord, Listed, Page};
use serde::Serialize;
use serde_json::json;

use super::merged_list::InMemory;
use super::{CANCEL_LOOKUP_INTERVAL, CANCEL_LOOKUPS, CancelReason, Error, Executions};

/// The audit actions for stopping and resetting.
const STOP: &str = "executions.stop";
const RESET: &str = "executions.reset";

/// The result of stopping or resetting.
#[derive(Debug, Clone, Serialize)]
pub struct Stopped {
    /// Whether new calls are refused now.
    pub stopped: bool,
    /// Calls that were cancelled.
    pub cancelled: u64,
}

impl Executions {
    /// Calls, newest first.
    pub async fn list(&self, filter: &ExecutionFilter, page: Page) -> Result<Listed<ExecutionRecord>, Error> {
        // Memory first, then the database: a call that ends in between is seen twice, and not missed.
        let alive = self.live.all().into_iter().map(|execution| (execution.record(), execution.is_noted()));
        let alive = alive.collect::<Vec<_>>();
        let unwritten = self.recorder.unwritten().into_iter();
        let in_memory = InMemory::new(filter, alive.into_iter().chain(unwritten));
        let part = in_memory.part_to_read(page);
        let kept = self.store.executions(filter, part).await?;
        Ok(in_memory.merge(page, part, kept))
    }

    /// One call.
    pub async fn find(&self, id: ExecutionId) -> Result<ExecutionRecord, Error> {
        if let Some(execution) = self.live.get(id) {
            return Ok(execution.record());
        }
        if let Some((record, _)) = self.recorder.unwritten().into_iter().find(|(record, _)| record.id == id) {
            return Ok(record);
        }
        Ok(self.store.execution(id).await?)
    }

    /// Whether calls are refused until they are allowed again.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Restores whether calls are refused.
    pub async fn load_stop_state(&self) -> Result<(), Error> {
        let is_stopped = match self.store.executions_stopped().await? {
            Some(kept) => kept,
            // A version before this setting wrote only the audit log.
            None => self.last_time(STOP).await? > self.last_time(RESET).await?,
        };
        if is_stopped {
            tracing::warn!("executions have been stopped since before the last start; a reset allows them again");
            self.is_stopped.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// The number of the last audit note with that action.
    async fn last_time(&self, action: &str) -> Result<Option<i64>, Error> {
        let filter = AuditFilter { action: Some(action.to_owned()), ..AuditFilter::default() };
        let notes = self.store.audit(&filter, Page::first(1)).await?;
        Ok(notes.items.first().map(|note| note.id))
    }

    /// Cancels a running call; an ended one stays as it is.
    pub async fn cancel(&self, by: &Actor, id: ExecutionId) -> Result<ExecutionRecord, Error> {
        let Some(execution) = self.live.get(id) else { return self.find(id).await };
        if self.cancel_with(&execution, CancelReason::Cancelled("an operator ended it".into())) {
            // Usually at once; a call that was just moving between two queues takes a moment.
            for _ in 0..CANCEL_LOOKUPS {
                if execution.is_over() {
                    break;
                }
                tokio::time::sleep(CANCEL_LOOKUP_INTERVAL).await;
            }
            let details = json!({ "server": **execution.server(), "tool": execution.tool() });
            self.operator_log
                .write(AuditNote::new(by, "execution.cancel", Some(&id.to_string()), Some(details)), None)
                .await;
        }
        Ok(execution.record())
    }

    /// Cancels every call and refuses new ones until they are allowed again.
    pub async fn stop(&self, by: &Actor) -> Stopped {
        self.is_stopped.store(true, Ordering::SeqCst);
        let cancelled = self.cancel_those("an operator stopped all executions", |_| true);
        self.operator_log
            .write(AuditNote::new(by, STOP, None, Some(json!({ "cancelled": cancelled }))), Some(true))
            .await;
        Stopped { stopped: true, cancelled }
    }

    /// Allows calls again, and resets the counters of sessions.
    pub async fn reset(&self, by: &Actor) -> Stopped {
        self.sessions.reset();
        self.is_stopped.store(false, Ordering::SeqCst);
        self.operator_log.write(AuditNote::new(by, RESET, None, None), Some(false)).await;
        Stopped { stopped: false, cancelled: 0 }
    }
}
