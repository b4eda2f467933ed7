//! The audit log: who changed what, and when.

use std::sync::Arc;

use catalog::Principal;
use serde::Serialize;
use serde_json::Value;

use crate::database::{Mismatch, Row, values};
use crate::error::Error;
use crate::select::{self, Columns, Filter};
use crate::{Listed, Page, RetentionPolicy, Store, Timestamp, Transaction};

/// On whose behalf something is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The name of the principal, where there is more than one; or which way somebody came, as in `cli`.
    pub name: Arc<str>,
    /// The principal.
    pub principal: Arc<Principal>,
}

impl Actor {
    /// A principal. The local user, who has no name, is called by the way that he came.
    pub fn new(principal: &Arc<Principal>, came_by: &str) -> Self {
        let name = if principal.is_local() { Arc::from(came_by) } else { Arc::clone(principal.name()) };
        Self { name, principal: Arc::clone(principal) }
    }

    /// The program itself, or a command that works without a service.
    pub fn internal(name: &str) -> Self {
        Self { name: Arc::from(name), principal: Principal::internal(name) }
    }
}

/// An entry to be written to the audit log.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditNote {
    /// The name of the token, or None without tokens.
    pub who: Option<String>,
    /// The action, such as `server.register`.
    pub action: String,
    /// The target, usually the name of a server.
    pub target: Option<String>,
    /// Further details. Never a secret: they are stored as they are.
    pub details: Option<Value>,
}

impl AuditNote {
    /// What somebody did.
    pub fn new(by: &Actor, action: &str, target: Option<&str>, details: Option<Value>) -> Self {
        Self { who: Some(by.name.to_string()), action: action.to_owned(), target: target.map(str::to_owned), details }
    }

    /// Writes to the log that it was done.
    pub fn log(&self) {
        let (who, target) = (self.who.as_deref().unwrap_or_default(), self.target.as_deref().unwrap_or_default());
        tracing::info!(who, action = self.action, target, "done");
    }
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditRecord {
    /// The number; later entries have higher ones.
    pub id: i64,
    /// When.
    pub timestamp: Timestamp,
    /// The name of the token.
    pub who: Option<String>,
    /// What was done.
    pub action: String,
    /// To what.
    pub target: Option<String>,
    /// Further details.
    pub details: Option<Value>,
}

/// A filter for entries. The default matches all.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Only what this token did.
    pub who: Option<String>,
    /// Only this action.
    pub action: Option<String>,
    /// Only what was done to this.
    pub target: Option<String>,
    /// Only at this time or later.
    pub since: Option<Timestamp>,
}

const COLUMNS: Columns =
    Columns { columns: "id, timestamp, who, action, target, details", tables: "mcp.audit_log", order: "id DESC" };

impl Store {
    /// Writes an entry about something that changes nothing else in the registry. Changes are recorded in their own
    /// [`Transaction`].
    pub async fn append_audit(&self, note: AuditNote) -> Result<(), Error> {
        let mut transaction = self.transaction("write the audit log").await?;
        transaction.append_audit(note).await?;
        transaction.commit().await
    }

    /// Entries, newest first.
    pub async fn audit(&self, filter: &AuditFilter, page: Page) -> Result<Listed<AuditRecord>, Error> {
        let mut session = self.read("read the audit log").await?;
        let wanted = Filter::default()
            .and("who =", filter.who.as_ref())
            .and("action =", filter.action.as_ref())
            .and("target =", filter.target.as_ref())
            .and("timestamp >=", filter.since);
        wanted.page(&mut session, COLUMNS, page, from_row).await
    }

    /// Deletes old entries, and returns their number.
    pub async fn prune_audit(&self, keep: RetentionPolicy) -> Result<u64, Error> {
        select::cut(self, "prune the audit log", "mcp.audit_log", "timestamp", keep).await
    }
}

impl Transaction {
    /// Writes an entry as part of this transaction.
    pub async fn append_audit(&mut self, note: AuditNote) -> Result<(), Error> {
        let sql = "INSERT INTO mcp.audit_log (timestamp, who, action, target, details) VALUES ($1, $2, $3, $4, $5)";
        let values = values![Timestamp::now(), note.who, note.action, note.target, note.details.as_ref()];
        self.session.execute(sql, values).await.map(drop)
    }

    /// Commits what somebody changed, together with its row in the audit log.
    pub async fn commit_audited(mut self, note: AuditNote) -> Result<(), Error> {
        self.append_audit(note.clone()).await?;
        self.commit().await?;
        note.log();
        Ok(())
    }
}

fn from_row(row: &mut Row) -> Result<AuditRecord, Mismatch> {
    Ok(AuditRecord {
        id: row.take("id")?,
        timestamp: row.take("timestamp")?,
        who: row.take("who")?,
        action: row.take("action")?,
        target: row.take("target")?,
        details: row.take("details")?,
    })
}
