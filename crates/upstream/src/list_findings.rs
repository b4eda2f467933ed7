//! What was wrong with the entries of a server's list: each reason once, whatever the number of entries.

use catalog::Kind;

/// How many entries are named.
const MAX_NAMED: usize = 3;
/// Characters of a name that are shown.
const MAX_SHOWN_NAME_CHARS: usize = 80;

/// What is noted while a list is read.
#[derive(Debug, Default)]
pub(crate) struct ListFindings(Vec<Finding>);

#[derive(Debug)]
struct Finding {
    action: Action,
    flaw: String,
    count: usize,
    names: Vec<String>,
}

/// What was done with an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Clients do not see it.
    Omitted,
    /// Clients see it without what they would refuse, or with what was missing.
    Repaired,
}

impl ListFindings {
    pub(crate) fn note(&mut self, action: Action, flaw: &str, name: Option<&str>) {
        let at = self.0.iter().position(|notice| notice.action == action && notice.flaw == flaw).unwrap_or_else(|| {
            self.0.push(Finding { action, flaw: flaw.to_owned(), count: 0, names: Vec::new() });
            self.0.len() - 1
        });
        let notice = &mut self.0[at];
        notice.count += 1;
        if notice.names.len() < MAX_NAMED {
            notice.names.extend(name.map(shortened));
        }
    }

    /// ``left out 2 tools: `inputSchema.type` is not `object` (a, b)``, and so on.
    pub(crate) fn into_lines(self, kind: Kind) -> Vec<String> {
        self.0.iter().map(|notice| notice.line(kind)).collect()
    }
}

/// Truncates a name, which may be of any length.
fn shortened(name: &str) -> String {
    match name.char_indices().nth(MAX_SHOWN_NAME_CHARS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

impl Finding {
    fn line(&self, kind: Kind) -> String {
        let action = match self.action {
            Action::Omitted => "left out",
            Action::Repaired => "repaired",
        };
        let plural = if self.count == 1 { "" } else { "s" };
        let mut line = format!("{action} {} {}{plural}: {}", self.count, kind.noun(), self.flaw);
        if !self.names.is_empty() {
            let more = if self.count > self.names.len() { ", …" } else { "" };
            line.push_str(&format!(" ({}{more})", self.names.join(", ")));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_reported_once_with_the_first_of_many_names() {
        let mut notices = ListFindings::default();
        for name in ["a", "b", "c", "d"] {
            notices.note(Action::Repaired, "`title` is no text", Some(name));
        }
        notices.note(Action::Omitted, "`title` is no text", Some("e"));
        notices.note(Action::Omitted, "no usable name", None);
        assert_eq!(
            notices.into_lines(Kind::Tool),
            [
                "repaired 4 tools: `title` is no text (a, b, c, …)",
                "left out 1 tool: `title` is no text (e)",
                "left out 1 tool: no usable name",
            ]
        );
    }
}
