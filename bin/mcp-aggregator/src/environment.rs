//! Environment variables.

use std::env::{self, VarError};

use crate::failure::Failure;

/// The value of a variable. One that is not UTF-8 is an error: it is set, so it must not be ignored.
pub(crate) fn text(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name) {
        Ok(text) => Ok(Some(text)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Failure::usage(format!("{name} is not valid UTF-8"))),
    }
}
