//! Bindings: which server a part of a document uses, and why.
//!
//! A binding applies to lines: those of a section, of a block with an id, of a range, or all. If several apply, the one
//! for the fewest lines wins: a child overrides its parent. For the same part, bindings in the document take precedence
//! over those of the registry, and comments over front matter.

mod front_matter;
mod line_bindings;
mod pattern;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use serde::Serialize;

use crate::document::{Document, Heading};
use crate::problem::{Fault, clipped};
use line_bindings::LineBindings;
pub use pattern::{MAX_PATTERN_LENGTH, bindings_for, fuzz_glob, matches_path};

/// The limit of places where bindings apply: many headings may have the same text. A document with more is refused,
/// because the bindings of the rest would be unknown.
pub(crate) const MAX_BINDING_PLACES: usize = 100_000;

/// The limit of bindings of one document: in its front matter, and again in the registry.
pub const MAX_BINDINGS: usize = 1_000;
/// The limit of characters of a heading, block id or server name in a binding. They are repeated for every bound block.
pub const MAX_BINDING_TEXT: usize = 1_000;

/// The limit of characters of a heading and of a server name in a comment. They are repeated as well.
const LONGEST_SHOWN_HEADING: usize = 200;

/// A part of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "section_type", rename_all = "lowercase")]
pub enum Section {
    /// The whole document.
    Document,
    /// The sections of headings with this text: `Tools`, or `## Tools` for that level only.
    Heading {
        /// The heading.
        heading_text: String,
    },
    /// The block with this id.
    Block {
        /// The id, with or without its `^`.
        block_id: String,
    },
    /// A range of lines, including the last. Lines of results do not count, so that a run does not move a binding.
    Range {
        /// The first line, from 1.
        start_line: usize,
        /// The last line, after the first.
        end_line: usize,
    },
}

/// Where a binding is declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "origin", rename_all = "snake_case")]
pub enum Origin {
    /// A comment in the text.
    Comment {
        /// Its line.
        line: usize,
    },
    /// The YAML at the start of the document.
    FrontMatter {
        /// The line in it.
        line: usize,
    },
    /// The registry.
    Registry,
}

/// A part of a document, and the server that it uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Binding {
    /// The part.
    #[serde(flatten)]
    pub section: Section,
    /// The name of the server.
    pub server: String,
    /// Whether the sections inside inherit it.
    pub inherit_to_children: bool,
    /// Where it is declared.
    #[serde(flatten)]
    pub origin: Origin,
}

/// The binding of a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bound {
    /// The binding that applies.
    #[serde(flatten)]
    pub binding: Binding,
    /// Whether it belongs to an enclosing section.
    pub is_inherited: bool,
}

/// All bindings of a document.
#[derive(Debug, Clone)]
pub struct Bindings<'a> {
    document: &'a Document,
    placed: Vec<Placed>,
    line_bindings: LineBindings,
    /// Problems with the bindings in the document.
    pub faults: Vec<Fault>,
    /// What exceeds a limit: bindings, places where they apply, or parts of the document. No block of the document is
    /// run then.
    pub(crate) excess: Option<Fault>,
}

/// A binding at one of its places.
#[derive(Debug, Clone)]
struct Placed {
    binding: Binding,
    /// The lines of the part, without those of results.
    lines: Range<usize>,
    /// The lines where it applies: fewer, if children do not inherit it.
    held: Range<usize>,
}

impl<'a> Bindings<'a> {
    /// The bindings in the document, and those of the registry.
    pub fn of(document: &'a Document, registered: &[Binding]) -> Self {
        let (from_matter, mut faults) = front_matter::bindings(document);
        let mut placed = Vec::new();
        for comment in document.comments.iter().take(MAX_BINDING_PLACES) {
            let section = document.innermost_section(comment.line);
            let binding = Binding {
                section: section.map_or(Section::Document, |place| heading_section(document, place)),
                server: clipped(comment.server.clone(), LONGEST_SHOWN_HEADING),
                inherit_to_children: comment.inherit,
                origin: Origin::Comment { line: comment.line },
            };
            let lines = section.map_or(1..document.lines.count() + 1, |place| document.section_lines(place));
            placed.push(place(document, binding, lines));
        }
        let mut names = HeadingNames::of(document);
        let mut excess = document.excess.clone().or_else(|| {
            let first_too_many = document.comments.get(MAX_BINDING_PLACES);
            first_too_many.map(|comment| too_many_places(Origin::Comment { line: comment.line }))
        });
        if registered.len() > MAX_BINDINGS {
            excess.get_or_insert_with(|| too_many_registered(registered.len()));
        }
        for binding in from_matter.iter().chain(registered.iter().take(MAX_BINDINGS)) {
            // One more than allowed, so that an excess is noticed.
            let left = MAX_BINDING_PLACES.saturating_sub(placed.len());
            let places = places(document, &mut names, &binding.section, left + 1);
            if let Origin::FrontMatter { line } = binding.origin
                && places.is_empty()
            {
                faults.push(Fault { line, what: format!("there is {} to bind", absent(&binding.section)) });
            }
            if places.len() > left {
                excess.get_or_insert_with(|| too_many_places(binding.origin));
                break;
            }
            placed.extend(places.into_iter().map(|lines| place(document, binding.clone(), lines)));
        }
        faults.extend(excess.clone());
        faults.extend(contradictions(&placed));
        let line_bindings = LineBindings::of(&placed);
        Self { document, placed, line_bindings, faults, excess }
    }

    /// The binding of a line.
    pub fn at(&self, line: usize) -> Option<Bound> {
        let source_line = self.document.line_without_results(line);
        let placed = &self.placed[self.line_bindings.at(source_line)?];
        let inner = self
            .document
            .innermost_section(line)
            .map(|place| self.document.line_without_results(self.document.headings[place].line));
        let is_inherited = inner.is_some_and(|heading| heading > placed.lines.start);
        let is_inherited = is_inherited && !matches!(placed.binding.section, Section::Block { .. });
        Some(Bound { binding: placed.binding.clone(), is_inherited })
    }

    /// Why it is unknown whether an unbound part is meant to be bound, if that is so: an unreadable restriction must
    /// not be ignored. The text contains no line number: it can become part of a result, and results move the lines
    /// below them, so the next run would write another text. [`Self::faults`] has the line.
    pub(crate) fn unclear(&self) -> Option<String> {
        let Fault { what, .. } = self.faults.first()?;
        Some(format!("no tools may be used while the document has an invalid binding ({what})"))
    }

    /// Every server that is named, with its origin.
    pub fn servers(&self) -> impl Iterator<Item = (&str, Origin)> {
        self.placed.iter().map(|placed| (placed.binding.server.as_str(), placed.binding.origin))
    }
}

impl fmt::Display for Section {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document => write!(to, "the document"),
            Self::Heading { heading_text } => write!(to, "`{heading_text}`"),
            Self::Block { block_id } => write!(to, "block `^{}`", block_id.trim_start_matches('^')),
            Self::Range { start_line, end_line } => write!(to, "lines {start_line} to {end_line}"),
        }
    }
}

impl Origin {
    /// The line in the document; 1 for bindings from elsewhere.
    pub(crate) fn line(self) -> usize {
        match self {
            Self::Comment { line } | Self::FrontMatter { line } => line,
            Self::Registry => 1,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Comment { .. } => write!(to, "a comment"),
            Self::FrontMatter { .. } => write!(to, "front matter"),
            Self::Registry => write!(to, "the registry"),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Binding { section, origin, .. } = &self.binding;
        if self.is_inherited {
            return write!(to, "inherited from {section}, which {origin} binds");
        }
        write!(to, "{origin} binds {section}")
    }
}

fn too_many_places(origin: Origin) -> Fault {
    let what = format!("bindings apply at more than {MAX_BINDING_PLACES} places of the document, so no block is run");
    Fault { line: origin.line(), what }
}

fn too_many_registered(count: usize) -> Fault {
    let what =
        format!("the registry has {count} bindings for this document; the limit is {MAX_BINDINGS}, so no block is run");
    Fault { line: 1, what }
}

fn place(document: &Document, binding: Binding, lines: Range<usize>) -> Placed {
    let is_range = matches!(binding.section, Section::Range { .. });
    let source = |line: usize| document.line_without_results(line);
    let lines = if is_range { lines } else { source(lines.start)..source(lines.end - 1) + 1 };
    // The first child of the document may start on its first line; any other part starts with its own heading or above
    // it.
    let own = if matches!(binding.section, Section::Document) { 0 } else { lines.start };
    let child = document.headings.partition_point(|heading| source(heading.line) <= own);
    let first_child = document.headings.get(child).map(|heading| source(heading.line));
    let held = match first_child {
        Some(child) if !binding.inherit_to_children => lines.start..lines.end.min(child),
        _ => lines.clone(),
    };
    Placed { binding, lines, held }
}

/// The headings of a document by text, built on first use.
struct HeadingNames<'a> {
    document: &'a Document,
    by_words: Option<HashMap<String, Vec<usize>>>,
}

impl<'a> HeadingNames<'a> {
    fn of(document: &'a Document) -> Self {
        Self { document, by_words: None }
    }

    /// The headings that may have this text, from top to bottom.
    fn like(&mut self, wanted: &str) -> &[usize] {
        let document = self.document;
        let by_words = self.by_words.get_or_insert_with(|| {
            let mut by_words: HashMap<String, Vec<usize>> = HashMap::new();
            for (place, heading) in document.headings.iter().enumerate() {
                for words in [one_spaced(&heading.text), one_spaced(&heading.raw)] {
                    let places = by_words.entry(words).or_default();
                    if places.last() != Some(&place) {
                        places.push(place);
                    }
                }
            }
            by_words
        });
        by_words.get(&one_spaced(Heading::words_of(wanted).1)).map(Vec::as_slice).unwrap_or_default()
    }
}

fn one_spaced(words: &str) -> String {
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The lines of every matching part, up to a limit.
fn places(document: &Document, names: &mut HeadingNames<'_>, section: &Section, most: usize) -> Vec<Range<usize>> {
    match section {
        Section::Document => std::iter::once(1..document.lines.count() + 1).collect(),
        Section::Heading { heading_text } => {
            let called = |place: &&usize| document.headings[**place].is_called(heading_text);
            let places = names.like(heading_text).iter().filter(called).take(most);
            places.map(|place| document.section_lines(*place)).collect()
        }
        Section::Block { block_id } => {
            let wanted = block_id.trim().trim_start_matches('^');
            let named = document.ids.iter().filter(|named| named.id == wanted).take(most);
            named.map(|named| named.lines.clone()).collect()
        }
        Section::Range { start_line, end_line } => std::iter::once(*start_line..end_line.saturating_add(1)).collect(),
    }
}

/// The section of a heading for display; a very long one is truncated.
fn heading_section(document: &Document, place: usize) -> Section {
    let heading = &document.headings[place];
    let words = heading.text.chars().take(LONGEST_SHOWN_HEADING + 1).collect();
    let words = clipped(words, LONGEST_SHOWN_HEADING);
    Section::Heading { heading_text: format!("{} {words}", "#".repeat(heading.level)) }
}

fn breadth(section: &Section) -> usize {
    match section {
        Section::Block { .. } => 0,
        Section::Range { .. } => 1,
        Section::Heading { .. } => 2,
        Section::Document => 3,
    }
}

fn absent(section: &Section) -> String {
    match section {
        Section::Heading { heading_text } => format!("no heading `{heading_text}`"),
        section => format!("no {section}"),
    }
}

/// Conflicts: two comments, or two entries of front matter, that bind the same lines to different servers.
fn contradictions(placed: &[Placed]) -> Vec<Fault> {
    let mut found = Vec::new();
    // The first server for the same lines, and the first different one.
    let mut named: HashMap<_, (&str, Option<&str>)> = HashMap::new();
    for later in placed {
        let Binding { section, server, origin, .. } = &later.binding;
        let line = match *origin {
            Origin::Comment { line } | Origin::FrontMatter { line } => line,
            Origin::Registry => continue,
        };
        let rank = std::mem::discriminant(origin);
        let (first, other) = named.entry((later.lines.clone(), breadth(section), rank)).or_insert((server, None));
        let earlier = if *first != server { Some(*first) } else { *other };
        if *first != server {
            other.get_or_insert(server);
        }
        if let Some(earlier) = earlier {
            found.push(Fault {
                line,
                what: format!("{section} is already bound to `{earlier}`; this binding is ignored"),
            });
        }
    }
    found
}
