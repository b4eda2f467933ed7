//! Sign-ins to servers (OAuth grants): encrypted, and changed by compare-and-swap only.
//!
//! Several processes can refresh the same grant, and a refresh token must not be used twice. Therefore a writer names
//! the version that it has read, and exactly one of two writers succeeds. Versions only grow, also when a grant is
//! removed and stored again: a writer with an old version never overwrites a later sign-in.

use std::fmt;

use crate::database::{Session, values};
use crate::error::Error;
use crate::seal::Sealer;
use crate::store::{KeyLock, check_key_of, opened};
use crate::{ServerId, Store, Timestamp, Transaction};

/// A stored sign-in.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredGrant {
    /// Its version.
    pub version: u64,
    /// The grant in plain text. Its format is defined by its user.
    pub value: String,
}

/// The result of a compare-and-swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantReplaced {
    /// It is stored, and has this version.
    Stored(u64),
    /// It is removed.
    Removed,
    /// The stored version is not the expected one. Nothing was changed.
    Conflict,
}

impl Store {
    /// The sign-in with a key.
    pub async fn oauth_grant(&self, key: &str) -> Result<Option<StoredGrant>, Error> {
        let sealer = self.sealer();
        let mut session = self.read("read a sign-in").await?;
        let sql = "SELECT version, value FROM mcp.oauth_grants WHERE key = $1";
        session
            .first(sql, values![key], |row| {
                Ok(StoredGrant {
                    version: row.take("version")?,
                    value: opened(&sealer, &owner(key), row.take("value")?)?,
                })
            })
            .await
    }

    /// Stores or removes the sign-in with a key if its version is still the expected one; `None` expects that there is
    /// none. The change is durable when this returns.
    ///
    /// If the first word of the key is the id of a server, the sign-in is removed with the server.
    pub async fn replace_oauth_grant(
        &self,
        key: &str,
        expected: Option<u64>,
        value: Option<&str>,
    ) -> Result<GrantReplaced, Error> {
        let mut transaction = self.transaction("store a sign-in").await?;
        let replaced = transaction.replace_oauth_grant(key, expected, value).await?;
        transaction.commit().await?;
        Ok(replaced)
    }
}

impl Transaction {
    /// As [`Store::replace_oauth_grant`].
    pub async fn replace_oauth_grant(
        &mut self,
        key: &str,
        expected: Option<u64>,
        value: Option<&str>,
    ) -> Result<GrantReplaced, Error> {
        let Self { session, sealer } = self;
        check_key_of(session, sealer, KeyLock::Shared).await?;
        let now = Timestamp::now();
        // The clock makes the first version of a new row greater than all versions of a removed one.
        let clock = u64::try_from(now.as_micros()).unwrap_or(1);
        let version = expected.map_or(clock, |expected| clock.max(expected.saturating_add(1)));
        let sealed = value.map(|value| sealer.seal(&owner(key), value));
        let changed = match (expected, &sealed) {
            (None, Some(sealed)) => {
                let sql = "INSERT INTO mcp.oauth_grants (key, server_id, version, value, updated_at) \
                    VALUES ($1, $2, $3, $4, $5) ON CONFLICT (key) DO NOTHING";
                session.execute(sql, values![key, server_of(key), version, sealed, now]).await?
            }
            (Some(expected), Some(sealed)) => {
                let sql = "UPDATE mcp.oauth_grants SET version = $3, value = $4, updated_at = $5 \
                    WHERE key = $1 AND version = $2";
                session.execute(sql, values![key, expected, version, sealed, now]).await?
            }
            (Some(expected), None) => {
                let sql = "DELETE FROM mcp.oauth_grants WHERE key = $1 AND version = $2";
                session.execute(sql, values![key, expected]).await?
            }
            (None, None) => {
                let sql = "SELECT count(*) AS n FROM mcp.oauth_grants WHERE key = $1";
                u64::from(session.number(sql, values![key]).await? == 0)
            }
        };
        Ok(match (changed, sealed) {
            (0, _) => GrantReplaced::Conflict,
            (_, Some(_)) => GrantReplaced::Stored(version),
            (_, None) => GrantReplaced::Removed,
        })
    }
}

/// Encrypts all sign-ins with another key.
pub(crate) async fn reseal(session: &mut Session, old: &Sealer, new: &Sealer) -> Result<(), Error> {
    let grants = session
        .all("SELECT key, value FROM mcp.oauth_grants ORDER BY key FOR UPDATE", values![], |row| {
            let key: String = row.take("key")?;
            let value = opened(old, &owner(&key), row.take("value")?)?;
            Ok((key, value))
        })
        .await?;
    let resealed = grants.iter().map(|(key, value)| values![&new.seal(&owner(key), value), key]).collect();
    session.execute_each("UPDATE mcp.oauth_grants SET value = $1 WHERE key = $2", resealed).await.map(drop)
}

/// The server of a key: its first word is the id of one, unless it is the key of a program without a registry.
fn server_of(key: &str) -> Option<ServerId> {
    key.split(' ').next()?.parse().ok()
}

/// The owner of the encrypted text. It differs from the owner of the server's config, so that neither can take the
/// place of the other.
fn owner(key: &str) -> String {
    format!("oauth_grant {key}")
}

impl fmt::Debug for StoredGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredGrant").field("version", &self.version).finish_non_exhaustive()
    }
}
