//! What keeps a block from running.

use std::fmt;

use serde::Serialize;

/// A problem on a line of the document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// The problem as a sentence.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "line {}: {}", self.line, self.what)
    }
}

/// A text with a maximum number of characters; an ellipsis marks the cut.
pub(crate) fn clipped(mut text: String, most: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
        text.pop();
        text.push('…');
    }
    text
}

/// The kind of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// It has no closing fence, so nothing can be written below it.
    Unclosed,
    /// The result below it has no closing mark.
    TornResult,
    /// The result below it was edited by hand.
    EditedResult,
    /// Its YAML is invalid.
    BadYaml,
    /// Its parameters do not match the schema of the tool.
    BadArguments,
    /// The server does not exist, is disabled, or is not connected.
    NoServer,
    /// The server has no such tool.
    NoTool,
    /// Its section is bound to another server.
    Refused,
    /// It is for an assistant, and none is configured.
    NoAssistant,
}

/// Why a block cannot run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The kind. Its name in JSON is part of the REST API.
    #[serde(rename = "trouble")]
    pub kind: ProblemKind,
    /// The problems and their lines.
    pub faults: Vec<Fault>,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, line: usize, what: impl Into<String>) -> Self {
        Self { kind, faults: vec![Fault { line, what: what.into() }] }
    }

    /// Whether it may be written into the document: not if the existing result must be kept.
    pub(crate) fn is_shown(&self) -> bool {
        // An existing answer is worth more than the message that no assistant is available.
        let keeps =
            [ProblemKind::Unclosed, ProblemKind::TornResult, ProblemKind::EditedResult, ProblemKind::NoAssistant];
        !keeps.contains(&self.kind)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, fault) in self.faults.iter().enumerate() {
            write!(to, "{}{fault}", if place == 0 { "" } else { "\n" })?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}
