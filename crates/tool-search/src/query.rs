//! Ranks tools for a request, in memory or in the vector store.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aggregator::{Fleet, View};
use catalog::{Kind, Scope};
use registry::ServerId;
use search::{Embedder, Hit, Limits, PointId, Query, StoreFilter, table_reads};

use super::tool_index::{IndexedHit, IndexedTool};
use super::{Finder, KnownServer, SearchRequest, Strategy, locked};
use crate::Error;

/// The maximum number of skills that a request is about.
const MAX_MATCHED_SKILLS: usize = 3;
/// Said of requests in other languages.
const READS_ENGLISH: &str =
    "The built-in model reads English: in another language tools are found by words only. Ask in English to find more.";
/// The name of the comparison in memory.
const EMBEDDED_STORE: &str = "embedded";

/// The result of a ranking.
pub(super) struct QueryResult {
    pub(super) hits: Vec<IndexedHit>,
    /// The skills that led to the tools, if any did.
    pub(super) skills: Vec<Hit<String>>,
    pub(super) searched: usize,
    pub(super) missing_vectors: usize,
    /// Where vectors were compared, if they were.
    pub(super) compared: Option<&'static str>,
    /// What the user should know about the result.
    pub(super) note: Option<&'static str>,
    pub(super) embedding: Duration,
    pub(super) comparing: Duration,
}

/// The request, and the tools to rank.
#[derive(Clone)]
pub(super) struct QueryScope {
    pub(super) limits: Limits,
    /// Only tools of these servers.
    pub(super) servers: Arc<HashSet<ServerId>>,
    /// Only tools with one of these skills; all if empty.
    pub(super) skills: Vec<String>,
    /// Only tools with one of these skills, and unclassified ones.
    pub(super) by_skills: Option<Vec<String>>,
    /// Only tools that the profile of the request shows.
    pub(super) visible: VisibleTools,
}

/// The tools that clients of a profile see; all without one.
#[derive(Clone)]
pub(super) struct VisibleTools(Option<Narrowing>);

/// What clients of a profile see, and the slots of the servers.
#[derive(Clone)]
struct Narrowing {
    view: Arc<View>,
    slots: Arc<HashMap<ServerId, usize>>,
}

impl VisibleTools {
    pub(super) fn of(fleet: &Fleet, profile: Option<&str>, servers: &HashMap<ServerId, KnownServer>) -> Self {
        let slots = || servers.iter().map(|(id, server)| (*id, server.slot_index)).collect();
        Self(profile.map(|profile| Narrowing { view: fleet.view_for(Some(profile)), slots: Arc::new(slots()) }))
    }

    pub(super) fn has(&self, entry: &IndexedTool) -> bool {
        let Some(Narrowing { view, slots }) = &self.0 else { return true };
        let slot = slots.get(&entry.server);
        slot.is_some_and(|&slot| view.snapshot.resolve(Scope::One(slot), Kind::Tool, &entry.original_name).is_some())
    }
}

impl QueryScope {
    pub(super) fn admits(&self, entry: &IndexedTool) -> bool {
        self.servers.contains(&entry.server)
            && entry.is_for(&self.skills)
            && self.by_skills.as_ref().is_none_or(|skills| entry.matches_skills(skills))
            && self.visible.has(entry)
    }

    /// The same filter for the vector store.
    pub(super) fn narrowed(&self, among: Option<Vec<PointId>>) -> StoreFilter {
        let mut servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        servers.sort();
        StoreFilter { servers, skills: self.skills.clone(), by_skills: self.by_skills.clone(), among }
    }
}

/// The best tools, and where vectors were compared.
type Best = (Vec<IndexedHit>, &'static str);

impl Finder {
    /// Searches the tools of these servers. What tools were used for counts if a user is named.
    pub(super) async fn run_query(
        &self,
        wanted: &SearchRequest,
        callable_servers: &HashMap<ServerId, KnownServer>,
        user: Option<Arc<str>>,
    ) -> Result<QueryResult, Error> {
        let begun = Instant::now();
        let query_scope = QueryScope {
            limits: Limits { count: wanted.limit, least_score: wanted.threshold },
            servers: Arc::new(callable_servers.keys().copied().collect()),
            skills: self.skill_ids(&wanted.skills)?,
            by_skills: None,
            visible: VisibleTools::of(&self.fleet, wanted.profile.as_deref(), callable_servers),
        };
        let (query, skills) = self.understand(wanted).await?;
        let query = match user {
            Some(user) => query.by_user(user),
            None => query,
        };
        let (query, embedding) = (Arc::new(query), begun.elapsed());
        let ((hits, compared), skills) = match self.by_skills(&query, &query_scope, &skills).await? {
            Some(best) => (best, skills),
            None => (self.best(&query, &query_scope).await?, Vec::new()),
        };
        let known: HashSet<String> = hits.iter().flat_map(|(hit, _)| &hit.words).cloned().collect();
        let (embedder, text) = (self.embedder.clone(), wanted.query.clone());
        let counting = self.read_index(move |tool_index| {
            let counted = tool_index.count(&|entry: &IndexedTool| query_scope.admits(entry));
            (counted, language_note(embedder.as_deref(), &text, &known))
        });
        let ((searched, missing_vectors), note) = counting.await?;
        // Rough vectors of the table do not count.
        let has_vectors = !query.vectors().is_empty();
        let compared = (has_vectors && hits.iter().any(|(hit, _)| hit.vector.is_some())).then_some(compared);
        Ok(QueryResult {
            hits,
            skills,
            searched,
            missing_vectors,
            compared,
            note,
            embedding,
            comparing: begun.elapsed() - embedding,
        })
    }

    /// Embeds a request, and finds the skills it is about, if these are needed.
    async fn understand(&self, wanted: &SearchRequest) -> Result<(Query, Vec<Hit<String>>), Error> {
        let (text, tool_index, embedder) = (wanted.query.clone(), Arc::clone(&self.tool_index), self.embedder.clone());
        let limits = Limits { count: MAX_MATCHED_SKILLS, least_score: wanted.skill_threshold };
        let (strategy, set, embedding_classifier) =
            (wanted.strategy, self.skills(), Arc::clone(&self.embedding_classifier));
        let (embedder_health, query_cache) = (Arc::clone(&self.embedder_health), Arc::clone(&self.query_cache));
        let reading = tokio::task::spawn_blocking(move || {
            let mut query = Query::new(&text).with_rough_vectors();
            match embedder.as_ref().map(|embedder| query_cache.embed(&mut query, &**embedder)) {
                Some(Ok(())) => embedder_health.worked(),
                Some(Err(error)) => {
                    let error_with_causes = super::with_causes(&error);
                    tracing::warn!(
                        error = error_with_causes,
                        searched_by = search::WITHOUT_A_MODEL,
                        "the query could not be embedded; searched without the model"
                    );
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
                tracing::warn!(%error, "failed to match skills; searching all tools");
                Vec::new()
            });
            (query, skills)
        });
        reading.await.map_err(|_| broke())
    }

    /// The best tools with some skills, and unclassified ones. `None` if there are none.
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
        Ok((looking.await.map_err(|_| broke())?, EMBEDDED_STORE))
    }
}

/// What a user should know who asks in a language that the model cannot read.
fn language_note(embedder: Option<&dyn Embedder>, request: &str, known: &HashSet<String>) -> Option<&'static str> {
    let is_known = |word: &str| known.contains(word);
    let is_read =
        embedder.map_or_else(|| table_reads(request, &is_known), |embedder| embedder.reads(request, &is_known));
    (!is_read).then_some(READS_ENGLISH)
}

fn broke() -> Error {
    Error::Internal { what: "the search panicked".to_owned() }
}
