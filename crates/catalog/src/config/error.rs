//! What is wrong with a config, all of it, in words for the person who wrote it.

use std::fmt;

/// Why a config was refused. The caller says which file it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file is no text, or text in another encoding.
    #[error("invalid UTF-8 in line {line}{}", utf16_hint(*.utf16))]
    InvalidUtf8 {
        /// The line of the first bad byte, counted from 1.
        line: usize,
        /// It begins like UTF-16, which PowerShell and old editors write.
        utf16: bool,
    },
    /// The file is no JSON.
    #[error("invalid JSON in line {line}, column {column}: {reason}{}", indented(excerpt))]
    InvalidJson {
        /// Counted from 1.
        line: usize,
        /// In characters, counted from 1.
        column: usize,
        /// The offending line as it is in the file, and a caret under the column. Empty for an empty file.
        excerpt: String,
        /// What the parser did not like.
        reason: String,
    },
    /// The file is JSON but no usable config. Never empty.
    #[error("{}", ProblemList(.0))]
    Problems(Vec<Problem>),
}

impl ConfigError {
    /// A stable word for programs: `invalid_json`, `invalid_schema` or `missing_env_var`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidUtf8 { .. } | Self::InvalidJson { .. } => "invalid_json",
            Self::Problems(problems) => {
                let only_missing = problems.iter().all(|problem| problem.kind == ProblemKind::MissingVariable);
                if only_missing { "missing_env_var" } else { "invalid_schema" }
            }
        }
    }
}

/// One thing to be put right.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Problem {
    /// What sort of thing it is.
    pub kind: ProblemKind,
    /// Where, as in `$.mcpServers.git.command`; for a missing variable, where it is used first.
    pub path: String,
    /// What. Continues the path as a sentence; for a missing variable, a sentence with all its places.
    pub message: String,
    /// What to do about it, where that is not plain.
    pub hint: Option<String>,
}

/// What sort of problem it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProblemKind {
    /// The config is not written as it should be.
    Schema,
    /// The config refers to a variable that is not set.
    MissingVariable,
}

/// One thing that can be run as it is, but that somebody should look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Where, as in `$.mcpServers.git`.
    pub path: String,
    /// What. Continues the path as a sentence.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.message)
    }
}

fn utf16_hint(utf16: bool) -> &'static str {
    if utf16 { "\n  hint: the file looks like UTF-16; save it as UTF-8" } else { "" }
}

fn indented(excerpt: &str) -> String {
    excerpt.lines().map(|line| format!("\n  {line}")).collect()
}

/// Paths longer than this do not push the messages of the others to the right.
const WIDEST_COLUMN: usize = 48;

struct ProblemList<'a>(&'a [Problem]);

impl fmt::Display for ProblemList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        write!(f, "{count} problem{}", if count == 1 { "" } else { "s" })?;

        let schema = self.0.iter().filter(|problem| problem.kind == ProblemKind::Schema);
        let widths = schema.map(|problem| problem.path.chars().count());
        let width = widths.filter(|&width| width <= WIDEST_COLUMN).max().unwrap_or(0);
        let mut problems = self.0.iter().peekable();
        while let Some(problem) = problems.next() {
            let Problem { kind, path, message, hint } = problem;
            match kind {
                ProblemKind::Schema => write!(f, "\n  {path:width$}  {message}")?,
                ProblemKind::MissingVariable => write!(f, "\n  {message}")?,
            }
            // Neighbours that share a hint show it once, after the last of them.
            let shared = problems.peek().is_some_and(|next| next.hint == *hint);
            if let Some(hint) = hint
                && !shared
            {
                write!(f, "\n  hint: {hint}")?;
            }
        }
        Ok(())
    }
}
