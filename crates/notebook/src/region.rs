//! The regions of results: how they are marked, found and compared.
//!
//! A region is the text between two comments with the same id. The id is a digest of the text, so edits are detected,
//! and no content can contain its own closing mark.

use std::collections::HashMap;
use std::ops::Range;

use sha2::{Digest, Sha256};

use crate::lines::{Lines, without_container};

const OPENING: &str = "<!-- mcp-result ";
const CLOSING: &str = "<!-- /mcp-result ";
const END_OF_MARK: &str = " -->";
const DIGITS_OF_ID: usize = 16;

/// The metadata of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Whether the call failed.
    pub is_error: bool,
    /// When it ended, as RFC 3339.
    pub at: String,
    /// How long it took.
    pub took_ms: u64,
    /// How many tokens it used, if reported.
    pub tokens: Option<u64>,
}

/// A result in a document.
#[derive(Debug, Clone)]
pub(crate) struct Region {
    /// From the start of the line of its first mark to the end of its last, without the newline.
    pub(crate) span: Range<usize>,
    pub(crate) id: String,
    pub(crate) note: Note,
    pub(crate) is_edited: bool,
}

/// What starts with a mark.
#[derive(Debug, Clone)]
pub(crate) enum Found {
    Whole(Region),
    /// Its closing mark is missing, so its extent is unknown.
    Torn {
        line: usize,
    },
}

/// The lines of opening and closing marks, by id.
pub(crate) struct Marks<'a> {
    opening: HashMap<&'a str, Vec<usize>>,
    closing: HashMap<&'a str, Vec<usize>>,
}

impl<'a> Marks<'a> {
    pub(crate) fn of(text: &'a str, lines: &Lines) -> Self {
        let mut marks = Self { opening: HashMap::new(), closing: HashMap::new() };
        for number in 1..=lines.count() {
            let bare = without_container(&text[lines.content(text, number)]).trim_end();
            if let Some(id) = bare.strip_prefix(CLOSING).and_then(|rest| rest.strip_prefix("id=")) {
                if let Some(id) = id.strip_suffix(END_OF_MARK) {
                    marks.closing.entry(id).or_default().push(number);
                }
            } else if let Some(rest) = bare.strip_prefix(OPENING).and_then(|rest| rest.strip_prefix("id="))
                && let Some((id, _)) = rest.split_once(' ')
            {
                marks.opening.entry(id).or_default().push(number);
            }
        }
        marks
    }

    /// The line of the closing mark. A copy of the result further down has its own.
    fn end_of(&self, id: &str, line: usize) -> Option<usize> {
        let after = |lines: &HashMap<&str, Vec<usize>>| {
            let lines = lines.get(id)?;
            lines.get(lines.partition_point(|number| *number <= line)).copied()
        };
        let end = after(&self.closing)?;
        after(&self.opening).is_none_or(|copy| end < copy).then_some(end)
    }
}

/// The result that starts on a line, if any.
pub(crate) fn find(text: &str, lines: &Lines, marks: &Marks<'_>, line: usize) -> Option<Found> {
    let first = &text[lines.content(text, line)];
    let mark = without_container(first);
    let (id, note) = parse_opening(mark)?;
    let prefix = &first[..first.len() - mark.len()];
    let Some(end) = marks.end_of(&id, line) else { return Some(Found::Torn { line }) };
    let body: Vec<&str> = (line + 1..end).map(|number| inside(&text[lines.content(text, number)], prefix)).collect();
    let is_edited = id_of(&body) != id;
    let span = lines.start(line)..lines.content(text, end).end;
    Some(Found::Whole(Region { span, id, note, is_edited }))
}

/// Whether a line is an opening mark.
pub(crate) fn is_opening(line: &str) -> bool {
    parse_opening(without_container(line).trim_end()).is_some()
}

/// A result with its marks, line by line.
pub(crate) fn marked(body: &[String], note: &Note) -> (String, Vec<String>) {
    let id = id_of(body);
    let status = if note.is_error { "error" } else { "ok" };
    let tokens = note.tokens.map(|tokens| format!(" tokens={tokens}")).unwrap_or_default();
    let opening = format!("{OPENING}id={id} status={status} at={} ms={}{tokens}{END_OF_MARK}", note.at, note.took_ms);
    let marked = std::iter::once(opening).chain(body.iter().cloned()).chain([closing_mark(&id)]).collect();
    (id, marked)
}

/// The prefix of the container and trailing white space do not count: editors change both.
fn id_of(body: &[impl AsRef<str>]) -> String {
    let mut digest = Sha256::new();
    for line in body {
        digest.update(line.as_ref().trim_end().as_bytes());
        digest.update(b"\n");
    }
    let digits: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    digits[..DIGITS_OF_ID].to_owned()
}

fn closing_mark(id: &str) -> String {
    format!("{CLOSING}id={id}{END_OF_MARK}")
}

fn parse_opening(mark: &str) -> Option<(String, Note)> {
    let inner = mark.trim_end().strip_prefix(OPENING)?.strip_suffix(END_OF_MARK)?;
    let value = |key: &str| inner.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    let id = value("id").filter(|id| id.len() == DIGITS_OF_ID && id.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    let note = Note {
        is_error: value("status") == Some("error"),
        at: value("at").unwrap_or_default().to_owned(),
        took_ms: value("ms").and_then(|ms| ms.parse().ok()).unwrap_or_default(),
        tokens: value("tokens").and_then(|tokens| tokens.parse().ok()),
    };
    Some((id.to_owned(), note))
}

/// A line without the prefix of its container.
fn inside<'a>(line: &'a str, prefix: &str) -> &'a str {
    match line.strip_prefix(prefix) {
        Some(inside) => inside,
        None if line.trim_end() == prefix.trim_end() => "",
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::{Found, Marks, Note, find, marked};
    use crate::lines::Lines;

    fn note() -> Note {
        Note { is_error: false, at: "2026-01-02T03:04:05Z".to_owned(), took_ms: 7, tokens: Some(3) }
    }

    fn found(text: &str) -> Option<Found> {
        let lines = Lines::of(text);
        find(text, &lines, &Marks::of(text, &lines), 1)
    }

    fn written(body: &[&str], prefix: &str) -> String {
        let body: Vec<String> = body.iter().map(ToString::to_string).collect();
        let lines = marked(&body, &note()).1;
        lines.iter().map(|line| format!("{prefix}{line}").trim_end().to_owned() + "\n").collect()
    }

    #[test]
    fn what_was_marked_is_found_with_its_note() {
        let text = written(&["a", "", "b"], "  > ");
        let Some(Found::Whole(region)) = found(&text) else { panic!("{text}") };
        assert_eq!(region.span, 0..text.len() - 1);
        assert_eq!(region.note, note());
        assert!(!region.is_edited);
    }

    #[test]
    fn an_edit_shows_but_another_indentation_or_line_ending_does_not() {
        let text = written(&["a", "b"], "");
        for (changed, is_edited) in [
            (text.replace("b\n", "c\n"), true),
            (text.replace("b\n", "b\nc\n"), true),
            (text.replace("a\nb\n", ""), true),
            (text.replace('\n', "\r\n"), false),
            (text.replace("b\n", "b  \n"), false),
            (text.lines().map(|line| format!("    {line}\n")).collect(), false),
        ] {
            let Some(Found::Whole(region)) = found(&changed) else { panic!("{changed}") };
            assert_eq!(region.is_edited, is_edited, "{changed}");
        }
    }

    #[test]
    fn a_region_without_its_end_is_torn_even_if_a_copy_follows() {
        let text = written(&["a"], "");
        let torn: String = text.lines().take(2).map(|line| format!("{line}\n")).collect();
        assert!(matches!(found(&torn), Some(Found::Torn { line: 1 })));
        assert!(matches!(found(&format!("{torn}words of the user\n{text}")), Some(Found::Torn { line: 1 })));
    }

    #[test]
    fn other_comments_are_no_results() {
        for text in ["<!-- mcp: time -->", "<!-- mcp-result -->", "<!-- mcp-result id=xyz -->", "words", ""] {
            assert!(found(text).is_none(), "{text}");
        }
    }
}
