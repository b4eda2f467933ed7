//! All problems of a config, worded for its author.

use std::fmt;

/// Why a config is invalid. The caller adds the name of the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file is not UTF-8 text.
    #[error("invalid UTF-8 in line {line}{}", utf16_hint(*.utf16))]
    InvalidUtf8 {
        /// The line of the first bad byte, counted from 1.
        line: usize,
        /// It starts like UTF-16, which PowerShell and old editors write.
        utf16: bool,
    },
    /// The file is not JSON.
    #[error("invalid JSON in line {line}, column {column}: {reason}{}", indented(excerpt))]
    InvalidJson {
        /// Counted from 1.
        line: usize,
        /// In characters, counted from 1.
        column: usize,
        /// The line as it is in the file, and a caret below the column. Empty for an empty file.
        excerpt: String,
        /// The message of the parser.
        reason: String,
    },
    /// The file is JSON, but not a valid config. Never empty.
    #[error("{}", ProblemList(.0))]
    Problems(Vec<Problem>),
}

impl ConfigError {
    /// A stable code for programs: `invalid_json`, `invalid_schema` or `missing_env_var`.
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

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Its kind.
    pub kind: ProblemKind,
    /// The place, such as `$.mcpServers.git.command`; for a missing variable, the first place that uses it.
    pub path: String,
    /// The message. Continues the path as a sentence; for a missing variable, a sentence with all its places.
    pub message: String,
    /// What to do about it, if that is not obvious.
    pub hint: Option<String>,
}

/// The kind of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProblemKind {
    /// The config has the wrong structure.
    Schema,
    /// The config refers to a variable that is not set, or not to UTF-8 text.
    MissingVariable,
}

/// Something that works, but that the user should check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The place, such as `$.mcpServers.git`.
    pub path: String,
    /// The message. Continues the path as a sentence.
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

/// Longer paths do not shift the messages of the others to the right.
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
            // Adjacent problems with the same hint show it once, after the last of them.
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
