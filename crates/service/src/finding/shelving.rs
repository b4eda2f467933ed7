//! Vectors elsewhere: kept as the library is, used while somebody is there, done without while nobody is.
//!
//! The library stays whole: it has every vector, too, so a search never waits for somebody who is not there. What is kept
//! elsewhere is looked at as a whole when somebody is there again; what has another text, other skills or no tool any more
//! is put right, and only then is it asked.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use search::{Answers, Payload, PointId, Query, StoreError, VectorStore};
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::library::{FoundBook, Library, Plan};
use super::looking::Sought;
use super::{Finder, locked};
use crate::Service;

/// So much is put there at once.
const AT_ONCE: usize = 200;
/// So long it is waited before somebody who is not there is tried again, at first and at most.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// So often it is counted whether everything is still there.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// What a search waits for an answer; then the library answers.
const PATIENCE: Duration = Duration::from_secs(2);
/// So many of the nearest, and of those that fit best by words, are asked for at first. That is enough but for the
/// strangest requests; then it is everything.
const NEAREST: usize = 256;

/// Where vectors are compared, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VectorsState {
    /// Where: `embedded` is in this program, `none` means that tools are found by words alone.
    pub in_use: &'static str,
    /// Where else they are meant to be compared, if anywhere.
    pub address: Option<String>,
    /// How many are there.
    pub points: Option<usize>,
    /// Why they are not compared there, if they are not.
    pub trouble: Option<String>,
}

/// What keeps vectors elsewhere, and what we know of it.
pub(super) struct Shelf {
    store: Arc<dyn VectorStore>,
    known: Mutex<Known>,
    /// The library is another.
    stale: Notify,
    /// Somebody asked in vain.
    failed: Notify,
}

struct Known {
    kept: HashMap<PointId, Payload>,
    /// Why it cannot be asked, if it cannot.
    trouble: Option<String>,
}

impl Shelf {
    pub(super) fn new(store: Arc<dyn VectorStore>) -> Self {
        let trouble = Some("it was not looked at yet".to_owned());
        let known = Mutex::new(Known { kept: HashMap::new(), trouble });
        Self { store, known, stale: Notify::new(), failed: Notify::new() }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it is called.
    pub(super) fn name(&self) -> &'static str {
        self.store.name()
    }

    fn is_there(&self) -> bool {
        self.known().trouble.is_none()
    }

    /// It cannot be asked until it was looked at as a whole.
    fn is_gone(&self, why: &StoreError) {
        let why = with_cause(why);
        let mut known = self.known();
        if known.trouble.is_none() {
            tracing::warn!(address = self.store.address(), %why, "vectors are compared here until they can be compared there again");
        }
        known.trouble = Some(why);
    }
}

fn with_cause(error: &StoreError) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Keeps what is elsewhere as the library is, until everything ends.
pub(super) async fn keep(finder: Arc<Finder>, shelf: Arc<Shelf>) {
    let keeping = async {
        let mut pause = PAUSE;
        loop {
            let Err(error) = finder.shelve(&shelf, &mut pause).await;
            shelf.is_gone(&error);
            tracing::debug!(why = with_cause(&error), ?pause, "vectors elsewhere are tried again");
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    };
    tokio::select! {
        () = keeping => {}
        () = finder.house.stop_asked() => {}
    }
}

impl Finder {
    /// The library is another: what is elsewhere has to become so, too.
    pub(super) fn shelf_is_stale(&self) {
        if let Some(shelf) = &self.shelf {
            shelf.stale.notify_one();
        }
    }

    /// Looks at what is there as a whole, and follows the library until something fails.
    async fn shelve(&self, shelf: &Shelf, pause: &mut Duration) -> Result<Infallible, StoreError> {
        let store = &shelf.store;
        store.prepare().await?;
        let kept: HashMap<PointId, Payload> = store.list().await?.into_iter().collect();
        tracing::debug!(points = kept.len(), "looked at what is elsewhere");
        shelf.known().kept = kept;
        loop {
            let is_known = self.shelve_all(shelf).await?;
            if is_known && !shelf.is_there() {
                store.publish().await?;
                let mut known = shelf.known();
                known.trouble = None;
                tracing::info!(address = store.address(), points = known.kept.len(), "vectors are compared there");
                *pause = PAUSE;
            }
            tokio::select! {
                () = shelf.stale.notified() => {}
                () = shelf.failed.notified() => return Err(strange("a search failed")),
                () = sleep(LOOK_AGAIN) => {
                    let count = store.count().await?;
                    if count != shelf.known().kept.len() {
                        return Err(strange("somebody else changed what is there"));
                    }
                }
            }
        }
    }

    /// Puts everything right; whether it is known what there should be.
    async fn shelve_all(&self, shelf: &Shelf) -> Result<bool, StoreError> {
        loop {
            let kept = shelf.known().kept.clone();
            let Some(plan) = self.plan(kept).await? else { return Ok(false) };
            let Plan { put, relabel, delete } = plan;
            if put.is_empty() && relabel.is_empty() && delete.is_empty() {
                return Ok(true);
            }
            tracing::debug!(put = put.len(), relabelled = relabel.len(), deleted = delete.len(), "vectors elsewhere");
            if !delete.is_empty() {
                shelf.store.delete(delete.clone()).await?;
                shelf.known().kept.retain(|point, _| !delete.contains(point));
            }
            if !relabel.is_empty() {
                shelf.store.relabel(relabel.clone()).await?;
                shelf.known().kept.extend(relabel);
            }
            if !put.is_empty() {
                let there: Vec<_> = put.iter().map(|point| (point.id, point.payload.clone())).collect();
                shelf.store.put(put).await?;
                shelf.known().kept.extend(there);
            }
        }
    }

    async fn plan(&self, kept: HashMap<PointId, Payload>) -> Result<Option<Plan>, StoreError> {
        let library = Arc::clone(&self.library);
        let planning = tokio::task::spawn_blocking(move || {
            library.write().unwrap_or_else(PoisonError::into_inner).plan(&kept, AT_ONCE)
        });
        planning.await.map_err(|_| strange("what is to be done could not be told"))
    }

    /// What fits best, by vectors that are compared elsewhere. None if nobody is there, or somebody is and fails.
    pub(super) async fn look_elsewhere(&self, query: &Arc<Query>, sought: &Sought) -> Option<Vec<FoundBook>> {
        let shelf = self.shelf.as_ref().filter(|shelf| shelf.is_there() && !query.vectors().is_empty())?;
        let asking = self.ask(shelf, query, sought);
        let answered = timeout(PATIENCE, asking).await.unwrap_or_else(|_| Err(strange("it took too long to answer")));
        answered
            .inspect_err(|error| {
                shelf.is_gone(error);
                shelf.failed.notify_one();
            })
            .ok()
    }

    async fn ask(&self, shelf: &Shelf, query: &Arc<Query>, sought: &Sought) -> Result<Vec<FoundBook>, StoreError> {
        let (by_words, rest) = self.of_library(query, sought, best_by_words).await?;
        let everything = shelf.known().kept.len() + 1;
        let mut count = NEAREST.max(sought.limits.count).min(everything);
        loop {
            let (vectors, within) = (query.vectors().to_vec(), sought.narrowed(None));
            let nearest = shelf.store.nearest(vectors.clone(), within, count).await?;
            let mut answers = Answers::of_nearest(&nearest, count);
            let missing = answers.missing(by_words.iter().copied());
            if !missing.is_empty() {
                let (many, within) = (missing.len(), sought.narrowed(Some(missing)));
                answers.add(&shelf.store.nearest(vectors, within, many).await?);
            }
            let near: Vec<(PointId, f32)> = answers.near().collect();
            let hits = self
                .of_library(query, sought, move |library, query, sought| {
                    library.search_told(query, sought.limits, &|book| sought.admits(book), near.into_iter())
                })
                .await?;
            let scores: Vec<f32> = hits.iter().map(|(hit, _)| hit.score).collect();
            if count >= everything || answers.suffice(&scores, sought.limits, rest) {
                return Ok(hits);
            }
            count = everything;
        }
    }

    /// Asks the library away from the thread that moves calls.
    async fn of_library<T: Send + 'static>(
        &self,
        query: &Arc<Query>,
        sought: &Sought,
        ask: impl FnOnce(&Library, &Query, &Sought) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let (library, query, sought) = (Arc::clone(&self.library), Arc::clone(query), sought.clone());
        let asking = tokio::task::spawn_blocking(move || ask(&locked(&library), &query, &sought));
        asking.await.map_err(|_| strange("the search broke"))
    }
}

fn best_by_words(library: &Library, query: &Query, sought: &Sought) -> (Vec<PointId>, f32) {
    library.best_by_words(query, NEAREST, &|book| sought.admits(book))
}

fn strange(what: &str) -> StoreError {
    StoreError { what: what.to_owned(), source: None }
}

impl Service {
    /// Where vectors are compared now.
    pub fn vectors(&self) -> VectorsState {
        let can_compare = self.finder.embedder.is_some() && self.finder.wellness.trouble().is_none();
        let here = if can_compare { "embedded" } else { "none" };
        let Some(shelf) = &self.finder.shelf else {
            return VectorsState { in_use: here, address: None, points: None, trouble: None };
        };
        let known = shelf.known();
        VectorsState {
            in_use: if known.trouble.is_none() && can_compare { shelf.store.name() } else { here },
            address: Some(shelf.store.address().to_owned()),
            points: known.trouble.is_none().then_some(known.kept.len()),
            trouble: known.trouble.clone(),
        }
    }
}
