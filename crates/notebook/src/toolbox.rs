//! What documents need from outside: which servers there are, and somebody who calls their tools.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::future::{Future, ready};
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::problem::clipped;

/// So many tools are named to who wants one that is missing, and so many characters of each.
const MOST_NAMED: usize = 12;
const LONGEST_NAMED: usize = 100;

/// A server, as far as documents care.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Whether it may be used.
    pub is_enabled: bool,
}

/// The input schema of a tool, as far as it was read.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolSchema {
    /// As its server wrote it. It is read when parameters are checked, on a thread for that.
    Text(String),
    /// Read already.
    Tree(Value),
}

impl ToolSchema {
    /// The schema as a tree, or why there is none: not all JSON can be held by one.
    pub(crate) fn read(&self) -> Result<Cow<'_, Value>, String> {
        match self {
            Self::Tree(schema) => Ok(Cow::Borrowed(schema)),
            Self::Text(text) => match serde_json::from_str(text) {
                Ok(schema) => Ok(Cow::Owned(schema)),
                Err(error) => Err(format!("the tool's schema cannot be read: {error}")),
            },
        }
    }
}

/// The names of the tools of one server that a document wants to call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WantedTools(Arc<HashSet<String>>);

impl FromIterator<String> for WantedTools {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        Self(Arc::new(names.into_iter().collect()))
    }
}

/// What is known of the tools of a server. Schemas are kept of those only that a document wants.
#[derive(Debug)]
pub struct ToolTable {
    wanted: WantedTools,
    found: HashMap<String, Option<Arc<ToolSchema>>>,
    /// Some of the server's tools, to be named, and how many there are.
    some: Vec<String>,
    count: usize,
    is_complete: bool,
}

impl ToolTable {
    /// Without any tools yet. It is complete if the server has no others than those that are added: what was known of a
    /// server that is away need not be all it has.
    pub fn new(wanted: &WantedTools, is_complete: bool) -> Self {
        Self { wanted: wanted.clone(), found: HashMap::new(), some: Vec::new(), count: 0, is_complete }
    }

    /// Adds a tool by the name that its server gives it. Its schema is asked for only if the tool is wanted.
    pub fn add(&mut self, name: &str, schema: impl FnOnce() -> Option<ToolSchema>) {
        self.count += 1;
        if self.some.len() < MOST_NAMED {
            self.some.push(clipped(name.to_owned(), LONGEST_NAMED));
        }
        if self.wanted.0.contains(name) && !self.found.contains_key(name) {
            self.found.insert(name.to_owned(), schema().map(Arc::new));
        }
    }

    /// What is known of a tool that is wanted.
    pub(crate) fn find(&self, tool: &str) -> Lookup<'_> {
        match self.found.get(tool) {
            Some(Some(schema)) => Lookup::Found(Arc::clone(schema)),
            None if self.is_complete => Lookup::Missing { some: &self.some, count: self.count },
            Some(None) | None => Lookup::Unknown,
        }
    }
}

/// What is known about a tool.
#[derive(Debug, Clone)]
pub(crate) enum Lookup<'a> {
    /// The server has it, with this input schema.
    Found(Arc<ToolSchema>),
    /// The server has other tools, but not this one.
    Missing {
        /// Some of those it has.
        some: &'a [String],
        /// How many it has.
        count: usize,
    },
    /// The server does not say what it takes, or cannot be asked now. The call will tell.
    Unknown,
}

/// A call that a block asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Request {
    /// The server's name.
    pub server: String,
    /// The name that the server gives the tool.
    pub tool: String,
    /// A JSON object.
    pub arguments: String,
    /// The line of the block in the document, from 1.
    pub line: usize,
}

/// What a block asks the assistant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Question {
    /// The words in the block.
    pub words: String,
    /// The only server whose tools it may use, if the section is bound.
    pub server: Option<String>,
    /// The line of the block in the document, from 1.
    pub line: usize,
}

/// What the assistant answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its words, in Markdown.
    pub markdown: String,
    /// How many tokens that took.
    pub tokens: Option<u64>,
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// How far it got.
    pub extent: Extent,
    /// What happened, in a sentence.
    pub message: String,
}

/// How far something got that has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// It was tried, and went wrong. The document tells.
    Failed,
    /// It was never tried: what the document has is worth more than that news.
    NotTried,
    /// Neither was it, nor will any other be: the run is over.
    RunOver,
    /// Somebody stopped it. The document keeps what it has.
    Stopped,
}

impl Failure {
    /// It went wrong.
    pub fn new(message: impl Into<String>) -> Self {
        Self { extent: Extent::Failed, message: message.into() }
    }

    /// It was not tried.
    pub fn not_tried(message: impl Into<String>) -> Self {
        Self { extent: Extent::NotTried, message: message.into() }
    }

    /// It was not tried, and trying others would be in vain.
    pub fn run_over(message: impl Into<String>) -> Self {
        Self { extent: Extent::RunOver, message: message.into() }
    }

    /// It was stopped.
    pub fn stopped(message: impl Into<String>) -> Self {
        Self { extent: Extent::Stopped, message: message.into() }
    }
}

/// Servers, their tools, and calls. Dropping the future of a call must cancel it.
pub trait Toolbox: Sync {
    /// All servers, in their order.
    fn servers(&self) -> Vec<Server>;

    /// The tools of a server; nothing if it cannot be asked now. A run asks once for each server, and again only where
    /// calls may have changed the answer.
    fn tools(&self, server: &str, wanted: &WantedTools) -> impl Future<Output = Option<ToolTable>> + Send;

    /// Makes a call. The answer is the server's `result` as JSON, whether or not it says `isError`.
    fn call(&self, request: &Request) -> impl Future<Output = Result<String, Failure>> + Send;

    /// Asks the assistant. An error must not name lines of the document: it ends up there, and results move lines.
    fn ask(&self, _question: &Question) -> impl Future<Output = Result<Answer, Failure>> + Send {
        ready(Err(Failure::new("there is no assistant to answer this block")))
    }

    /// Why nobody can be asked, if that is known beforehand. Blocks for the assistant are not run then. A run asks once.
    fn assistant_unavailable(&self) -> impl Future<Output = Option<String>> + Send {
        ready(None)
    }

    /// Why a call to this server would fail now, if that is known without making one. Only a dry run asks, once.
    fn out_of_reach(&self, _server: &str) -> impl Future<Output = Option<String>> + Send {
        ready(None)
    }

    /// What time it is.
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
