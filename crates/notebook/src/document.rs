//! The structure of a document: headings, fenced blocks, results, and front matter.
//!
//! `pulldown-cmark` decides what is a heading or a block by the rules of CommonMark. Everything here points into the
//! original text; nothing is ever written back from a tree.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::lines::Lines;
use crate::problem::Fault;
use crate::region::{Found, Region};
use crate::scan;

/// The limit of bytes of a document; longer ones are refused.
pub const MAX_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;

/// Longer texts are parsed one at a time: parsing takes up to 64 times the memory of the text.
pub const MAX_BYTES_PARSED_ALONGSIDE: usize = 256 * 1024;

/// Held while a longer text is parsed.
static LONG_TEXT: Mutex<()> = Mutex::new(());

/// A Markdown text and its structure.
#[derive(Debug, Clone)]
pub struct Document {
    pub(crate) text: String,
    pub(crate) lines: Lines,
    pub(crate) front_matter: Option<FrontMatter>,
    pub(crate) headings: Vec<Heading>,
    /// The section of each heading.
    pub(crate) sections: Vec<SectionExtent>,
    pub(crate) fences: Vec<Fence>,
    pub(crate) comments: Vec<Comment>,
    pub(crate) ids: Vec<BlockId>,
    /// All results, including those without a block: nothing in them was written by the user.
    pub(crate) regions: Vec<Region>,
    /// The lines of each result, and the number of result lines before it.
    pub(crate) region_lines: Vec<(Range<usize>, usize)>,
    /// A limit that the document exceeds. The rest is unknown then, and nothing is run.
    pub(crate) excess: Option<Fault>,
}

/// A heading that starts a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heading {
    /// From 1 to 6.
    pub level: usize,
    /// The text, without markup and block id.
    pub text: String,
    /// The text as written.
    pub raw: String,
    /// Its first line, from 1.
    pub line: usize,
}

/// The section of a heading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SectionExtent {
    /// The heading of the enclosing section, as an index of `headings`.
    pub(crate) parent: Option<usize>,
    /// The line after its last.
    pub(crate) end_line: usize,
}

/// A fenced code block.
#[derive(Debug, Clone)]
pub struct Fence {
    /// Everything after the opening fence.
    pub info: String,
    /// The content between the fences, without the prefixes of enclosing lists and quotes.
    pub content: String,
    /// The line of the opening fence, from 1.
    pub first_line: usize,
    /// The line of the closing fence.
    pub last_line: usize,
    /// From its opening fence to the end of its closing one.
    pub(crate) span: Range<usize>,
    /// The prefix of lines below it in the same lists and quotes.
    pub(crate) prefix: String,
    pub(crate) newline: &'static str,
    pub(crate) is_closed: bool,
    pub(crate) result: Option<Found>,
}

impl Fence {
    /// The first word after the opening fence.
    pub fn language(&self) -> &str {
        self.info.split_whitespace().next().unwrap_or_default()
    }

    /// Whether it has a closing fence.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }
}

/// The YAML at the start of a document.
#[derive(Debug, Clone)]
pub(crate) struct FrontMatter {
    pub(crate) yaml: Range<usize>,
    /// The first line of the YAML.
    pub(crate) line: usize,
}

/// A comment that binds a section: `<!-- mcp: SERVER -->`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Comment {
    pub(crate) server: String,
    pub(crate) inherit: bool,
    pub(crate) line: usize,
}

/// A `^id`, and the lines of the block that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockId {
    pub(crate) id: String,
    pub(crate) lines: Range<usize>,
}

impl Document {
    /// Parses a text.
    pub fn parse(text: impl Into<String>) -> Self {
        let text = text.into();
        let is_long = text.len() > MAX_BYTES_PARSED_ALONGSIDE;
        let _turn = is_long.then(|| LONG_TEXT.lock().unwrap_or_else(PoisonError::into_inner));
        scan::scan(text)
    }

    /// The text, as it was given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its headings, from the top.
    pub fn headings(&self) -> &[Heading] {
        &self.headings
    }

    /// Its fenced blocks outside of results, from the top.
    pub fn fences(&self) -> &[Fence] {
        &self.fences
    }

    /// The text without results: what its users wrote.
    pub fn without_results(&self) -> String {
        let mut kept = String::with_capacity(self.text.len());
        let mut from = 0;
        for region in &self.regions {
            let before = &self.text[from..region.span.start];
            let before = before.strip_suffix('\n').unwrap_or(before);
            kept.push_str(before.strip_suffix('\r').unwrap_or(before));
            from = region.span.end;
            // The newline before a result belongs to it; a result at the start of the text includes the newline after
            // it.
            if region.span.start == 0 {
                from = self.lines.span(self.lines.number_at(from)).end;
            }
        }
        kept.push_str(&self.text[from..]);
        kept
    }

    /// The number that a line would have without the results above it. Lines of results have that of the line before.
    ///
    /// Ranges of lines are counted like this, so that a run does not move a binding.
    pub fn line_without_results(&self, line: usize) -> usize {
        let next = self.region_lines.partition_point(|(lines, _)| lines.start <= line);
        let Some((lines, before)) = next.checked_sub(1).map(|last| &self.region_lines[last]) else { return line };
        let of_results = before + (line - lines.start + 1).min(lines.len());
        (line - of_results).max(1)
    }

    /// The sections of a line, from the outermost, as indexes of `headings`.
    pub(crate) fn sections_at(&self, line: usize) -> Vec<usize> {
        let mut found: Vec<usize> =
            std::iter::successors(self.innermost_section(line), |place| self.sections[*place].parent).collect();
        found.reverse();
        found
    }

    /// The innermost section of a line: that of the last heading before it.
    pub(crate) fn innermost_section(&self, line: usize) -> Option<usize> {
        self.headings.partition_point(|heading| heading.line <= line).checked_sub(1)
    }

    /// The lines of a section, including its heading and children.
    pub(crate) fn section_lines(&self, place: usize) -> Range<usize> {
        self.headings[place].line..self.sections[place].end_line
    }
}

/// The sections of headings, in a text of this many lines.
pub(crate) fn section_extents(headings: &[Heading], lines: usize) -> Vec<SectionExtent> {
    let mut found = vec![SectionExtent { parent: None, end_line: lines + 1 }; headings.len()];
    let mut open: Vec<usize> = Vec::new();
    for (place, heading) in headings.iter().enumerate() {
        while let Some(last) = open.pop_if(|last| headings[*last].level >= heading.level) {
            found[last].end_line = heading.line;
        }
        found[place].parent = open.last().copied();
        open.push(place);
    }
    found
}

impl Heading {
    /// Whether a heading matches `Tools` (at any level) or `## Tools` (at this one).
    pub fn is_called(&self, wanted: &str) -> bool {
        let (level, bare) = Self::words_of(wanted);
        (level == 0 || level == self.level) && (same_words(bare, &self.text) || same_words(bare, &self.raw))
    }

    /// The level, 0 for any, and the text.
    pub(crate) fn words_of(wanted: &str) -> (usize, &str) {
        let wanted = wanted.trim();
        let bare = wanted.trim_start_matches('#');
        let level = wanted.len() - bare.len();
        // `#tag` is a word; only marks followed by a space are a level.
        let (level, bare) = if level > 0 && bare.starts_with([' ', '\t']) { (level, bare) } else { (0, wanted) };
        (level, scan::without_id(bare.trim()).0)
    }
}

fn same_words(left: &str, right: &str) -> bool {
    left.split_whitespace().eq(right.split_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_parsed_one_at_a_time_and_delay_no_short_ones() {
        let long = "*a* ".repeat(MAX_BYTES_PARSED_ALONGSIDE / 4 + 1);
        let turn = LONG_TEXT.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = std::thread::spawn({
            let long = long.clone();
            move || Document::parse(long).text.len()
        });
        Document::parse("# Short\n");
        // Longer than the other would take if it did not wait.
        for _ in 0..3 {
            scan::scan(long.clone());
        }
        assert!(!waiting.is_finished(), "it waits for its turn");
        drop(turn);
        assert_eq!(waiting.join().unwrap(), long.len());
    }
}
