//! Settings that were changed at run time. What they mean, and their defaults, is for those who use them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::database::{Session, values};
use crate::error::Error;
use crate::{Store, Timestamp};

impl Store {
    /// Everything that was set.
    pub async fn settings(&self) -> Result<BTreeMap<String, Value>, Error> {
        let mut session = self.read("read settings").await?;
        all(&mut session).await
    }

    /// One setting, if it was set.
    pub async fn setting(&self, key: &str) -> Result<Option<Value>, Error> {
        let mut session = self.read("read a setting").await?;
        session.first("SELECT value FROM mcp.settings WHERE key = $1", values![key], |row| row.take("value")).await
    }

    /// Sets some settings, all or none; `null` takes one back. Answers with everything that is set then.
    pub async fn put_settings(&self, changes: BTreeMap<String, Value>) -> Result<BTreeMap<String, Value>, Error> {
        let mut session = self.write("change settings").await?;
        put(&mut session, changes).await?;
        let settings = all(&mut session).await?;
        session.commit().await?;
        Ok(settings)
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
