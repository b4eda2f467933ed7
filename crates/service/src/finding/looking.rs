//! A search, from what is wanted to what fits best: here, or where vectors are kept.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use registry::ServerId;
use search::{Hit, Limits, Narrowed, PointId, Query};

use super::library::{Book, FoundBook};
use super::{Finder, Shop, Strategy, Wanted, locked};
use crate::Error;

/// A request is about so many skills at most.
const MOST_MATCHED: usize = 3;
/// Where vectors are compared if not elsewhere.
const HERE: &str = "embedded";

/// What a search of the library gave.
pub(super) struct Looked {
    pub(super) hits: Vec<FoundBook>,
    /// The skills that led to them, if any did.
    pub(super) skills: Vec<Hit<String>>,
    pub(super) searched: usize,
    pub(super) lacking: usize,
    /// Where vectors were compared, if they were.
    pub(super) compared: Option<&'static str>,
    pub(super) embedding: Duration,
    pub(super) comparing: Duration,
}

/// What is looked for, among what.
#[derive(Clone)]
pub(super) struct Sought {
    pub(super) limits: Limits,
    /// Only tools of these servers.
    pub(super) servers: Arc<HashSet<ServerId>>,
    /// Only tools with one of these skills, if any are named.
    pub(super) skills: Vec<String>,
    /// Only tools with one of these skills, and those whose skills are not known.
    pub(super) led_by: Option<Vec<String>>,
}

impl Sought {
    pub(super) fn admits(&self, book: &Book) -> bool {
        self.servers.contains(&book.server)
            && book.is_for(&self.skills)
            && self.led_by.as_ref().is_none_or(|skills| book.is_led_to_by(skills))
    }

    /// The same for who keeps the vectors.
    pub(super) fn narrowed(&self, among: Option<Vec<PointId>>) -> Narrowed {
        let mut servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        servers.sort();
        Narrowed { servers, skills: self.skills.clone(), led_by: self.led_by.clone(), among }
    }
}

/// What fits best, and where vectors were compared.
type Best = (Vec<FoundBook>, &'static str);

impl Finder {
    /// Looks among the tools of these servers.
    pub(super) async fn look(&self, wanted: &Wanted, shops: &HashMap<ServerId, Shop>) -> Result<Looked, Error> {
        let begun = Instant::now();
        let sought = Sought {
            limits: Limits { count: wanted.limit, least_score: wanted.threshold },
            servers: Arc::new(shops.keys().copied().collect()),
            skills: self.skill_ids(&wanted.skills)?,
            led_by: None,
        };
        let (query, skills) = self.understand(wanted).await?;
        let (query, embedding) = (Arc::new(query), begun.elapsed());
        let ((hits, compared), skills) = match self.led_by(&query, &sought, &skills).await? {
            Some(best) => (best, skills),
            None => (self.best(&query, &sought).await?, Vec::new()),
        };
        let (searched, lacking) = locked(&self.library).count(&|book: &Book| sought.admits(book));
        let compared = hits.iter().any(|(hit, _)| hit.vector.is_some()).then_some(compared);
        Ok(Looked { hits, skills, searched, lacking, compared, embedding, comparing: begun.elapsed() - embedding })
    }

    /// Reads a request, and which skills it is about, if that is to be known.
    async fn understand(&self, wanted: &Wanted) -> Result<(Query, Vec<Hit<String>>), Error> {
        let (text, library, embedder) = (wanted.query.clone(), Arc::clone(&self.library), self.embedder.clone());
        let limits = Limits { count: MOST_MATCHED, least_score: wanted.skill_threshold };
        let (strategy, set, teller) = (wanted.strategy, self.skills(), Arc::clone(&self.teller));
        let wellness = Arc::clone(&self.wellness);
        let reading = tokio::task::spawn_blocking(move || {
            let mut query = Query::new(&text);
            match embedder.as_ref().map(|embedder| query.embed(&**embedder)) {
                Some(Ok(())) => wellness.worked(),
                Some(Err(error)) => {
                    let error_with_causes = super::with_causes(&error);
                    tracing::warn!(error = error_with_causes, "a request was looked for by words alone");
                    if !error.is_about_the_texts {
                        wellness.failed(error_with_causes);
                    }
                }
                None => {}
            }
            let Some(embedder) = embedder.filter(|_| strategy == Strategy::Hierarchical) else {
                return (query, Vec::new());
            };
            let skills = teller.with(&set, &*embedder, &library, |classifier| classifier.find(&query, limits));
            let skills = skills.unwrap_or_else(|error| {
                tracing::warn!(%error, "skills could not be told; searching directly");
                Vec::new()
            });
            (query, skills)
        });
        reading.await.map_err(|_| broke())
    }

    /// The best among the tools of some skills and those whose skills are not known. None if there are none.
    async fn led_by(&self, query: &Arc<Query>, sought: &Sought, skills: &[Hit<String>]) -> Result<Option<Best>, Error> {
        if skills.is_empty() {
            return Ok(None);
        }
        let led_by = Some(skills.iter().map(|skill| skill.key.clone()).collect());
        let best = self.best(query, &Sought { led_by, ..sought.clone() }).await?;
        Ok(Some(best).filter(|(hits, _)| !hits.is_empty()))
    }

    async fn best(&self, query: &Arc<Query>, sought: &Sought) -> Result<Best, Error> {
        if let Some(shelf) = &self.shelf
            && let Some(hits) = self.look_elsewhere(query, sought).await
        {
            return Ok((hits, shelf.name()));
        }
        let (library, query, sought) = (Arc::clone(&self.library), Arc::clone(query), sought.clone());
        let looking = tokio::task::spawn_blocking(move || {
            locked(&library).search(&query, sought.limits, &|book: &Book| sought.admits(book))
        });
        Ok((looking.await.map_err(|_| broke())?, HERE))
    }
}

fn broke() -> Error {
    Error::Internal { what: "the search broke".to_owned() }
}
