//! Several changes that are committed together or not at all, above all a change and its entry in the audit log.

use std::sync::Arc;

use crate::Store;
use crate::database::Session;
use crate::error::Error;
use crate::seal::Sealer;

/// A transaction of the registry.
///
/// Dropping it without [`Transaction::commit`] rolls it back. It must end within five seconds. On SQLite nobody else
/// can write in the meantime, so do nothing but changes in it.
pub struct Transaction {
    pub(crate) session: Session,
    pub(crate) sealer: Arc<Sealer>,
}

impl Store {
    /// Starts a transaction. `operation` describes it in errors: "register a server".
    pub async fn transaction(&self, operation: &'static str) -> Result<Transaction, Error> {
        Ok(Transaction { session: self.write(operation).await?, sealer: self.sealer() })
    }
}

impl Transaction {
    /// Commits the transaction.
    pub async fn commit(self) -> Result<(), Error> {
        self.session.commit().await
    }
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("operation", &self.session.operation()).finish_non_exhaustive()
    }
}
