//! The search for MCP clients with the small surface.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, TryLockError};

use aggregator::surface::{Findings, Found, FoundTools, ToolFinder, ToolQuery};

use super::query::VisibleTools;
use super::tool_index::ToolIndex;
use super::{DEFAULT_SKILL_THRESHOLD, Finder, SearchRequest, Strategy};

/// Skills with the number of their tools, the largest first.
type SkillCounts = Vec<(String, usize)>;

/// A server, and the profile of the clients that see it.
type Counted = (Option<usize>, Option<String>);

/// How many lists of numbers are kept. With more, others are shown while the index changes.
const MAX_COUNTED: usize = 1000;

/// The numbers of tools that clients saw last, by server and profile. A list of tools is made on a thread that serves calls, so it
/// shows these while the index changes, and does not wait.
#[derive(Debug, Default)]
pub(super) struct SurfaceSkills(Mutex<HashMap<Counted, SkillCounts>>);

impl SurfaceSkills {
    fn counted(
        &self,
        tool_index: &RwLock<ToolIndex>,
        counting: Counted,
        count: impl FnOnce(&ToolIndex) -> SkillCounts,
    ) -> SkillCounts {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let tool_index = match tool_index.try_read() {
            Ok(tool_index) => tool_index,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return last.get(&counting).cloned().unwrap_or_default(),
        };
        let counts = count(&tool_index);
        if last.len() >= MAX_COUNTED && !last.contains_key(&counting) {
            last.clear();
        }
        last.insert(counting, counts.clone());
        counts
    }
}

/// Answers the searches of [`aggregator`].
pub struct SurfaceFinder(pub Arc<Finder>);

impl ToolFinder for SurfaceFinder {
    fn find(&self, tool_query: ToolQuery) -> FoundTools {
        let finder = Arc::clone(&self.0);
        Box::pin(async move {
            let mut callable_servers = finder.callable_servers(tool_query.profile.as_deref());
            callable_servers.retain(|_, callable| tool_query.server.is_none_or(|server| server == callable.slot_index));
            let user = finder.host.learns_from_use().then_some(tool_query.principal);
            let wanted = SearchRequest {
                query: tool_query.query,
                limit: tool_query.limit,
                servers: Vec::new(),
                skills: tool_query.skill.into_iter().collect(),
                strategy: Strategy::Direct,
                skill_threshold: DEFAULT_SKILL_THRESHOLD,
                threshold: tool_query.least,
                include_schemas: false,
                profile: tool_query.profile,
            };
            let query_result =
                finder.run_query(&wanted, &callable_servers, user).await.map_err(|error| error.to_string())?;
            let note = query_result.note;
            let tools = query_result.hits.into_iter().filter_map(|(hit, entry)| {
                let callable = callable_servers.get(&entry.server)?;
                Some(Found { server: callable.slot_index, tool: entry.original_name, score: hit.score })
            });
            Ok(Findings { tools: tools.collect(), note })
        })
    }

    fn skills(&self, server: Option<usize>, profile: Option<&str>) -> Vec<(String, usize)> {
        let mut callable_servers = self.0.callable_servers(profile);
        callable_servers.retain(|_, callable| server.is_none_or(|server| server == callable.slot_index));
        let visible = VisibleTools::of(&self.0.fleet, profile, &callable_servers);
        let counting = (server, profile.map(str::to_owned));
        let counted = self.0.surface_skills.counted(&self.0.tool_index, counting, |tool_index| {
            tool_index.skills(&|entry| callable_servers.contains_key(&entry.server) && visible.has(entry))
        });
        let skills = self.0.skills();
        counted.into_iter().map(|(id, count)| (skills.name_of(&id).to_owned(), count)).collect()
    }

    fn pinned(&self) -> Arc<[String]> {
        self.0.host.pinned_tools()
    }

    fn learns(&self) -> bool {
        self.0.host.learns_from_use()
    }

    fn used(&self, principal: &Arc<str>, query: &str, server: usize, tool: &str) {
        self.0.note_use(principal, query, server, tool);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_skills_does_not_wait_for_the_index() {
        let (tool_index, skills) = (RwLock::new(ToolIndex::new(2)), SurfaceSkills::default());
        let one = || vec![("files".to_owned(), 3)];
        assert_eq!(skills.counted(&tool_index, (None, None), |_| one()), one());
        let _changing = tool_index.write().unwrap();
        assert_eq!(skills.counted(&tool_index, (None, None), |_| Vec::new()), one(), "what was seen last");
        assert_eq!(skills.counted(&tool_index, (Some(1), None), |_| one()), []);
        assert_eq!(skills.counted(&tool_index, (None, Some("dev".to_owned())), |_| one()), [], "others see others");
    }
}
