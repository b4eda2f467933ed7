//! A tool as models are told of it.

use serde_json::Value;

/// What a model may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Any name. Models get a safe one, see [`SafeNames`](crate::SafeNames).
    pub name: String,
    /// What it does, in its server's words. May be empty.
    pub description: String,
    /// The JSON Schema of its arguments, as its server gave it.
    pub schema: Value,
}

impl Tool {
    /// A tool.
    pub fn new(name: impl Into<String>, description: impl Into<String>, schema: Value) -> Self {
        Self { name: name.into(), description: description.into(), schema }
    }
}
