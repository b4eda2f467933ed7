//! Writes results into a text, below their blocks and nowhere else.
//!
//! The text may have changed since the run started. A block is found again by its content; if it is not found, or its
//! result was edited in the meantime, it is left unchanged and reported. The new text is parsed again before it is
//! returned: without its results it must be the old one, byte for byte.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use crate::document::{Document, Fence, Heading};
use crate::region::{self, Found, Note};
use crate::render::{Attachment, Rendered, Style, rendered};
use crate::run::{BlockResult, Finished, Report, Status};

/// How often a text is parsed again to find results that do not fit. After that, the rest is skipped.
const MAX_MATCH_ATTEMPTS: usize = 64;

/// How results are written into a text.
#[derive(Debug, Clone, Copy)]
pub struct ApplyOptions<'a> {
    /// Whether results that were edited by hand are replaced.
    pub force: bool,
    /// The folder for attachments, as the document names it: `notes.assets`.
    pub folder: &'a str,
}

/// A text with results in it.
#[derive(Debug, Clone)]
pub struct Applied {
    /// The text.
    pub text: String,
    /// The edits of the old text, from top to bottom.
    pub edits: Vec<Edit>,
    /// The files that the text links to.
    pub attachments: Vec<Attachment>,
    /// What happened to each result.
    pub placements: Vec<Placement>,
}

/// An edit of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Edit {
    /// The first byte that is replaced.
    pub start: usize,
    /// The byte after the last that is replaced.
    pub end: usize,
    /// The line of the first byte, from 1.
    pub line: usize,
    /// The replacement.
    pub text: String,
}

/// What happened to a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// The number of the block in the planned text.
    pub number: usize,
    /// The outcome.
    pub fate: PlacementOutcome,
}

/// What happened to a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementOutcome {
    /// It was written.
    Written,
    /// The same result was there already.
    Unchanged,
    /// There is no result to write for this block.
    Nothing,
    /// The block was removed or changed.
    BlockChanged,
    /// The existing result was edited, or has no closing mark.
    Kept,
    /// It would have changed other parts of the text.
    Unfit,
}

/// A result to be written.
struct Placing {
    number: usize,
    /// The index of the block in the document.
    fence: usize,
    edit: Edit,
    id: String,
    attachments: Vec<Attachment>,
}

/// Writes the results of a run into a text.
pub fn apply(text: &str, report: &Report, options: &ApplyOptions<'_>) -> Applied {
    let document = Document::parse(text);
    let same = fences_by_words(&document);
    let mut fates: Vec<Placement> = Vec::new();
    let mut attempt = |trusts_markdown: bool| {
        fates.clear();
        let mut placings = Vec::new();
        for finished in &report.finished {
            let fate = match prepared(&document, &same, finished, options, trusts_markdown) {
                Ok(placing) => {
                    placings.push(placing);
                    PlacementOutcome::Written
                }
                Err(fate) => fate,
            };
            fates.push(Placement { number: finished.number, fate });
        }
        placings.sort_by_key(|placing| placing.edit.start);
        placings
    };
    let mut placings = attempt(true);
    if !fits(&document, &placings) {
        placings = attempt(false);
    }
    if !fits(&document, &placings) {
        let (fitting, unfit) = sorted_out(&document, std::mem::take(&mut placings));
        placings = fitting;
        for fate in fates.iter_mut().filter(|fate| unfit.contains(&fate.number)) {
            fate.fate = PlacementOutcome::Unfit;
        }
    }
    let text = edited(&document.text, &placings);
    let attachments = placings.iter().flat_map(|placing| placing.attachments.iter().cloned()).collect();
    let edits = placings.into_iter().map(|placing| placing.edit).collect();
    Applied { text, edits, attachments, placements: fates }
}

/// The results that fit, and the numbers of those that do not. Bisects until single ones are left, so few misfits are
/// found in few attempts.
fn sorted_out(document: &Document, all: Vec<Placing>) -> (Vec<Placing>, HashSet<usize>) {
    let (mut fitting, mut unfit) = (Vec::new(), HashSet::new());
    let mut waiting = vec![all];
    let mut trials = 0;
    while let Some(mut group) = waiting.pop() {
        trials += 1;
        let before = fitting.len();
        let (count, middle) = (group.len(), group.len() / 2);
        if trials <= MAX_MATCH_ATTEMPTS {
            fitting.append(&mut group);
            if fits(document, &fitting) {
                continue;
            }
            group = fitting.split_off(before);
        }
        if trials > MAX_MATCH_ATTEMPTS || count <= 1 {
            unfit.extend(group.into_iter().map(|placing| placing.number));
            continue;
        }
        let second = group.split_off(middle);
        waiting.push(second);
        waiting.push(group);
    }
    (fitting, unfit)
}

/// The blocks of a document by content.
type SameFences<'a> = HashMap<(&'a str, &'a str), Vec<(usize, &'a Fence)>>;

fn fences_by_words(document: &Document) -> SameFences<'_> {
    let mut same: SameFences<'_> = HashMap::new();
    for (place, fence) in document.fences().iter().enumerate() {
        same.entry((&fence.info, &fence.content)).or_default().push((place, fence));
    }
    same
}

fn prepared(
    document: &Document,
    same: &SameFences<'_>,
    finished: &Finished,
    options: &ApplyOptions<'_>,
    trusts_markdown: bool,
) -> Result<Placing, PlacementOutcome> {
    let Some(shown) = &finished.shown else { return Err(PlacementOutcome::Nothing) };
    let (place, fence) = found_again(same, finished)?;
    let style = Style {
        title: &finished.title,
        display_options: shown.display_options,
        folder: options.folder,
        is_refused: finished.status == Status::Refused,
        trusts_markdown,
    };
    if shown.gives_way && fence.result.is_some() {
        return Err(PlacementOutcome::Nothing);
    }
    let here = document.lines.content(&document.text, fence.last_line).end;
    let (start, end) = match &fence.result {
        None => (here, here),
        Some(Found::Torn { .. }) => return Err(PlacementOutcome::Kept),
        Some(Found::Whole(region)) if region.is_edited && !options.force => return Err(PlacementOutcome::Kept),
        Some(Found::Whole(region)) => {
            if !region.is_edited && is_same(shown, &region.note, &region.id, &style) {
                return Err(PlacementOutcome::Unchanged);
            }
            (region.span.start, region.span.end)
        }
    };
    let Rendered { lines, attachments } = rendered(&shown.content, &shown.note, &style);
    let (id, lines) = region::marked(&lines, &shown.note);
    let lines: Vec<String> = lines.iter().map(|line| in_container(line, &fence.prefix)).collect();
    let before = if start == end { fence.newline } else { "" };
    let text = format!("{before}{}", lines.join(fence.newline));
    let edit = Edit { start, end, line: document.lines.number_at(start), text };
    Ok(Placing { number: finished.number, fence: place, edit, id, attachments })
}

/// The block of a result, by its content and its position among blocks of the same content.
fn found_again<'a>(same: &SameFences<'a>, finished: &Finished) -> Result<(usize, &'a Fence), PlacementOutcome> {
    let source = &finished.source;
    let candidates = same.get(&(source.info.as_str(), source.content.as_str())).map(Vec::as_slice).unwrap_or_default();
    if candidates.len() != source.count {
        return Err(PlacementOutcome::BlockChanged);
    }
    candidates.get(source.place).copied().filter(|(_, fence)| fence.is_closed).ok_or(PlacementOutcome::BlockChanged)
}

/// Whether the existing region has the same content, apart from time and duration.
fn is_same(shown: &BlockResult, there: &Note, id: &str, style: &Style<'_>) -> bool {
    let note = Note { at: there.at.clone(), took_ms: there.took_ms, ..shown.note.clone() };
    note == *there && region::marked(&rendered(&shown.content, &note, style).lines, &note).0 == id
}

fn in_container(line: &str, prefix: &str) -> String {
    if line.is_empty() { prefix.trim_end().to_owned() } else { format!("{prefix}{line}") }
}

fn edited(text: &str, placings: &[Placing]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for Placing { edit, .. } in placings {
        out.push_str(&text[from..edit.start]);
        out.push_str(&edit.text);
        from = edit.end;
    }
    out.push_str(&text[from..]);
    out
}

/// Whether the text with these results is the same document with these results, and nothing else.
fn fits(document: &Document, placings: &[Placing]) -> bool {
    if placings.is_empty() {
        return true;
    }
    let new = Document::parse(edited(&document.text, placings));
    let is_placed = |fence: &Fence, id: &str| match &fence.result {
        Some(Found::Whole(region)) => region.id == id && !region.is_edited,
        _ => false,
    };
    let ids: HashMap<usize, &str> = placings.iter().map(|placing| (placing.fence, placing.id.as_str())).collect();
    let fits_fence = |(place, (old, new)): (usize, (&Fence, &Fence))| {
        let id = ids.get(&place);
        old.info == new.info && old.content == new.content && id.is_none_or(|id| is_placed(new, id))
    };
    let (old_fences, new_fences) = (document.fences(), new.fences());
    new_fences.len() == old_fences.len()
        && std::iter::zip(old_fences, new_fences).enumerate().all(fits_fence)
        && new.headings() == moved_headings(document, &new)
        && new.without_results() == document.without_results()
}

/// The old headings with the lines of the new ones, if there are equally many.
fn moved_headings(old: &Document, new: &Document) -> Vec<Heading> {
    let mut headings = old.headings().to_vec();
    for (heading, moved) in headings.iter_mut().zip(new.headings()) {
        heading.line = moved.line;
    }
    headings
}
