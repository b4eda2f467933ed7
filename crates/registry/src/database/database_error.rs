//! Errors of both databases in one type.

use std::error::Error as _;
use std::io;

use rusqlite::ErrorCode;
use rusqlite::ffi;
use tokio_postgres::error::SqlState;

use crate::error::{Cause, Error};

/// Why a statement failed.
#[derive(Debug)]
pub(crate) enum DatabaseError {
    /// The database is temporarily unavailable.
    Unavailable(Cause),
    /// The disk is full.
    Full(Cause),
    /// A constraint was violated.
    Conflict(Cause),
    /// The database is damaged.
    Corrupt(Cause),
    /// The database file was removed or replaced: a sentence.
    Lost(String),
    /// Any other error.
    Refused(Cause),
}

impl DatabaseError {
    /// The error of an operation.
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

/// Whether a value has the wrong type for its column, which is a bug of ours and not a violation by the user.
fn is_wrong_type(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_CONSTRAINT_DATATYPE)
}

impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(code) = error.code() else {
            // Without a response of the database, the connection failed, unless the cause is permanent.
            return if is_lasting(&error) { Self::Refused(error.into()) } else { Self::Unavailable(error.into()) };
        };
        if *code == SqlState::DISK_FULL {
            return Self::Full(error.into());
        }
        match code.code().get(..2).unwrap_or_default() {
            // Connection, resources, operator intervention, system: all temporary. So is a serialization failure.
            "08" | "53" | "57" | "58" | "40" | "55" => Self::Unavailable(error.into()),
            "23" => Self::Conflict(error.into()),
            "XX" => Self::Corrupt(error.into()),
            // A replica that is about to be promoted.
            _ if *code == SqlState::READ_ONLY_SQL_TRANSACTION => Self::Unavailable(error.into()),
            _ => Self::Refused(error.into()),
        }
    }
}

/// Whether the error is permanent: an invalid certificate, a server without TLS where it is required, missing
/// credentials, or a value that cannot be converted. The library distinguishes kinds only by their text.
fn is_lasting(error: &tokio_postgres::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    let is_bad_certificate = cause.is_some_and(|cause| cause.kind() == io::ErrorKind::InvalidData);
    let words = error.to_string();
    // Without an I/O error as its cause, the two sides do not agree on the protocol.
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
