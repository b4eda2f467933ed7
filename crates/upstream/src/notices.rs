//! What was wrong with the entries of a server's list: each reason once, whatever the number of entries.

use catalog::Kind;

/// Names are shown of so many entries.
const NAMED: usize = 3;

/// So much is shown of each.
const NAME_CHARACTERS: usize = 80;

/// What is noted while a list is read.
#[derive(Debug, Default)]
pub(crate) struct Notices(Vec<Notice>);

#[derive(Debug)]
struct Notice {
    deed: Deed,
    flaw: String,
    count: usize,
    names: Vec<String>,
}

/// What became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Clients are not shown it.
    LeftOut,
    /// Clients are shown it without what they would refuse, or with what was missing.
    Mended,
}

impl Notices {
    pub(crate) fn note(&mut self, deed: Deed, flaw: &str, name: Option<&str>) {
        let at = self.0.iter().position(|notice| notice.deed == deed && notice.flaw == flaw).unwrap_or_else(|| {
            self.0.push(Notice { deed, flaw: flaw.to_owned(), count: 0, names: Vec::new() });
            self.0.len() - 1
        });
        let notice = &mut self.0[at];
        notice.count += 1;
        if notice.names.len() < NAMED {
            notice.names.extend(name.map(short));
        }
    }

    /// ``left out 2 tools: `inputSchema.type` is not `object` (a, b)``, and so on.
    pub(crate) fn into_lines(self, kind: Kind) -> Vec<String> {
        self.0.iter().map(|notice| notice.line(kind)).collect()
    }
}

/// The beginning of a name that may be of any length.
fn short(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARACTERS) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

impl Notice {
    fn line(&self, kind: Kind) -> String {
        let deed = match self.deed {
            Deed::LeftOut => "left out",
            Deed::Mended => "mended",
        };
        let plural = if self.count == 1 { "" } else { "s" };
        let mut line = format!("{deed} {} {}{plural}: {}", self.count, kind.noun(), self.flaw);
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
    fn a_reason_is_told_once_with_the_first_of_many_names() {
        let mut notices = Notices::default();
        for name in ["a", "b", "c", "d"] {
            notices.note(Deed::Mended, "`title` is no text", Some(name));
        }
        notices.note(Deed::LeftOut, "`title` is no text", Some("e"));
        notices.note(Deed::LeftOut, "no usable name", None);
        assert_eq!(
            notices.into_lines(Kind::Tool),
            [
                "mended 4 tools: `title` is no text (a, b, c, …)",
                "left out 1 tool: `title` is no text (e)",
                "left out 1 tool: no usable name",
            ]
        );
    }
}
