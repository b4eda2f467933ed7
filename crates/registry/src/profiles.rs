//! Profiles: named views for some clients. Their meaning is defined by their users.

use serde_json::Value;

use crate::database::{Row, Session, values};
use crate::error::Error;
use crate::{Store, Timestamp, Transaction};

/// A stored profile.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileRecord {
    /// Its name.
    pub name: String,
    /// How it is written.
    pub spec: Value,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

impl Store {
    /// All profiles, by name.
    pub async fn profiles(&self) -> Result<Vec<ProfileRecord>, Error> {
        let mut session = self.read("read profiles").await?;
        all(&mut session).await
    }
}

impl Transaction {
    /// Stores a profile, or replaces the one of that name.
    pub async fn put_profile(&mut self, name: &str, spec: &Value) -> Result<ProfileRecord, Error> {
        put(&mut self.session, name, spec).await
    }

    /// Deletes a profile. Returns whether it existed.
    pub async fn delete_profile(&mut self, name: &str) -> Result<bool, Error> {
        let sql = "DELETE FROM mcp.client_profiles WHERE name = $1";
        Ok(self.session.execute(sql, values![name]).await? > 0)
    }
}

pub(crate) async fn all(session: &mut Session) -> Result<Vec<ProfileRecord>, Error> {
    let read = |row: &mut Row| {
        Ok(ProfileRecord { name: row.take("name")?, spec: row.take("spec")?, updated_at: row.take("updated_at")? })
    };
    session.all("SELECT name, spec, updated_at FROM mcp.client_profiles ORDER BY name", values![], read).await
}

pub(crate) async fn put(session: &mut Session, name: &str, spec: &Value) -> Result<ProfileRecord, Error> {
    let updated_at = Timestamp::now();
    let sql = "INSERT INTO mcp.client_profiles (name, spec, updated_at) VALUES ($1, $2, $3) \
        ON CONFLICT (name) DO UPDATE SET spec = excluded.spec, updated_at = excluded.updated_at";
    session.execute(sql, values![name, spec, updated_at]).await?;
    Ok(ProfileRecord { name: name.to_owned(), spec: spec.clone(), updated_at })
}
