//! The classification state of tools: discovered, classifying, classified, or unclassified.
//!
//! States are not stored: they follow from a tool's classifier, and from the classifiers that are still to run. So a
//! tool that could not be classified stays `classifying` until it is, also after a restart.

use protocol::scan::{Span, member};
use protocol::text;
use registry::{RawJson, ToolId, ToolRecord};
use serde::Serialize;

use super::tool_index::{IndexedTool, ToolIndex};
use super::{Finder, locked};

/// The classification state of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolState {
    /// It is found by words, and waits for its vector.
    Discovered,
    /// A classifier has still to run: the vectors, or a language model.
    Classifying,
    /// Its best skill is known.
    Classified,
    /// Every classifier ran, and no skill fits.
    Unclassified,
}

/// The number of tools in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ToolStates {
    /// Waiting for their vectors.
    pub discovered: u64,
    /// Waiting for a classifier.
    pub classifying: u64,
    /// With a best skill.
    pub classified: u64,
    /// Without a fitting skill.
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

/// A tool and its state.
#[derive(Debug, Clone, Serialize)]
pub struct ToolView {
    /// The tool.
    #[serde(flatten)]
    pub record: ToolRecord,
    /// Its state.
    pub state: ToolState,
    /// Its title, as the server wrote it.
    pub title: Option<String>,
    /// Its annotations, as the server wrote them: whether it only reads, whether it is destructive.
    pub annotations: Option<RawJson>,
    /// Its output schema, as the server wrote it.
    pub output_schema: Option<RawJson>,
}

impl ToolView {
    fn new(record: ToolRecord, state: ToolState) -> Self {
        let definition = record.definition.get().as_bytes();
        let field = |name| member(definition, Span { start: 0, end: definition.len() }, name);
        let raw = |name| RawJson::parse(std::str::from_utf8(field(name)?.of(definition)).ok()?).ok();
        let title = field("title").and_then(|span| text::decode(span.of(definition))).map(|title| title.into_owned());
        let (annotations, output_schema) = (raw("annotations"), raw("outputSchema"));
        Self { state, title, annotations, output_schema, record }
    }
}

impl Finder {
    /// Determines states by the classifiers that are still to run.
    pub(super) fn states(&self) -> impl Fn(&ToolIndex, &ToolId, &IndexedTool) -> ToolState {
        let mark = self.embedder.as_ref().map(|embedder| self.skills().mark_by_vectors(embedder.id()));
        let last = |entry: &IndexedTool| match entry.is_classified {
            true => ToolState::Classified,
            false => ToolState::Unclassified,
        };
        move |tool_index, tool, entry| {
            // Without a model, no classifier runs.
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

    /// The number of callable tools in each state.
    pub fn count_states(&self) -> ToolStates {
        let (callable_servers, state) = (self.callable_servers(None), self.states());
        let tool_index = locked(&self.tool_index);
        let mut counts = ToolStates::default();
        tool_index
            .entries()
            .filter(|(_, entry)| entry.is_enabled && callable_servers.contains_key(&entry.server))
            .for_each(|(tool, entry)| counts.count(state(&tool_index, tool, entry)));
        counts
    }

    /// Tools with their states. A tool that is not in the index yet was just discovered.
    pub fn with_states(&self, tools: Vec<ToolRecord>) -> Vec<ToolView> {
        let state = self.states();
        let states: Vec<ToolState> = {
            let tool_index = locked(&self.tool_index);
            let state_of = |tool: &ToolRecord| {
                let entry = tool_index.entry(&tool.id);
                entry.map_or(ToolState::Discovered, |entry| state(&tool_index, &tool.id, entry))
            };
            tools.iter().map(state_of).collect()
        };
        // Definitions are read without the lock, for which searches wait.
        tools.into_iter().zip(states).map(|(record, state)| ToolView::new(record, state)).collect()
    }
}
