//! Finding tools: by what they are called, by what they are for, among those that can be called right now.
//!
//! - here: a search, from what is wanted to what was found; [`looking`]: what fits best
//! - [`tool_index`]: all tools that are known, ready to be searched
//! - [`following`]: keeps the library as the registry is; makes vectors where there are none
//! - [`shelving`]: vectors that are kept elsewhere, too, and compared there
//! - [`skills`]: which skills there are; [`skill_edits`]: how they are changed; [`embedding_classifier`]: which tools have them
//! - [`judging`]: what a language model says about them; [`llm_answer`]: what it is asked, and what of its answer is believed;
//!   [`suggestions`]: skills that it missed; [`states`]: how far all that is, tool by tool
//! - [`embedder_health`]: whether the model that makes vectors can be asked
//! - [`surface_finder`]: the same search for MCP clients that see the small surface
//!
//! The registry stays the truth: texts, vectors and skills are kept there, and the library can be made anew from it at any
//! time. All that takes a processor longer than a moment is done away from the thread that moves calls.

mod embedding_classifier;
mod health;
mod llm_classifier;
mod llm_prompt;
mod query;
pub(crate) mod skill_edits;
mod skills;
mod strategy;
mod suggestions;
mod surface_finder;
mod sync;
mod tool_index;
mod tool_states;
mod vector_store_sync;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use catalog::{Kind, Scope};
use protocol::scan::{Span, member};
use registry::{RawJson, ServerId, Status, ToolId};
use search::{Embedder, Hit, Skill, VectorStore};
use serde::Serialize;

use crate::context::ServiceContext;
use crate::{Error, Service};
use embedding_classifier::EmbeddingClassifier;
use health::EmbedderHealth;
use llm_classifier::LlmClassifier;
pub use llm_classifier::{ClassifierScope, ClassifierSetup};
pub use skill_edits::{SkillChange, SkillView};
pub use skills::SkillOrigin;
use skills::SkillSet;
pub use strategy::Strategy;
pub(crate) use surface_finder::SurfaceFinder;
use tool_index::ToolIndex;
pub use tool_states::{ToolState, ToolStates, ToolView};
use vector_store_sync::VectorStoreSync;
pub use vector_store_sync::VectorsState;

/// A skill that fits less well is none that a request is about, unless something else is said.
pub const DEFAULT_SKILL_THRESHOLD: f32 = 0.1;

/// What somebody looks for.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchRequest {
    /// In their own words.
    pub query: String,
    /// So many at most.
    pub limit: usize,
    /// Only of these servers, by id or name; of all, if none are named.
    pub servers: Vec<String>,
    /// Only with one of these skills, by id or name; with any or none, if none are named.
    pub skills: Vec<String>,
    /// In which way.
    pub strategy: Strategy,
    /// Only skills that fit at least so well lead to tools, from 0 to 1.
    pub skill_threshold: f32,
    /// Only what fits at least so well, from 0 to 1.
    pub threshold: f32,
    /// With what each takes.
    pub include_schemas: bool,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct SearchResults {
    /// What was asked.
    pub query: String,
    /// The best first.
    pub tools: Vec<FoundTool>,
    /// The skills that led to them, the best first; none in a direct search.
    pub matched_skills: Vec<MatchedSkill>,
    /// How it was found.
    pub metadata: Metadata,
}

/// A skill that a request is about.
#[derive(Debug, Clone, Serialize)]
pub struct MatchedSkill {
    /// Its id.
    pub id: String,
    /// For people.
    pub name: String,
    /// How well it fits, from 0 to 1.
    pub score: f64,
}

/// How a search went.
#[derive(Debug, Clone, Serialize)]
pub struct Metadata {
    /// The way it was done: direct where no skill led anywhere.
    pub strategy: Strategy,
    /// Whether meanings were compared, or words alone.
    pub by_meaning: bool,
    /// Where meanings were compared, if they were: `embedded` is in this program.
    pub vectors: Option<&'static str>,
    /// How many servers have tools that could have been found.
    pub servers_searched: usize,
    /// How many tools could have been found.
    pub total_tools_searched: usize,
    /// How many of them are found by words alone, because their vectors are still being made.
    pub tools_without_vectors: usize,
    /// What it took to read the request, in milliseconds.
    pub embedding_time_ms: f64,
    /// What it took to compare, in milliseconds.
    pub search_time_ms: f64,
    /// All of it, in milliseconds.
    pub total_time_ms: f64,
}

/// A tool that was found.
#[derive(Debug, Clone, Serialize)]
pub struct FoundTool {
    /// `server.tool`.
    pub name: String,
    /// What its server calls it.
    pub original_name: String,
    /// What it does, in its server's words.
    pub description: Option<String>,
    /// How well it fits, from 0 to 1.
    pub score: f64,
    /// Whose it is.
    pub source_server: SourceServer,
    /// What it is good for.
    pub skill_ids: Vec<String>,
    /// How certain each of these is, from 0 to 1.
    pub skill_confidences: Vec<f64>,
    /// What it is best at.
    pub primary_skill_id: Option<String>,
    /// Whether its skills are known.
    pub is_classified: bool,
    /// How far that is.
    pub state: ToolState,
    /// Why it was found.
    pub why: Why,
    /// What it takes, where that was asked for.
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
    /// How it stands.
    pub status: Status,
}

/// Why a tool was found.
#[derive(Debug, Clone, Serialize)]
pub struct Why {
    /// The words of the request that it has.
    pub matched_words: Vec<String>,
    /// How well its words fit, from 0 to 1.
    pub lexical_score: f64,
    /// How near its meaning is, from 0 to 1.
    pub vector_score: Option<f64>,
}

/// A server whose tools can be called.
#[derive(Debug, Clone)]
struct CallableServer {
    place: usize,
    name: String,
    status: Status,
}

/// Finds tools.
pub(crate) struct Finder {
    context: Arc<ServiceContext>,
    tool_index: Arc<RwLock<ToolIndex>>,
    embedder: Option<Arc<dyn Embedder>>,
    embedder_health: Arc<EmbedderHealth>,
    skills: RwLock<Arc<SkillSet>>,
    skills_of_file: Vec<Skill>,
    /// Skills are changed one after the other.
    pub(crate) changing: tokio::sync::Mutex<()>,
    embedding_classifier: Arc<EmbeddingClassifier>,
    /// Where vectors are kept besides, if anywhere.
    vector_store: Option<Arc<VectorStoreSync>>,
    /// A language model that is asked as well.
    llm_classifier: Option<LlmClassifier>,
    counts: Counts,
}

/// What was done since the start.
#[derive(Debug, Default)]
struct Counts {
    embedded: AtomicU64,
    classified: AtomicU64,
}

/// What was done behind everybody's back since the start, at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SearchCounters {
    /// For how many tools vectors were made.
    pub embedded: u64,
    /// How many tools were classified, with or without success.
    pub classified: u64,
}

impl Finder {
    /// Begins to follow what servers offer.
    pub(crate) async fn start(
        context: &Arc<ServiceContext>,
        embedder: Option<Arc<dyn Embedder>>,
        skills_of_file: Vec<Skill>,
        (vectors, classifier): (Option<Arc<dyn VectorStore>>, Option<ClassifierSetup>),
    ) -> Result<Arc<Self>, Error> {
        let skills = SkillSet::new(&skills_of_file, context.store.skills().await?);
        let dimension = embedder.as_ref().map_or(0, |embedder| embedder.dimension());
        let tool_index = Arc::new(RwLock::new(ToolIndex::new(dimension)));
        let finder = Arc::new(Self {
            context: Arc::clone(context),
            tool_index,
            embedder,
            embedder_health: Arc::default(),
            skills: RwLock::new(Arc::new(skills)),
            skills_of_file,
            changing: tokio::sync::Mutex::default(),
            embedding_classifier: Arc::default(),
            vector_store: vectors.map(|store| Arc::new(VectorStoreSync::new(store))),
            llm_classifier: classifier.map(LlmClassifier::new),
            counts: Counts::default(),
        });
        context.spawn(sync::run(Arc::clone(&finder)));
        context.spawn(llm_classifier::run(Arc::clone(&finder)));
        if let Some(vector_store) = finder.vector_store.clone() {
            context.spawn(vector_store_sync::run(Arc::clone(&finder), vector_store));
        }
        Ok(finder)
    }

    /// How many tools that can be called now have known skills.
    pub(crate) fn classified_tools(&self) -> u64 {
        let callable_servers = self.callable_servers();
        let tool_index = self.tool_index.read().unwrap_or_else(PoisonError::into_inner);
        tool_index.count(&|entry| entry.is_classified && callable_servers.contains_key(&entry.server)).0 as u64
    }

    /// The ids of the skills that somebody named.
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

    /// Servers whose tools can be called now.
    fn callable_servers(&self) -> HashMap<ServerId, CallableServer> {
        let view = self.context.fleet.view();
        let is_open = |place: usize| view.snapshot.servers()[place].state.offers();
        let handles = self.context.all();
        let open = handles.iter().filter(|handle| is_open(handle.place));
        open.map(|handle| {
            let shown = handle.current();
            let callable =
                CallableServer { place: handle.place, name: shown.record.name.clone(), status: shown.record.status };
            (handle.id, callable)
        })
        .collect()
    }

    /// What a tool takes, as its server says it now.
    fn schema_of(&self, place: usize, tool: &str) -> Option<RawJson> {
        let view = self.context.fleet.view();
        let route = view.snapshot.resolve(Scope::One(place), Kind::Tool, tool)?;
        let definition = &view.snapshot.item(Kind::Tool, route).definition;
        let schema = member(definition, Span { start: 0, end: definition.len() }, "inputSchema")?;
        RawJson::parse(std::str::from_utf8(schema.of(definition)).ok()?).ok()
    }
}

impl Service {
    /// What was done for searches since the start.
    pub fn search_counters(&self) -> SearchCounters {
        let Counts { embedded, classified } = &self.finder.counts;
        SearchCounters { embedded: embedded.load(Ordering::Relaxed), classified: classified.load(Ordering::Relaxed) }
    }

    /// The tools that fit best, the best first, among those that can be called now.
    pub async fn search(&self, wanted: SearchRequest) -> Result<SearchResults, Error> {
        let begun = Instant::now();
        let finder = &self.finder;
        let mut callable_servers = finder.callable_servers();
        if !wanted.servers.is_empty() {
            let mut named = Vec::with_capacity(wanted.servers.len());
            for server in &wanted.servers {
                named.push(self.context.find(server)?.id);
            }
            callable_servers.retain(|id, _| named.contains(id));
        }
        let query_result = finder.run_query(&wanted, &callable_servers).await?;
        let state = finder.states();
        let state_of = |tool: &ToolId, entry: &tool_index::IndexedTool| state(&locked(&finder.tool_index), tool, entry);
        let tools = query_result.hits.into_iter().filter_map(|(hit, entry)| {
            let callable = callable_servers.get(&entry.server)?;
            let schema =
                wanted.include_schemas.then(|| finder.schema_of(callable.place, &entry.original_name)).flatten();
            let state = state_of(&hit.key, &entry);
            Some(found(hit, entry, callable, (schema, state)))
        });
        let skills = finder.skills();
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
            },
            matched_skills,
            query: wanted.query,
        })
    }
}

/// An error with everything that led to it.
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
    callable: &CallableServer,
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

/// More digits than these say nothing.
fn rounded(score: f32) -> f64 {
    (f64::from(score) * 10_000.0).round() / 10_000.0
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1_000_000.0).round() / 1000.0
}
