//! Who changed what, and when.

use serde::Serialize;
use serde_json::Value;

use crate::database::{Mismatch, Row, values};
use crate::error::Error;
use crate::select::{self, Columns, Filter};
use crate::{Listed, Page, RetentionPolicy, Store, Timestamp, Transaction};

/// A change to be noted.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditNote {
    /// The name of the token, or nothing where there are none.
    pub who: Option<String>,
    /// What was done, as in `server.register`.
    pub action: String,
    /// To what: usually a server's name.
    pub target: Option<String>,
    /// What else is worth knowing. Never a secret: it is kept as it is.
    pub details: Option<Value>,
}

/// A change as it was noted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditRecord {
    /// Its number; later ones are higher.
    pub id: i64,
    /// When.
    pub timestamp: Timestamp,
    /// The name of the token.
    pub who: Option<String>,
    /// What was done.
    pub action: String,
    /// To what.
    pub target: Option<String>,
    /// What else is worth knowing.
    pub details: Option<Value>,
}

/// Which notes are wanted. The default is all of them.
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
    /// Notes something that changes nothing else here. What does is noted in its own [`Transaction`].
    pub async fn append_audit(&self, note: AuditNote) -> Result<(), Error> {
        let mut transaction = self.transaction("write the audit log").await?;
        transaction.append_audit(note).await?;
        transaction.commit().await
    }

    /// Changes that were noted, the newest first.
    pub async fn audit(&self, filter: &AuditFilter, page: Page) -> Result<Listed<AuditRecord>, Error> {
        let mut session = self.read("read the audit log").await?;
        let wanted = Filter::default()
            .and("who =", filter.who.as_ref())
            .and("action =", filter.action.as_ref())
            .and("target =", filter.target.as_ref())
            .and("timestamp >=", filter.since);
        wanted.page(&mut session, COLUMNS, page, from_row).await
    }

    /// Forgets old notes; says how many.
    pub async fn prune_audit(&self, keep: RetentionPolicy) -> Result<u64, Error> {
        select::cut(self, "prune the audit log", "mcp.audit_log", "timestamp", keep).await
    }
}

impl Transaction {
    /// Notes what this transaction does.
    pub async fn append_audit(&mut self, note: AuditNote) -> Result<(), Error> {
        let sql = "INSERT INTO mcp.audit_log (timestamp, who, action, target, details) VALUES ($1, $2, $3, $4, $5)";
        let values = values![Timestamp::now(), note.who, note.action, note.target, note.details.as_ref()];
        self.session.execute(sql, values).await.map(drop)
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
