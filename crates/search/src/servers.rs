//! Servers, compared with queries like tools: the relevance of a server counts a little for all of its tools.

use std::collections::HashMap;

use crate::document::{Document, TextHash};
use crate::index::{Index, MissingVector};
use crate::lexical::Slot;
use crate::query::Query;

/// A server with at most this score is not relevant for a query.
const MIN_SCORE: f32 = 0.15;

/// The servers that have tools in an index.
pub(crate) struct Servers {
    index: Index<String>,
    /// The number of tools of each.
    tools: HashMap<String, usize>,
}

impl Servers {
    pub(crate) fn new(dimension: usize) -> Self {
        Self { index: Index::without_servers(dimension), tools: HashMap::new() }
    }

    /// The same, with rough vectors of the table, if that is compiled in.
    pub(crate) fn with_rough_vectors(self) -> Self {
        Self { index: self.index.with_rough_vectors(), ..self }
    }

    /// Adds a tool; returns the slot of its server, if it has one.
    pub(crate) fn insert(&mut self, tool: &Document) -> Option<Slot> {
        if tool.server.is_empty() {
            return None;
        }
        *self.tools.entry(tool.server.clone()).or_default() += 1;
        let known = self.index.document(&tool.server);
        if known.is_none_or(|known| known.description != tool.about_server) {
            let (name, description) = (tool.server.clone(), tool.about_server.clone());
            self.index.insert(tool.server.clone(), Document { name, description, ..Document::default() });
        }
        self.index.slot_of(&tool.server)
    }

    /// Removes a tool. A server without tools is removed, too.
    pub(crate) fn remove(&mut self, tool: &Document) {
        let Some(count) = self.tools.get_mut(&tool.server) else { return };
        *count -= 1;
        if *count == 0 {
            self.tools.remove(&tool.server);
            self.index.remove(&tool.server);
        }
    }

    pub(crate) fn expect_dimension(&mut self, dimension: usize) {
        self.index.expect_dimension(dimension);
    }

    pub(crate) fn give_up(&mut self, server: &String, hash: TextHash) {
        self.index.give_up(server, hash);
    }

    pub(crate) fn forget_vectors(&mut self) {
        self.index.forget_vectors();
    }

    pub(crate) fn missing_vectors(&self, count: usize) -> Vec<MissingVector<'_, String>> {
        self.index.missing_vectors(count)
    }

    pub(crate) fn set_vector(&mut self, server: &String, hash: TextHash, vector: &[f32]) -> bool {
        self.index.set_vector(server, hash, vector)
    }

    /// The relevance of each server for a query, by slot, from 0 to 1.
    pub(crate) fn relevance(&self, query: &Query) -> Vec<f32> {
        let relevance = |score: f32| ((score - MIN_SCORE) / (1.0 - MIN_SCORE)).clamp(0.0, 1.0);
        self.index.scores(query).into_iter().map(relevance).collect()
    }
}
