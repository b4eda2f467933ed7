//! A finding of `doctor`.

use serde_json::{Value, json};

use crate::colour::Colour;
use crate::command_hint;
use crate::table::{aligned, printable};

/// The level of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Ok,
    /// It works, but the user should know about it.
    Warning,
    /// It does not work.
    Problem,
}

impl Level {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }

    const fn colour(self) -> Colour {
        match self {
            Self::Ok => Colour::Good,
            Self::Warning => Colour::Warning,
            Self::Problem => Colour::Bad,
        }
    }
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Diagnosis {
    /// What was checked: `config`, `port`, `server` ..
    pub(crate) topic: &'static str,
    pub(crate) level: Level,
    pub(crate) message: String,
    /// How to fix it.
    pub(crate) advice: Option<String>,
}

impl Diagnosis {
    pub(crate) fn ok(topic: &'static str, message: impl Into<String>) -> Self {
        Self { topic, level: Level::Ok, message: message.into(), advice: None }
    }

    pub(crate) fn warning(topic: &'static str, message: impl Into<String>) -> Self {
        Self { level: Level::Warning, ..Self::ok(topic, message) }
    }

    pub(crate) fn problem(topic: &'static str, message: impl Into<String>) -> Self {
        Self { level: Level::Problem, ..Self::ok(topic, message) }
    }

    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({"topic": self.topic, "level": self.level.as_str(), "message": self.message, "advice": self.advice.as_deref().map(command_hint::completed)})
    }
}

/// The findings for people: a line each, and below it the advice.
pub(crate) fn lines(findings: &[Diagnosis]) -> Vec<String> {
    let rows: Vec<_> = findings
        .iter()
        .map(|finding| {
            let first = finding.message.lines().next().unwrap_or_default();
            [finding.level.as_str().to_owned(), finding.topic.to_owned(), printable(first)]
        })
        .collect();
    let mut lines = Vec::new();
    for (finding, line) in findings.iter().zip(aligned(&rows)) {
        let word = finding.level.as_str();
        lines.push(line.replacen(word, &finding.level.colour().paint(word), 1));
        lines.extend(finding.message.lines().skip(1).map(|more| format!("  | {}", printable(more))));
        lines.extend(
            finding.advice.iter().map(|advice| format!("  do: {}", printable(&command_hint::completed(advice)))),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_printed_below_its_problem() {
        let findings =
            [Diagnosis::ok("config", "fine"), Diagnosis::problem("port", "taken\nby \u{1b}[2Jx").advise("use another")];
        let lines = lines(&findings);
        assert_eq!(lines, ["ok       config  fine", "problem  port    taken", "  | by ␛[2Jx", "  do: use another"]);
        assert_eq!(findings[1].to_json()["level"], "problem");
    }
}
