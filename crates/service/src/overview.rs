//! Operators' views besides servers and executions: the audit log and the state of the database.

use catalog::Kind;
use registry::{AuditFilter, AuditRecord, Listed, NameConflicts, Page};

use crate::{Error, Service};

/// The size of a server's tools in the list that clients get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weight {
    /// The server's name.
    pub server: String,
    /// How many of its tools are listed.
    pub tools: u64,
    /// The total length of their definitions.
    pub bytes: u64,
}

impl Service {
    /// The size of each server's listed tools. Needs no database access.
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

    /// Checks whether the database is reachable.
    pub async fn ping(&self) -> Result<(), Error> {
        Ok(self.store.ping().await?)
    }

    /// Why nothing can be written just now, if so: a database that can be read may be full, and an open file may have
    /// been deleted.
    pub fn write_error(&self) -> Option<String> {
        let of_file = self.registry_file_error();
        of_file.or_else(|| self.context.status_writer.last_error()).or_else(|| self.executions.write_error())
    }

    /// What happened to the registry's file, if it was deleted, replaced or emptied. Only checks the file system.
    pub fn registry_file_error(&self) -> Option<String> {
        self.store.file_error()
    }

    /// Why the config file is not applied, if so.
    pub fn config_error(&self) -> Option<String> {
        self.context.config_error()
    }

    /// Which stored settings are not applied, if any, and why.
    pub fn settings_error(&self) -> Option<String> {
        self.settings.last_error()
    }

    /// How many tools are not stored because another program has their names in the table of tools, and what to do, if
    /// there are any. Needs no database access.
    pub fn name_conflicts(&self) -> Option<String> {
        let handles = self.context.all();
        let NameConflicts { tools, table } =
            self.store.name_conflicts(|server| handles.iter().any(|handle| handle.id == server))?;
        Some(format!(
            "{tools} tools are not stored, so search and REST do not know them: rows of another program in the table \
             `{table}` have their names; rename those rows or the servers (the log names the servers)"
        ))
    }

    /// Records that the tokens file cannot be used, so that tokens removed from it are still accepted; or that it can.
    pub fn note_token_error(&self, error: Option<String>) {
        self.context.note_token_error(error);
    }

    /// Why the tokens file is not applied, if so.
    pub fn token_error(&self) -> Option<String> {
        self.context.token_error()
    }

    /// Records that the files with the certificate and its key cannot be used, so that the earlier ones still are; or that
    /// they can.
    pub fn note_certificate_error(&self, error: Option<String>) {
        self.context.note_certificate_error(error);
    }

    /// Why the files with the certificate and its key are not applied, if so.
    pub fn certificate_error(&self) -> Option<String> {
        self.context.certificate_error()
    }

    /// The audit log, newest first.
    pub async fn audit(&self, filter: &AuditFilter, page: Page) -> Result<Listed<AuditRecord>, Error> {
        Ok(self.store.audit(filter, page).await?)
    }
}
