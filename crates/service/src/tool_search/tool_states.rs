//! How far it is known what tools are for: discovered, being classified, classified, or looked at in vain.
//!
//! Nothing of this is kept: it follows from what told a tool's skills, and who is still to be asked. So what could not be
//! asked stays `classifying` until it has been, restarts included.

use std::collections::HashMap;

use protocol::scan::{Span, member};
use protocol::text;
use registry::{RawJson, ToolId, ToolRecord};
use serde::Serialize;

use super::tool_index::{IndexedTool, ToolIndex};
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
pub struct ToolView {
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

impl ToolView {
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
    pub(super) fn states(&self) -> impl Fn(&ToolIndex, &ToolId, &IndexedTool) -> ToolState {
        let mark = self.embedder.as_ref().map(|embedder| self.skills().mark_by_vectors(embedder.id()));
        let last = |entry: &IndexedTool| match entry.is_classified {
            true => ToolState::Classified,
            false => ToolState::Unclassified,
        };
        move |tool_index, tool, entry| {
            // Without a model nobody is ever asked.
            let Some(mark) = &mark else { return last(entry) };
            if entry.is_classified_by(mark) {
                let is_pending =
                    self.llm_classifier.as_ref().is_some_and(|llm_classifier| llm_classifier.is_pending_about(entry));
                return if is_pending { ToolState::Classifying } else { last(entry) };
            }
            match tool_index.has_vector(tool) {
                true => ToolState::Classifying,
                false if tool_index.has_given_up(tool) => last(entry),
                false => ToolState::Discovered,
            }
        }
    }

    /// How many of the tools that can be called now are in each state.
    pub(crate) fn count_states(&self) -> ToolStates {
        let (callable_servers, state) = (self.callable_servers(), self.states());
        let tool_index = locked(&self.tool_index);
        let mut counts = ToolStates::default();
        tool_index
            .entries()
            .filter(|(_, entry)| entry.is_enabled && callable_servers.contains_key(&entry.server))
            .for_each(|(tool, entry)| counts.count(state(&tool_index, tool, entry)));
        counts
    }
}

impl Service {
    /// Tools with how far it is known what they are for. What is not in the library yet was just discovered.
    pub fn with_states(&self, tools: Vec<ToolRecord>) -> Vec<ToolView> {
        let state = self.finder.states();
        let tool_index = locked(&self.finder.tool_index);
        let known: HashMap<&ToolId, &IndexedTool> = tool_index.entries().collect();
        let shown = |record: ToolRecord| {
            let entry = known.get(&record.id);
            let state = entry.map_or(ToolState::Discovered, |entry| state(&tool_index, &record.id, entry));
            ToolView::new(record, state)
        };
        tools.into_iter().map(shown).collect()
    }
}
