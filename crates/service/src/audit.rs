//! Audit rows for operations that change nothing in the registry. A change and its row are committed in one
//! transaction instead.

use registry::AuditNote;

use crate::Error;
use crate::context::ServiceContext;

impl ServiceContext {
    /// Records an administrator's operation that changes nothing in the registry. Usually the row is committed when
    /// this returns. If the database is unreachable it is queued: servers can be connected and disconnected meanwhile.
    pub(crate) async fn audit(&self, note: AuditNote) -> Result<(), Error> {
        note.log();
        if self.status_writer.should_queue() {
            self.status_writer.note(note);
            return Ok(());
        }
        match self.store.append_audit(note.clone()).await {
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, action = note.action, "the audit log is not written yet");
                self.status_writer.note(note);
                Ok(())
            }
            other => Ok(other?),
        }
    }
}
