//! Variables of the environment.

use std::env::{self, VarError};

use crate::failure::Failure;

/// What a variable is set to. One that is no UTF-8 is refused: it is set, so nothing may be done as if it were not.
pub(crate) fn text(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name) {
        Ok(text) => Ok(Some(text)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(Failure::usage(format!("{name} is set, but not to UTF-8"))),
    }
}
