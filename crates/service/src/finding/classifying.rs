//! What tools are for: told after they have their vectors, in batches, behind everybody's back.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use registry::{Classified, ServerId};
use search::{Classifier, EmbedError, Embedder, LEAST_PRIMARY};
use tokio::time::sleep;

use super::Finder;
use super::library::{Library, Unclassified};
use super::skills::SkillSet;
use crate::Error;

/// How many tools are classified, and written down, at once.
pub(super) const AT_ONCE: usize = 128;
/// So many tools of a server must be best at the same, and half of all it has, to count for its others.
const LEAST_LIKE: usize = 3;
/// What a tool has at most beside what its server is good for.
const MOST_BESIDE: usize = 2;
/// How long to wait before the database, or the model, is tried again.
const PAUSE: Duration = Duration::from_secs(2);

/// Tells skills. Made when it is first needed, for that takes the model a moment; and anew when the skills are others.
#[derive(Default)]
pub(super) struct Teller(RwLock<Option<Made>>);

struct Made {
    /// Of which skills, and which model.
    mark: String,
    classifier: Classifier,
}

impl Teller {
    /// Does something with what tells these skills. Not for a thread that moves calls.
    pub(super) fn with<T>(
        &self,
        skills: &SkillSet,
        embedder: &dyn Embedder,
        library: &RwLock<Library>,
        deed: impl FnOnce(&Classifier) -> T,
    ) -> Result<T, EmbedError> {
        let mark = skills.mark(embedder.id());
        if let Some(made) = &*self.0.read().unwrap_or_else(PoisonError::into_inner)
            && made.mark == mark
        {
            return Ok(deed(&made.classifier));
        }
        // Nobody waits for the lock meanwhile; that somebody else does the same at the same time is rare.
        let mut classifier = Classifier::new(&skills.enabled(), embedder)?;
        recompute(&mut classifier, library);
        let done = deed(&classifier);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Made { mark, classifier });
        Ok(done)
    }

    /// The skills' vectors are made anew when they are needed.
    pub(super) fn forget(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Moves the skills towards the tools that have them now.
    fn settle(&self, library: &RwLock<Library>) {
        if let Some(made) = &mut *self.0.write().unwrap_or_else(PoisonError::into_inner) {
            recompute(&mut made.classifier, library);
        }
    }
}

fn recompute(classifier: &mut Classifier, library: &RwLock<Library>) {
    let members = library.read().unwrap_or_else(PoisonError::into_inner).members();
    classifier.recompute(members.iter().map(|(skill, vector)| (skill.as_str(), vector.as_slice())));
}

impl Finder {
    /// Classifies some tools that have vectors, if there are at least so many; whether there were.
    pub(super) async fn classify_some(&self, least: usize) -> bool {
        let Some(embedder) = self.embedder.clone() else { return false };
        let skills = self.skills();
        let mark = skills.mark_by_vectors(embedder.id());
        let pending = self.library.read().unwrap_or_else(PoisonError::into_inner).unclassified(&mark, AT_ONCE);
        if pending.is_empty() || pending.len() < least {
            return false;
        }
        if let Err(error) = self.classify(embedder, skills, mark, pending).await {
            tracing::warn!(%error, "tools could not be classified; it is tried again");
            sleep(PAUSE).await;
        }
        true
    }

    async fn classify(
        &self,
        embedder: Arc<dyn Embedder>,
        skills: Arc<SkillSet>,
        mark: String,
        pending: Vec<Unclassified>,
    ) -> Result<(), Error> {
        let (teller, library) = (Arc::clone(&self.teller), Arc::clone(&self.library));
        let telling = tokio::task::spawn_blocking(move || {
            teller.with(&skills, &*embedder, &library, |classifier| -> Vec<Classified> {
                let mut leanings = Leanings::default();
                let told = pending.into_iter().map(|tool| {
                    let leaning = leanings.of(tool.server, classifier, &library);
                    classified(classifier, tool, leaning, &mark)
                });
                told.collect()
            })
        });
        let broke = |what: String| Error::Internal { what };
        let told = telling.await.map_err(|_| broke("the classifier broke".to_owned()))?;
        let told = told.map_err(|error| broke(error.to_string()))?;
        self.house.store.put_classified(told.clone()).await?;
        let count = told.len();
        self.change(move |library| told.into_iter().for_each(|told| library.set_skills(told))).await?;
        self.counts.classified.fetch_add(count as u64, Ordering::Relaxed);
        tracing::debug!(tools = count, "classified");
        Ok(())
    }

    /// Moves the skills towards their tools. Cheap: vectors are added up, and nothing is embedded.
    pub(super) async fn settle(&self) {
        let (teller, library) = (Arc::clone(&self.teller), Arc::clone(&self.library));
        let settling = tokio::task::spawn_blocking(move || teller.settle(&library));
        if let Err(error) = settling.await {
            tracing::error!(%error, "the skills could not be moved towards their tools");
        }
    }
}

/// What most tools of a server are best at, where most are best at the same.
#[derive(Default)]
struct Leanings(HashMap<ServerId, Option<String>>);

impl Leanings {
    fn of(&mut self, server: ServerId, classifier: &Classifier, library: &RwLock<Library>) -> Option<&str> {
        let leaning = self.0.entry(server).or_insert_with(|| {
            let vectors = library.read().unwrap_or_else(PoisonError::into_inner).vectors_of(server);
            let best = vectors.iter().filter_map(|vector| classifier.classify(vector).primary().map(str::to_owned));
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            best.for_each(|skill| *counts.entry(skill).or_default() += 1);
            let most = counts.into_iter().max_by_key(|(_, count)| *count);
            most.filter(|(_, count)| *count >= LEAST_LIKE && count * 2 >= vectors.len()).map(|(skill, _)| skill)
        });
        leaning.as_deref()
    }
}

/// What a tool is good for. One that is best at nothing is good for what its server is good for; if that is nothing in
/// particular, it has no skills: what is uncertain helps nobody to choose.
fn classified(classifier: &Classifier, tool: Unclassified, leaning: Option<&str>, mark: &str) -> Classified {
    let mut found = classifier.classify(&tool.vector);
    if let (None, Some(leaning)) = (found.primary(), leaning) {
        found.skills.retain(|(id, _)| id != leaning);
        found.skills.truncate(MOST_BESIDE);
        found.skills.insert(0, (leaning.to_owned(), LEAST_PRIMARY));
    }
    let primary = found.primary().map(str::to_owned);
    let skills = if primary.is_some() { found.skills } else { Vec::new() };
    let (skills, confidences) = skills.into_iter().map(|(id, confidence)| (id, super::rounded(confidence))).unzip();
    Classified { tool: tool.tool, text_hash: tool.text_hash, skills, confidences, primary, by: mark.to_owned() }
}
