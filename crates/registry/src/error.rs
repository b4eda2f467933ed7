//! Errors of the registry, which distinguish whether to retry, to change the request, or to notify an operator.

use std::error::Error as StdError;

/// The error of the database library.
pub type Cause = Box<dyn StdError + Send + Sync>;

/// Why data could not be read or stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database is unreachable, busy, or timed out. The same request may succeed later.
    ///
    /// A write whose connection was lost at the very end may have been committed.
    #[error("could not {operation}: the database is unavailable")]
    Unavailable {
        /// The operation, such as "register a server".
        operation: &'static str,
        /// The error of the database or the connection.
        #[source]
        source: Cause,
    },
    /// The disk of the database is full. The same request may succeed when there is space.
    #[error("could not {operation}: the disk of the database is full")]
    Full {
        /// The operation.
        operation: &'static str,
        /// The error of the database.
        #[source]
        source: Cause,
    },
    /// A server with this name is already registered.
    #[error("a server named `{name}` already exists")]
    AlreadyExists {
        /// The name that is taken.
        name: String,
    },
    /// The object does not exist.
    #[error("there is no {what} `{key}`")]
    NotFound {
        /// The kind of object, such as "server".
        what: &'static str,
        /// The key of the object.
        key: String,
    },
    /// A conflict with stored data, or with a concurrent change.
    #[error("could not {operation}: it conflicts with existing data")]
    Conflict {
        /// The operation.
        operation: &'static str,
        /// The violated constraint.
        #[source]
        source: Cause,
    },
    /// A row of another program in the table of tools has the name that a tool would get.
    #[error(
        "the table `{table}` already has a tool `{tool}`, which another program stored; choose another name for the \
         server, or rename that row"
    )]
    ToolNameTaken {
        /// The whole name, such as `server.tool`.
        tool: String,
        /// The table, with its schema.
        table: String,
    },
    /// The data is invalid.
    #[error("{what}")]
    Invalid {
        /// What is wrong, as a sentence.
        what: String,
    },
    /// Stored data cannot be read. An operator should look at it.
    #[error("could not {operation}: the data in the database is damaged")]
    Corrupt {
        /// The operation.
        operation: &'static str,
        /// What is wrong.
        #[source]
        source: Cause,
    },
    /// The database file was deleted, replaced or emptied. Further writes would be lost.
    #[error("could not {operation}: {what}")]
    Lost {
        /// The operation.
        operation: &'static str,
        /// What happened to the file, and what to do, as a sentence.
        what: String,
    },
    /// The credentials are encrypted with another key.
    #[error("the credentials in the database are encrypted with another key")]
    WrongKey,
    /// The database refused for another reason: missing permissions, or a bug of ours.
    #[error("could not {operation}")]
    Refused {
        /// The operation.
        operation: &'static str,
        /// The error of the database.
        #[source]
        source: Cause,
    },
}

impl Error {
    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Full { .. } | Self::Lost { .. })
    }

    pub(crate) fn server_not_found(key: &(impl ToString + ?Sized)) -> Self {
        Self::NotFound { what: "server", key: key.to_string() }
    }
}

/// Why the registry could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The location is invalid.
    #[error("`{location}` is not a valid location for a registry")]
    Location {
        /// The location, without its password.
        location: String,
        /// What is wrong with it.
        #[source]
        source: Cause,
    },
    /// The file or its folder cannot be used.
    #[error("could not open `{}`", path.display())]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// The cause.
        #[source]
        source: Cause,
    },
    /// The file is empty: its contents were lost, or it was never initialized.
    #[error("`{}` is empty; its contents are lost", path.display())]
    Empty {
        /// The file.
        path: std::path::PathBuf,
    },
    /// The file is a database of another program.
    #[error("`{}` is a SQLite database, but not a registry", path.display())]
    Foreign {
        /// The file.
        path: std::path::PathBuf,
    },
    /// An applied migration differs from the one in this program.
    #[error("migration {version} of this database differs from the one in this program")]
    ChangedMigration {
        /// Its version.
        version: i64,
    },
    /// The database belongs to a newer version of this program.
    #[error("the database has version {found}, but this program supports versions up to {known}")]
    Newer {
        /// The version of the database.
        found: i64,
        /// The newest supported version.
        known: i64,
    },
    /// A table of another program has a name that the registry needs, and does not fit. Nothing was changed.
    #[error("the database has a table `{table}` that the registry cannot use: {why}")]
    UnfitTable {
        /// The table, with its schema.
        table: String,
        /// The reason, with the name of the column if there is one.
        why: String,
    },
    /// A migration failed.
    #[error("could not apply migration {version}")]
    Migration {
        /// Its version.
        version: i64,
        /// The error of the database.
        #[source]
        source: Error,
    },
    /// An error that can also occur later, such as an unreachable database or a wrong key.
    #[error(transparent)]
    Store(#[from] Error),
}

impl OpenError {
    /// What a person can do about it, if anything.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Newer { .. } => Some("use the program version that last used this database, or a newer one"),
            Self::ChangedMigration { .. } => Some("the database may come from another build; use a new one"),
            Self::Empty { .. } => Some("restore a backup, or remove the file to start with an empty registry"),
            Self::UnfitTable { .. } => Some(
                "change the table, or give the registry its own schema with `--database-schema`; nothing was changed",
            ),
            Self::Foreign { .. } => Some("choose another place with --data-dir or --database"),
            Self::Store(Error::WrongKey) => Some(
                "set MCP_CREDENTIAL_KEY, or restore the file credential.key, as they were when the database was created",
            ),
            Self::Store(Error::Unavailable { .. }) => {
                Some("check whether the database is running and its address is right")
            }
            _ => None,
        }
    }
}
