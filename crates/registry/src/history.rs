//! The connection history of servers.

use serde::Serialize;
use serde_json::Value as Json;

use crate::database::{Mismatch, Row, Value, values};
use crate::error::Error;
use crate::select::{self, Columns, Filter};
use crate::{EventKind, Listed, Page, RetentionPolicy, ServerId, Store, Timestamp};

/// An event in the history of a server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryEvent {
    /// The number; later events have higher ones.
    pub id: i64,
    /// The server.
    pub server_id: ServerId,
    /// The kind of event.
    #[serde(rename = "event_type")]
    pub kind: EventKind,
    /// The status before and after, and further details.
    pub details: Option<Json>,
    /// When.
    pub timestamp: Timestamp,
}

const COLUMNS: Columns = Columns {
    columns: "id, server_id, event_type, details, timestamp",
    tables: "mcp.server_connection_history",
    order: "id DESC",
};

impl Store {
    /// The history of a server, newest first. An unknown server has none.
    pub async fn history(&self, server: ServerId, page: Page) -> Result<Listed<HistoryEvent>, Error> {
        let mut session = self.read("read the history of a server").await?;
        Filter::default().and("server_id =", Some(server)).page(&mut session, COLUMNS, page, from_row).await
    }

    /// Deletes old events, and for each server those beyond the limit. Returns their number.
    pub async fn prune_history(&self, keep: RetentionPolicy) -> Result<u64, Error> {
        let operation = "prune histories";
        let age_only = RetentionPolicy { newest: None, ..keep };
        let mut gone = select::cut(self, operation, "mcp.server_connection_history", "timestamp", age_only).await?;
        if let Some(newest) = keep.newest {
            let too_long = |row: &mut Row| Ok(vec![row.take::<Value>("server_id")?, row.take::<Value>("id")?]);
            let first_too_many =
                self.read(operation).await?.all(FIRST_TOO_MANY, values![u64::from(newest) + 1], too_long).await?;
            for first_too_many in first_too_many {
                gone += select::cut_in_steps(self, operation, CUT_ONE, first_too_many).await?;
            }
        }
        Ok(gone)
    }
}

/// For each server with too many events, the newest one to delete.
const FIRST_TOO_MANY: &str = "SELECT server_id, id FROM (SELECT server_id, id, row_number() OVER \
    (PARTITION BY server_id ORDER BY id DESC) AS place FROM mcp.server_connection_history) AS ranked \
    WHERE place = $1";

const CUT_ONE: &str = "DELETE FROM mcp.server_connection_history WHERE id IN \
    (SELECT id FROM mcp.server_connection_history WHERE server_id = $1 AND id <= $2 ORDER BY id LIMIT $3)";

fn from_row(row: &mut Row) -> Result<HistoryEvent, Mismatch> {
    Ok(HistoryEvent {
        id: row.take("id")?,
        server_id: row.take("server_id")?,
        kind: row.take("event_type")?,
        details: row.take("details")?,
        timestamp: row.take("timestamp")?,
    })
}
