//! What a database said, in words that both have in common.

use std::error::Error as _;
use std::io;

use rusqlite::ErrorCode;
use rusqlite::ffi;
use tokio_postgres::error::SqlState;

use crate::error::{Cause, Error};

/// Why a statement failed.
#[derive(Debug)]
pub(crate) enum DatabaseError {
    /// Not now; maybe later.
    Unavailable(Cause),
    /// There is no room for more.
    Full(Cause),
    /// A rule of the schema was broken.
    Conflict(Cause),
    /// The database itself is damaged.
    Corrupt(Cause),
    /// The file of the database is not there any more, or is another one: a sentence.
    Lost(String),
    /// Anything else.
    Refused(Cause),
}

impl DatabaseError {
    /// As those see it who wanted something done.
    pub(crate) fn during(self, operation: &'static str) -> Error {
        match self {
            Self::Unavailable(source) => Error::Unavailable { operation, source },
            Self::Full(source) => Error::Full { operation, source },
            Self::Conflict(source) => Error::Conflict { operation, source },
            Self::Corrupt(source) => Error::Corrupt { operation, source },
            Self::Lost(what) => Error::Lost { operation, what },
            Self::Refused(source) => Error::Refused { operation, source },
        }
    }
}

impl From<rusqlite::Error> for DatabaseError {
    fn from(error: rusqlite::Error) -> Self {
        let Some(code) = error.sqlite_error_code() else { return Self::Refused(error.into()) };
        match code {
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::OperationInterrupted
            | ErrorCode::CannotOpen
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::ReadOnly
            | ErrorCode::FileLockingProtocolFailed => Self::Unavailable(error.into()),
            ErrorCode::DiskFull => Self::Full(error.into()),
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Self::Corrupt(error.into()),
            ErrorCode::ConstraintViolation if !is_wrong_type(&error) => Self::Conflict(error.into()),
            _ => Self::Refused(error.into()),
        }
    }
}

/// A value that its column does not take is a defect of ours, and no rule that a user broke.
fn is_wrong_type(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_CONSTRAINT_DATATYPE)
}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(code) = error.code() else {
            // No answer of the database: the way to it is broken, unless something on it will not do by itself.
            return if is_lasting(&error) { Self::Refused(error.into()) } else { Self::Unavailable(error.into()) };
        };
        if *code == SqlState::DISK_FULL {
            return Self::Full(error.into());
        }
        match code.code().get(..2).unwrap_or_default() {
            // Connection, resources, operator's intervention, system: all pass. So does losing against another.
            "08" | "53" | "57" | "58" | "40" | "55" => Self::Unavailable(error.into()),
            "23" => Self::Conflict(error.into()),
            "XX" => Self::Corrupt(error.into()),
            // A replica that is about to be promoted.
            _ if *code == SqlState::READ_ONLY_SQL_TRANSACTION => Self::Unavailable(error.into()),
            _ => Self::Refused(error.into()),
        }
    }
}

/// A certificate that is not good, a server without TLS where it is required, credentials that are missing, or a value
/// that cannot be sent or read. The library tells kinds only by their words.
fn is_lasting(error: &tokio_postgres::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    let is_bad_certificate = cause.is_some_and(|cause| cause.kind() == io::ErrorKind::InvalidData);
    let words = error.to_string();
    // Without an error of the connection as its cause, it is what both sides said that does not fit.
    let is_disagreement = cause.is_none() && (words.contains("TLS handshake") || words.contains("authentication"));
    is_bad_certificate || is_disagreement || words.contains("serializing") || words.contains("invalid configuration")
}

impl From<deadpool_postgres::PoolError> for DatabaseError {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        match error {
            deadpool_postgres::PoolError::Backend(error) => error.into(),
            other => Self::Unavailable(other.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_reported_as_such_and_may_have_room_later() {
        let error = rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), None);
        let error = DatabaseError::from(error).during("register a server");
        assert_eq!(error.to_string(), "could not register a server: the disk of the database is full");
        assert!(error.is_retryable());
    }
}
