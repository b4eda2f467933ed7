//! Registers, finds, changes and removes servers.

use serde_json::Value;

use super::address;
use super::changes::{append_event, event};
use crate::database::{Mismatch, Row, Session, values};
use crate::error::Error;
use crate::limits;
use crate::seal::Sealer;
use crate::select::{Columns, Filter};
use crate::store::{KeyLock, check_key_of, opened};
use crate::{
    ConnectionConfig, Listed, NewServer, Page, ServerFilter, ServerId, ServerPatch, ServerRecord, Status, StatusChange,
    Store, Timestamp, Transaction, Transport,
};

/// Separates the names of server and tool.
pub(crate) const SEPARATOR: char = '.';

const MAX_NAME_LEN: usize = 255;

const COLUMNS: &str = "id, name, description, transport_type, connection_config, health_check_url, deployment_type, \
    origin, status, enabled, auto_connect, auto_disabled, failure_count, tool_count, error_message, server_info, \
    last_health_check, last_connected_at, connected_at, registered_at, updated_at, auto_disabled_at, worked_at";

impl Store {
    /// Registers a server. Fails with [`Error::AlreadyExists`] if the name is in use.
    pub async fn insert_server(&self, new: NewServer) -> Result<ServerRecord, Error> {
        let mut transaction = self.transaction("register a server").await?;
        let record = transaction.insert_server(new).await?;
        transaction.commit().await?;
        Ok(record)
    }

    /// The server with an id.
    pub async fn server(&self, id: ServerId) -> Result<ServerRecord, Error> {
        let mut session = self.read("read a server").await?;
        by_id(&mut session, &self.sealer(), id, Hold::Nothing).await?.ok_or_else(|| Error::server_not_found(&id))
    }

    /// The server with an id or a name. An id takes precedence over a name that looks like one.
    pub async fn find_server(&self, id_or_name: &str) -> Result<ServerRecord, Error> {
        let sealer = self.sealer();
        let mut session = self.read("read a server").await?;
        if let Ok(id) = id_or_name.parse()
            && let Some(found) = by_id(&mut session, &sealer, id, Hold::Nothing).await?
        {
            return Ok(found);
        }
        let found = by_name(&mut session, &sealer, id_or_name).await?;
        found.ok_or_else(|| Error::server_not_found(id_or_name))
    }

    /// Servers ordered by name.
    pub async fn servers(&self, filter: &ServerFilter, page: Page) -> Result<Listed<ServerRecord>, Error> {
        let sealer = self.sealer();
        let mut session = self.read("list servers").await?;
        let columns = Columns { columns: COLUMNS, tables: "mcp.external_servers", order: "name" };
        let wanted = Filter::default().and("status =", filter.status).and("origin =", filter.origin);
        wanted.page(&mut session, columns, page, move |row| from_row(row, &sealer)).await
    }

    /// The number of servers by status.
    pub async fn server_counts(&self) -> Result<Vec<(Status, u64)>, Error> {
        let mut session = self.read("count servers").await?;
        let sql = "SELECT status, count(*) AS n FROM mcp.external_servers GROUP BY status ORDER BY status";
        session.all(sql, values![], |row| Ok((row.take("status")?, row.take("n")?))).await
    }

    /// Changes a server, and the names of its tools if its name changes.
    pub async fn update_server(&self, id: ServerId, patch: ServerPatch) -> Result<ServerRecord, Error> {
        let mut transaction = self.transaction("change a server").await?;
        let record = transaction.update_server(id, patch).await?;
        transaction.commit().await?;
        Ok(record)
    }

    /// Removes a server with its tools, history and bindings. Its executions stay.
    pub async fn delete_server(&self, id: ServerId) -> Result<(), Error> {
        let mut transaction = self.transaction("remove a server").await?;
        transaction.delete_server(id).await?;
        transaction.commit().await
    }
}

impl Transaction {
    /// As [`Store::insert_server`].
    pub async fn insert_server(&mut self, new: NewServer) -> Result<ServerRecord, Error> {
        let Self { session, sealer } = self;
        check_key_of(session, sealer, KeyLock::Shared).await?;
        insert(session, sealer, new).await
    }

    /// As [`Store::update_server`].
    pub async fn update_server(&mut self, id: ServerId, patch: ServerPatch) -> Result<ServerRecord, Error> {
        let Self { session, sealer } = self;
        check_key_of(session, sealer, KeyLock::Shared).await?;
        let found = by_id(session, sealer, id, Hold::Row).await?;
        let old = found.ok_or_else(|| Error::server_not_found(&id))?;
        update(session, sealer, old, patch).await
    }

    /// As [`Store::delete_server`].
    pub async fn delete_server(&mut self, id: ServerId) -> Result<(), Error> {
        let gone = self.session.execute("DELETE FROM mcp.external_servers WHERE id = $1", values![id]).await?;
        if gone == 0 { Err(Error::server_not_found(&id)) } else { Ok(()) }
    }
}

/// Whether a row is locked until the end of the transaction.
#[derive(Clone, Copy)]
pub(crate) enum Hold {
    Nothing,
    Row,
}

pub(crate) async fn by_id(
    session: &mut Session,
    sealer: &Sealer,
    id: ServerId,
    hold: Hold,
) -> Result<Option<ServerRecord>, Error> {
    let hold = match hold {
        Hold::Nothing => "",
        Hold::Row => " FOR UPDATE",
    };
    let sql = format!("SELECT {COLUMNS} FROM mcp.external_servers WHERE id = $1{hold}");
    session.first(&sql, values![id], |row| from_row(row, sealer)).await
}

pub(crate) async fn by_name(session: &mut Session, sealer: &Sealer, name: &str) -> Result<Option<ServerRecord>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM mcp.external_servers WHERE name = $1");
    session.first(&sql, values![name], |row| from_row(row, sealer)).await
}

fn from_row(row: &mut Row, sealer: &Sealer) -> Result<ServerRecord, Mismatch> {
    let id: ServerId = row.take("id")?;
    let config = opened(sealer, &id.to_string(), row.take("connection_config")?)?;
    Ok(ServerRecord {
        id,
        connection_config: serde_json::from_str(&config).map_err(|_| Mismatch::Seal("it is not a JSON object"))?,
        name: row.take("name")?,
        description: row.take("description")?,
        transport: row.take("transport_type")?,
        health_check_url: address::opened(sealer, id, row.take("health_check_url")?)?,
        deployment: row.take("deployment_type")?,
        origin: row.take("origin")?,
        status: row.take("status")?,
        enabled: row.take("enabled")?,
        auto_connect: row.take("auto_connect")?,
        auto_disabled: row.take("auto_disabled")?,
        auto_disabled_at: row.take("auto_disabled_at")?,
        worked_at: row.take("worked_at")?,
        failure_count: row.take("failure_count")?,
        tool_count: row.take("tool_count")?,
        error_message: row.take("error_message")?,
        server_info: row.take("server_info")?,
        last_health_check: row.take("last_health_check")?,
        last_connected_at: row.take("last_connected_at")?,
        connected_at: row.take("connected_at")?,
        registered_at: row.take("registered_at")?,
        updated_at: row.take("updated_at")?,
    })
}

fn sealed(sealer: &Sealer, id: ServerId, config: &ConnectionConfig) -> serde_json::Value {
    let text = serde_json::to_string(config.reveal()).expect("a JSON object can be written");
    sealer.seal(&id.to_string(), &text)
}

fn check_name(name: &str) -> Result<(), Error> {
    let length = name.chars().count();
    if length == 0 || length > MAX_NAME_LEN || name.contains('\0') {
        let what = format!("the name of a server must have 1 to {MAX_NAME_LEN} characters and no NUL");
        return Err(Error::Invalid { what });
    }
    Ok(())
}

pub(crate) async fn insert(session: &mut Session, sealer: &Sealer, new: NewServer) -> Result<ServerRecord, Error> {
    check_name(&new.name)?;
    let now = Timestamp::now();
    let record = ServerRecord {
        id: ServerId::fresh(),
        name: new.name,
        description: new.description,
        transport: new.transport,
        connection_config: new.connection_config,
        health_check_url: new.health_check_url,
        deployment: new.deployment,
        origin: new.origin,
        status: if new.enabled { Status::Disconnected } else { Status::Disabled },
        enabled: new.enabled,
        auto_connect: new.auto_connect,
        auto_disabled: false,
        auto_disabled_at: None,
        worked_at: None,
        failure_count: 0,
        tool_count: 0,
        error_message: None,
        server_info: None,
        last_health_check: None,
        last_connected_at: None,
        connected_at: None,
        registered_at: now,
        updated_at: now,
    };
    let sql = "INSERT INTO mcp.external_servers (id, name, description, transport_type, connection_config, \
        health_check_url, deployment_type, origin, status, enabled, auto_connect, registered_at, updated_at) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12) ON CONFLICT (name) DO NOTHING";
    let values = values![
        record.id,
        &record.name,
        record.description.as_ref(),
        record.transport,
        &sealed(sealer, record.id, &record.connection_config),
        record.health_check_url.as_deref().map(|address| address::sealed(sealer, record.id, address)),
        record.deployment,
        record.origin,
        record.status,
        record.enabled,
        record.auto_connect,
        now,
    ];
    match session.execute(sql, values).await? {
        0 => Err(Error::AlreadyExists { name: record.name }),
        _ => Ok(record),
    }
}

pub(crate) async fn update(
    session: &mut Session,
    sealer: &Sealer,
    old: ServerRecord,
    patch: ServerPatch,
) -> Result<ServerRecord, Error> {
    let new_name = patch.name.clone().filter(|name| *name != old.name);
    let record = patched(old.clone(), patch);
    if new_name.is_some() {
        check_name(&record.name)?;
    }
    let sql = "UPDATE mcp.external_servers SET name = $2, description = $3, transport_type = $4, \
        connection_config = $5, health_check_url = $6, deployment_type = $7, origin = $8, status = $9, enabled = $10, \
        auto_connect = $11, auto_disabled = $12, failure_count = $13, error_message = $14, updated_at = $15, \
        auto_disabled_at = $16, worked_at = $17 WHERE id = $1";
    let values = values![
        record.id,
        &record.name,
        record.description.as_ref(),
        record.transport,
        &sealed(sealer, record.id, &record.connection_config),
        record.health_check_url.as_deref().map(|address| address::sealed(sealer, record.id, address)),
        record.deployment,
        record.origin,
        record.status,
        record.enabled,
        record.auto_connect,
        record.auto_disabled,
        record.failure_count,
        record.error_message.as_ref(),
        record.updated_at,
        record.auto_disabled_at,
        record.worked_at,
    ];
    match session.execute(sql, values).await {
        // Nothing else in this table is unique.
        Err(Error::Conflict { .. }) => return Err(Error::AlreadyExists { name: record.name }),
        other => other?,
    };
    if let Some(name) = new_name {
        refuse_taken(session, record.id, &name).await?;
        let rename = "UPDATE mcp.tools SET name = $1 || original_name WHERE source_server_id = $2";
        session.execute(rename, values![format!("{name}{SEPARATOR}"), record.id]).await?;
        limits::rename_server(session, &old.name, &name).await?;
    }
    // Enabling or disabling is a change of status like any other.
    if let Some((kind, details)) = event(&old, &StatusChange::to(record.status)) {
        append_event(session, record.id, kind, &details, record.updated_at).await?;
    }
    Ok(record)
}

/// Refuses a new name under which a tool would have the name of another program's row: in a table of tools that was
/// adopted, names are unique among all tools.
async fn refuse_taken(session: &mut Session, server: ServerId, name: &str) -> Result<(), Error> {
    let Some(schema) = session.schema().cloned() else { return Ok(()) };
    let sql = "SELECT other.name FROM mcp.tools AS own JOIN mcp.tools AS other ON other.name = $1 || own.original_name \
        WHERE own.source_server_id = $2 AND other.source_server_id IS NULL ORDER BY other.name LIMIT 1";
    let taken = session.first(sql, values![format!("{name}{SEPARATOR}"), server], |row| row.take("name")).await?;
    let refused = |tool| Err(Error::ToolNameTaken { tool, table: format!("{}.tools", schema.as_str()) });
    taken.map_or(Ok(()), refused)
}

fn patched(old: ServerRecord, patch: ServerPatch) -> ServerRecord {
    let mut record = old;
    let transport = patch.transport.unwrap_or(record.transport);
    let config = patch.connection_config.as_ref().unwrap_or(&record.connection_config);
    if program_of(transport, config) != program_of(record.transport, &record.connection_config) {
        // It is unknown whether a new program works. A remote server stays the same one, however its entry is edited:
        // once it has worked, it is retried without end.
        record.worked_at = None;
    }
    if let Some(enabled) = patch.enabled {
        record.enabled = enabled;
        if enabled {
            record.auto_disabled = false;
            record.auto_disabled_at = None;
            record.failure_count = 0;
        }
        // The supervisor reports connecting and disconnecting afterwards; here only the flag changes.
        if enabled && record.status == Status::Disabled {
            record.status = Status::Disconnected;
            record.error_message = None;
        } else if !enabled && !record.status.is_up() {
            record.status = Status::Disabled;
        }
    }
    ServerRecord {
        name: patch.name.unwrap_or(record.name),
        description: patch.description.unwrap_or(record.description),
        transport: patch.transport.unwrap_or(record.transport),
        connection_config: patch.connection_config.unwrap_or(record.connection_config),
        health_check_url: patch.health_check_url.unwrap_or(record.health_check_url),
        deployment: patch.deployment.unwrap_or(record.deployment),
        auto_connect: patch.auto_connect.unwrap_or(record.auto_connect),
        origin: patch.origin.unwrap_or(record.origin),
        updated_at: Timestamp::now(),
        ..record
    }
}

/// The program that is started for a server; None for a remote one.
fn program_of(transport: Transport, config: &ConnectionConfig) -> Option<[Option<&Value>; 3]> {
    let is_started = transport == Transport::Stdio || config.reveal().contains_key("docker");
    is_started.then(|| ["command", "args", "docker"].map(|key| config.reveal().get(key)))
}
