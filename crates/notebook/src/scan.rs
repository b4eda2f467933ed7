//! Scans a text in one pass over the events of `pulldown-cmark`.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::document::{BlockId, Comment, Document, Fence, FrontMatter, Heading, SectionExtent, section_extents};
use crate::lines::{Lines, without_container};
use crate::problem::Fault;
use crate::region::{self, Found, Marks, Region};

const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The limits of a document. Each of these items takes far more memory than its bytes in the text.
const MAX_HEADINGS: usize = 200_000;
const MAX_FENCES: usize = 50_000;
const MAX_IDS: usize = 200_000;
/// One more than the limit of bound places, so that an excess is noticed.
const MAX_COMMENTS: usize = crate::binding::MAX_BINDING_PLACES + 1;

/// Scans a text.
pub(crate) fn scan(text: String) -> Document {
    let lines = Lines::of(&text);
    let front_matter = find_front_matter(&text, &lines);
    let body = front_matter.as_ref().map_or_else(
        || if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 },
        |matter| lines.start(lines.number_at(matter.yaml.end) + 1),
    );
    let mut walk = Walk::new(&text, &lines, body);
    for (event, range) in Parser::new_ext(&text[body..], Options::empty()).into_offset_iter() {
        walk.step(&event, range.start + body..range.end + body);
        if walk.excess.is_some() {
            break;
        }
    }
    let Walk { mut headings, mut fences, mut comments, parts, marks, excess, .. } = walk;
    let (regions, torn) = find_regions(&text, &lines, &marks);
    let is_free = |line: usize| {
        let offset = lines.start(line);
        let next = regions.partition_point(|region| region.span.start <= offset);
        next.checked_sub(1).is_none_or(|before| regions[before].span.end < offset)
    };
    headings.retain(|heading| is_free(heading.line));
    fences.retain(|fence| is_free(fence.first_line));
    comments.retain(|comment| is_free(comment.line));
    let sections = section_extents(&headings, lines.count());
    let mut ids = find_ids(&text, &lines, &parts, (&headings, &sections), &is_free);
    let excess = excess.or_else(|| (ids.len() > MAX_IDS).then(|| too_many(ids[MAX_IDS].lines.start, "ids", MAX_IDS)));
    ids.truncate(MAX_IDS);
    for fence in fences.iter_mut().filter(|fence| fence.is_closed) {
        fence.result = result_under(&text, &lines, fence, &regions, &torn);
    }
    let region_lines = count_lines(&lines, &regions);
    Document { front_matter, headings, sections, fences, comments, ids, regions, region_lines, excess, lines, text }
}

fn too_many(line: usize, what: &str, most: usize) -> Fault {
    Fault { line, what: format!("the document has more than {most} {what}, so no block is run") }
}

/// YAML between `---` at the very start and the next `---` or `...`.
fn find_front_matter(text: &str, lines: &Lines) -> Option<FrontMatter> {
    let line = |number| text[lines.content(text, number)].trim_end();
    if line(1).trim_start_matches(BYTE_ORDER_MARK) != "---" {
        return None;
    }
    let end = (2..=lines.count()).find(|number| matches!(line(*number), "---" | "..."))?;
    Some(FrontMatter { yaml: lines.start(2)..lines.start(end), line: 2 })
}

/// A block of any kind, which ids may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Paragraph,
    Item,
    Heading,
    Literal,
    Other,
}

#[derive(Debug)]
struct Part {
    kind: Kind,
    range: Range<usize>,
    /// The number of enclosing parts.
    depth: usize,
    /// The previous part in the same parent.
    previous: Option<usize>,
    /// The enclosing list item, or the outermost part.
    holder: usize,
}

struct Walk<'a> {
    text: &'a str,
    lines: &'a Lines,
    body: usize,
    headings: Vec<Heading>,
    fences: Vec<Fence>,
    comments: Vec<Comment>,
    parts: Vec<Part>,
    /// The open parts, each with its last child.
    open: Vec<(usize, Option<usize>)>,
    /// The last top-level part.
    last_outermost: Option<usize>,
    /// How many of the open parts are list items and quotes.
    containers: usize,
    /// The lines of opening marks.
    marks: Vec<usize>,
    /// The position of the text in the open heading or code block.
    inner: Option<Range<usize>>,
    words: String,
    /// A limit that the document exceeds.
    excess: Option<Fault>,
}

impl<'a> Walk<'a> {
    fn new(text: &'a str, lines: &'a Lines, body: usize) -> Self {
        Self {
            text,
            lines,
            body,
            headings: Vec::new(),
            fences: Vec::new(),
            comments: Vec::new(),
            parts: Vec::new(),
            open: Vec::new(),
            last_outermost: None,
            containers: 0,
            marks: Vec::new(),
            inner: None,
            words: String::new(),
            excess: None,
        }
    }

    fn step(&mut self, event: &Event<'_>, range: Range<usize>) {
        match event {
            Event::Start(tag) => self.enter(tag, range),
            Event::End(tag) => self.leave(*tag, range),
            Event::Text(words) | Event::Code(words) => self.see(words, &range),
            Event::SoftBreak | Event::HardBreak => self.words.push(' '),
            Event::InlineHtml(_) => self.see("", &range),
            _ => {}
        }
    }

    fn see(&mut self, words: &str, range: &Range<usize>) {
        self.words.push_str(words);
        // The parser closes some headings with an empty text without a position.
        if range.is_empty() {
            return;
        }
        self.inner = Some(self.inner.as_ref().map_or(range.clone(), |inner| inner.start..range.end.max(inner.end)));
    }

    fn enter(&mut self, tag: &Tag<'_>, range: Range<usize>) {
        let kind = match tag {
            Tag::Paragraph => Kind::Paragraph,
            Tag::Item => Kind::Item,
            Tag::Heading { .. } => Kind::Heading,
            Tag::CodeBlock(_) | Tag::HtmlBlock => Kind::Literal,
            Tag::BlockQuote(_) | Tag::List(_) => Kind::Other,
            // Links and emphasis are part of the raw text of a heading.
            _ => return self.see("", &range),
        };
        if matches!(tag, Tag::Item | Tag::BlockQuote(_)) {
            self.containers += 1;
        }
        self.inner = None;
        self.words.clear();
        match tag {
            Tag::HtmlBlock => self.html(&range),
            Tag::CodeBlock(CodeBlockKind::Fenced(info)) => self.open_fence(info, &range),
            _ => {}
        }
        let (place, depth) = (self.parts.len(), self.open.len());
        let parent = self.open.last().map(|(parent, _)| *parent);
        let last = self.open.last_mut().map_or(&mut self.last_outermost, |(_, last)| last);
        let previous = last.replace(place);
        let holder = match parent {
            Some(parent) if kind != Kind::Item => self.parts[parent].holder,
            _ => place,
        };
        self.parts.push(Part { kind, range, depth, previous, holder });
        self.open.push((place, None));
    }

    fn leave(&mut self, tag: TagEnd, range: Range<usize>) {
        match tag {
            TagEnd::Heading(level) => self.close_heading(level, range),
            TagEnd::CodeBlock => self.close_fence(&range),
            TagEnd::Item | TagEnd::BlockQuote(_) => self.containers -= 1,
            TagEnd::Paragraph | TagEnd::HtmlBlock | TagEnd::List(_) => {}
            _ => return,
        }
        self.open.pop();
    }

    fn close_heading(&mut self, level: HeadingLevel, range: Range<usize>) {
        if self.containers > 0 {
            return;
        }
        if self.headings.len() >= MAX_HEADINGS {
            self.excess = Some(too_many(self.lines.number_at(range.start), "headings", MAX_HEADINGS));
            return;
        }
        let raw = self.inner.take().map_or("", |inner| self.text[inner].trim());
        self.headings.push(Heading {
            level: level as usize,
            text: without_id(self.words.trim()).0.to_owned(),
            raw: without_id(raw).0.to_owned(),
            line: self.lines.number_at(range.start),
        });
    }

    fn html(&mut self, range: &Range<usize>) {
        let line = self.lines.number_at(range.start);
        if region::is_opening(&self.text[self.lines.content(self.text, line)]) {
            self.marks.push(line);
        }
        if self.containers > 0 {
            return;
        }
        if self.comments.len() < MAX_COMMENTS {
            self.comments.extend(binding_comment(&self.text[range.clone()], line));
        }
    }

    fn open_fence(&mut self, info: &str, range: &Range<usize>) {
        let first_line = self.lines.number_at(range.start);
        if self.fences.len() >= MAX_FENCES {
            self.excess = Some(too_many(first_line, "fenced blocks", MAX_FENCES));
            return;
        }
        let begin = self.lines.start(first_line).max(self.body);
        let prefix = self.text[begin..range.start].chars().map(under).collect();
        let opening = &self.text[self.lines.span(first_line)];
        let newline = if opening.ends_with("\r\n") { "\r\n" } else { "\n" };
        self.fences.push(Fence {
            info: info.to_owned(),
            content: String::new(),
            first_line,
            last_line: first_line,
            span: range.clone(),
            prefix,
            newline,
            is_closed: false,
            result: None,
        });
    }

    fn close_fence(&mut self, range: &Range<usize>) {
        let Some(fence) = self.fences.last_mut().filter(|fence| fence.span == *range) else { return };
        fence.content = std::mem::take(&mut self.words);
        fence.last_line = self.lines.number_at(range.end.saturating_sub(1).max(range.start));
        let content_ends = self.inner.take().map_or(range.start, |inner| inner.end);
        let last = &self.text[self.lines.start(fence.last_line)..range.end];
        let mark = &self.text[range.start..range.start + 3];
        fence.is_closed = fence.last_line > fence.first_line
            && content_ends <= self.lines.start(fence.last_line)
            && without_container(last).starts_with(mark);
    }
}

/// The prefix character for the next line: quotes continue, lists are indented.
fn under(character: char) -> char {
    match character {
        '>' | '\t' => character,
        _ => ' ',
    }
}

/// `<!-- mcp: SERVER -->` or `<!-- mcp: SERVER no-inherit -->`.
fn binding_comment(html: &str, line: usize) -> Option<Comment> {
    let inner = html.trim().strip_prefix("<!--")?.strip_suffix("-->")?;
    let said = inner.trim().strip_prefix("mcp:")?.trim();
    let (server, inherit) = match said.strip_suffix("no-inherit") {
        Some(server) if server.ends_with([' ', '\t']) => (server.trim(), false),
        _ => (said, true),
    };
    (!server.is_empty() && !server.contains("-->")).then(|| Comment { server: server.to_owned(), inherit, line })
}

/// The results in a document, and the lines of those without a closing mark.
fn find_regions(text: &str, lines: &Lines, marks: &[usize]) -> (Vec<Region>, Vec<usize>) {
    let mut regions: Vec<Region> = Vec::new();
    let mut torn = Vec::new();
    if marks.is_empty() {
        return (regions, torn);
    }
    let all = Marks::of(text, lines);
    for line in marks {
        let is_inside = regions.last().is_some_and(|last| lines.start(*line) < last.span.end);
        if is_inside {
            continue;
        }
        match region::find(text, lines, &all, *line) {
            Some(Found::Whole(region)) => regions.push(region),
            Some(Found::Torn { line }) => torn.push(line),
            None => {}
        }
    }
    (regions, torn)
}

/// The lines of every region, and the number of region lines before it.
fn count_lines(lines: &Lines, regions: &[Region]) -> Vec<(Range<usize>, usize)> {
    let mut before = 0;
    let mut counted = Vec::with_capacity(regions.len());
    for region in regions {
        let own = lines.number_at(region.span.start)..lines.number_at(region.span.end) + 1;
        let length = own.len();
        counted.push((own, before));
        before += length;
    }
    counted
}

/// The result of a block: the one that starts on the next line that is not empty.
fn result_under(text: &str, lines: &Lines, fence: &Fence, regions: &[Region], torn: &[usize]) -> Option<Found> {
    let is_empty = |number: &usize| without_container(&text[lines.content(text, *number)]).trim().is_empty();
    let next = (fence.last_line + 1..=lines.count()).find(|number| !is_empty(number))?;
    if torn.binary_search(&next).is_ok() {
        return Some(Found::Torn { line: next });
    }
    let start = lines.start(next);
    let place = regions.binary_search_by_key(&start, |region| region.span.start).ok()?;
    Some(Found::Whole(regions[place].clone()))
}

/// Text without the `^id` at its end, and the id.
pub(crate) fn without_id(words: &str) -> (&str, Option<&str>) {
    let words = words.trim_end();
    let Some((before, id)) = words.rsplit_once('^') else { return (words, None) };
    let is_id = !id.is_empty() && id.chars().all(|it| it.is_alphanumeric() || matches!(it, '-' | '_'));
    let stands_apart = before.is_empty() || before.ends_with([' ', '\t', '>']);
    if is_id && stands_apart { (before.trim_end(), Some(id)) } else { (words, None) }
}

/// What every `^id` names: the list item or block that it ends, or the one before it if it stands alone.
fn find_ids(
    text: &str,
    lines: &Lines,
    parts: &[Part],
    (headings, sections): (&[Heading], &[SectionExtent]),
    is_free: &impl Fn(usize) -> bool,
) -> Vec<BlockId> {
    let mut found = Vec::new();
    let mut around = Around { parts, next: 0, open: Vec::new() };
    for number in (1..=lines.count()).filter(|number| is_free(*number)) {
        let content = lines.content(text, number);
        let (before, Some(id)) = without_id(&text[content.clone()]) else { continue };
        let Some(inner) = around.innermost(content.end) else { continue };
        if parts[inner].kind == Kind::Literal {
            continue;
        }
        let stands_alone = parts[inner].kind == Kind::Paragraph
            && lines.number_at(parts[inner].range.start) == number
            && without_container(before).is_empty();
        let previous = stands_alone.then(|| sibling_before(parts, inner, lines, is_free)).flatten();
        let named = previous.unwrap_or(parts[inner].holder);
        let first = lines.number_at(parts[named].range.start);
        let last = lines.number_at(parts[named].range.end.saturating_sub(1));
        let section = (parts[named].kind == Kind::Heading)
            .then(|| headings.binary_search_by_key(&first, |heading| heading.line).ok())
            .flatten()
            .map(|place| first..sections[place].end_line);
        found.push(BlockId { id: id.to_owned(), lines: section.unwrap_or(first..last + 1) });
        if found.len() > MAX_IDS {
            break;
        }
    }
    found
}

/// Finds the enclosing parts of positions, which must be requested from top to bottom.
struct Around<'a> {
    /// Ordered by start.
    parts: &'a [Part],
    next: usize,
    /// Those that have started and may not have ended, each inside the previous one.
    open: Vec<usize>,
}

impl Around<'_> {
    /// The innermost part that contains what ends at a position.
    fn innermost(&mut self, end: usize) -> Option<usize> {
        while let Some(part) = self.parts.get(self.next).filter(|part| part.range.start < end) {
            while self.open.pop_if(|last| self.parts[*last].depth >= part.depth).is_some() {}
            self.open.push(self.next);
            self.next += 1;
        }
        while self.open.pop_if(|last| self.parts[*last].range.end < end).is_some() {}
        self.open.last().copied()
    }
}

fn sibling_before(parts: &[Part], of: usize, lines: &Lines, is_free: &impl Fn(usize) -> bool) -> Option<usize> {
    std::iter::successors(parts[of].previous, |place| parts[*place].previous)
        .find(|place| is_free(lines.number_at(parts[*place].range.start)))
}
