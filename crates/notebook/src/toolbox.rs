//! What documents need from outside: the servers, their tools, and calls.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::future::{Future, ready};
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::problem::clipped;

/// How many tools an error about a missing tool names, and how many characters of each.
const MAX_NAMED: usize = 12;
const LONGEST_NAMED: usize = 100;

/// A server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Whether it may be used.
    pub is_enabled: bool,
}

/// The input schema of a tool.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolSchema {
    /// As its server sent it. It is parsed when parameters are checked, on a thread for that.
    Text(String),
    /// Already parsed.
    Tree(Value),
}

impl ToolSchema {
    /// The schema as a tree, or why there is none: a tree cannot represent all JSON.
    pub(crate) fn read(&self) -> Result<Cow<'_, Value>, String> {
        match self {
            Self::Tree(schema) => Ok(Cow::Borrowed(schema)),
            Self::Text(text) => match serde_json::from_str(text) {
                Ok(schema) => Ok(Cow::Owned(schema)),
                Err(error) => Err(format!("the schema of the tool cannot be read: {error}")),
            },
        }
    }
}

/// The names of the tools of one server that a document calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WantedTools(Arc<HashSet<String>>);

impl FromIterator<String> for WantedTools {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        Self(Arc::new(names.into_iter().collect()))
    }
}

/// The known tools of a server. Only schemas of wanted tools are stored.
#[derive(Debug)]
pub struct ToolTable {
    wanted: WantedTools,
    found: HashMap<String, Option<Arc<ToolSchema>>>,
    /// Some names of tools for messages, and the number of all tools.
    some: Vec<String>,
    count: usize,
    is_complete: bool,
}

impl ToolTable {
    /// A table without tools. It is complete if the server has no others than those that are added: the last known
    /// tools of an unreachable server may not be all.
    pub fn new(wanted: &WantedTools, is_complete: bool) -> Self {
        Self { wanted: wanted.clone(), found: HashMap::new(), some: Vec::new(), count: 0, is_complete }
    }

    /// Adds a tool by its name on the server. The schema is only requested if the tool is wanted.
    pub fn add(&mut self, name: &str, schema: impl FnOnce() -> Option<ToolSchema>) {
        self.count += 1;
        if self.some.len() < MAX_NAMED {
            self.some.push(clipped(name.to_owned(), LONGEST_NAMED));
        }
        if self.wanted.0.contains(name) && !self.found.contains_key(name) {
            self.found.insert(name.to_owned(), schema().map(Arc::new));
        }
    }

    /// Looks up a wanted tool.
    pub(crate) fn find(&self, tool: &str) -> Lookup<'_> {
        match self.found.get(tool) {
            Some(Some(schema)) => Lookup::Found(Arc::clone(schema)),
            None if self.is_complete => Lookup::Missing { some: &self.some, count: self.count },
            Some(None) | None => Lookup::Unknown,
        }
    }
}

/// The result of a lookup.
#[derive(Debug, Clone)]
pub(crate) enum Lookup<'a> {
    /// The server has it, with this input schema.
    Found(Arc<ToolSchema>),
    /// The server has other tools, but not this one.
    Missing {
        /// Some of its tools.
        some: &'a [String],
        /// The number of its tools.
        count: usize,
    },
    /// The server does not provide a schema, or is unreachable. The call will report errors.
    Unknown,
}

/// A call of a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Request {
    /// The server's name.
    pub server: String,
    /// The name of the tool on the server.
    pub tool: String,
    /// A JSON object.
    pub arguments: String,
    /// The line of the block in the document, from 1.
    pub line: usize,
}

/// A question of a block to the assistant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Question {
    /// The text of the block.
    pub words: String,
    /// The only server whose tools it may use, if the section is bound.
    pub server: Option<String>,
    /// The line of the block in the document, from 1.
    pub line: usize,
}

/// The answer of the assistant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The text, in Markdown.
    pub markdown: String,
    /// The tokens it cost.
    pub tokens: Option<u64>,
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// How far the call got.
    pub extent: Extent,
    /// The reason as a sentence.
    pub message: String,
}

/// How far a call without a result got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// It was made and failed. The document gets the error.
    Failed,
    /// It was not made: the existing result is worth more than that message.
    NotTried,
    /// It was not made, and no other will be: the run ends.
    RunOver,
    /// It was stopped. The document keeps its result.
    Stopped,
}

impl Failure {
    /// A failed call.
    pub fn new(message: impl Into<String>) -> Self {
        Self { extent: Extent::Failed, message: message.into() }
    }

    /// A call that was not made.
    pub fn not_tried(message: impl Into<String>) -> Self {
        Self { extent: Extent::NotTried, message: message.into() }
    }

    /// A call that was not made, in a run that ends.
    pub fn run_over(message: impl Into<String>) -> Self {
        Self { extent: Extent::RunOver, message: message.into() }
    }

    /// A stopped call.
    pub fn stopped(message: impl Into<String>) -> Self {
        Self { extent: Extent::Stopped, message: message.into() }
    }
}

/// Servers, their tools, and calls. Dropping the future of a call must cancel it.
pub trait Toolbox: Sync {
    /// All servers, in order.
    fn servers(&self) -> Vec<Server>;

    /// The tools of a server; None if it is unreachable. A run requests them once for each server, and again only if
    /// calls may have changed them.
    fn tools(&self, server: &str, wanted: &WantedTools) -> impl Future<Output = Option<ToolTable>> + Send;

    /// Makes a call. Returns the server's `result` as JSON, with or without `isError`.
    fn call(&self, request: &Request) -> impl Future<Output = Result<String, Failure>> + Send;

    /// Asks the assistant. An error must not contain line numbers of the document: it is written there, and results
    /// move lines.
    fn ask(&self, _question: &Question) -> impl Future<Output = Result<Answer, Failure>> + Send {
        ready(Err(Failure::new("there is no assistant to answer this block")))
    }

    /// Why no assistant is available, if that is known in advance. Blocks for the assistant are not run then. A run
    /// asks once.
    fn assistant_unavailable(&self) -> impl Future<Output = Option<String>> + Send {
        ready(None)
    }

    /// Why a call to this server would fail now, if that is known without making one. Only a dry run asks, once.
    fn out_of_reach(&self, _server: &str) -> impl Future<Output = Option<String>> + Send {
        ready(None)
    }

    /// The current time.
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
