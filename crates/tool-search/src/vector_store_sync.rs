//! Keeps a copy of the vectors in a vector store, and uses the store while it is reachable.
//!
//! The index keeps every vector, too, so a search never waits for an unreachable store. When the store becomes
//! reachable again, all of its entries are compared with the index; outdated ones are corrected before it is used.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use search::{NearestAnswers, Payload, PointId, Query, StoreError, VectorStore};
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::query::QueryScope;
use super::tool_index::{IndexedHit, Plan, ToolIndex};
use super::{Finder, locked};

/// The maximum number of vectors that are stored in one request.
const BATCH_SIZE: usize = 200;
/// The pause before an unreachable store is tried again, at first and at most.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// How often the number of entries in the store is checked.
const RECOUNT_INTERVAL: Duration = Duration::from_secs(30);
/// How long a search waits for the store before it compares in memory.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// How many of the nearest vectors, and of the best matches by words, are requested first. If that does not decide the
/// ranking, everything is requested.
const NEAREST: usize = 256;

/// Where vectors are compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VectorsState {
    /// Where: `embedded` is in this program, `table` means that there are only the rough vectors of the table, `none` that
    /// only words are compared.
    pub in_use: &'static str,
    /// The address of the vector store, if one is configured.
    pub address: Option<String>,
    /// The number of vectors in the store.
    pub points: Option<usize>,
    /// Why the store is not used, if it is not.
    pub problem: Option<String>,
}

/// A vector store, and what is known of it.
pub(super) struct VectorStoreSync {
    store: Arc<dyn VectorStore>,
    known: Mutex<Known>,
    /// Notified when the index changes.
    stale: Notify,
    /// Notified when a search fails in the store.
    failed: Notify,
}

struct Known {
    kept: HashMap<PointId, Payload>,
    /// Why the store cannot be used, if it cannot.
    problem: Option<String>,
}

impl VectorStoreSync {
    pub(super) fn new(store: Arc<dyn VectorStore>) -> Self {
        let problem = Some("it was not checked yet".to_owned());
        let known = Mutex::new(Known { kept: HashMap::new(), problem });
        Self { store, known, stale: Notify::new(), failed: Notify::new() }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of the store.
    pub(super) fn name(&self) -> &'static str {
        self.store.name()
    }

    fn is_reachable(&self) -> bool {
        self.known().problem.is_none()
    }

    /// Marks the store as unusable until all of its entries were compared again.
    fn mark_unreachable(&self, why: &StoreError) {
        let why = with_cause(why);
        let mut known = self.known();
        if known.problem.is_none() {
            tracing::warn!(address = self.store.address(), %why, "the vector store is unreachable; comparing vectors in the program until it is back");
        }
        known.problem = Some(why);
    }
}

fn with_cause(error: &StoreError) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Keeps the store equal to the index until shutdown.
pub(super) async fn run(finder: Arc<Finder>, vector_store: Arc<VectorStoreSync>) {
    let mut pause = FIRST_BACKOFF;
    loop {
        let Err(error) = finder.sync_vectors(&vector_store, &mut pause).await;
        vector_store.mark_unreachable(&error);
        tracing::debug!(why = with_cause(&error), ?pause, "retrying the vector store");
        sleep(pause).await;
        pause = (pause * 2).min(MAX_BACKOFF);
    }
}

impl Finder {
    /// Signals that the index changed.
    pub(super) fn mark_vector_store_stale(&self) {
        if let Some(vector_store) = &self.vector_store {
            vector_store.stale.notify_one();
        }
    }

    /// Compares all entries of the store, and follows the index until something fails.
    async fn sync_vectors(
        &self,
        vector_store: &VectorStoreSync,
        pause: &mut Duration,
    ) -> Result<Infallible, StoreError> {
        let store = &vector_store.store;
        store.prepare().await?;
        let kept: HashMap<PointId, Payload> = store.list().await?.into_iter().collect();
        tracing::debug!(points = kept.len(), "checked the vector store");
        vector_store.known().kept = kept;
        loop {
            let is_known = self.sync_all_vectors(vector_store).await?;
            if is_known && !vector_store.is_reachable() {
                store.publish().await?;
                let mut known = vector_store.known();
                known.problem = None;
                tracing::info!(
                    address = store.address(),
                    points = known.kept.len(),
                    "comparing vectors in the vector store"
                );
                *pause = FIRST_BACKOFF;
            }
            tokio::select! {
                () = vector_store.stale.notified() => {}
                () = vector_store.failed.notified() => return Err(strange("a search failed")),
                () = sleep(RECOUNT_INTERVAL) => {
                    let count = store.count().await?;
                    if count != vector_store.known().kept.len() {
                        return Err(strange("another program changed the vector store"));
                    }
                }
            }
        }
    }

    /// Corrects all entries. Returns false if the index is not complete yet.
    async fn sync_all_vectors(&self, vector_store: &VectorStoreSync) -> Result<bool, StoreError> {
        loop {
            let kept = vector_store.known().kept.clone();
            let Some(plan) = self.plan(kept).await? else { return Ok(false) };
            let Plan { put, relabel, delete } = plan;
            if put.is_empty() && relabel.is_empty() && delete.is_empty() {
                return Ok(true);
            }
            tracing::debug!(
                put = put.len(),
                relabelled = relabel.len(),
                deleted = delete.len(),
                "synchronized the vector store"
            );
            if !delete.is_empty() {
                vector_store.store.delete(delete.clone()).await?;
                vector_store.known().kept.retain(|point, _| !delete.contains(point));
            }
            if !relabel.is_empty() {
                vector_store.store.relabel(relabel.clone()).await?;
                vector_store.known().kept.extend(relabel);
            }
            if !put.is_empty() {
                let there: Vec<_> = put.iter().map(|point| (point.id, point.payload.clone())).collect();
                vector_store.store.put(put).await?;
                vector_store.known().kept.extend(there);
            }
        }
    }

    async fn plan(&self, kept: HashMap<PointId, Payload>) -> Result<Option<Plan>, StoreError> {
        let tool_index = Arc::clone(&self.tool_index);
        let planning = tokio::task::spawn_blocking(move || {
            tool_index.write().unwrap_or_else(PoisonError::into_inner).plan(&kept, BATCH_SIZE)
        });
        planning.await.map_err(|_| strange("failed to compute the changes of the vector store"))
    }

    /// The best tools by vectors that the store compares. `None` if the store is unreachable or fails.
    pub(super) async fn query_vector_store(
        &self,
        query: &Arc<Query>,
        query_scope: &QueryScope,
    ) -> Option<Vec<IndexedHit>> {
        let vector_store = self
            .vector_store
            .as_ref()
            .filter(|vector_store| vector_store.is_reachable() && !query.vectors().is_empty())?;
        let asking = self.ask(vector_store, query, query_scope);
        let answered = timeout(QUERY_TIMEOUT, asking).await.unwrap_or_else(|_| Err(strange("timed out")));
        answered
            .inspect_err(|error| {
                vector_store.mark_unreachable(error);
                vector_store.failed.notify_one();
            })
            .ok()
    }

    async fn ask(
        &self,
        vector_store: &VectorStoreSync,
        query: &Arc<Query>,
        query_scope: &QueryScope,
    ) -> Result<Vec<IndexedHit>, StoreError> {
        let (by_words, rest) = self.of_library(query, query_scope, best_by_words).await?;
        let everything = vector_store.known().kept.len() + 1;
        let mut count = NEAREST.max(query_scope.limits.count).min(everything);
        loop {
            let (vectors, within) = (query.vectors().to_vec(), query_scope.narrowed(None));
            let nearest = vector_store.store.nearest(vectors.clone(), within, count).await?;
            let mut answers = NearestAnswers::of_nearest(&nearest, count);
            let missing = answers.missing(by_words.iter().copied());
            if !missing.is_empty() {
                let (many, within) = (missing.len(), query_scope.narrowed(Some(missing)));
                answers.add(&vector_store.store.nearest(vectors, within, many).await?);
            }
            let near: Vec<(PointId, f32)> = answers.near().collect();
            let hits = self
                .of_library(query, query_scope, move |tool_index, query, query_scope| {
                    tool_index.search_with_scores(
                        query,
                        query_scope.limits,
                        &|entry| query_scope.admits(entry),
                        near.into_iter(),
                    )
                })
                .await?;
            let scores: Vec<f32> = hits.iter().map(|(hit, _)| hit.score).collect();
            if count >= everything || answers.are_sufficient(&scores, query_scope.limits, rest) {
                return Ok(hits);
            }
            count = everything;
        }
    }

    /// Reads the index outside the threads that serve calls.
    async fn of_library<T: Send + 'static>(
        &self,
        query: &Arc<Query>,
        query_scope: &QueryScope,
        ask: impl FnOnce(&ToolIndex, &Query, &QueryScope) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let (tool_index, query, query_scope) = (Arc::clone(&self.tool_index), Arc::clone(query), query_scope.clone());
        let asking = tokio::task::spawn_blocking(move || ask(&locked(&tool_index), &query, &query_scope));
        asking.await.map_err(|_| strange("the search panicked"))
    }
}

fn best_by_words(tool_index: &ToolIndex, query: &Query, query_scope: &QueryScope) -> (Vec<PointId>, f32) {
    tool_index.best_by_words(query, NEAREST, &|entry| query_scope.admits(entry))
}

fn strange(what: &str) -> StoreError {
    StoreError { what: what.to_owned(), source: None }
}

impl Finder {
    /// Where vectors are compared now.
    pub fn vectors(&self) -> VectorsState {
        let can_compare = self.embedder.is_some() && self.embedder_health.last_error().is_none();
        let here = match can_compare {
            true => "embedded",
            false if search::HAS_TABLE => "table",
            false => "none",
        };
        let Some(vector_store) = &self.vector_store else {
            return VectorsState { in_use: here, address: None, points: None, problem: None };
        };
        let known = vector_store.known();
        VectorsState {
            in_use: if known.problem.is_none() && can_compare { vector_store.store.name() } else { here },
            address: Some(vector_store.store.address().to_owned()),
            points: known.problem.is_none().then_some(known.kept.len()),
            problem: known.problem.clone(),
        }
    }
}
