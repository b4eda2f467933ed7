//! Changes of server statuses, and their history.

use serde_json::{Map, Value as Json, json};

use super::queries::{Hold, by_id};
use crate::database::{Session, values};
use crate::error::Error;
use crate::{EventKind, ServerId, ServerRecord, Status, StatusChange, StatusChanged, Store, Timestamp};

impl Store {
    /// Sets the status of a server and writes its history, both or none.
    ///
    /// A connected status sets `connected_at` if the server was not connected before; any other status clears it.
    pub async fn set_status(&self, id: ServerId, change: StatusChange) -> Result<StatusChanged, Error> {
        let mut session = self.write("set the status of a server").await?;
        let found = by_id(&mut session, &self.sealer(), id, Hold::Row).await?;
        let old = found.ok_or_else(|| Error::server_not_found(&id))?;
        let previous = old.status;
        let event = event(&old, &change);
        let server = changed(old, change);
        write(&mut session, &server).await?;
        if let Some((kind, details)) = event {
            append_event(&mut session, id, kind, &details, server.updated_at).await?;
        }
        session.commit().await?;
        Ok(StatusChanged { previous, server })
    }

    /// Records a health check that changed nothing. Cheaper than setting the status.
    pub async fn note_health_check(&self, id: ServerId, at: Timestamp) -> Result<(), Error> {
        let mut session = self.write("record a health check").await?;
        let sql = "UPDATE mcp.external_servers SET last_health_check = $1 WHERE id = $2";
        let found = session.execute(sql, values![at, id]).await?;
        session.commit().await?;
        if found == 0 { Err(Error::server_not_found(&id)) } else { Ok(()) }
    }

    /// Sets every server that is not disabled to disconnected, for a start after a crash. Returns how many were not.
    pub async fn reset_connections(&self) -> Result<u64, Error> {
        let mut session = self.write("reset the status of servers").await?;
        let sql = "UPDATE mcp.external_servers SET status = $1, connected_at = NULL, error_message = NULL, \
            updated_at = $2 WHERE status NOT IN ($1, $3)";
        let values = values![Status::Disconnected, Timestamp::now(), Status::Disabled];
        let reset = session.execute(sql, values).await?;
        session.commit().await?;
        Ok(reset)
    }
}

pub(super) fn event(old: &ServerRecord, change: &StatusChange) -> Option<(EventKind, Json)> {
    let previous = old.status;
    // A server that never connected and never failed is not reconnecting.
    let is_first = old.last_connected_at.is_none() && old.failure_count == 0;
    let implied = (previous != change.status).then(|| match EventKind::of(change.status) {
        EventKind::Reconnect if is_first => EventKind::Connect,
        kind => kind,
    });
    let kind = change.event.or(implied)?;
    let mut details = Map::new();
    details.insert("from".to_owned(), json!(previous));
    details.insert("to".to_owned(), json!(change.status));
    if let Some(message) = &change.error_message {
        details.insert("error".to_owned(), json!(message));
    }
    match &change.details {
        Some(Json::Object(more)) => details.extend(more.clone()),
        Some(other) => {
            details.insert("details".to_owned(), other.clone());
        }
        None => {}
    }
    Some((kind, Json::Object(details)))
}

fn changed(old: ServerRecord, change: StatusChange) -> ServerRecord {
    let now = Timestamp::now();
    let has_come_up = change.status.is_up() && !old.status.is_up();
    ServerRecord {
        status: change.status,
        error_message: change.error_message,
        failure_count: change.failure_count.unwrap_or(old.failure_count),
        enabled: change.enabled.unwrap_or(old.enabled),
        auto_disabled: change.auto_disabled.unwrap_or(old.auto_disabled),
        auto_disabled_at: match change.auto_disabled {
            Some(true) => Some(now),
            Some(false) => None,
            None => old.auto_disabled_at,
        },
        worked_at: change.worked_at.or(old.worked_at),
        server_info: change.server_info.or(old.server_info),
        last_health_check: change.last_health_check.or(old.last_health_check),
        connected_at: if has_come_up { Some(now) } else { old.connected_at.filter(|_| change.status.is_up()) },
        last_connected_at: if has_come_up { Some(now) } else { old.last_connected_at },
        updated_at: now,
        ..old
    }
}

async fn write(session: &mut Session, server: &ServerRecord) -> Result<(), Error> {
    let sql = "UPDATE mcp.external_servers SET status = $2, error_message = $3, failure_count = $4, enabled = $5, \
        auto_disabled = $6, server_info = $7, last_health_check = $8, connected_at = $9, last_connected_at = $10, \
        updated_at = $11, auto_disabled_at = $12, worked_at = $13 WHERE id = $1";
    let values = values![
        server.id,
        server.status,
        server.error_message.as_ref(),
        server.failure_count,
        server.enabled,
        server.auto_disabled,
        server.server_info.as_ref(),
        server.last_health_check,
        server.connected_at,
        server.last_connected_at,
        server.updated_at,
        server.auto_disabled_at,
        server.worked_at,
    ];
    session.execute(sql, values).await.map(drop)
}

pub(crate) async fn append_event(
    session: &mut Session,
    id: ServerId,
    kind: EventKind,
    details: &Json,
    at: Timestamp,
) -> Result<(), Error> {
    let sql = "INSERT INTO mcp.server_connection_history (server_id, event_type, details, timestamp) \
        VALUES ($1, $2, $3, $4)";
    session.execute(sql, values![id, kind, details, at]).await.map(drop)
}
