//! The audit log: who changed what. A change and its row are committed in one transaction.

use registry::{AuditNote, Transaction};
use serde_json::Value;

use crate::context::ServiceContext;
use crate::{Actor, Error};

/// What somebody did, as the audit log keeps it.
pub(crate) fn note(by: &Actor, action: &str, target: Option<&str>, details: Option<Value>) -> AuditNote {
    AuditNote { who: Some(by.name.to_string()), action: action.to_owned(), target: target.map(str::to_owned), details }
}

/// Commits what an administrator changed, together with its row in the audit log.
pub(crate) async fn commit(mut transaction: Transaction, note: AuditNote) -> Result<(), registry::Error> {
    transaction.append_audit(note.clone()).await?;
    transaction.commit().await?;
    log(&note);
    Ok(())
}

fn log(note: &AuditNote) {
    let (who, target) = (note.who.as_deref().unwrap_or_default(), note.target.as_deref().unwrap_or_default());
    tracing::info!(who, action = note.action, target, "done");
}

impl ServiceContext {
    /// Notes what an administrator does that changes nothing in the registry. Usually the row is committed when this
    /// returns. If the database is unreachable it is queued: servers can be connected and disconnected meanwhile.
    pub(crate) async fn audit(&self, note: AuditNote) -> Result<(), Error> {
        log(&note);
        if self.status_writer.should_queue() {
            self.status_writer.note(note);
            return Ok(());
        }
        match self.store.append_audit(note.clone()).await {
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, action = note.action, "the audit log is written later");
                self.status_writer.note(note);
                Ok(())
            }
            other => Ok(other?),
        }
    }
}
