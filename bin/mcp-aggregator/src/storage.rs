//! The location of the registry: the data directory, the database in it or elsewhere, and the key for credentials.

use std::env;
use std::path::{Path, PathBuf};

use clap::Args;
use registry::{
    CredentialKey, KEY_FILE, KEY_VARIABLE, KeyError, Location, OpenError, PostgresLocation, SchemaName, Store,
};

use crate::api_error::NO_ROOM;
use crate::environment;
use crate::failure::Failure;

/// The location of the registry, as options define it.
#[derive(Debug, Clone, Args)]
pub(crate) struct StorageArguments {
    /// The data directory [default: mcp-aggregator in the data directory of the user]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The registry: postgres://..., or a file [default: registry.db in the data directory]
    #[arg(long, value_name = "URL | FILE", value_parser = Location::parse)]
    pub(crate) database: Option<Location>,
    /// The schema of the registry in a PostgreSQL database [default: MCP_AGGREGATOR_DATABASE_SCHEMA, or mcp]
    #[arg(long, value_name = "NAME")]
    pub(crate) database_schema: Option<SchemaName>,
}

/// The variable with the schema, unless `--database-schema` is given.
const SCHEMA_VARIABLE: &str = "MCP_AGGREGATOR_DATABASE_SCHEMA";

impl StorageArguments {
    /// The location.
    pub(crate) fn location(&self) -> Result<Location, Failure> {
        let location = match &self.database {
            Some(location) => location.clone(),
            None => Location::in_folder(&self.folder()?),
        };
        match (location, self.schema()?) {
            (Location::Postgres(place), Some(schema)) => Ok(Location::Postgres(PostgresLocation { schema, ..place })),
            // The variable may be meant for another registry; the option is meant for this one.
            (Location::File(file), Some(_)) if self.database_schema.is_some() => {
                let message =
                    format!("--database-schema is for PostgreSQL, but the registry is the file {}", file.display());
                Err(Failure::usage(message).with_hint("set --database postgres://.., or omit --database-schema"))
            }
            (location, _) => Ok(location),
        }
    }

    /// The schema of the option or the variable.
    fn schema(&self) -> Result<Option<SchemaName>, Failure> {
        if let Some(schema) = &self.database_schema {
            return Ok(Some(schema.clone()));
        }
        let Some(name) = environment::text(SCHEMA_VARIABLE)? else { return Ok(None) };
        name.parse().map(Some).map_err(|error| Failure::usage(format!("{SCHEMA_VARIABLE}: {error}")))
    }

    /// Whether a registry exists.
    pub(crate) async fn exists(&self) -> Result<bool, Failure> {
        match self.location()? {
            Location::File(file) => is_file(&file),
            Location::Postgres(_) => Ok(self.open_existing().await?.is_some()),
        }
    }

    /// Opens an existing registry for reading. Creates nothing, also no key, and accepts a read-only file; `None` if
    /// there is no registry.
    pub(crate) async fn open_existing(&self) -> Result<Option<Store>, Failure> {
        let location = self.location()?;
        if let Location::File(file) = &location
            && !is_file(file)?
        {
            return Ok(None);
        }
        let variable = environment::text(KEY_VARIABLE)?;
        let folder = if variable.is_some() { self.folder().unwrap_or_default() } else { self.folder()? };
        let key = match variable.is_some() || folder.join(KEY_FILE).exists() {
            true => CredentialKey::find(variable.as_deref(), &folder),
            // A temporary key that opens nothing: existing credentials were sealed with another one.
            false => CredentialKey::generate(),
        };
        let key = key.map_err(|error| no_key(&error))?;
        Store::open_existing(&location, &key).await.map_err(|error| not_opened(&location, &error))
    }

    /// Opens the registry, and creates it if it is missing.
    pub(crate) async fn open(&self) -> Result<Store, Failure> {
        self.try_open().await.map_err(|not_opened| not_opened.failure)
    }

    /// The same, and whether the failure is temporary.
    pub(crate) async fn try_open(&self) -> Result<Store, OpenFailure> {
        let location = self.location()?;
        let variable = environment::text(KEY_VARIABLE)?;
        // With the key in the environment no data directory is needed, and there may be none if the database is
        // elsewhere.
        let folder = if variable.is_some() { self.folder().unwrap_or_default() } else { self.folder()? };
        let key_file = folder.join(KEY_FILE);
        let had_key = variable.is_some() || key_file.exists();
        if !had_key && !matches!(&location, Location::File(file) if !file.exists()) {
            // No key is created for a registry that does not exist or is not ours.
            Store::check_reachable(&location).await.map_err(|error| OpenFailure::new(&location, &error))?;
        }
        let key = CredentialKey::find(variable.as_deref(), &folder).map_err(|error| no_key(&error))?;
        let opened = Store::open(&location, &key).await;
        if !had_key && opened.is_err() {
            // The new key opens nothing; if it stayed, it would look like the lost one.
            forget(&key_file);
        }
        opened.map_err(|error| OpenFailure::new(&location, &error))
    }

    /// A command with the same options, for hints.
    pub(crate) fn as_typed(&self, command: &str) -> String {
        let folder = self.data_dir.iter().map(|folder| format!(" --data-dir {}", folder.display()));
        let database = self.database.iter().map(|location| format!(" --database {location}"));
        let schema = self.database_schema.iter().map(|schema| format!(" --database-schema {}", schema.as_str()));
        std::iter::once(command.to_owned()).chain(folder).chain(database).chain(schema).collect()
    }

    /// The data directory.
    pub(crate) fn folder(&self) -> Result<PathBuf, Failure> {
        if let Some(folder) = &self.data_dir {
            return Ok(folder.clone());
        }
        let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        default_folder(absolute("XDG_DATA_HOME").as_deref(), absolute("HOME").as_deref()).ok_or_else(|| {
            let why = match env::var_os("HOME").or_else(|| env::var_os("XDG_DATA_HOME")) {
                Some(home) => format!("`{}`, its parent, is not an absolute path", home.to_string_lossy()),
                None => "neither XDG_DATA_HOME nor HOME is set".to_owned(),
            };
            Failure::usage(format!("there is no data directory: {why}")).with_hint("set a folder with --data-dir")
        })
    }
}

/// Why the registry could not be opened.
pub(crate) struct OpenFailure {
    pub(crate) failure: Failure,
    /// The database is remote and unreachable: it may be starting.
    pub(crate) is_unreachable: bool,
}

impl OpenFailure {
    fn new(location: &Location, error: &OpenError) -> Self {
        let is_unavailable = matches!(error, OpenError::Store(registry::Error::Unavailable { .. }));
        let is_unreachable = is_unavailable && matches!(location, Location::Postgres(_));
        Self { failure: not_opened(location, error), is_unreachable }
    }
}

impl From<Failure> for OpenFailure {
    fn from(failure: Failure) -> Self {
        Self { failure, is_unreachable: false }
    }
}

/// Whether a file exists. If that cannot be checked, opening it reports why.
fn is_file(file: &Path) -> Result<bool, Failure> {
    file.try_exists().map_err(|error| {
        let folder = file.parent().unwrap_or(file).display();
        Failure::new(format!("could not look for a registry in {folder}: {error}"))
            .with_hint("it may belong to another user; use --url to reach a service directly")
    })
}

/// The default data directory of this user.
fn default_folder(data_home: Option<&Path>, home: Option<&Path>) -> Option<PathBuf> {
    let data_home = data_home.map(Path::to_owned).or_else(|| home.map(|home| home.join(".local/share")));
    data_home.map(|folder| folder.join("mcp-aggregator"))
}

/// Removes a key that was just created and opens nothing.
fn forget(key_file: &Path) {
    if let Err(error) = std::fs::remove_file(key_file) {
        tracing::warn!(path = %key_file.display(), %error, "could not remove an unused new key");
    }
}

fn no_key(error: &KeyError) -> Failure {
    Failure::new(with_causes(error)).with_hint(error.hint())
}

fn not_opened(location: &Location, error: &OpenError) -> Failure {
    let failure = Failure::new(format!("could not open the registry at {location}: {}", with_causes(error)));
    match (location, error) {
        (Location::File(file), OpenError::Store(registry::Error::Unavailable { .. })) => {
            failure.with_hint(format!("another program may lock it; `fuser {}` shows which", file.display()))
        }
        (Location::File(_), OpenError::File { .. }) if has_no_room(&failure.message) => failure.with_hint(NO_ROOM),
        (Location::File(_), OpenError::File { .. }) => failure
            .with_hint("check that it is a registry and writable, or choose another with --data-dir or --database"),
        _ => match error.hint() {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        },
    }
}

/// Whether the cause is a full disk, which SQLite reports only on writing.
fn has_no_room(message: &str) -> bool {
    ["disk I/O error", "is full", "No space left"].iter().any(|words| message.contains(words))
}

/// An error with all its causes.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |message, cause| format!("{message}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_database_of_another_key_is_refused_and_no_new_key_remains() {
        let folder = std::env::temp_dir().join(format!("storage-{}", std::process::id()));
        let storage = StorageArguments { data_dir: Some(folder.clone()), database: None, database_schema: None };
        let store = Store::open(&Location::in_folder(&folder), &CredentialKey::generate().unwrap()).await.unwrap();
        store.close().await;
        let failure = storage.open().await.unwrap_err();
        assert!(failure.message.contains("key"), "{}", failure.message);
        assert!(!folder.join(KEY_FILE).exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[tokio::test]
    async fn no_key_is_made_for_a_database_that_does_not_answer() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        for database in ["postgres://me@127.0.0.1:1/x", folder.path().to_str().unwrap()] {
            let database = Some(Location::parse(database).unwrap());
            let storage = StorageArguments { data_dir: Some(data.clone()), database, database_schema: None };
            assert!(storage.open().await.is_err());
            assert!(!data.exists(), "nothing was made");
        }
    }

    #[test]
    fn the_data_directory_follows_the_xdg_specification() {
        let folder = |data: Option<&str>, home: Option<&str>| default_folder(data.map(Path::new), home.map(Path::new));
        assert_eq!(folder(Some("/data"), Some("/home/me")), Some("/data/mcp-aggregator".into()));
        assert_eq!(folder(None, Some("/home/me")), Some("/home/me/.local/share/mcp-aggregator".into()));
        assert_eq!(folder(None, None), None);
    }
}
