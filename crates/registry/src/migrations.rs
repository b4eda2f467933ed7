//! Migrates a database to the version of this program: numbered scripts, applied once, in order, and never edited.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::database::{Database, Session, values};
use crate::error::{Error, OpenError};
use crate::location::SchemaName;
use crate::{Timestamp, adoption};

/// A migration to the next version.
struct Migration {
    version: i64,
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

macro_rules! migrations {
    ($($version:literal $name:literal),+ $(,)?) => {
        &[$(Migration {
            version: $version,
            name: $name,
            sqlite: include_str!(concat!("../migrations/sqlite/", $name, ".sql")),
            postgres: include_str!(concat!("../migrations/postgres/", $name, ".sql")),
        }),+]
    };
}

/// All migrations, in order.
const MIGRATIONS: &[Migration] = migrations![1 "0001_registry", 2 "0002_lean_executions", 3 "0003_skills", 4 "0004_judgements", 5 "0005_switches", 6 "0006_sizes", 7 "0007_retries", 8 "0008_clients", 9 "0009_oauth_grants", 10 "0010_tool_uses", 11 "0011_profiles", 12 "0012_limits"];

/// The timeout. Another program that starts at the same time may have many migrations to apply.
const LIMIT: Duration = Duration::from_secs(60);

/// An arbitrary number that nothing else in the database uses.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7453010326)";

/// The table of applied migrations.
const TABLE_NAME: &str = "schema_migrations";
/// Its name if another program has a table of that name, as many do.
const OTHER_TABLE_NAME: &str = "mcp_aggregator_migrations";
/// A table of the first migration: without it, there is no registry.
const FIRST_TABLE: &str = "registry_meta";

const COLUMNS: &str =
    "version BIGINT PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at TIMESTAMPTZ NOT NULL";

const TABLE_IN_SQLITE: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    version INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT";

impl Migration {
    fn text(&self, session: &Session) -> &'static str {
        if session.is_postgres() { self.postgres } else { self.sqlite }
    }
}

fn checksum(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The texts of the migrations for PostgreSQL.
#[cfg(test)]
pub(crate) fn of_postgres() -> impl Iterator<Item = &'static str> {
    MIGRATIONS.iter().map(|migration| migration.postgres)
}

/// Applies missing migrations, all or none, under a lock.
pub(crate) async fn apply(database: &Database) -> Result<(), OpenError> {
    let mut session = database.write_within("prepare the database", LIMIT).await?;
    let table = prepare(&mut session).await?;
    let missing = missing(&mut session, table).await?;
    let is_fresh = missing.len() == MIGRATIONS.len();
    let adopted = if is_fresh { adoption::find(&mut session).await? } else { None };
    for migration in missing {
        let version = migration.version;
        let text = migration.text(&session);
        let text = if adopted.is_some() { adoption::without_tools(text).into() } else { Cow::Borrowed(text) };
        step(&mut session, table, migration, &text).await.map_err(|source| OpenError::Migration { version, source })?;
    }
    if let Some(table) = adopted {
        table.extend(&mut session).await?;
    }
    Ok(session.commit().await?)
}

/// Refuses a file that contains tables of another program.
pub(crate) async fn refuse_foreign(database: &Database, path: &Path) -> Result<(), OpenError> {
    let mut session = database.read("inspect the database").await?;
    let all = "SELECT count(*) AS n FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'";
    let ours = "SELECT count(*) AS n FROM sqlite_master WHERE name IN ('schema_migrations', 'registry_meta')";
    let is_foreign = session.number(all, values![]).await? > 0 && session.number(ours, values![]).await? < 2;
    if is_foreign { Err(OpenError::Foreign { path: path.to_owned() }) } else { Ok(()) }
}

/// The version of a database, without changing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// It contains no registry.
    Nothing,
    /// It has an older version.
    Older,
    /// It has the current version.
    Whole,
}

/// Determines the version of a database.
pub(crate) async fn extent(database: &Database) -> Result<Extent, OpenError> {
    let mut session = database.read("inspect the database").await?;
    let (table, is_there) = match session.schema().cloned() {
        Some(schema) => table_of_migrations(&mut session, &schema).await?,
        None => {
            let count = "SELECT count(*) AS n FROM sqlite_master WHERE name = 'schema_migrations'";
            (TABLE_NAME, session.number(count, values![]).await? > 0)
        }
    };
    if !is_there {
        return Ok(Extent::Nothing);
    }
    let missing = missing(&mut session, table).await?.len();
    Ok(match missing {
        0 => Extent::Whole,
        _ if missing == MIGRATIONS.len() => Extent::Nothing,
        _ => Extent::Older,
    })
}

/// The migrations to apply, in order.
async fn missing(session: &mut Session, table: &str) -> Result<Vec<&'static Migration>, OpenError> {
    let applied = session
        .all(&format!("SELECT version, checksum FROM mcp.{table} ORDER BY version"), values![], |row| {
            Ok((row.take::<i64>("version")?, row.take::<String>("checksum")?))
        })
        .await?;
    let known = MIGRATIONS.last().map_or(0, |migration| migration.version);
    if let Some((found, _)) = applied.last().filter(|(version, _)| *version > known) {
        return Err(OpenError::Newer { found: *found, known });
    }
    let mut missing = Vec::new();
    for migration in MIGRATIONS {
        let version = migration.version;
        match applied.iter().find(|(applied, _)| *applied == version) {
            Some((_, sum)) if *sum == checksum(migration.text(session)) => {}
            Some(_) => return Err(OpenError::ChangedMigration { version }),
            None => missing.push(migration),
        }
    }
    Ok(missing)
}

/// The name of our table of migrations, and whether it exists. The name of a schema needs no escapes.
async fn table_of_migrations(session: &mut Session, schema: &SchemaName) -> Result<(&'static str, bool), Error> {
    let relations = format!(
        "SELECT c.relname::text AS name FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
         WHERE n.nspname = '{}' AND c.relname IN ('{TABLE_NAME}', '{OTHER_TABLE_NAME}', '{FIRST_TABLE}')",
        schema.as_str()
    );
    let found: Vec<String> = session.all(&relations, values![], |row| row.take("name")).await?;
    let has = |name: &str| found.iter().any(|found| found == name);
    Ok(match (has(TABLE_NAME), has(OTHER_TABLE_NAME)) {
        (_, true) => (OTHER_TABLE_NAME, true),
        (true, false) if !has(FIRST_TABLE) => (OTHER_TABLE_NAME, false),
        (is_there, false) => (TABLE_NAME, is_there),
    })
}

/// Creates the table of migrations if it does not exist, under a lock, and returns its name.
async fn prepare(session: &mut Session) -> Result<&'static str, Error> {
    let Some(schema) = session.schema().cloned() else {
        session.script(TABLE_IN_SQLITE).await?;
        return Ok(TABLE_NAME);
    };
    session.script(LOCK).await?;
    // A user without the permission to create a schema can still use an existing one.
    let name = schema.as_str();
    let count = format!("SELECT count(*) AS n FROM pg_namespace WHERE nspname = '{name}'");
    if session.number(&count, values![]).await? == 0 {
        session.script(&format!("CREATE SCHEMA \"{name}\"")).await?;
    }
    let (table, is_there) = table_of_migrations(session, &schema).await?;
    if !is_there {
        session.script(&format!("CREATE TABLE mcp.{table} ({COLUMNS})")).await?;
    }
    Ok(table)
}

/// Applies a migration, whose script may have been adapted to this database.
async fn step(session: &mut Session, table: &str, migration: &Migration, text: &str) -> Result<(), Error> {
    session.script(text).await?;
    let sum = checksum(migration.text(session));
    session
        .execute(
            &format!("INSERT INTO mcp.{table} (version, name, checksum, applied_at) VALUES ($1, $2, $3, $4)"),
            values![migration.version, migration.name, sum, Timestamp::now()],
        )
        .await?;
    tracing::info!(migration = migration.name, "migrated the database to a new version");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_that_was_published_is_never_edited() {
        let published = [
            (
                "0001_registry",
                "4c53b6673f99823a2f0d0e5f7d4eec1371a4999c0a9850b9da42567fc7424677",
                "ed9d8a922ed927f7c3b71b849407288ca716f71a04dac82499d0031c1896b26e",
            ),
            (
                "0002_lean_executions",
                "ed997049ca5e6ad714c6e0b65822a1ec39c27ffeb49633fb726ad8d21a82bdd0",
                "93cfcbbd3fd975584abe5efa202d15ae4e4a97cc70abe04c6aabb7b6deef9c9f",
            ),
            (
                "0003_skills",
                "a8cd93285684151ceec750bd6fbb3af9ce698e1cdf82ba9f79c3481902bc53c9",
                "d2bb96b0fd38804e3ec3ff0b18916385c9947d2f9b6e0729576541bbaf0d8214",
            ),
            (
                "0004_judgements",
                "ac2118e8e20e3900ea50db81b02a2bf5ab4e3cb09d8d365a2b13bf1316f7196c",
                "7ebf8e2bdb9e1e31cb76de8e3f611a9507375d082dcdcb013d3e3c08d38a9784",
            ),
            (
                "0005_switches",
                "14d5a8403481d90bda5f65d231fa6c98f97abda4e6d066eb1b5cd2a97bb9b8b6",
                "2f33da18843f9626940100d0cebebeb3d28f0e8afe391915c509711f89b0215e",
            ),
            (
                "0006_sizes",
                "792915372b6b968c2fb4d7b4aea8c85b3fd06b19006a5b89c67d1dac67c178fa",
                "97fcd12cdef5293a01d2f4366b1317143ab3bc3074dea6d3e213c591ea8ea7b4",
            ),
            (
                "0007_retries",
                "212f9da24be7bac3d691e9cfcc253d830617582743bd6bb9631dd44a684f11c7",
                "e5fffee62888433206656aa93ec24a9824ea1794b5a54d26bd03982a4521e4a5",
            ),
            (
                "0008_clients",
                "b544215e93cda32cfcf83cdea96c68b9fe9b60ec1e139f3401063b2b36c587e0",
                "4a3f2df12021029e61a1095245a0b6eade3213b9dafae7fa4d62ad329b839343",
            ),
            (
                "0009_oauth_grants",
                "bc671f9fad795473e794ed7739b26ef83af8c3320180c4041b2014f4883596bc",
                "b6af3072292a764e2e422490ac3022042b7d0562ca73b5f32a948fe0bd1b5fc7",
            ),
            (
                "0010_tool_uses",
                "de28bb195163a20a92e0eb339b1a2867945592399097025fa7c4604041aa326a",
                "4196f78af2dc4a229a5157e555a6d8eb1e2e8e8384eb652c7baec769fb9cc371",
            ),
            (
                "0011_profiles",
                "7a37cb506a08d46baea8e6eafd360f7d7f6c75a5efb21157d4738af75a5c4494",
                "1f6ee0dd155856984c016ed9e63a5c841d3f4478cb2ec8a4d453087a987b210f",
            ),
            (
                "0012_limits",
                "fd0ff8af18ab699afb6b694786d680c4f1ecc5e6f94314eddd9fb60722ec0655",
                "92954f64d605698cb6df68b5d3f2c01365ae0fc617358fbf8d04e4601a573fe6",
            ),
        ];
        let sums = MIGRATIONS.iter().map(|it| (it.name, checksum(it.sqlite), checksum(it.postgres)));
        for ((name, sqlite, postgres), (expected, of_sqlite, of_postgres)) in sums.zip(published) {
            assert_eq!((name, sqlite.as_str(), postgres.as_str()), (expected, of_sqlite, of_postgres));
        }
        assert_eq!(MIGRATIONS.len(), published.len(), "write down the sums of the new one");
    }
}
