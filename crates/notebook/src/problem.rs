//! What keeps a block from being run.

use std::fmt;

use serde::Serialize;

/// Something wrong in a line of the document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, in a sentence.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "line {}: {}", self.line, self.what)
    }
}

/// A text with at most so many characters; the last one says that there were more.
pub(crate) fn clipped(mut text: String, most: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
        text.pop();
        text.push('…');
    }
    text
}

/// Which sort of trouble a block is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// It has no closing fence, so nothing can be put under it.
    Unclosed,
    /// The result under it has lost its closing mark.
    TornResult,
    /// Somebody wrote into the result under it.
    EditedResult,
    /// Its YAML is not what it should be.
    BadYaml,
    /// Its parameters do not fit the tool's schema.
    BadArguments,
    /// There is no such server, or it is disabled or known to be down, or there is none at all.
    NoServer,
    /// The server has no such tool.
    NoTool,
    /// Its section is bound to another server.
    Refused,
    /// It is for an assistant, and there is none.
    NoAssistant,
}

/// Why a block is not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Which sort of trouble it is.
    pub trouble: ProblemKind,
    /// What is wrong, and where.
    pub faults: Vec<Fault>,
}

impl Problem {
    pub(crate) fn new(trouble: ProblemKind, line: usize, what: impl Into<String>) -> Self {
        Self { trouble, faults: vec![Fault { line, what: what.into() }] }
    }

    /// Whether it can be told in the document: not if what is there now must not be touched.
    pub(crate) fn is_shown(&self) -> bool {
        // An answer that is there already is worth more than the news that nobody can be asked.
        let keeps =
            [ProblemKind::Unclosed, ProblemKind::TornResult, ProblemKind::EditedResult, ProblemKind::NoAssistant];
        !keeps.contains(&self.trouble)
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
