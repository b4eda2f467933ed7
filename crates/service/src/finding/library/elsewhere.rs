//! Tools whose vectors are kept elsewhere, too: what has to be there, and what is made of what is told from there.

use std::collections::HashMap;

use registry::{ServerId, ToolId};
use search::{Limits, Payload, Point, PointId, Query, Told};
use uuid::Uuid;

use super::{Book, FoundBook, Library};

/// What has to be done elsewhere so that everything is there.
#[derive(Debug, Default)]
pub(in crate::finding) struct Plan {
    pub(in crate::finding) put: Vec<Point>,
    pub(in crate::finding) relabel: Vec<(PointId, Payload)>,
    pub(in crate::finding) delete: Vec<PointId>,
}

impl Book {
    /// What is kept with its vector elsewhere.
    pub(super) fn payload(&self) -> Payload {
        Payload {
            source_server_id: self.server.to_string(),
            source_server_name: self.server_name.clone(),
            original_name: self.original_name.clone(),
            is_external: self.is_external,
            is_classified: self.is_classified,
            skill_ids: self.skills.clone(),
            primary_skill_id: self.primary_skill.clone(),
            text_hash: self.text_hash.clone(),
        }
    }
}

impl Library {
    /// The same where vectors are compared elsewhere: from what was told of some of them.
    pub(in crate::finding) fn search_told(
        &self,
        query: &Query,
        limits: Limits,
        admits: &impl Fn(&Book) -> bool,
        near: impl Iterator<Item = (PointId, f32)>,
    ) -> Vec<FoundBook> {
        let near = near.filter_map(|(point, nearness)| Some((*self.by_point.get(&point)?, nearness)));
        let is_kept = |tool: &ToolId| self.books.get(tool).is_some_and(|book| book.is_shelved);
        let told = Told { near: near.filter(|(tool, _)| is_kept(tool)).collect(), is_kept: &is_kept };
        let is_admitted = |tool: &ToolId| self.admits(tool, admits);
        self.with_books(self.index.search_told(query, limits, is_admitted, &told))
    }

    /// The vectors elsewhere of the tools that fit best by words, and how well the others fit at most.
    pub(in crate::finding) fn best_by_words(
        &self,
        query: &Query,
        count: usize,
        admits: &impl Fn(&Book) -> bool,
    ) -> (Vec<PointId>, f32) {
        let is_shelved = |book: &Book| book.is_shelved && admits(book);
        let (best, rest) = self.index.best_by_words(query, count, |tool| self.admits(tool, &is_shelved));
        (best.iter().filter_map(|tool| Some(self.books.get(tool)?.point)).collect(), rest)
    }

    /// What has to be done elsewhere, where this is kept; of what is to be put there, so many at most. What is there as
    /// it should be is compared there from now on. None if nobody knows yet what there should be.
    pub(in crate::finding) fn plan(&mut self, kept: &HashMap<PointId, Payload>, most: usize) -> Option<Plan> {
        if !self.is_read {
            return None;
        }
        let mut plan = Plan::default();
        for (tool, book) in &mut self.books {
            book.is_shelved = false;
            if !book.is_enabled || !self.index.has_vector(tool) {
                continue;
            }
            let payload = book.payload();
            match kept.get(&book.point) {
                Some(there) if *there == payload => book.is_shelved = true,
                Some(there) if there.text_hash == payload.text_hash => plan.relabel.push((book.point, payload)),
                _ if plan.put.len() >= most => {}
                _ => plan.put.extend(self.index.vector(tool).map(|vector| Point { id: book.point, vector, payload })),
            }
        }
        let is_wanted = |point: &PointId| {
            let tool = self.by_point.get(point);
            tool.is_some_and(|tool| self.books[tool].is_enabled && self.index.has_vector(tool))
        };
        plan.delete = kept.keys().filter(|point| !is_wanted(point)).copied().collect();
        plan.relabel.truncate(most);
        Some(plan)
    }
}

/// The name of a tool's vector elsewhere: the same for the same server and tool, always.
pub(super) fn point_of(server: ServerId, tool: &str) -> PointId {
    // Of our own making; only that it stays the same matters.
    const OURS: Uuid = Uuid::from_u128(0x3b1d_8d0e_52c4_4c0f_9a57_6d63_705f_7473);
    PointId(Uuid::new_v5(&OURS, format!("{server}\0{tool}").as_bytes()).as_u128())
}

#[cfg(test)]
mod tests {
    use registry::ToolRecord;

    use super::super::tests::record;
    use super::*;

    #[test]
    fn what_is_kept_elsewhere_becomes_what_is_known_here() {
        let mut library = Library::new(2);
        assert!(library.plan(&HashMap::new(), 10).is_none(), "before the registry was read nothing is deleted");
        let (one, two) = (record(1, "a"), record(2, "b"));
        library.replace_all(vec![one.clone(), two.clone()]);
        library.has_been_read();
        library.recall(ToolId(1), "today", &[1.0, 0.0]);
        let mut kept = HashMap::from([(PointId(7), library.books[&ToolId(2)].payload())]);
        let plan = library.plan(&kept, 10).unwrap();
        assert_eq!(plan.delete, [PointId(7)], "nobody knows it");
        assert_eq!(plan.put.len(), 1, "the other has no vector yet");
        kept = plan.put.into_iter().map(|point| (point.id, point.payload)).collect();
        let plan = library.plan(&kept, 10).unwrap();
        assert!(plan.put.is_empty() && plan.relabel.is_empty() && plan.delete.is_empty());
        assert!(library.books[&ToolId(1)].is_shelved);
        library.replace_all(vec![ToolRecord { skills: vec!["x".to_owned()], ..one.clone() }, two.clone()]);
        assert!(!library.books[&ToolId(1)].is_shelved, "it is not there as it should be");
        assert_eq!(library.plan(&kept, 10).unwrap().relabel.len(), 1, "the vector stays");
        library.replace_all(vec![ToolRecord { enabled: false, ..one }, two]);
        assert_eq!(library.plan(&kept, 10).unwrap().delete.len(), 1);
    }
}
