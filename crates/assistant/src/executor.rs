//! What an assistant may use, who does it for it, and what is told meanwhile.

use std::future::Future;
use std::time::Duration;

use models::Tool;
use serde_json::{Map, Value};

/// A tool that may be used.
#[derive(Debug, Clone, PartialEq)]
pub struct OfferedTool {
    /// Its name among those of all servers, what it does, and what it takes.
    pub tool: Tool,
    /// Its server says that it changes nothing.
    pub is_read_only: bool,
    /// Its server says that calling it twice does no harm.
    pub is_idempotent: bool,
    /// Its server says that it may destroy something.
    pub is_destructive: bool,
}

impl OfferedTool {
    /// Whether it may run beside others.
    pub(crate) fn is_parallel_safe(&self) -> bool {
        (self.is_read_only || self.is_idempotent) && !self.is_destructive
    }
}

/// Why a call gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolCallError {
    /// It went wrong, and the model is told why.
    Failed(String),
    /// Somebody stopped it: the dialogue ends.
    Stopped(String),
}

/// Whether a call may be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permission {
    /// Yes.
    Given,
    /// No; the model is told why.
    Refused(String),
}

/// Whoever makes calls, and knows which may be made. Dropping the future of a call must cancel it.
pub trait ToolExecutor: Sync {
    /// Calls a tool by its name among those of all servers. The answer is the server's `result` as JSON, whether or not
    /// it says `isError`.
    fn call(&self, tool: &str, arguments: &str) -> impl Future<Output = Result<String, ToolCallError>> + Send;

    /// Finds tools that fit a wish: their names among those of all servers, best first, so many at most. Asked only if there
    /// are so many tools that the model is not told of them all.
    fn find(&self, wish: &str, limit: usize) -> impl Future<Output = Result<Vec<String>, String>> + Send;

    /// What is wrong with the arguments of a call, if something is: the model is told, and no call is made.
    fn check(
        &self,
        offer: &OfferedTool,
        arguments: &Map<String, Value>,
    ) -> impl Future<Output = Result<(), String>> + Send;

    /// Whether a tool that may destroy something may be called like this.
    fn permit(&self, offer: &OfferedTool, arguments: &str) -> impl Future<Output = Permission> + Send;
}

/// What happens, for who watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DialogueEvent<'a> {
    /// More words of the model.
    Words(&'a str),
    /// The model has said all it says in this round.
    EndOfWords,
    /// A tool is called.
    Calling {
        /// By its name among those of all servers, or as the model called it if there is none of that name.
        tool: &'a str,
        /// As the model wrote them.
        arguments: &'a str,
    },
    /// A call is over.
    Called {
        /// By the same name.
        tool: &'a str,
        /// How long it took.
        took: Duration,
        /// Why it gave nothing, or nothing good.
        problem: Option<&'a str>,
    },
}
