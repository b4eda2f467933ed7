//! What an operator looks at beside servers and executions: the audit log and the database.

use registry::{AuditFilter, AuditRecord, Listed, Page};

use crate::{Error, Service};

impl Service {
    /// The numbers about calls at this moment.
    pub fn reading(&self) -> crate::metrics::Reading {
        self.executions.reading()
    }

    /// Asks the database whether it is there.
    pub async fn ping(&self) -> Result<(), Error> {
        Ok(self.store.ping().await?)
    }

    /// Why nothing can be written down just now, if that is so: a database that can be read may be full.
    pub fn write_trouble(&self) -> Option<String> {
        self.house.records.trouble().or_else(|| self.executions.write_trouble())
    }

    /// Who changed what, newest first.
    pub async fn audit(&self, filter: &AuditFilter, page: Page) -> Result<Listed<AuditRecord>, Error> {
        Ok(self.store.audit(filter, page).await?)
    }
}
