//! The registry itself: opened once, cloned freely.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::ServerId;
use crate::adoption::{self, ToolsTable};
use crate::database::{Database, Mismatch, Postgres, Session, Sqlite, values};
use crate::error::{Error, OpenError};
use crate::key::CredentialKey;
use crate::location::Location;
use crate::migrations::{self, Extent};
use crate::oauth_grants;
use crate::seal::{Sealer, UnsealError};
use crate::servers::address;

/// Everything that survives a restart.
///
/// Cheap to clone; all clones are the same store. Every operation ends within five seconds, and a dropped future leaves
/// nothing half-written.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    database: Database,
    sealer: RwLock<Arc<Sealer>>,
    location: Location,
    tools_table: ToolsTable,
    /// How many tools of a server could not be stored because rows of another program have their names.
    name_conflicts: Mutex<HashMap<ServerId, u64>>,
}

const SEALED: &str = "SELECT id, connection_config, health_check_url FROM mcp.external_servers ORDER BY id FOR UPDATE";
const RESEALED: &str = "UPDATE mcp.external_servers SET connection_config = $1, health_check_url = $2 WHERE id = $3";

async fn connected(location: &Location) -> Result<Database, OpenError> {
    Ok(match location {
        Location::File(path) => {
            let file = path.clone();
            let opened = tokio::task::spawn_blocking(move || Sqlite::open(&file)).await;
            let database = Database::Sqlite(opened.expect("opening a file does not panic")?);
            migrations::refuse_foreign(&database, path).await?;
            database
        }
        Location::Postgres(place) => Database::Postgres(Postgres::new(place, &location.to_string())?),
    })
}

impl Store {
    /// Opens the registry at a location, migrates it to the version of this program, and checks that the key is the one
    /// its credentials are encrypted with.
    pub async fn open(location: &Location, key: &CredentialKey) -> Result<Self, OpenError> {
        let database = connected(location).await?;
        migrations::apply(&database).await?;
        let tools_table = adoption::tools_table(&database).await?;
        let sealer = RwLock::new(Arc::new(Sealer::new(key)));
        let store = Self {
            inner: Arc::new(Inner {
                database,
                sealer,
                location: location.clone(),
                tools_table,
                name_conflicts: Mutex::default(),
            }),
        };
        store.check_key().await?;
        Ok(store)
    }

    /// Opens an existing registry for reading. Creates nothing, and writes only to migrate an older version, so that a
    /// read-only registry works, too. Returns None if there is no registry.
    pub async fn open_existing(location: &Location, key: &CredentialKey) -> Result<Option<Self>, OpenError> {
        let database = match location {
            Location::File(path) if !path.exists() => return Ok(None),
            Location::File(path) => {
                let file = path.clone();
                let opened = tokio::task::spawn_blocking(move || Sqlite::open_existing(&file)).await;
                let database = Database::Sqlite(opened.expect("opening a file does not panic")?);
                migrations::refuse_foreign(&database, path).await?;
                database
            }
            Location::Postgres(_) => connected(location).await?,
        };
        match migrations::extent(&database).await? {
            Extent::Nothing => return Ok(None),
            Extent::Older => return Self::open(location, key).await.map(Some),
            Extent::Whole => {}
        }
        let sealer = Sealer::new(key);
        let mut session = database.read("check the key for credentials").await?;
        let sql = "SELECT value FROM mcp.registry_meta WHERE key = $1";
        let opens = session.first(sql, values![CHECK], |row| opened(&sealer, CHECK, row.take("value")?)).await?;
        drop(session);
        let tools_table = adoption::tools_table(&database).await?;
        let inner = Inner {
            database,
            sealer: RwLock::new(Arc::new(sealer)),
            location: location.clone(),
            tools_table,
            name_conflicts: Mutex::default(),
        };
        Ok(opens.map(|_| Self { inner: Arc::new(inner) }))
    }

    /// Checks whether the database responds. Changes nothing, but creates a missing file.
    pub async fn check_reachable(location: &Location) -> Result<(), OpenError> {
        let database = connected(location).await?;
        let mut session = database.read("connect to the database").await?;
        session.number("SELECT 1 AS n", values![]).await.map(drop)?;
        Ok(())
    }

    /// Its location.
    pub fn location(&self) -> &Location {
        &self.inner.location
    }

    /// The problem of the database file, if it was deleted, replaced or emptied: a sentence that says what to do. Reads
    /// only the metadata of the file; None without a file.
    pub fn file_error(&self) -> Option<String> {
        self.inner.database.file_error()
    }

    /// Checks whether the database responds, and whether its file still contains a registry.
    pub async fn ping(&self) -> Result<(), Error> {
        self.inner.database.check("connect to the database").await?;
        let mut session = self.read("connect to the database").await?;
        session.number("SELECT 1 AS n", values![]).await.map(drop)
    }

    /// Closes the database for this store and all its clones, after pending operations have ended.
    pub async fn close(&self) {
        let store = self.clone();
        let closed = tokio::task::spawn_blocking(move || store.inner.database.close()).await;
        closed.expect("closing does not panic");
    }

    /// Encrypts all credentials with another key, in one transaction. Afterwards only that key decrypts them, here and
    /// in every other program that uses this registry.
    pub async fn rekey(&self, key: &CredentialKey) -> Result<(), Error> {
        let (old, new) = (self.sealer(), Sealer::new(key));
        let mut session = self.write("encrypt credentials with a new key").await?;
        check_key_of(&mut session, &old, KeyLock::Mine).await?;
        let configs = session
            .all(SEALED, values![], |row| {
                let id: crate::ServerId = row.take("id")?;
                let text = opened(&old, &id.to_string(), row.take("connection_config")?)?;
                let address = address::opened(&old, id, row.take("health_check_url")?)?;
                Ok((id, text, address))
            })
            .await?;
        let reseal = |(id, text, address): &(crate::ServerId, String, Option<String>)| {
            let address = address.as_deref().map(|address| address::sealed(&new, *id, address));
            values![&new.seal(&id.to_string(), text), address, *id]
        };
        let resealed = configs.iter().map(reseal).collect();
        session.execute_each(RESEALED, resealed).await?;
        oauth_grants::reseal(&mut session, &old, &new).await?;
        let check = new.seal(CHECK, CHECK);
        session.execute("UPDATE mcp.registry_meta SET value = $1 WHERE key = $2", values![&check, CHECK]).await?;
        session.commit().await?;
        *self.inner.sealer.write().expect("nothing panics while it holds this") = Arc::new(new);
        Ok(())
    }

    async fn check_key(&self) -> Result<(), Error> {
        let sealer = self.sealer();
        let mut session = self.write("check the key for credentials").await?;
        let check = sealer.seal(CHECK, CHECK);
        let insert = "INSERT INTO mcp.registry_meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING";
        session.execute(insert, values![CHECK, &check]).await?;
        check_key_of(&mut session, &sealer, KeyLock::Shared).await?;
        session.commit().await
    }

    pub(crate) async fn read(&self, operation: &'static str) -> Result<Session, Error> {
        self.inner.database.read(operation).await
    }

    pub(crate) async fn write(&self, operation: &'static str) -> Result<Session, Error> {
        self.inner.database.write(operation).await
    }

    /// The same, for what may be lost if the power goes within the next seconds.
    pub(crate) async fn write_lightly(&self, operation: &'static str) -> Result<Session, Error> {
        self.inner.database.write_lightly(operation).await
    }

    /// Whose the table of tools was first.
    pub(crate) fn tools_table(&self) -> ToolsTable {
        self.inner.tools_table
    }

    pub(crate) fn name_conflicts_of_servers(&self) -> MutexGuard<'_, HashMap<ServerId, u64>> {
        self.inner.name_conflicts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sealer(&self) -> Arc<Sealer> {
        Arc::clone(&self.inner.sealer.read().expect("nothing panics while it holds this"))
    }
}

/// The name of the check value, its owner and what is in it.
const CHECK: &str = "credential_check";

/// How the check value is held until the end of the transaction: together with others who seal, or alone.
#[derive(Clone, Copy)]
pub(crate) enum KeyLock {
    Shared,
    Mine,
}

/// Makes sure that nobody has changed the key, and that nobody does before this transaction is over. Otherwise
/// something could be sealed with a key that is not used any more.
pub(crate) async fn check_key_of(session: &mut Session, sealer: &Sealer, lock: KeyLock) -> Result<(), Error> {
    let sql = match lock {
        KeyLock::Shared => "SELECT value FROM mcp.registry_meta WHERE key = $1 FOR SHARE",
        KeyLock::Mine => "SELECT value FROM mcp.registry_meta WHERE key = $1 FOR UPDATE",
    };
    let opens = session.first(sql, values![CHECK], |row| opened(sealer, CHECK, row.take("value")?)).await?;
    if opens.is_none() {
        return Err(Error::Corrupt { operation: session.operation(), source: "the check value is gone".into() });
    }
    Ok(())
}

/// Opens what came out of a row.
pub(crate) fn opened(sealer: &Sealer, owner: &str, sealed: serde_json::Value) -> Result<String, Mismatch> {
    sealer.open(owner, sealed).map_err(|error| match error {
        UnsealError::OtherKey => Mismatch::OtherKey,
        UnsealError::Damaged(why) => Mismatch::Seal(why),
    })
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("location", &self.inner.location).finish_non_exhaustive()
    }
}
