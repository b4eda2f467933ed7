//! What documents need from outside: which servers there are, and somebody who calls their tools.

use std::future::{Future, ready};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

/// A server, as far as documents care.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Whether it may be used.
    pub is_enabled: bool,
}

/// What is known about a tool.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// The server has it, with this input schema.
    Found(Value),
    /// The server has other tools, but not this one.
    Missing {
        /// Those it has.
        known: Vec<String>,
    },
    /// The server cannot be asked now. The call will tell.
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

    /// A tool of a server.
    fn find(&self, server: &str, tool: &str) -> impl Future<Output = Lookup> + Send;

    /// Makes a call. The answer is the server's `result` as JSON, whether or not it says `isError`.
    fn call(&self, request: &Request) -> impl Future<Output = Result<String, Failure>> + Send;

    /// Asks the assistant. An error must not name lines of the document: it ends up there, and results move lines.
    fn ask(&self, _question: &Question) -> impl Future<Output = Result<Answer, Failure>> + Send {
        ready(Err(Failure::new("there is no assistant to answer this block")))
    }

    /// Why nobody can be asked, if that is known beforehand. Blocks for the assistant are not run then.
    fn nobody_to_ask(&self) -> impl Future<Output = Option<String>> + Send {
        ready(None)
    }

    /// Why a call to this server would fail now, if that is known without making one. Only a dry run asks.
    fn out_of_reach(&self, _server: &str) -> impl Future<Output = Option<String>> + Send {
        ready(None)
    }

    /// What time it is.
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
