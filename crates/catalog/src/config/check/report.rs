//! Collects and formats problems of a config.

use super::super::path::{JsonPath, is_identifier, quoted};
use super::super::tree::{self, Member, Node};
use super::super::{Problem, ProblemKind, Warning};
use super::Check;
use std::collections::HashSet;

/// A variable without a value that can be used, and every place that uses it.
pub(super) struct MissingVariable {
    name: String,
    /// It is set, but not UTF-8.
    is_set: bool,
    used_at: Vec<String>,
}

/// The expected type of a value.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    Object,
    Text,
    Texts,
    NamedTexts,
    Flag,
    Milliseconds,
    Number,
}

impl Check<'_> {
    pub(super) fn refuse_repeated_keys(&mut self, path: &JsonPath, members: &[Member]) {
        for (key, count) in tree::repeated(members) {
            self.problem(&path.member(key), given_often(count));
        }
    }

    pub(super) fn wrong_kind(&mut self, path: &JsonPath, found: &Node, wanted: Wanted) {
        let hint = match (wanted, found) {
            (Wanted::Text, Node::Number(_) | Node::Bool(_)) => Some("put the value in quotes"),
            (Wanted::Flag | Wanted::Milliseconds | Wanted::Number, Node::String(_)) => Some("remove the quotes"),
            (Wanted::Texts | Wanted::NamedTexts, Node::Null) => Some("remove the key instead"),
            _ => None,
        };
        let wanted = match wanted {
            Wanted::Object => "an object",
            Wanted::Text => "a string",
            Wanted::Texts => "an array of strings",
            Wanted::NamedTexts => "an object of strings",
            Wanted::Flag => "true or false",
            Wanted::Milliseconds => "a number of milliseconds",
            Wanted::Number => "a number",
        };
        self.problem_with_hint(path, format!("must be {wanted}, not {}", found.kind()), hint);
    }

    pub(super) fn problem(&mut self, path: &JsonPath, message: impl Into<String>) {
        self.problem_with_hint(path, message, None::<&str>);
    }

    pub(super) fn problem_with_hint(
        &mut self,
        path: &JsonPath,
        message: impl Into<String>,
        hint: Option<impl Into<String>>,
    ) {
        self.problems.push(Problem {
            kind: ProblemKind::Schema,
            path: path.to_string(),
            message: message.into(),
            hint: hint.map(Into::into),
        });
    }

    pub(super) fn warning(&mut self, path: &JsonPath, message: String) {
        self.warnings.push(Warning { path: path.to_string(), message });
    }

    pub(super) fn variable_is_missing(&mut self, name: &str, is_set: bool, path: &JsonPath) {
        let place = path.to_string();
        let known = self.missing.iter_mut().find(|variable| variable.name == name);
        let Some(variable) = known else {
            self.missing.push(MissingVariable { name: name.to_owned(), is_set, used_at: vec![place] });
            return;
        };
        // Twice in one text is one place.
        if variable.used_at.last() != Some(&place) {
            variable.used_at.push(place);
        }
    }

    /// Merges the missing variables of another server: a variable is reported once, with every place that uses it.
    pub(super) fn merge_missing(&mut self, variable: MissingVariable) {
        match self.missing.iter_mut().find(|known| known.name == variable.name) {
            Some(known) => known.used_at.extend(variable.used_at),
            None => self.missing.push(variable),
        }
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        let mut problems = self.problems;
        problems.extend(self.missing.into_iter().map(MissingVariable::into_problem));
        // Both entries of a duplicate server are checked, and may have the same problem.
        let mut seen = HashSet::new();
        problems.retain(|problem| seen.insert(problem.clone()));
        problems
    }
}

impl MissingVariable {
    /// The variable and its places, as a sentence.
    pub(super) fn into_sentence(self) -> String {
        self.into_problem().message
    }

    fn into_problem(self) -> Problem {
        let Self { name, is_set, used_at } = self;
        let hint = match name.split_once(':') {
            _ if is_set => "give it a value that is UTF-8 text".to_owned(),
            Some(("env", plain)) => {
                format!("`${{env:..}}` is the syntax of other programs; here, write `${{{plain}}}`")
            }
            Some(("input", _)) => "VS Code asks for `${input:..}`; here, set a variable and write `${NAME}`".to_owned(),
            _ => "set it in the environment of this program, or give a default: `${NAME:-default}`".to_owned(),
        };
        let shown = if is_identifier(&name) { name } else { quoted(&name) };
        let why = if is_set { "is set, but not to UTF-8 text" } else { "is not set" };
        Problem {
            kind: ProblemKind::MissingVariable,
            message: format!("{shown} {why}; used at {}", used_at.join(", ")),
            path: used_at.into_iter().next().unwrap_or_default(),
            hint: Some(hint),
        }
    }
}

pub(super) fn given_often(count: usize) -> String {
    match count {
        2 => "is given twice".to_owned(),
        _ => format!("is given {count} times"),
    }
}
