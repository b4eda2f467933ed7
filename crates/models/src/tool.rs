//! A tool in a request to a model.

use serde_json::Value;

/// A tool that a model may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// The name. Models get a safe one, see [`SafeNames`](crate::SafeNames).
    pub name: String,
    /// The description of the server. May be empty.
    pub description: String,
    /// The JSON Schema of the arguments, as the server sent it.
    pub schema: Value,
}

impl Tool {
    /// Creates a tool.
    pub fn new(name: impl Into<String>, description: impl Into<String>, schema: Value) -> Self {
        Self { name: name.into(), description: description.into(), schema }
    }
}
