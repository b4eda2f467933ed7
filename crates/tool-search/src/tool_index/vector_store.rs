//! The tools in the vector store: which entries it needs, and how its answers are used.

use std::collections::HashMap;

use registry::{ServerId, ToolId};
use search::{Limits, Payload, Point, PointId, Query, StoredScores};
use uuid::Uuid;

use super::{IndexedHit, IndexedTool, ToolIndex};

/// The changes that make the vector store complete.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) put: Vec<Point>,
    pub(crate) relabel: Vec<(PointId, Payload)>,
    pub(crate) delete: Vec<PointId>,
}

impl IndexedTool {
    /// The metadata of a vector in the store.
    pub(super) fn payload(&self) -> Payload {
        Payload {
            source_server_id: self.server.to_string(),
            source_server_name: self.server_name.clone(),
            original_name: self.original_name.clone(),
            is_external: self.is_external,
            is_classified: self.is_classified,
            skill_ids: self.skills.clone(),
            primary_skill_id: self.primary_skill.clone(),
            text_hash: self.hash.to_string(),
        }
    }
}

impl ToolIndex {
    /// The same if the vector store compares vectors: ranks by the scores that it returned.
    pub(crate) fn search_with_scores(
        &self,
        query: &Query,
        limits: Limits,
        admits: &impl Fn(&IndexedTool) -> bool,
        near: impl Iterator<Item = (PointId, f32)>,
    ) -> Vec<IndexedHit> {
        let near = near.filter_map(|(point, nearness)| Some((*self.by_point.get(&point)?, nearness)));
        let is_kept = |tool: &ToolId| self.entries.get(tool).is_some_and(|entry| entry.is_stored);
        let scores = StoredScores { near: near.filter(|(tool, _)| is_kept(tool)).collect(), is_kept: &is_kept };
        let is_admitted = |tool: &ToolId| self.admits(tool, admits);
        self.with_entries(self.index.search_with_scores(query, limits, is_admitted, &scores))
    }

    /// The ids in the store of the tools that match best by words, and the maximum word score of the others.
    pub(crate) fn best_by_words(
        &self,
        query: &Query,
        count: usize,
        admits: &impl Fn(&IndexedTool) -> bool,
    ) -> (Vec<PointId>, f32) {
        let is_stored = |entry: &IndexedTool| entry.is_stored && admits(entry);
        let (best, rest) = self.index.best_by_words(query, count, |tool| self.admits(tool, &is_stored));
        (best.iter().filter_map(|tool| Some(self.entries.get(tool)?.point)).collect(), rest)
    }

    /// The changes that the vector store needs, given its contents; at most `most` vectors to add. Tools whose entries
    /// are current are compared in the store from now on. `None` if the index is not complete yet.
    pub(crate) fn plan(&mut self, kept: &HashMap<PointId, Payload>, most: usize) -> Option<Plan> {
        if !self.is_read {
            return None;
        }
        let mut plan = Plan::default();
        for (tool, entry) in &mut self.entries {
            entry.is_stored = false;
            if !entry.is_enabled || !self.index.has_vector(tool) {
                continue;
            }
            let payload = entry.payload();
            match kept.get(&entry.point) {
                Some(there) if *there == payload => entry.is_stored = true,
                Some(there) if there.text_hash == payload.text_hash => plan.relabel.push((entry.point, payload)),
                _ if plan.put.len() >= most => {}
                _ => plan.put.extend(self.index.vector(tool).map(|vector| Point { id: entry.point, vector, payload })),
            }
        }
        let is_wanted = |point: &PointId| {
            let tool = self.by_point.get(point);
            tool.is_some_and(|tool| self.entries[tool].is_enabled && self.index.has_vector(tool))
        };
        plan.delete = kept.keys().filter(|point| !is_wanted(point)).copied().collect();
        plan.relabel.truncate(most);
        Some(plan)
    }
}

/// The id of a tool's vector in the store: always the same for the same server and tool.
pub(super) fn point_of(server: ServerId, tool: &str) -> PointId {
    // An arbitrary namespace. It must never change.
    const OURS: Uuid = Uuid::from_u128(0x3b1d_8d0e_52c4_4c0f_9a57_6d63_705f_7473);
    PointId(Uuid::new_v5(&OURS, format!("{server}\0{tool}").as_bytes()).as_u128())
}

#[cfg(test)]
mod tests {
    use registry::ToolRecord;

    use super::super::tests::record;
    use super::*;

    #[test]
    fn the_vector_store_is_synchronised_with_the_index() {
        let mut tool_index = ToolIndex::new(2);
        assert!(tool_index.plan(&HashMap::new(), 10).is_none(), "before the registry was read nothing is deleted");
        let (one, two) = (record(1, "a"), record(2, "b"));
        tool_index.replace_all(vec![one.clone(), two.clone()]);
        tool_index.mark_read();
        let hash = tool_index.entries[&ToolId(1)].hash;
        assert!(tool_index.set_vector(ToolId(1), hash, &[1.0, 0.0]));
        let mut kept = HashMap::from([(PointId(7), tool_index.entries[&ToolId(2)].payload())]);
        let plan = tool_index.plan(&kept, 10).unwrap();
        assert_eq!(plan.delete, [PointId(7)], "nobody knows it");
        assert_eq!(plan.put.len(), 1, "the other has no vector yet");
        kept = plan.put.into_iter().map(|point| (point.id, point.payload)).collect();
        let plan = tool_index.plan(&kept, 10).unwrap();
        assert!(plan.put.is_empty() && plan.relabel.is_empty() && plan.delete.is_empty());
        assert!(tool_index.entries[&ToolId(1)].is_stored);
        tool_index.replace_all(vec![ToolRecord { skills: vec!["x".to_owned()], ..one.clone() }, two.clone()]);
        assert!(!tool_index.entries[&ToolId(1)].is_stored, "it is not there as it should be");
        assert_eq!(tool_index.plan(&kept, 10).unwrap().relabel.len(), 1, "the vector stays");
        tool_index.replace_all(vec![ToolRecord { enabled: false, ..one }, two]);
        assert_eq!(tool_index.plan(&kept, 10).unwrap().delete.len(), 1);
    }
}
