//! How far it is known what tools are for: discovered, being classified, classified, or looked at in vain.
//!
//! Nothing of this is kept: it follows from what told a tool's skills, and who is still to be asked. So what could not be
//! asked stays `classifying` until it has been, restarts included.

use std::collections::HashMap;

use protocol::scan::{Span, member};
use protocol::text;
use registry::{RawJson, ToolId, ToolRecord};
use serde::Serialize;

use super::library::{Book, Library};
use super::{Finder, locked};
use crate::Service;

/// How far it is known what a tool is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolState {
    /// It is known by its words, and waits for its vector.
    Discovered,
    /// Somebody has still to say what it is for: its vector, or a language model that is to be asked as well.
    Classifying,
    /// It is known what it is best at.
    Classified,
    /// Everybody was asked, and nothing fits.
    Unclassified,
}

/// How many tools are in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ToolStates {
    /// Waiting for their vectors.
    pub discovered: u64,
    /// About which somebody has still to be asked.
    pub classifying: u64,
    /// Whose best skill is known.
    pub classified: u64,
    /// Where nothing fits.
    pub unclassified: u64,
}

impl ToolStates {
    fn count(&mut self, state: ToolState) {
        let counter = match state {
            ToolState::Discovered => &mut self.discovered,
            ToolState::Classifying => &mut self.classifying,
            ToolState::Classified => &mut self.classified,
            ToolState::Unclassified => &mut self.unclassified,
        };
        *counter += 1;
    }
}

/// A tool, and how far it is known what it is for.
#[derive(Debug, Clone, Serialize)]
pub struct ShownTool {
    /// The tool.
    #[serde(flatten)]
    pub record: ToolRecord,
    /// How far it is.
    pub state: ToolState,
    /// What people call it, as its server says.
    pub title: Option<String>,
    /// What its server says of what it does: whether it only reads, whether it destroys something.
    pub annotations: Option<RawJson>,
    /// What it gives back, as its server says.
    pub output_schema: Option<RawJson>,
}

impl ShownTool {
    fn new(record: ToolRecord, state: ToolState) -> Self {
        let definition = record.definition.get().as_bytes();
        let told = |name| member(definition, Span { start: 0, end: definition.len() }, name);
        let raw = |name| RawJson::parse(std::str::from_utf8(told(name)?.of(definition)).ok()?).ok();
        let title = told("title").and_then(|span| text::decode(span.of(definition))).map(|title| title.into_owned());
        let (annotations, output_schema) = (raw("annotations"), raw("outputSchema"));
        Self { state, title, annotations, output_schema, record }
    }
}

impl Finder {
    /// Tells states by who has to be asked now.
    pub(super) fn states(&self) -> impl Fn(&Library, &ToolId, &Book) -> ToolState {
        let mark = self.embedder.as_ref().map(|embedder| self.skills().mark_by_vectors(embedder.id()));
        let last = |book: &Book| match book.is_classified {
            true => ToolState::Classified,
            false => ToolState::Unclassified,
        };
        move |library, tool, book| {
            // Without a model nobody is ever asked.
            let Some(mark) = &mark else { return last(book) };
            if book.is_told_by(mark) {
                let is_pending = self.judge.as_ref().is_some_and(|judge| judge.is_pending_about(book));
                return if is_pending { ToolState::Classifying } else { last(book) };
            }
            match library.has_vector(tool) {
                true => ToolState::Classifying,
                false if library.has_given_up(tool) => last(book),
                false => ToolState::Discovered,
            }
        }
    }

    /// How many of the tools that can be called now are in each state.
    pub(crate) fn count_states(&self) -> ToolStates {
        let (shops, state) = (self.shops(), self.states());
        let library = locked(&self.library);
        let mut counts = ToolStates::default();
        library
            .books()
            .filter(|(_, book)| book.is_enabled && shops.contains_key(&book.server))
            .for_each(|(tool, book)| counts.count(state(&library, tool, book)));
        counts
    }
}

impl Service {
    /// Tools with how far it is known what they are for. What is not in the library yet was just discovered.
    pub fn with_states(&self, tools: Vec<ToolRecord>) -> Vec<ShownTool> {
        let state = self.finder.states();
        let library = locked(&self.finder.library);
        let known: HashMap<&ToolId, &Book> = library.books().collect();
        let shown = |record: ToolRecord| {
            let book = known.get(&record.id);
            let state = book.map_or(ToolState::Discovered, |book| state(&library, &record.id, book));
            ShownTool::new(record, state)
        };
        tools.into_iter().map(shown).collect()
    }
}
