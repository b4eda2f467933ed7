//! Classifies tools into skills by their vectors, in batches, in the background.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use registry::{Classified, ServerId};
use search::{Classifier, EmbedError, Embedder};
use tokio::time::sleep;

use super::Finder;
use super::skills::SkillSet;
use super::tool_index::{ToolIndex, Unclassified};
use crate::Error;

/// The number of tools that are classified and stored in one batch.
pub(super) const BATCH_SIZE: usize = 128;
/// How long to wait before retrying if the database or the model fails.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// The classifier for the current skills. Created on first use, because the model needs a moment for it, and again when
/// the skills change.
#[derive(Default)]
pub(super) struct EmbeddingClassifier(RwLock<Option<BuiltClassifier>>);

struct BuiltClassifier {
    /// The key of the skills and the model.
    mark: String,
    classifier: Classifier,
}

impl EmbeddingClassifier {
    /// Runs `work` with the classifier for these skills, outside the threads that serve calls.
    pub(super) fn with<T>(
        &self,
        skills: &SkillSet,
        embedder: &dyn Embedder,
        tool_index: &RwLock<ToolIndex>,
        action: impl FnOnce(&Classifier) -> T,
    ) -> Result<T, EmbedError> {
        let mark = skills.mark(embedder.id());
        if let Some(made) = &*self.0.read().unwrap_or_else(PoisonError::into_inner)
            && made.mark == mark
        {
            return Ok(action(&made.classifier));
        }
        // The lock is not held while the classifier is created. That two tasks create it at the same time is rare.
        let mut classifier = Classifier::new(&skills.enabled(), embedder)?;
        recompute(&mut classifier, tool_index);
        let done = action(&classifier);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(BuiltClassifier { mark, classifier });
        Ok(done)
    }

    /// Discards the classifier; the skills' vectors are computed again on next use.
    pub(super) fn forget(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Moves the vectors of skills towards the tools that have them now.
    fn settle(&self, tool_index: &RwLock<ToolIndex>) {
        if let Some(made) = &mut *self.0.write().unwrap_or_else(PoisonError::into_inner) {
            recompute(&mut made.classifier, tool_index);
        }
    }
}

fn recompute(classifier: &mut Classifier, tool_index: &RwLock<ToolIndex>) {
    let members = tool_index.read().unwrap_or_else(PoisonError::into_inner).members();
    classifier.recompute(members.iter().map(|(skill, vector)| (skill.as_str(), vector.as_slice())));
}

impl Finder {
    /// Classifies some tools that have vectors, if there are at least `least` of them. Returns whether there were.
    pub(super) async fn classify_some(&self, least: usize) -> bool {
        let Some(embedder) = self.embedder.clone() else { return false };
        let skills = self.skills();
        let mark = skills.mark_by_vectors(embedder.id());
        let pending = match self.unclassified(mark.clone()).await {
            Ok(pending) => pending,
            Err(error) => {
                tracing::error!(%error, "failed to find the tools that are to be classified");
                return false;
            }
        };
        if pending.is_empty() || pending.len() < least {
            return false;
        }
        if let Err(error) = self.classify(embedder, skills, mark, pending).await {
            tracing::warn!(%error, "failed to classify tools; will retry");
            sleep(RETRY_DELAY).await;
        }
        true
    }

    async fn unclassified(&self, mark: String) -> Result<Vec<Unclassified>, Error> {
        let tool_index = Arc::clone(&self.tool_index);
        let asking = tokio::task::spawn_blocking(move || {
            tool_index.write().unwrap_or_else(PoisonError::into_inner).unclassified(&mark, BATCH_SIZE)
        });
        asking.await.map_err(|_| Error::Internal { what: "the task of the tool index panicked".to_owned() })
    }

    async fn classify(
        &self,
        embedder: Arc<dyn Embedder>,
        skills: Arc<SkillSet>,
        mark: String,
        pending: Vec<Unclassified>,
    ) -> Result<(), Error> {
        let (embedding_classifier, tool_index) = (Arc::clone(&self.embedding_classifier), Arc::clone(&self.tool_index));
        let telling = tokio::task::spawn_blocking(move || {
            embedding_classifier.with(&skills, &*embedder, &tool_index, |classifier| -> Vec<Classified> {
                let mut leanings = ServerTendencies::default();
                let classified_tools = pending.into_iter().map(|tool| {
                    let tendency = leanings.of(tool.server, classifier, &tool_index);
                    classified(classifier, tool, tendency, &mark)
                });
                classified_tools.collect()
            })
        });
        let broke = |what: String| Error::Internal { what };
        let classified_tools = telling.await.map_err(|_| broke("the classifier panicked".to_owned()))?;
        let classified_tools = classified_tools.map_err(|error| broke(error.to_string()))?;
        self.store.put_classified(classified_tools.clone()).await?;
        let count = classified_tools.len();
        self.change(move |tool_index| classified_tools.into_iter().for_each(|tool| tool_index.set_skills(tool)))
            .await?;
        self.counts.classified.fetch_add(count as u64, Ordering::Relaxed);
        tracing::debug!(tools = count, "classified tools by their embeddings");
        Ok(())
    }

    /// Moves the vectors of skills towards their tools. This is cheap: it adds vectors and embeds nothing.
    pub(super) async fn settle(&self) {
        let (embedding_classifier, tool_index) = (Arc::clone(&self.embedding_classifier), Arc::clone(&self.tool_index));
        let settling = tokio::task::spawn_blocking(move || embedding_classifier.settle(&tool_index));
        if let Err(error) = settling.await {
            tracing::error!(%error, "failed to adapt the skills to their tools");
        }
    }
}

/// The skill that most tools of a server have as their best one, if there is one.
#[derive(Default)]
struct ServerTendencies(HashMap<ServerId, Option<String>>);

impl ServerTendencies {
    fn of(&mut self, server: ServerId, classifier: &Classifier, tool_index: &RwLock<ToolIndex>) -> Option<&str> {
        let tendency = self.0.entry(server).or_insert_with(|| {
            let vectors = tool_index.read().unwrap_or_else(PoisonError::into_inner).vectors_of(server);
            classifier.tendency(&vectors)
        });
        tendency.as_deref()
    }
}

fn classified(classifier: &Classifier, tool: Unclassified, tendency: Option<&str>, mark: &str) -> Classified {
    let found = classifier.shown(&tool.vector, tendency);
    let primary = found.primary().map(str::to_owned);
    let skills = found.skills.into_iter();
    let (skills, confidences) = skills.map(|(id, confidence)| (id, super::rounded(confidence))).unzip();
    Classified { tool: tool.tool, text_hash: tool.text_hash, skills, confidences, primary, by: mark.to_owned() }
}
