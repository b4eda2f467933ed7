//! Finds tools among those that can be called right now, by name, by purpose and by skill.
//!
//! # Layout
//! - [`Finder`] (here): a search, from request to results; `query`: ranks the tools
//! - `tool_index`: all known tools, ready to be searched
//! - `stored_vector`: vectors as the registry stores them
//! - `sync`: keeps the index equal to the registry, and computes missing vectors
//! - `vector_store_sync`: keeps a copy of the vectors in a vector store, which then compares them
//! - `skills`: the skills; `skill_edits`: changes to them; `embedding_classifier`: which tools have them, by vectors
//! - `llm_classifier`: which tools have them, by a language model; `llm_prompt`: its prompt, and which parts of its
//!   answer are used; `suggestions`: skills that it proposes; `tool_states`: the classification state of each tool
//! - `health`: whether the embedding model is reachable
//! - `uses`: counts what tools are used for after searches
//! - `surface_finder`: the same search for MCP clients with the small surface
//!
//! The registry is the source of truth: it stores texts, vectors and skills, and the index can be rebuilt from it at
//! any time. Work that takes a processor longer than a moment runs outside the threads that serve calls. The service
//! tells this crate which servers exist through [`Host`], and which of them changed through [`Change`].

mod embedding_classifier;
mod error;
mod health;
mod llm_classifier;
mod llm_prompt;
mod query;
mod skill_edits;
mod skills;
mod stored_vector;
mod strategy;
mod suggestions;
mod surface_finder;
mod sync;
mod tool_index;
mod tool_states;
mod uses;
mod vector_store_sync;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use aggregator::Fleet;
use catalog::{Kind, Scope};
use protocol::scan::{Span, member};
use registry::{RawJson, ServerId, ServerRecord, Status, Store, ToolId};
use search::{Embedder, Hit, QueryCache, Skill, VectorStore};
use serde::Serialize;
use tokio::sync::broadcast;

use embedding_classifier::EmbeddingClassifier;
pub use error::{Error, SkillProblem};
use health::EmbedderHealth;
use llm_classifier::LlmClassifier;
pub use llm_classifier::{ClassifierScope, ClassifierSetup};
pub use skill_edits::{SkillChange, SkillView, problems_with};
pub use skills::SkillOrigin;
use skills::SkillSet;
pub use strategy::Strategy;
pub use surface_finder::SurfaceFinder;
use surface_finder::SurfaceSkills;
use tool_index::ToolIndex;
pub use tool_states::{ToolState, ToolStates, ToolView};
use uses::UnwrittenUses;
use vector_store_sync::VectorStoreSync;
pub use vector_store_sync::VectorsState;

/// The minimum score of a skill that a request is about, unless the request says otherwise.
pub const DEFAULT_SKILL_THRESHOLD: f32 = 0.1;

/// A search request.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchRequest {
    /// What the user wants to do, in plain words.
    pub query: String,
    /// The maximum number of results.
    pub limit: usize,
    /// Only tools of these servers, by id or name; all servers if empty.
    pub servers: Vec<String>,
    /// Only tools with one of these skills, by id or name; all tools if empty.
    pub skills: Vec<String>,
    /// The search strategy.
    pub strategy: Strategy,
    /// The minimum score of a skill that leads to tools, from 0 to 1.
    pub skill_threshold: f32,
    /// The minimum score of a tool, from 0 to 1.
    pub threshold: f32,
    /// Whether results include input schemas.
    pub include_schemas: bool,
    /// Only tools of this profile.
    pub profile: Option<Arc<str>>,
}

/// The results of a search.
#[derive(Debug, Clone, Serialize)]
pub struct SearchResults {
    /// The query.
    pub query: String,
    /// The tools, best first.
    pub tools: Vec<FoundTool>,
    /// The skills that led to them, best first; empty in a direct search.
    pub matched_skills: Vec<MatchedSkill>,
    /// How the search was done.
    pub metadata: Metadata,
}

/// A skill that a request is about.
#[derive(Debug, Clone, Serialize)]
pub struct MatchedSkill {
    /// Its id.
    pub id: String,
    /// Its name, for people.
    pub name: String,
    /// Its score, from 0 to 1.
    pub score: f64,
}

/// How a search was done.
#[derive(Debug, Clone, Serialize)]
pub struct Metadata {
    /// The strategy that was used: direct if no skill led to a tool.
    pub strategy: Strategy,
    /// Whether vectors of the model were compared, or only words and the table.
    pub by_meaning: bool,
    /// Where vectors were compared, if they were: `embedded` is in this program.
    pub vectors: Option<&'static str>,
    /// The number of servers with searched tools.
    pub servers_searched: usize,
    /// The number of searched tools.
    pub total_tools_searched: usize,
    /// How many of them have no vector of the model: it is still to be computed, the model refused the text, or there is
    /// no model.
    pub tools_without_vectors: usize,
    /// The time to embed the request, in milliseconds.
    pub embedding_time_ms: f64,
    /// The time to compare, in milliseconds.
    pub search_time_ms: f64,
    /// The total time, in milliseconds.
    pub total_time_ms: f64,
    /// What the user should know about the result: that the model cannot read the language of the query.
    pub note: Option<&'static str>,
}

/// A tool that was found.
#[derive(Debug, Clone, Serialize)]
pub struct FoundTool {
    /// `server.tool`.
    pub name: String,
    /// The name that its server uses.
    pub original_name: String,
    /// Its description, as the server wrote it.
    pub description: Option<String>,
    /// Its score, from 0 to 1.
    pub score: f64,
    /// Its server.
    pub source_server: SourceServer,
    /// Its skills.
    pub skill_ids: Vec<String>,
    /// The confidence of each skill, from 0 to 1.
    pub skill_confidences: Vec<f64>,
    /// Its best skill.
    pub primary_skill_id: Option<String>,
    /// Whether its skills are known.
    pub is_classified: bool,
    /// The state of its classification.
    pub state: ToolState,
    /// Why it was found.
    pub why: Why,
    /// Its input schema, if the request asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<RawJson>,
}

/// The server of a tool that was found.
#[derive(Debug, Clone, Serialize)]
pub struct SourceServer {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: Status,
}

/// Why a tool was found.
#[derive(Debug, Clone, Serialize)]
pub struct Why {
    /// The words of the query that it contains.
    pub matched_words: Vec<String>,
    /// The score of its words, from 0 to 1.
    pub lexical_score: f64,
    /// The similarity of its meaning, from 0 to 1.
    pub vector_score: Option<f64>,
}

/// A server.
#[derive(Debug, Clone)]
pub struct KnownServer {
    /// Its id.
    pub id: ServerId,
    /// The index of its slot in the fleet.
    pub slot_index: usize,
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: Status,
}

/// What changed in the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A server's tools or its name changed, or it was removed.
    Server(ServerId),
    /// The skills changed.
    Skills,
}

/// Knows the servers whose tools are searched.
pub trait Host: Send + Sync {
    /// All servers, in order of registration.
    fn servers(&self) -> Vec<KnownServer>;

    /// The server with that id or name.
    fn record(&self, id_or_name: &str) -> Option<ServerRecord>;

    /// Waits until everything about a server is in the registry, at most for `limit`. Returns whether it is.
    fn wait_written(&self, server: ServerId, limit: Duration) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;

    /// The full names of tools that the small surface lists as well.
    fn pinned_tools(&self) -> Arc<[String]>;

    /// Whether searches of MCP clients count what tools were used for.
    fn learns_from_use(&self) -> bool;

    /// Called when the skills changed; `enabled` is the number of enabled skills. The host returns this as a
    /// [`Change`].
    fn on_skills_changed(&self, skill_count: usize);
}

/// What a [`Finder`] needs.
pub struct Setup {
    /// The registry, which stores tools, vectors and skills.
    pub store: Store,
    /// The servers that can be called now.
    pub fleet: Arc<Fleet>,
    /// Knows the servers.
    pub host: Arc<dyn Host>,
    /// Changes from now on.
    pub changes: broadcast::Receiver<Change>,
    /// The embedding model.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// A vector store that also stores and compares vectors.
    pub vectors: Option<Arc<dyn VectorStore>>,
    /// Skills from a file, which extend or replace the built-in ones.
    pub skills: Vec<Skill>,
    /// A language model that classifies tools where vectors are not enough.
    pub classifier: Option<ClassifierSetup>,
}

/// A background task; it ends when it is dropped.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Finds tools.
pub struct Finder {
    store: Store,
    fleet: Arc<Fleet>,
    host: Arc<dyn Host>,
    /// Changed for milliseconds at a time, however much there is to change.
    tool_index: Arc<RwLock<ToolIndex>>,
    /// What clients with the small surface see of skills.
    surface_skills: SurfaceSkills,
    embedder: Option<Arc<dyn Embedder>>,
    embedder_health: Arc<EmbedderHealth>,
    query_cache: Arc<QueryCache>,
    skills: RwLock<Arc<SkillSet>>,
    skills_of_file: Vec<Skill>,
    /// Serializes changes to skills.
    changing: tokio::sync::Mutex<()>,
    embedding_classifier: Arc<EmbeddingClassifier>,
    /// The vector store, if there is one.
    vector_store: Option<Arc<VectorStoreSync>>,
    /// The language model that classifies tools, if there is one.
    llm_classifier: Option<LlmClassifier>,
    counts: Arc<Counts>,
    /// Uses of tools that are not written yet.
    unwritten_uses: UnwrittenUses,
}

/// Counters since the start.
#[derive(Debug, Default)]
struct Counts {
    embedded: AtomicU64,
    classified: AtomicU64,
}

/// A reading of the counters of background work since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SearchCounters {
    /// The number of tools for which vectors were computed.
    pub embedded: u64,
    /// The number of classified tools, with or without success.
    pub classified: u64,
}

impl Finder {
    /// A finder, and the background tasks that keep it up to date. Run them until shutdown.
    pub async fn new(setup: Setup) -> Result<(Arc<Self>, Vec<Task>), Error> {
        let Setup { store, fleet, host, changes, embedder, vectors, skills: skills_of_file, classifier } = setup;
        let skills = SkillSet::new(&skills_of_file, store.skills().await?);
        let dimension = embedder.as_ref().map_or(0, |embedder| embedder.dimension());
        let tool_index = Arc::new(RwLock::new(ToolIndex::new(dimension)));
        let finder = Arc::new(Self {
            store,
            fleet,
            host,
            tool_index,
            surface_skills: SurfaceSkills::default(),
            embedder,
            embedder_health: Arc::default(),
            query_cache: Arc::default(),
            skills: RwLock::new(Arc::new(skills)),
            skills_of_file,
            changing: tokio::sync::Mutex::default(),
            embedding_classifier: Arc::default(),
            vector_store: vectors.map(|store| Arc::new(VectorStoreSync::new(store))),
            llm_classifier: classifier.map(LlmClassifier::new),
            counts: Arc::default(),
            unwritten_uses: UnwrittenUses::default(),
        });
        let mut tasks: Vec<Task> =
            vec![Box::pin(sync::run(Arc::clone(&finder), changes)), Box::pin(llm_classifier::run(Arc::clone(&finder)))];
        tasks.push(Box::pin(uses::run(Arc::clone(&finder))));
        if let Some(vector_store) = finder.vector_store.clone() {
            tasks.push(Box::pin(vector_store_sync::run(Arc::clone(&finder), vector_store)));
        }
        Ok((finder, tasks))
    }

    /// The number of tools that can be called now and whose skills are known.
    pub fn classified_tools(&self) -> u64 {
        let callable_servers = self.callable_servers(None);
        let tool_index = self.tool_index.read().unwrap_or_else(PoisonError::into_inner);
        tool_index.count(&|entry| entry.is_classified && callable_servers.contains_key(&entry.server)).0 as u64
    }

    /// The id of a server that clients of a profile see, by id or name.
    fn named(&self, server: &str, profile: Option<&str>) -> Result<ServerId, Error> {
        let view = self.fleet.view_for(profile);
        let is_visible = |record: &ServerRecord| view.is_whole() || view.snapshot.server_named(&record.name).is_some();
        let record = self.host.record(server).filter(is_visible);
        record.map(|record| record.id).ok_or_else(|| Error::ServerNotFound { key: server.to_owned() })
    }

    /// The ids of skills, by id or name.
    fn skill_ids(&self, named: &[String]) -> Result<Vec<String>, Error> {
        let skills = self.skills();
        let mut ids = Vec::with_capacity(named.len());
        for name in named {
            let meant = skills.named_by(name);
            if meant.is_empty() {
                return Err(skill_edits::not_found(name));
            }
            ids.extend(meant);
        }
        Ok(ids)
    }

    /// Servers whose tools can be called now, as clients of a profile see them.
    fn callable_servers(&self, profile: Option<&str>) -> HashMap<ServerId, KnownServer> {
        let view = self.fleet.view_for(profile);
        let is_open = |server: &KnownServer| view.snapshot.servers()[server.slot_index].state.offers();
        self.host.servers().into_iter().filter(is_open).map(|server| (server.id, server)).collect()
    }

    /// The current input schema of a tool.
    fn schema_of(&self, slot_index: usize, tool: &str) -> Option<RawJson> {
        let view = self.fleet.view();
        let route = view.snapshot.resolve(Scope::One(slot_index), Kind::Tool, tool)?;
        let definition = &view.snapshot.item(Kind::Tool, route).definition;
        let schema = member(definition, Span { start: 0, end: definition.len() }, "inputSchema")?;
        RawJson::parse(std::str::from_utf8(schema.of(definition)).ok()?).ok()
    }

    /// Counters since the start.
    pub fn counters(&self) -> SearchCounters {
        let Counts { embedded, classified } = &*self.counts;
        SearchCounters { embedded: embedded.load(Ordering::Relaxed), classified: classified.load(Ordering::Relaxed) }
    }

    /// The best tools among those that can be called now, best first.
    pub async fn search(&self, wanted: SearchRequest) -> Result<SearchResults, Error> {
        let begun = Instant::now();
        let profile = wanted.profile.as_deref();
        let mut callable_servers = self.callable_servers(profile);
        if !wanted.servers.is_empty() {
            let mut named = Vec::with_capacity(wanted.servers.len());
            for server in &wanted.servers {
                named.push(self.named(server, profile)?);
            }
            callable_servers.retain(|id, _| named.contains(id));
        }
        let query_result = self.run_query(&wanted, &callable_servers, None).await?;
        let state = self.states();
        let states: Vec<ToolState> = {
            let tool_index = locked(&self.tool_index);
            query_result.hits.iter().map(|(hit, entry)| state(&tool_index, &hit.key, entry)).collect()
        };
        let tools = query_result.hits.into_iter().zip(states).filter_map(|((hit, entry), state)| {
            let callable = callable_servers.get(&entry.server)?;
            let schema =
                wanted.include_schemas.then(|| self.schema_of(callable.slot_index, &entry.original_name)).flatten();
            Some(found(hit, entry, callable, (schema, state)))
        });
        let skills = self.skills();
        let matched = query_result.skills.iter().map(|hit| MatchedSkill {
            id: hit.key.clone(),
            name: skills.name_of(&hit.key).to_owned(),
            score: rounded(hit.score),
        });
        let matched_skills: Vec<MatchedSkill> = matched.collect();
        Ok(SearchResults {
            tools: tools.collect(),
            metadata: Metadata {
                strategy: if matched_skills.is_empty() { Strategy::Direct } else { Strategy::Hierarchical },
                by_meaning: query_result.compared.is_some(),
                vectors: query_result.compared,
                servers_searched: callable_servers.len(),
                total_tools_searched: query_result.searched,
                tools_without_vectors: query_result.missing_vectors,
                embedding_time_ms: milliseconds(query_result.embedding),
                search_time_ms: milliseconds(query_result.comparing),
                total_time_ms: milliseconds(begun.elapsed()),
                note: query_result.note,
            },
            matched_skills,
            query: wanted.query,
        })
    }
}

/// An error with all its causes.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn locked(tool_index: &RwLock<ToolIndex>) -> RwLockReadGuard<'_, ToolIndex> {
    tool_index.read().unwrap_or_else(PoisonError::into_inner)
}

fn found(
    hit: Hit<ToolId>,
    entry: tool_index::IndexedTool,
    callable: &KnownServer,
    (input_schema, state): (Option<RawJson>, ToolState),
) -> FoundTool {
    FoundTool {
        name: format!("{}.{}", callable.name, entry.original_name),
        original_name: entry.original_name,
        description: entry.description,
        score: rounded(hit.score),
        source_server: SourceServer {
            id: entry.server.to_string(),
            name: callable.name.clone(),
            status: callable.status,
        },
        skill_ids: entry.skills,
        skill_confidences: entry.confidences,
        primary_skill_id: entry.primary_skill,
        is_classified: entry.is_classified,
        state,
        why: Why {
            matched_words: hit.words,
            lexical_score: rounded(hit.lexical),
            vector_score: hit.vector.map(rounded),
        },
        input_schema,
    }
}

/// Rounds a score: further digits have no meaning.
fn rounded(score: f32) -> f64 {
    (f64::from(score) * 10_000.0).round() / 10_000.0
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1_000_000.0).round() / 1000.0
}
