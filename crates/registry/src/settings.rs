//! Settings that were changed at run time. Their meaning and defaults are defined by their users.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::database::{Session, values};
use crate::error::Error;
use crate::{Store, Timestamp, Transaction};

impl Store {
    /// All settings that were changed.
    pub async fn settings(&self) -> Result<BTreeMap<String, Value>, Error> {
        let mut session = self.read("read settings").await?;
        all(&mut session).await
    }

    /// One setting, if it was changed.
    pub async fn setting(&self, key: &str) -> Result<Option<Value>, Error> {
        let mut session = self.read("read a setting").await?;
        session.first("SELECT value FROM mcp.settings WHERE key = $1", values![key], |row| row.take("value")).await
    }

    /// Changes settings, all or none; `null` resets one. Returns all changed settings.
    pub async fn put_settings(&self, changes: BTreeMap<String, Value>) -> Result<BTreeMap<String, Value>, Error> {
        let mut transaction = self.transaction("change settings").await?;
        let settings = transaction.put_settings(changes).await?;
        transaction.commit().await?;
        Ok(settings)
    }

    /// Whether an operator stopped all executions. None if that was never stored.
    pub async fn executions_stopped(&self) -> Result<Option<bool>, Error> {
        let mut session = self.read("read whether executions are stopped").await?;
        let sql = "SELECT value FROM mcp.registry_meta WHERE key = $1";
        let kept: Option<Value> = session.first(sql, values![EXECUTIONS_STOPPED], |row| row.take("value")).await?;
        Ok(kept.map(|value| value == Value::Bool(true)))
    }
}

/// The key under which that is stored.
const EXECUTIONS_STOPPED: &str = "executions_stopped";

impl Transaction {
    /// As [`Store::put_settings`].
    pub async fn put_settings(&mut self, changes: BTreeMap<String, Value>) -> Result<BTreeMap<String, Value>, Error> {
        put(&mut self.session, changes).await?;
        all(&mut self.session).await
    }

    /// Stores whether an operator stopped all executions.
    pub async fn set_executions_stopped(&mut self, is_stopped: bool) -> Result<(), Error> {
        let sql = "INSERT INTO mcp.registry_meta (key, value) VALUES ($1, $2) \
            ON CONFLICT (key) DO UPDATE SET value = excluded.value";
        self.session.execute(sql, values![EXECUTIONS_STOPPED, &Value::Bool(is_stopped)]).await.map(drop)
    }
}

pub(crate) async fn all(session: &mut Session) -> Result<BTreeMap<String, Value>, Error> {
    let sql = "SELECT key, value FROM mcp.settings";
    let found = session.all(sql, values![], |row| Ok((row.take("key")?, row.take("value")?))).await?;
    Ok(found.into_iter().collect())
}

pub(crate) async fn put(session: &mut Session, changes: BTreeMap<String, Value>) -> Result<(), Error> {
    let (gone, set): (Vec<_>, Vec<_>) = changes.into_iter().partition(|(_, value)| value.is_null());
    let gone = gone.iter().map(|(key, _)| values![key]).collect();
    session.execute_each("DELETE FROM mcp.settings WHERE key = $1", gone).await?;
    let now = Timestamp::now();
    let set = set.iter().map(|(key, value)| values![key, value, now]).collect();
    let sql = "INSERT INTO mcp.settings (key, value, updated_at) VALUES ($1, $2, $3) \
        ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at";
    session.execute_each(sql, set).await.map(drop)
}
