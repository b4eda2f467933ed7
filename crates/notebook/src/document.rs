//! What is in a document: its headings, its fenced blocks, the results under them, and what it says about itself.
//!
//! What is a heading or a block is for CommonMark to say, so `pulldown-cmark` says it, with offsets. Everything here
//! points into the text as it is; nothing is ever written back from a tree.

use std::ops::Range;

use crate::lines::Lines;
use crate::problem::Fault;
use crate::region::{Found, Region};
use crate::scan;

/// A longer text is none that anybody reads, and is refused where others send it.
pub const MAX_DOCUMENT_BYTES: usize = 16 * 1024 * 1024;

/// A Markdown text and what is in it.
#[derive(Debug, Clone)]
pub struct Document {
    pub(crate) text: String,
    pub(crate) lines: Lines,
    pub(crate) front_matter: Option<FrontMatter>,
    pub(crate) headings: Vec<Heading>,
    /// What is known of the section that each heading begins.
    pub(crate) sections: Vec<SectionExtent>,
    pub(crate) fences: Vec<Fence>,
    pub(crate) comments: Vec<Comment>,
    pub(crate) ids: Vec<BlockId>,
    /// All results, those that lost their block included: nothing in them is the user's.
    pub(crate) regions: Vec<Region>,
    /// The lines of each of them, and how many lines of results there are before it.
    pub(crate) region_lines: Vec<(Range<usize>, usize)>,
    /// That it has more of something than a document may have. What comes below is unknown then, and nothing is run.
    pub(crate) excess: Option<Fault>,
}

/// A heading that begins a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heading {
    /// From 1 to 6.
    pub level: usize,
    /// Its words, without marks and without a block id.
    pub text: String,
    /// The same as it is written.
    pub raw: String,
    /// The line it begins in, from 1.
    pub line: usize,
}

/// The section that a heading begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SectionExtent {
    /// The heading of the section around it, as a place in `headings`.
    pub(crate) parent: Option<usize>,
    /// The line after its last.
    pub(crate) end_line: usize,
}

/// A fenced code block.
#[derive(Debug, Clone)]
pub struct Fence {
    /// Everything after the opening fence.
    pub info: String,
    /// What is between the fences, without the marks of the lists and quotes around it.
    pub content: String,
    /// The line of the opening fence, from 1.
    pub first_line: usize,
    /// The line of the closing fence.
    pub last_line: usize,
    /// From its opening fence to the end of its closing one.
    pub(crate) span: Range<usize>,
    /// What lines under it begin with, to stand in the same lists and quotes.
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

/// The YAML at the beginning of a document.
#[derive(Debug, Clone)]
pub(crate) struct FrontMatter {
    pub(crate) yaml: Range<usize>,
    /// The line that the YAML begins in.
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
    /// Finds out what is in a text.
    pub fn parse(text: impl Into<String>) -> Self {
        scan::scan(text.into())
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

    /// The text as it is without any results: what its users wrote.
    pub fn without_results(&self) -> String {
        let mut kept = String::with_capacity(self.text.len());
        let mut from = 0;
        for region in &self.regions {
            let before = &self.text[from..region.span.start];
            let before = before.strip_suffix('\n').unwrap_or(before);
            kept.push_str(before.strip_suffix('\r').unwrap_or(before));
            from = region.span.end;
            // The newline before a result goes with it; one that begins the text takes the newline after it.
            if region.span.start == 0 {
                from = self.lines.span(self.lines.number_at(from)).end;
            }
        }
        kept.push_str(&self.text[from..]);
        kept
    }

    /// The number that a line would have without the results above it. Lines of results have that of the line before.
    ///
    /// Ranges of lines are counted like this, so that no run moves a binding.
    pub fn line_without_results(&self, line: usize) -> usize {
        let next = self.region_lines.partition_point(|(lines, _)| lines.start <= line);
        let Some((lines, before)) = next.checked_sub(1).map(|last| &self.region_lines[last]) else { return line };
        let of_results = before + (line - lines.start + 1).min(lines.len());
        (line - of_results).max(1)
    }

    /// The sections that a line is in, from the outermost, as places in `headings`.
    pub(crate) fn sections_at(&self, line: usize) -> Vec<usize> {
        let mut found: Vec<usize> =
            std::iter::successors(self.innermost_section(line), |place| self.sections[*place].parent).collect();
        found.reverse();
        found
    }

    /// The innermost section that a line is in: that of the last heading before it.
    pub(crate) fn innermost_section(&self, line: usize) -> Option<usize> {
        self.headings.partition_point(|heading| heading.line <= line).checked_sub(1)
    }

    /// The lines of a section, its heading and its children included.
    pub(crate) fn section_lines(&self, place: usize) -> Range<usize> {
        self.headings[place].line..self.sections[place].end_line
    }
}

/// The sections that headings begin, in a text of so many lines.
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
    /// Whether this is the heading that somebody means by `Tools` (at any level) or `## Tools` (at this one).
    pub fn is_called(&self, wanted: &str) -> bool {
        let (level, bare) = Self::words_of(wanted);
        (level == 0 || level == self.level) && (same_words(bare, &self.text) || same_words(bare, &self.raw))
    }

    /// The level that somebody means, 0 for any, and the words.
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
