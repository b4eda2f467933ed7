//! The tools of an assistant, the trait that executes them, and the events of a dialogue.

use std::future::Future;
use std::time::Duration;

use models::Tool;
use serde_json::{Map, Value};

/// A tool that a model may use.
#[derive(Debug, Clone, PartialEq)]
pub struct OfferedTool {
    /// The full name, the description and the schema.
    pub tool: Tool,
    /// The server declares that it changes nothing.
    pub is_read_only: bool,
    /// The server declares that repeating it has no further effect.
    pub is_idempotent: bool,
    /// The server declares that it may be destructive.
    pub is_destructive: bool,
}

impl OfferedTool {
    /// Whether it may run in parallel with others.
    pub(crate) fn is_parallel_safe(&self) -> bool {
        (self.is_read_only || self.is_idempotent) && !self.is_destructive
    }
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolCallError {
    /// It failed; the model gets the reason.
    Failed(String),
    /// It was stopped: the dialogue ends.
    Stopped(String),
}

/// Whether a call may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permission {
    /// The call may be made.
    Given,
    /// It may not; the model gets the reason.
    Refused(String),
}

/// Makes calls, and decides which may be made. Dropping the future of a call must cancel it.
pub trait ToolExecutor: Sync {
    /// Calls a tool by its full name. Returns the server's `result` as JSON, with or without `isError`.
    fn call(&self, tool: &str, arguments: &str) -> impl Future<Output = Result<String, ToolCallError>> + Send;

    /// Finds tools for a request: their full names, best first, up to a limit. Only used if there are too many tools to
    /// list them all to the model.
    fn find(&self, wish: &str, limit: usize) -> impl Future<Output = Result<Vec<String>, String>> + Send;

    /// Checks the arguments of a call. After an error the model gets the reason, and no call is made.
    fn check(
        &self,
        offer: &OfferedTool,
        arguments: &Map<String, Value>,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// Whether a destructive tool may be called with these arguments.
    fn permit(&self, offer: &OfferedTool, arguments: &str) -> impl Future<Output = Permission> + Send;
}

/// An event of a dialogue, for observers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialogueEvent<'a> {
    /// More text of the model.
    Words(&'a str),
    /// The text of this round is complete.
    EndOfWords,
    /// A call starts.
    Calling {
        /// The full name, or the model's name for it if there is no such tool.
        tool: &'a str,
        /// As the model wrote them.
        arguments: &'a str,
    },
    /// A call ended.
    Called {
        /// The same name.
        tool: &'a str,
        /// How long it took.
        took: Duration,
        /// Why it has no result, or not a good one.
        problem: Option<&'a str>,
    },
}
