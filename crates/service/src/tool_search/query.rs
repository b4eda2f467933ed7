//! A search, from what is wanted to what fits best: here, or where vectors are kept.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use registry::ServerId;
use search::{Hit, Limits, PointId, Query, StoreFilter};

use super::tool_index::{IndexedHit, IndexedTool};
use super::{CallableServer, Finder, SearchRequest, Strategy, locked};
use crate::Error;

/// A request is about so many skills at most.
const MAX_MATCHED_SKILLS: usize = 3;
/// Where vectors are compared if not elsewhere.
const HERE: &str = "embedded";

/// What a search of the library gave.
pub(super) struct QueryResult {
    pub(super) hits: Vec<IndexedHit>,
    /// The skills that led to them, if any did.
    pub(super) skills: Vec<Hit<String>>,
    pub(super) searched: usize,
    pub(super) missing_vectors: usize,
    /// Where vectors were compared, if they were.
    pub(super) compared: Option<&'static str>,
    pub(super) embedding: Duration,
    pub(super) comparing: Duration,
}

/// What is looked for, among what.
#[derive(Clone)]
pub(super) struct QueryScope {
    pub(super) limits: Limits,
    /// Only tools of these servers.
    pub(super) servers: Arc<HashSet<ServerId>>,
    /// Only tools with one of these skills, if any are named.
    pub(super) skills: Vec<String>,
    /// Only tools with one of these skills, and those whose skills are not known.
    pub(super) by_skills: Option<Vec<String>>,
}

impl QueryScope {
    pub(super) fn admits(&self, entry: &IndexedTool) -> bool {
        self.servers.contains(&entry.server)
            && entry.is_for(&self.skills)
            && self.by_skills.as_ref().is_none_or(|skills| entry.matches_skills(skills))
    }

    /// The same for who keeps the vectors.
    pub(super) fn narrowed(&self, among: Option<Vec<PointId>>) -> StoreFilter {
        let mut servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        servers.sort();
        StoreFilter { servers, skills: self.skills.clone(), by_skills: self.by_skills.clone(), among }
    }
}

/// What fits best, and where vectors were compared.
type Best = (Vec<IndexedHit>, &'static str);

impl Finder {
    /// Looks among the tools of these servers.
    pub(super) async fn run_query(
        &self,
        wanted: &SearchRequest,
        callable_servers: &HashMap<ServerId, CallableServer>,
    ) -> Result<QueryResult, Error> {
        let begun = Instant::now();
        let query_scope = QueryScope {
            limits: Limits { count: wanted.limit, least_score: wanted.threshold },
            servers: Arc::new(callable_servers.keys().copied().collect()),
            skills: self.skill_ids(&wanted.skills)?,
            by_skills: None,
        };
        let (query, skills) = self.understand(wanted).await?;
        let (query, embedding) = (Arc::new(query), begun.elapsed());
        let ((hits, compared), skills) = match self.by_skills(&query, &query_scope, &skills).await? {
            Some(best) => (best, skills),
            None => (self.best(&query, &query_scope).await?, Vec::new()),
        };
        let (searched, missing_vectors) =
            locked(&self.tool_index).count(&|entry: &IndexedTool| query_scope.admits(entry));
        let compared = hits.iter().any(|(hit, _)| hit.vector.is_some()).then_some(compared);
        Ok(QueryResult {
            hits,
            skills,
            searched,
            missing_vectors,
            compared,
            embedding,
            comparing: begun.elapsed() - embedding,
        })
    }

    /// Reads a request, and which skills it is about, if that is to be known.
    async fn understand(&self, wanted: &SearchRequest) -> Result<(Query, Vec<Hit<String>>), Error> {
        let (text, tool_index, embedder) = (wanted.query.clone(), Arc::clone(&self.tool_index), self.embedder.clone());
        let limits = Limits { count: MAX_MATCHED_SKILLS, least_score: wanted.skill_threshold };
        let (strategy, set, embedding_classifier) =
            (wanted.strategy, self.skills(), Arc::clone(&self.embedding_classifier));
        let embedder_health = Arc::clone(&self.embedder_health);
        let reading = tokio::task::spawn_blocking(move || {
            let mut query = Query::new(&text);
            match embedder.as_ref().map(|embedder| query.embed(&**embedder)) {
                Some(Ok(())) => embedder_health.worked(),
                Some(Err(error)) => {
                    let error_with_causes = super::with_causes(&error);
                    tracing::warn!(error = error_with_causes, "a request was looked for by words alone");
                    if !error.is_about_the_texts {
                        embedder_health.failed(error_with_causes);
                    }
                }
                None => {}
            }
            let Some(embedder) = embedder.filter(|_| strategy == Strategy::Hierarchical) else {
                return (query, Vec::new());
            };
            let skills =
                embedding_classifier.with(&set, &*embedder, &tool_index, |classifier| classifier.find(&query, limits));
            let skills = skills.unwrap_or_else(|error| {
                tracing::warn!(%error, "skills could not be told; searching directly");
                Vec::new()
            });
            (query, skills)
        });
        reading.await.map_err(|_| broke())
    }

    /// The best among the tools of some skills and those whose skills are not known. None if there are none.
    async fn by_skills(
        &self,
        query: &Arc<Query>,
        query_scope: &QueryScope,
        skills: &[Hit<String>],
    ) -> Result<Option<Best>, Error> {
        if skills.is_empty() {
            return Ok(None);
        }
        let by_skills = Some(skills.iter().map(|skill| skill.key.clone()).collect());
        let best = self.best(query, &QueryScope { by_skills, ..query_scope.clone() }).await?;
        Ok(Some(best).filter(|(hits, _)| !hits.is_empty()))
    }

    async fn best(&self, query: &Arc<Query>, query_scope: &QueryScope) -> Result<Best, Error> {
        if let Some(vector_store) = &self.vector_store
            && let Some(hits) = self.query_vector_store(query, query_scope).await
        {
            return Ok((hits, vector_store.name()));
        }
        let (tool_index, query, query_scope) = (Arc::clone(&self.tool_index), Arc::clone(query), query_scope.clone());
        let looking = tokio::task::spawn_blocking(move || {
            locked(&tool_index).search(&query, query_scope.limits, &|entry: &IndexedTool| query_scope.admits(entry))
        });
        Ok((looking.await.map_err(|_| broke())?, HERE))
    }
}

fn broke() -> Error {
    Error::Internal { what: "the search broke".to_owned() }
}
