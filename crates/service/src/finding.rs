//! Finding tools: by what they are called, by what they are for, among those that can be called right now.
//!
//! - here: a search, from what is wanted to what was found; [`looking`]: what fits best
//! - [`library`]: all tools that are known, ready to be searched
//! - [`following`]: keeps the library as the registry is; makes vectors where there are none
//! - [`shelving`]: vectors that are kept elsewhere, too, and compared there
//! - [`skills`]: which skills there are; [`editing`]: how they are changed; [`classifying`]: which tools have them
//! - [`judging`]: what a language model says about them; [`verdict`]: what it is asked, and what of its answer is believed;
//!   [`suggestions`]: skills that it missed; [`states`]: how far all that is, tool by tool
//! - [`wellness`]: whether the model that makes vectors can be asked
//! - [`guide`]: the same search for MCP clients that see the small surface
//!
//! The registry stays the truth: texts, vectors and skills are kept there, and the library can be made anew from it at any
//! time. All that takes a processor longer than a moment is done away from the thread that moves calls.

mod classifying;
pub(crate) mod editing;
mod following;
mod guide;
mod judging;
mod library;
mod looking;
mod shelving;
mod skills;
mod states;
mod strategy;
mod suggestions;
mod verdict;
mod wellness;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use catalog::{Kind, Scope};
use protocol::scan::{Span, member};
use registry::{RawJson, ServerId, Status, ToolId};
use search::{Embedder, Hit, Skill, VectorStore};
use serde::Serialize;

use crate::household::Household;
use crate::{Error, Service};
use classifying::Teller;
pub use editing::{SkillChange, SkillView};
pub(crate) use guide::Usher;
use judging::Judge;
pub use judging::{AskAbout, ClassifierSetup};
use library::Library;
use shelving::Shelf;
pub use shelving::VectorsState;
pub use skills::SkillOrigin;
use skills::SkillSet;
pub use states::{ShownTool, ToolState, ToolStates};
pub use strategy::Strategy;
use wellness::Wellness;

/// A skill that fits less well is none that a request is about, unless something else is said.
pub const USUAL_SKILL_THRESHOLD: f32 = 0.1;

/// What somebody looks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
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
pub struct Findings {
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
struct Shop {
    place: usize,
    name: String,
    status: Status,
}

/// Finds tools.
pub(crate) struct Finder {
    house: Arc<Household>,
    library: Arc<RwLock<Library>>,
    embedder: Option<Arc<dyn Embedder>>,
    wellness: Arc<Wellness>,
    skills: RwLock<Arc<SkillSet>>,
    skills_of_file: Vec<Skill>,
    /// Skills are changed one after the other.
    pub(crate) changing: tokio::sync::Mutex<()>,
    teller: Arc<Teller>,
    /// Where vectors are kept besides, if anywhere.
    shelf: Option<Arc<Shelf>>,
    /// A language model that is asked as well.
    judge: Option<Judge>,
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
pub struct FinderReading {
    /// For how many tools vectors were made.
    pub embedded: u64,
    /// How many tools were classified, with or without success.
    pub classified: u64,
}

impl Finder {
    /// Begins to follow what servers offer.
    pub(crate) async fn start(
        house: &Arc<Household>,
        embedder: Option<Arc<dyn Embedder>>,
        skills_of_file: Vec<Skill>,
        (vectors, classifier): (Option<Arc<dyn VectorStore>>, Option<ClassifierSetup>),
    ) -> Result<Arc<Self>, Error> {
        let skills = SkillSet::new(&skills_of_file, house.store.skills().await?);
        let dimension = embedder.as_ref().map_or(0, |embedder| embedder.dimension());
        let library = Arc::new(RwLock::new(Library::new(dimension)));
        let finder = Arc::new(Self {
            house: Arc::clone(house),
            library,
            embedder,
            wellness: Arc::default(),
            skills: RwLock::new(Arc::new(skills)),
            skills_of_file,
            changing: tokio::sync::Mutex::default(),
            teller: Arc::default(),
            shelf: vectors.map(|store| Arc::new(Shelf::new(store))),
            judge: classifier.map(Judge::new),
            counts: Counts::default(),
        });
        house.spawn(following::follow(Arc::clone(&finder)));
        house.spawn(judging::judge(Arc::clone(&finder)));
        if let Some(shelf) = finder.shelf.clone() {
            house.spawn(shelving::keep(Arc::clone(&finder), shelf));
        }
        Ok(finder)
    }

    /// How many tools that can be called now have known skills.
    pub(crate) fn classified_tools(&self) -> u64 {
        let shops = self.shops();
        let library = self.library.read().unwrap_or_else(PoisonError::into_inner);
        library.count(&|book| book.is_classified && shops.contains_key(&book.server)).0 as u64
    }

    /// The ids of the skills that somebody named.
    fn skill_ids(&self, named: &[String]) -> Result<Vec<String>, Error> {
        let skills = self.skills();
        let mut ids = Vec::with_capacity(named.len());
        for name in named {
            let meant = skills.meant_by(name);
            if meant.is_empty() {
                return Err(editing::not_found(name));
            }
            ids.extend(meant);
        }
        Ok(ids)
    }

    /// Servers whose tools can be called now.
    fn shops(&self) -> HashMap<ServerId, Shop> {
        let view = self.house.fleet.view();
        let is_open = |place: usize| view.snapshot.servers()[place].state.offers();
        let handles = self.house.all();
        let open = handles.iter().filter(|handle| is_open(handle.place));
        open.map(|handle| {
            let shown = handle.shown();
            let shop = Shop { place: handle.place, name: shown.record.name.clone(), status: shown.record.status };
            (handle.id, shop)
        })
        .collect()
    }

    /// What a tool takes, as its server says it now.
    fn schema_of(&self, place: usize, tool: &str) -> Option<RawJson> {
        let view = self.house.fleet.view();
        let route = view.snapshot.resolve(Scope::One(place), Kind::Tool, tool)?;
        let definition = &view.snapshot.item(Kind::Tool, route).definition;
        let schema = member(definition, Span { start: 0, end: definition.len() }, "inputSchema")?;
        RawJson::parse(std::str::from_utf8(schema.of(definition)).ok()?).ok()
    }
}

impl Service {
    /// What was done for searches since the start.
    pub fn finder_reading(&self) -> FinderReading {
        let Counts { embedded, classified } = &self.finder.counts;
        FinderReading { embedded: embedded.load(Ordering::Relaxed), classified: classified.load(Ordering::Relaxed) }
    }

    /// The tools that fit best, the best first, among those that can be called now.
    pub async fn search(&self, wanted: Wanted) -> Result<Findings, Error> {
        let begun = Instant::now();
        let finder = &self.finder;
        let mut shops = finder.shops();
        if !wanted.servers.is_empty() {
            let mut named = Vec::with_capacity(wanted.servers.len());
            for server in &wanted.servers {
                named.push(self.house.find(server)?.id);
            }
            shops.retain(|id, _| named.contains(id));
        }
        let looked = finder.look(&wanted, &shops).await?;
        let state = finder.states();
        let state_of = |tool: &ToolId, book: &library::Book| state(&locked(&finder.library), tool, book);
        let tools = looked.hits.into_iter().filter_map(|(hit, book)| {
            let shop = shops.get(&book.server)?;
            let schema = wanted.include_schemas.then(|| finder.schema_of(shop.place, &book.original_name)).flatten();
            let state = state_of(&hit.key, &book);
            Some(found(hit, book, shop, (schema, state)))
        });
        let skills = finder.skills();
        let matched = looked.skills.iter().map(|hit| MatchedSkill {
            id: hit.key.clone(),
            name: skills.name_of(&hit.key).to_owned(),
            score: rounded(hit.score),
        });
        let matched_skills: Vec<MatchedSkill> = matched.collect();
        Ok(Findings {
            tools: tools.collect(),
            metadata: Metadata {
                strategy: if matched_skills.is_empty() { Strategy::Direct } else { Strategy::Hierarchical },
                by_meaning: looked.compared.is_some(),
                vectors: looked.compared,
                servers_searched: shops.len(),
                total_tools_searched: looked.searched,
                tools_without_vectors: looked.lacking,
                embedding_time_ms: milliseconds(looked.embedding),
                search_time_ms: milliseconds(looked.comparing),
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

fn locked(library: &RwLock<Library>) -> RwLockReadGuard<'_, Library> {
    library.read().unwrap_or_else(PoisonError::into_inner)
}

fn found(
    hit: Hit<ToolId>,
    book: library::Book,
    shop: &Shop,
    (input_schema, state): (Option<RawJson>, ToolState),
) -> FoundTool {
    FoundTool {
        name: format!("{}.{}", shop.name, book.original_name),
        original_name: book.original_name,
        description: book.description,
        score: rounded(hit.score),
        source_server: SourceServer { id: book.server.to_string(), name: shop.name.clone(), status: shop.status },
        skill_ids: book.skills,
        skill_confidences: book.confidences,
        primary_skill_id: book.primary_skill,
        is_classified: book.is_classified,
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
