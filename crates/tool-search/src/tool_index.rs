//! The index of all known tools.

mod vector_store;

use std::collections::{BTreeSet, HashMap, HashSet};

use registry::{Classified, ServerId, ToolId, ToolRecord, ToolUse};
use search::{Document, Hit, Index, Limits, PointId, Query, TextHash, has_direction};

use super::llm_classifier::MARK_SEPARATOR;
pub(super) use vector_store::Plan;
use vector_store::point_of;

/// What the index knows of a tool besides its text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct IndexedTool {
    pub(super) server: ServerId,
    server_name: String,
    pub(super) original_name: String,
    pub(super) description: Option<String>,
    is_external: bool,
    /// The hash of its text in the registry, under which vectors are stored.
    pub(super) text_hash: String,
    /// The hash of its text in the search index.
    hash: TextHash,
    pub(super) is_enabled: bool,
    pub(super) is_classified: bool,
    pub(super) skills: Vec<String>,
    pub(super) confidences: Vec<f64>,
    pub(super) primary_skill: Option<String>,
    /// The mark of its classifier, also if it has no skills.
    pub(super) classified_by: Option<String>,
    /// The id of its vector in the vector store.
    point: PointId,
    /// Whether the vector store has its vector and current metadata, so that it can be compared there.
    is_stored: bool,
}

impl IndexedTool {
    /// The skills for a search by skills; empty if they are not known.
    fn known_skills(&self) -> &[String] {
        if self.is_classified { &self.skills } else { &[] }
    }

    /// Whether this classifier, or a later one, set its skills.
    pub(super) fn is_classified_by(&self, mark: &str) -> bool {
        let rest = self.classified_by.as_deref().and_then(|by| by.strip_prefix(mark));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(MARK_SEPARATOR))
    }

    /// Whether it has one of these skills; true if the list is empty.
    pub(super) fn is_for(&self, skills: &[String]) -> bool {
        skills.is_empty() || self.skills.iter().any(|skill| skills.contains(skill))
    }

    /// Whether a search by these skills includes it.
    pub(super) fn matches_skills(&self, skills: &[String]) -> bool {
        let known = self.known_skills();
        known.is_empty() || known.iter().any(|skill| skills.contains(skill))
    }
}

/// A tool without a vector.
pub(super) struct MissingVector {
    pub(super) tool: ToolId,
    pub(super) document: Document,
    pub(super) hash: TextHash,
    pub(super) text_hash: String,
}

/// A tool to classify.
pub(super) struct Unclassified {
    pub(super) tool: ToolId,
    pub(super) server: ServerId,
    pub(super) text_hash: String,
    pub(super) vector: Vec<f32>,
}

/// A tool for a language model to classify.
#[derive(Debug, Clone)]
pub(super) struct LlmCandidate {
    pub(super) tool: ToolId,
    pub(super) server_name: String,
    pub(super) text_hash: String,
    pub(super) name: String,
    pub(super) description: Option<String>,
    /// The skills that its vector suggests.
    pub(super) skills: Vec<String>,
    pub(super) confidences: Vec<f64>,
}

impl LlmCandidate {
    /// The key of its stored classification.
    pub(super) fn key(&self) -> (String, String) {
        (self.server_name.clone(), self.text_hash.clone())
    }
}

/// A tool that was found, and what is known of it.
pub(super) type IndexedHit = (Hit<ToolId>, IndexedTool);

/// All tools.
pub(super) struct ToolIndex {
    index: Index<ToolId>,
    entries: HashMap<ToolId, IndexedTool>,
    by_point: HashMap<PointId, ToolId>,
    /// The tools of each server.
    by_server: HashMap<ServerId, HashSet<ToolId>>,
    /// The self-descriptions of servers.
    about_servers: HashMap<ServerId, String>,
    /// Tools with a vector whose skills neither the classifier with this mark nor a later one has set.
    unclassified: BTreeSet<ToolId>,
    mark: String,
    /// Whether the whole registry was read at least once.
    is_read: bool,
}

impl ToolIndex {
    pub(super) fn new(dimension: usize) -> Self {
        Self {
            index: Index::new(dimension).with_rough_vectors_later(),
            entries: HashMap::new(),
            by_point: HashMap::new(),
            by_server: HashMap::new(),
            about_servers: HashMap::new(),
            unclassified: BTreeSet::new(),
            mark: String::new(),
            is_read: false,
        }
    }

    /// Sets the self-descriptions of all servers. They count for tools that are inserted afterwards.
    pub(super) fn describe_servers(&mut self, about: impl IntoIterator<Item = (ServerId, String)>) {
        self.about_servers = about.into_iter().collect();
    }

    /// Sets the self-description of a server; without one, it is no more.
    pub(super) fn describe_server(&mut self, server: ServerId, about: Option<String>) {
        match about {
            Some(about) => self.about_servers.insert(server, about),
            None => self.about_servers.remove(&server),
        };
    }

    /// Removes the tools of a server that are not among these.
    pub(super) fn retain_of(&mut self, server: ServerId, kept: &HashSet<ToolId>) {
        let tools = self.by_server.get(&server).into_iter().flatten();
        self.remove(tools.filter(|tool| !kept.contains(tool)).copied().collect());
    }

    /// Removes the tools that are not among these.
    pub(super) fn retain(&mut self, kept: &HashSet<ToolId>) {
        self.remove(self.entries.keys().filter(|tool| !kept.contains(tool)).copied().collect());
    }

    fn remove(&mut self, tools: Vec<ToolId>) {
        for tool in tools {
            if let Some(entry) = self.entries.remove(&tool) {
                self.by_point.remove(&entry.point);
                self.leave_server(entry.server, tool);
            }
            self.index.remove(&tool);
            self.unclassified.remove(&tool);
        }
    }

    fn leave_server(&mut self, server: ServerId, tool: ToolId) {
        if let Some(tools) = self.by_server.get_mut(&server) {
            tools.remove(&tool);
            if tools.is_empty() {
                self.by_server.remove(&server);
            }
        }
    }

    /// Adds tools, or replaces what is known of them.
    pub(super) fn insert_all(&mut self, tools: impl IntoIterator<Item = ToolRecord>) {
        tools.into_iter().for_each(|tool| self.insert(tool));
    }

    fn insert(&mut self, tool: ToolRecord) {
        let document = Document {
            server: tool.server_name.clone(),
            name: tool.original_name.clone(),
            description: tool.description.clone().unwrap_or_default(),
            parameters: tool
                .input_schema
                .as_ref()
                .map(|schema| Document::parameters_of(schema.get()))
                .unwrap_or_default(),
            about_server: self.about_servers.get(&tool.source_server_id).cloned().unwrap_or_default(),
        };
        let hash = document.text_hash();
        self.index.insert(tool.id, document);
        let mut entry = IndexedTool {
            hash,
            point: point_of(tool.source_server_id, &tool.original_name),
            is_stored: false,
            server: tool.source_server_id,
            server_name: tool.server_name,
            is_external: tool.is_external,
            original_name: tool.original_name,
            description: tool.description,
            text_hash: tool.text_hash,
            is_enabled: tool.enabled,
            is_classified: tool.is_classified,
            skills: tool.skills,
            confidences: tool.confidences,
            primary_skill: tool.primary_skill,
            classified_by: tool.classified_by,
        };
        // For the vector store, a renamed tool is another tool.
        let known = self.entries.get(&tool.id);
        if let Some(known) = known.filter(|known| known.point != entry.point) {
            self.by_point.remove(&known.point);
        }
        if let Some(server) = known.map(|known| known.server).filter(|server| *server != entry.server) {
            self.leave_server(server, tool.id);
        }
        let known = self.entries.get(&tool.id);
        entry.is_stored = known.is_some_and(|known| known.is_stored && known.payload() == entry.payload());
        self.by_point.insert(entry.point, tool.id);
        self.by_server.entry(entry.server).or_default().insert(tool.id);
        self.entries.insert(tool.id, entry);
        self.note_unclassified(tool.id);
    }

    /// Records whether a tool is still to be classified.
    fn note_unclassified(&mut self, tool: ToolId) {
        let is_due = |entry: &IndexedTool| !entry.is_classified_by(&self.mark);
        if self.index.has_vector(&tool) && self.entries.get(&tool).is_some_and(is_due) {
            self.unclassified.insert(tool);
        } else {
            self.unclassified.remove(&tool);
        }
    }

    /// Records that the whole registry was read.
    pub(super) fn mark_read(&mut self) {
        self.is_read = true;
    }

    /// Gives a tool a vector that was made for the text with this hash. Returns false if its text is another now, or if
    /// that is no vector.
    pub(super) fn set_vector(&mut self, tool: ToolId, hash: TextHash, vector: &[f32]) -> bool {
        let is_set = self.index.set_vector(&tool, hash, vector);
        if is_set {
            // Also for servers, whose vectors come from the same model.
            self.index.expect_dimension(vector.len());
            self.note_unclassified(tool);
        }
        is_set
    }

    /// Sets the vector that the model made for the text with this hash. If that is none, it is not asked again; a text
    /// that changed in the meantime is. Returns whether there is a vector now.
    pub(super) fn set_made_vector(&mut self, tool: ToolId, hash: TextHash, vector: Option<&[f32]>) -> bool {
        if !vector.is_some_and(has_direction) {
            self.index.give_up(&tool, hash);
        }
        vector.is_some_and(|vector| self.set_vector(tool, hash, vector))
    }

    /// The same for a server's self-description.
    pub(super) fn set_server_vector(&mut self, server: &String, hash: TextHash, vector: Option<&[f32]>) {
        match vector.filter(|vector| has_direction(vector)) {
            Some(vector) => {
                self.index.expect_dimension(vector.len());
                self.index.set_server_vector(server, hash, vector);
            }
            None => self.index.give_up_server(server, hash),
        }
    }

    /// Removes all vectors if the model makes vectors of another length now. Returns the lengths before and now if it
    /// does.
    pub(super) fn note_dimension(&mut self, made: &[Option<Vec<f32>>]) -> Option<(usize, usize)> {
        let before = self.index.dimension();
        let now = made.iter().flatten().map(Vec::len).find(|now| *now != before && before != 0)?;
        self.forget_vectors();
        Some((before, now))
    }

    /// Says how long the vectors of a remote model are that were stored earlier.
    pub(super) fn expect_dimension(&mut self, dimension: usize) {
        self.index.expect_dimension(dimension);
    }

    /// Tools without a vector of the table. Those with a vector of the model are included if requests may have none.
    pub(super) fn missing_rough_vectors(&self, with_own: bool) -> Vec<ToolId> {
        self.index.missing_rough_vectors(with_own)
    }

    /// The text of a tool, and its hash.
    pub(super) fn text(&self, tool: ToolId) -> Option<(Document, TextHash)> {
        self.index.text(&tool).map(|(document, hash)| (document.clone(), hash))
    }

    /// Sets the vector of the table for the text with this hash.
    pub(super) fn set_rough_vector(&mut self, tool: ToolId, hash: TextHash, vector: &[f32]) {
        self.index.set_rough_vector(&tool, hash, vector);
    }

    /// Lets a tool be found by a vector that was stored for its text as the registry names it, until its own is made.
    pub(super) fn set_interim_vector(&mut self, tool: ToolId, text_hash: &str, vector: &[f32]) {
        if self.entries.get(&tool).is_some_and(|entry| entry.text_hash == text_hash) {
            self.index.set_interim_vector(&tool, vector);
        }
    }

    /// Some servers that have no vector yet: their names, and what they say of themselves.
    pub(super) fn servers_missing_vectors(&self, count: usize) -> Vec<(String, TextHash, Document)> {
        let missing_vectors = self.index.servers_missing_vectors(count).into_iter();
        missing_vectors.map(|it| (it.key.clone(), it.hash, it.document.clone())).collect()
    }

    /// Whether the model cannot embed a tool's text.
    pub(super) fn has_given_up(&self, tool: &ToolId) -> bool {
        self.index.has_given_up(tool)
    }

    pub(super) fn has_vector(&self, tool: &ToolId) -> bool {
        self.index.has_vector(tool)
    }

    /// What is known of a tool.
    pub(super) fn entry(&self, tool: &ToolId) -> Option<&IndexedTool> {
        self.entries.get(tool)
    }

    /// All tools.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&ToolId, &IndexedTool)> {
        self.entries.iter()
    }

    /// The dimension of vectors; zero while unknown.
    pub(super) fn dimension(&self) -> usize {
        self.index.dimension()
    }

    /// Removes all vectors of the model.
    pub(super) fn forget_vectors(&mut self) {
        self.index.forget_vectors();
        self.unclassified.clear();
        self.entries.values_mut().for_each(|entry| entry.is_stored = false);
    }

    /// Some tools without a vector.
    pub(super) fn missing_vectors(&self, count: usize) -> Vec<MissingVector> {
        let wanted = self.index.missing_vectors(count).into_iter();
        let missing_vectors = wanted.filter_map(|missing_vectors| {
            let entry = self.entries.get(missing_vectors.key)?;
            Some(MissingVector {
                tool: *missing_vectors.key,
                document: missing_vectors.document.clone(),
                hash: missing_vectors.hash,
                text_hash: entry.text_hash.clone(),
            })
        });
        missing_vectors.collect()
    }

    /// Some tools with a vector whose skills neither this classifier nor a later one has set.
    pub(super) fn unclassified(&mut self, mark: &str, count: usize) -> Vec<Unclassified> {
        if self.mark != mark {
            mark.clone_into(&mut self.mark);
            let is_due =
                |(tool, entry): &(&ToolId, &IndexedTool)| !entry.is_classified_by(mark) && self.index.has_vector(tool);
            self.unclassified = self.entries.iter().filter(is_due).map(|(tool, _)| *tool).collect();
        }
        let pending = self.unclassified.iter().filter_map(|tool| {
            let (entry, vector) = (self.entries.get(tool)?, self.index.vector(tool)?);
            Some(Unclassified { tool: *tool, server: entry.server, text_hash: entry.text_hash.clone(), vector })
        });
        pending.take(count).collect()
    }

    /// The vectors of a server's tools.
    pub(super) fn vectors_of(&self, server: ServerId) -> Vec<Vec<f32>> {
        let tools = self.by_server.get(&server).into_iter().flatten();
        tools.filter_map(|tool| self.index.vector(tool)).collect()
    }

    /// Tools classified by vectors that are still pending, judged by their classifier and by whether they have skills.
    pub(super) fn llm_candidates(
        &self,
        mark: &str,
        is_pending: impl Fn(Option<&str>, bool) -> bool,
    ) -> Vec<LlmCandidate> {
        let by_vectors = self.entries.iter().filter(|(_, entry)| entry.is_enabled && entry.is_classified_by(mark));
        let pending = by_vectors.filter(|(_, entry)| is_pending(entry.classified_by.as_deref(), entry.is_classified));
        let mut pending: Vec<LlmCandidate> = pending
            .map(|(tool, entry)| LlmCandidate {
                tool: *tool,
                server_name: entry.server_name.clone(),
                text_hash: entry.text_hash.clone(),
                name: entry.original_name.clone(),
                description: entry.description.clone(),
                skills: entry.skills.clone(),
                confidences: entry.confidences.clone(),
            })
            .collect();
        pending.sort_by_key(|tool| tool.tool);
        pending
    }

    /// Sets the skills of a tool, if its text is still the one that was classified.
    pub(super) fn set_skills(&mut self, classified: Classified) {
        let Some(entry) =
            self.entries.get_mut(&classified.tool).filter(|entry| entry.text_hash == classified.text_hash)
        else {
            return;
        };
        entry.is_classified = classified.primary.is_some();
        entry.is_stored = false;
        (entry.skills, entry.primary_skill, entry.classified_by) =
            (classified.skills, classified.primary, Some(classified.by));
        entry.confidences = classified.confidences;
        self.note_unclassified(classified.tool);
    }

    /// The best skill of each tool, and its vector.
    pub(super) fn members(&self) -> Vec<(String, Vec<f32>)> {
        let classified = self.entries.iter().filter(|(_, entry)| entry.is_classified);
        let mut members: Vec<(ToolId, &String, Vec<f32>)> = classified
            .filter_map(|(tool, entry)| Some((*tool, entry.primary_skill.as_ref()?, self.index.vector(tool)?)))
            .collect();
        // Sorted, because a sum of floats depends on the order in its last digits.
        members.sort_by_key(|(tool, ..)| *tool);
        members.into_iter().map(|(_, skill, vector)| (skill.clone(), vector)).collect()
    }

    /// The number of admitted tools, and how many of them have no vector.
    pub(super) fn count(&self, admits: &impl Fn(&IndexedTool) -> bool) -> (usize, usize) {
        let admitted = self.entries.iter().filter(|(_, entry)| entry.is_enabled && admits(entry));
        admitted.fold((0, 0), |(all, missing_vectors), (tool, _)| {
            (all + 1, missing_vectors + usize::from(!self.index.has_vector(tool)))
        })
    }

    /// The tool of a server with this name.
    pub(super) fn tool_named(&self, server: ServerId, name: &str) -> Option<ToolId> {
        self.by_point.get(&point_of(server, name)).copied()
    }

    /// Counts uses of a tool after searches.
    pub(super) fn add_uses(&mut self, it: &ToolUse) {
        self.index.add_uses(&it.user, &it.word, &it.tool, it.uses);
    }

    /// Forgets what tools were used for.
    pub(super) fn forget_uses(&mut self) {
        self.index.forget_uses();
    }

    /// The best among the admitted tools.
    pub(super) fn search(
        &self,
        query: &Query,
        limits: Limits,
        admits: &impl Fn(&IndexedTool) -> bool,
    ) -> Vec<IndexedHit> {
        let is_admitted = |tool: &ToolId| self.admits(tool, admits);
        self.with_entries(self.index.search(query, limits, is_admitted))
    }

    fn admits(&self, tool: &ToolId, admits: &impl Fn(&IndexedTool) -> bool) -> bool {
        self.entries.get(tool).is_some_and(|entry| entry.is_enabled && admits(entry))
    }

    fn with_entries(&self, hits: Vec<Hit<ToolId>>) -> Vec<IndexedHit> {
        hits.into_iter()
            .filter_map(|hit| Some((self.entries.get(&hit.key)?.clone(), hit)))
            .map(|(entry, hit)| (hit, entry))
            .collect()
    }

    /// For each skill, the number of admitted tools that have it, and that have it as their best one.
    pub(super) fn skill_counts(&self, admits: &impl Fn(&IndexedTool) -> bool) -> HashMap<String, (usize, usize)> {
        let mut counts: HashMap<String, (usize, usize)> = HashMap::new();
        for entry in self.entries.values().filter(|entry| entry.is_enabled && admits(entry)) {
            for skill in &entry.skills {
                let (have, are_best) = counts.entry(skill.clone()).or_default();
                *have += 1;
                *are_best += usize::from(entry.primary_skill.as_ref() == Some(skill));
            }
        }
        counts
    }

    /// For each skill, the number of admitted tools that have it as their best one, highest first.
    pub(super) fn skills(&self, admits: &impl Fn(&IndexedTool) -> bool) -> Vec<(String, usize)> {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for entry in self.entries.values().filter(|entry| entry.is_enabled && admits(entry)) {
            if let Some(skill) = &entry.primary_skill {
                *counts.entry(skill).or_default() += 1;
            }
        }
        let mut counts: Vec<_> = counts.into_iter().map(|(skill, count)| (skill.to_owned(), count)).collect();
        counts.sort_by(|(one, few), (other, many)| many.cmp(few).then_with(|| one.cmp(other)));
        counts
    }
}

#[cfg(test)]
pub(super) mod tests;
