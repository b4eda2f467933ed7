//! What can go wrong with something kept, told so that a caller knows whether to try again, to change its request, or
//! to call somebody.

use std::error::Error as StdError;

/// The cause as the database's own library told it.
pub type Cause = Box<dyn StdError + Send + Sync>;

/// Why something could not be read or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database cannot be reached, is busy, or took too long. The same request may succeed later.
    ///
    /// A write whose connection broke at the very end may have been kept all the same.
    #[error("could not {operation}: the database is unavailable")]
    Unavailable {
        /// What was being done, as in "register a server".
        operation: &'static str,
        /// What the database, or the way to it, said.
        #[source]
        source: Cause,
    },
    /// The disk of the database is full. The same request may succeed once there is room.
    #[error("could not {operation}: the disk of the database is full")]
    Full {
        /// What was being done.
        operation: &'static str,
        /// What the database said.
        #[source]
        source: Cause,
    },
    /// A server of that name is registered already.
    #[error("a server named `{name}` exists already")]
    AlreadyExists {
        /// The name that is taken.
        name: String,
    },
    /// There is no such thing.
    #[error("there is no {what} `{key}`")]
    NotFound {
        /// What was looked for, as in "server".
        what: &'static str,
        /// By what it was looked for.
        key: String,
    },
    /// It contradicts what is kept, or what somebody else changed at the same time.
    #[error("could not {operation}: it contradicts what is there")]
    Conflict {
        /// What was being done.
        operation: &'static str,
        /// Which rule of the database was broken.
        #[source]
        source: Cause,
    },
    /// It cannot be kept as it is.
    #[error("{what}")]
    Invalid {
        /// What is wrong with it, as a sentence.
        what: String,
    },
    /// What is kept cannot be understood. Somebody should look.
    #[error("could not {operation}: what the database has is damaged")]
    Corrupt {
        /// What was being done.
        operation: &'static str,
        /// What does not fit.
        #[source]
        source: Cause,
    },
    /// The file of the database was deleted, replaced or emptied. What is written now would be lost.
    #[error("could not {operation}: {what}")]
    Lost {
        /// What was being done.
        operation: &'static str,
        /// What happened to which file, and what to do, as a sentence.
        what: String,
    },
    /// Credentials were sealed with another key than ours.
    #[error("the credentials in the database were sealed with another key")]
    WrongKey,
    /// The database refused for another reason: missing rights, or a defect of ours.
    #[error("could not {operation}")]
    Refused {
        /// What was being done.
        operation: &'static str,
        /// What the database said.
        #[source]
        source: Cause,
    },
}

impl Error {
    /// Whether the same request may succeed later without anybody changing it.
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
    /// The location cannot be understood.
    #[error("`{location}` is not a place for a registry")]
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
        /// What was in the way.
        #[source]
        source: Cause,
    },
    /// There is a file, but not a byte in it: a registry was there, or nobody made one yet.
    #[error("`{}` is empty; what was in it is lost", path.display())]
    Empty {
        /// The file.
        path: std::path::PathBuf,
    },
    /// The file is a database of somebody else.
    #[error("`{}` is a SQLite database, but no registry of ours", path.display())]
    Foreign {
        /// The file.
        path: std::path::PathBuf,
    },
    /// A migration that was applied reads differently now.
    #[error("migration {version} of this database is not the one that this program knows")]
    ChangedMigration {
        /// Which one.
        version: i64,
    },
    /// The database belongs to a newer version of this program.
    #[error("the database is of version {found}, and this program knows versions up to {known}")]
    Newer {
        /// The version of the database.
        found: i64,
        /// The newest that is known here.
        known: i64,
    },
    /// Somebody else's table has a name that the registry needs, and cannot be used for it. Nothing was changed.
    #[error("the database has a table `{table}` that the registry cannot use: {why}")]
    UnfitTable {
        /// The table, with its schema.
        table: String,
        /// What is in the way, with the name of the column where it is one.
        why: String,
    },
    /// The database cannot be brought to the version that this program needs.
    #[error("could not apply migration {version}")]
    Migration {
        /// Which one.
        version: i64,
        /// What the database said.
        #[source]
        source: Error,
    },
    /// Anything that can go wrong later, too: above all an unreachable database, or another key.
    #[error(transparent)]
    Store(#[from] Error),
}

impl OpenError {
    /// What a person may do about it, where there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Newer { .. } => Some("use the program version that last used this database, or a newer one"),
            Self::ChangedMigration { .. } => Some("was this database made by another build? use a fresh one"),
            Self::Empty { .. } => Some("restore a backup; or remove the file, and an empty registry is made"),
            Self::UnfitTable { .. } => Some(
                "change the table, or give the registry a schema of its own with `--database-schema`; nothing was changed",
            ),
            Self::Foreign { .. } => Some("--data-dir and --database name another place"),
            Self::Store(Error::WrongKey) => Some(
                "set MCP_CREDENTIAL_KEY, or put back the file credential.key, as they were when the database was made",
            ),
            Self::Store(Error::Unavailable { .. }) => Some("is the database running, and is its address right?"),
            _ => None,
        }
    }
}
