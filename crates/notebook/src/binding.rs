//! Which server a part of a document is bound to, and why.
//!
//! A binding holds for lines: those of a section, of a block with an id, of a range, or all. Where several hold, the
//! one for the fewest lines wins: a child overrides its parent. For the same part, the document's own words win over
//! those of the registry, and a comment in the text over front matter.

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

/// Bindings may hold at so many places: a document of many headings with the same words has many. With more of them the
/// document is refused, for nobody could tell what the rest is bound to.
pub(crate) const MAX_BINDING_PLACES: usize = 100_000;

/// Bindings of one document: in its front matter, and as many again in the registry. More than anybody writes.
pub const MAX_BINDINGS: usize = 1_000;
/// Characters of a heading, of the id of a block or of the name of a server in a binding. They are repeated for every
/// block that is bound by it.
pub const MAX_BINDING_TEXT: usize = 1_000;

/// Characters of a heading, and of a server's name, that a comment binds. They are repeated as well.
const LONGEST_SHOWN_HEADING: usize = 200;

/// A part of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "section_type", rename_all = "lowercase")]
pub enum Section {
    /// All of it.
    Document,
    /// What stands under the headings that are called this: `Tools`, or `## Tools` for those of that level.
    Heading {
        /// The heading.
        heading_text: String,
    },
    /// The block with this id.
    Block {
        /// The id, with or without its `^`.
        block_id: String,
    },
    /// Lines, the last included. Lines of results are not counted, so that no run moves a binding.
    Range {
        /// The first line, from 1.
        start_line: usize,
        /// The last line, after the first.
        end_line: usize,
    },
}

/// Who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "origin", rename_all = "snake_case")]
pub enum Origin {
    /// A comment in the text.
    Comment {
        /// Its line.
        line: usize,
    },
    /// The YAML at the beginning of the document.
    FrontMatter {
        /// The line there.
        line: usize,
    },
    /// Somebody outside of the document.
    Registry,
}

/// A part of a document, and the server whose tools may be used there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Binding {
    /// Which part.
    #[serde(flatten)]
    pub section: Section,
    /// The server's name.
    pub server: String,
    /// Whether it holds for the sections inside this part, too.
    pub inherit_to_children: bool,
    /// Who says so.
    #[serde(flatten)]
    pub origin: Origin,
}

/// The server that a place is bound to, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bound {
    /// The binding that holds.
    #[serde(flatten)]
    pub binding: Binding,
    /// Whether it holds because it does for a section around this one.
    pub is_inherited: bool,
}

/// All bindings of a document.
#[derive(Debug, Clone)]
pub struct Bindings<'a> {
    document: &'a Document,
    placed: Vec<Placed>,
    line_bindings: LineBindings,
    /// What is wrong with those that the document makes.
    pub faults: Vec<Fault>,
    /// What there is more of than allowed: bindings, places at which they hold, or parts of the document. No block of the
    /// document is run then.
    pub(crate) excess: Option<Fault>,
}

/// A binding and one of the places that it is for.
#[derive(Debug, Clone)]
struct Placed {
    binding: Binding,
    /// The lines of the part, without those of results.
    lines: Range<usize>,
    /// Those in which it holds: fewer, if children do not inherit it.
    held: Range<usize>,
}

impl<'a> Bindings<'a> {
    /// Those that the document makes, and those made outside for it.
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
            // One more than allowed, so that too many are noticed.
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

    /// What a line is bound to.
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

    /// Why nobody can tell what a part is bound to that no binding is for, if that is so: a restriction that cannot be
    /// understood must not vanish. Names no line: this can end up in a result, and results move the lines below them, so
    /// the next run would write something else. [`Self::faults`] has the line.
    pub(crate) fn unclear(&self) -> Option<String> {
        let Fault { what, .. } = self.faults.first()?;
        Some(format!("no tools may be used while a binding of the document makes no sense ({what})"))
    }

    /// Every server that is named, with the line where, if that is in the document.
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
    /// Where it stands in the document; 1 for what stands elsewhere.
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
    let what =
        format!("bindings hold at more than {MAX_BINDING_PLACES} places of the document, so none of its blocks is run");
    Fault { line: origin.line(), what }
}

fn too_many_registered(count: usize) -> Fault {
    let what = format!(
        "the registry has {count} bindings for this document; at most {MAX_BINDINGS} are allowed, so none of its blocks \
         is run"
    );
    Fault { line: 1, what }
}

fn place(document: &Document, binding: Binding, lines: Range<usize>) -> Placed {
    let is_range = matches!(binding.section, Section::Range { .. });
    let source = |line: usize| document.line_without_results(line);
    let lines = if is_range { lines } else { source(lines.start)..source(lines.end - 1) + 1 };
    // The document's first child may be its first line; any other part begins with its own heading or above it.
    let own = if matches!(binding.section, Section::Document) { 0 } else { lines.start };
    let child = document.headings.partition_point(|heading| source(heading.line) <= own);
    let first_child = document.headings.get(child).map(|heading| source(heading.line));
    let held = match first_child {
        Some(child) if !binding.inherit_to_children => lines.start..lines.end.min(child),
        _ => lines.clone(),
    };
    Placed { binding, lines, held }
}

/// The headings of a document by their words, found when they are first asked for.
struct HeadingNames<'a> {
    document: &'a Document,
    by_words: Option<HashMap<String, Vec<usize>>>,
}

impl<'a> HeadingNames<'a> {
    fn of(document: &'a Document) -> Self {
        Self { document, by_words: None }
    }

    /// The headings that could be called this, from the top.
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

/// The lines of every part that is meant, but for those beyond a bound.
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

/// The section of a heading, to be shown: a very long one is cut.
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

/// Two comments, or two entries of front matter, that bind the same lines to different servers.
fn contradictions(placed: &[Placed]) -> Vec<Fault> {
    let mut found = Vec::new();
    // The first server that is named for the same lines, and the first that is another one.
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
            found.push(Fault { line, what: format!("{section} is bound to `{earlier}` already; this is ignored") });
        }
    }
    found
}
