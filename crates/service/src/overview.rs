//! What an operator looks at beside servers and executions: the audit log and the database.

use catalog::Kind;
use registry::{AuditFilter, AuditRecord, Listed, Page};

use crate::{Error, Service};

/// What the tools of a server weigh in the list that clients get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weight {
    /// The server's name.
    pub server: String,
    /// How many tools it has on offer.
    pub tools: u64,
    /// How long their definitions are together.
    pub bytes: u64,
}

impl Service {
    /// What the tools of each server weigh that is on offer. Known without a look at the database.
    pub fn weights(&self) -> Vec<Weight> {
        let view = self.fleet.view();
        let offering = view.snapshot.servers().iter().filter(|server| server.state.offers());
        let weigh = |server: &catalog::ServerEntry| {
            let tools = server.offer.items(Kind::Tool);
            let bytes = tools.iter().map(|tool| tool.definition.len() as u64).sum();
            Weight { server: server.name.to_string(), tools: tools.len() as u64, bytes }
        };
        offering.map(weigh).collect()
    }

    /// The numbers about calls at this moment.
    pub fn reading(&self) -> crate::metrics::Reading {
        self.executions.reading()
    }

    /// Asks the database whether it is there.
    pub async fn ping(&self) -> Result<(), Error> {
        Ok(self.store.ping().await?)
    }

    /// Why nothing can be written down just now, if that is so: a database that can be read may be full, and a file
    /// that is open may have been deleted.
    pub fn write_error(&self) -> Option<String> {
        let of_file = self.registry_file_error();
        of_file.or_else(|| self.context.status_writer.last_error()).or_else(|| self.executions.write_error())
    }

    /// What happened to the registry's file, if it was deleted, replaced or emptied. Needs only a look at the folder.
    pub fn registry_file_error(&self) -> Option<String> {
        self.store.file_error()
    }

    /// Why what the config file says is not what is done, if that is so.
    pub fn config_error(&self) -> Option<String> {
        self.context.config_error()
    }

    /// Which settings are not as they are kept, if any, and why.
    pub fn settings_error(&self) -> Option<String> {
        self.settings.last_error()
    }

    /// Notes that the file of tokens cannot be used, so that who was taken out of it may still come in; or that it can.
    pub fn note_token_error(&self, trouble: Option<String>) {
        self.context.note_token_error(trouble);
    }

    /// Why the file of tokens does not say who may come in, if that is so.
    pub fn token_error(&self) -> Option<String> {
        self.context.token_error()
    }

    /// Who changed what, newest first.
    pub async fn audit(&self, filter: &AuditFilter, page: Page) -> Result<Listed<AuditRecord>, Error> {
        Ok(self.store.audit(filter, page).await?)
    }
}
