//! The search for MCP clients with the small surface.

use std::sync::{Arc, PoisonError};

use aggregator::surface::{Found, FoundTools, ToolFinder, ToolQuery};

use super::{DEFAULT_SKILL_THRESHOLD, Finder, SearchRequest, Strategy};

/// Answers the searches of [`aggregator`].
pub struct SurfaceFinder(pub Arc<Finder>);

impl ToolFinder for SurfaceFinder {
    fn find(&self, tool_query: ToolQuery) -> FoundTools {
        let finder = Arc::clone(&self.0);
        Box::pin(async move {
            let mut callable_servers = finder.callable_servers();
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
            };
            let query_result =
                finder.run_query(&wanted, &callable_servers, user).await.map_err(|error| error.to_string())?;
            let found = query_result.hits.into_iter().filter_map(|(hit, entry)| {
                let callable = callable_servers.get(&entry.server)?;
                Some(Found { server: callable.slot_index, tool: entry.original_name, score: hit.score })
            });
            Ok(found.collect())
        })
    }

    fn skills(&self, server: Option<usize>) -> Vec<(String, usize)> {
        let mut callable_servers = self.0.callable_servers();
        callable_servers.retain(|_, callable| server.is_none_or(|server| server == callable.slot_index));
        let tool_index = self.0.tool_index.read().unwrap_or_else(PoisonError::into_inner);
        let counted = tool_index.skills(&|entry| callable_servers.contains_key(&entry.server));
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
