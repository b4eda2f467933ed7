//! Why a command could not do what it was asked, as the user reads it.

use std::fmt;

use serde_json::{Value, json};

use crate::{exit, pasted};

/// What is said on stderr, and the exit status.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// A stable word for it, and more about it, for machines, where there is something.
    pub(crate) kind: Option<String>,
    pub(crate) data: Option<Value>,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { code: exit::FAILED, message: message.into(), hint: None, kind: None, data: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: exit::USAGE, ..Self::new(message) }
    }

    pub(crate) fn interrupted() -> Self {
        Self { code: exit::INTERRUPTED, ..Self::new("interrupted") }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same for machines.
    pub(crate) fn to_json(&self) -> Value {
        let Self { code, message, hint, kind, data } = self;
        let hint = hint.as_deref().map(pasted::completed);
        json!({"error": {"code": kind, "message": message, "hint": hint, "data": data, "exit_status": code}})
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "error: {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(out, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}
