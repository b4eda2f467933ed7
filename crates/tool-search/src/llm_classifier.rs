//! Classifies tools with a language model, in batches, in the background: those whose vectors give no clear result, or
//! all of them. It never asks twice about the same text.
//!
//! Until the model answers, a tool has the skills that its vector suggests. If the model is unreachable, the request is
//! retried later. If an answer is invalid, the model is asked once more; then the result of the vector stays.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use models::{Budget, Model, ModelError, ModelErrorKind, Question};
use registry::{Classified, LlmClassification, ToolId};
use search::MIN_PRIMARY;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::Finder;
use super::llm_prompt::{self, LlmAnswer, ToolText};
use super::skills::SkillSet;
use super::tool_index::{IndexedTool, LlmCandidate};
use crate::Error;

/// The number of tools in one request; fewer after an invalid answer.
const BATCH_SIZE: usize = 30;
const RETRY_BATCH_SIZE: usize = 5;
/// The number of concurrent requests.
const MAX_PARALLEL_REQUESTS: usize = 3;
/// After this many requests without a valid answer about a tool, it is not asked about again.
const MAX_TRIES: u32 = 2;
/// The longest pause before an unreachable model is asked again.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(600);
/// The longest pause that a model can demand.
const MAX_PROVIDER_PAUSE: Duration = Duration::from_secs(3600);
/// The period of a budget.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Separates the classifiers in the mark of a tool: the vectors first, then the model.
pub(super) const MARK_SEPARATOR: &str = " + ";

/// Which tools a language model classifies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClassifierScope {
    /// Those that vectors do not classify with certainty.
    #[default]
    Unsure,
    /// All.
    Always,
}

/// A language model that classifies tools.
pub struct ClassifierSetup {
    /// The model.
    pub model: Model,
    /// The budget per day: that of the model.
    pub budget: Arc<Budget>,
    /// Which tools it classifies.
    pub about: ClassifierScope,
    /// The first pause before an unreachable model is asked again; each further pause is longer.
    pub pause: Duration,
}

/// The model, and a signal that there may be work.
pub(super) struct LlmClassifier {
    setup: ClassifierSetup,
    wanted: Notify,
}

/// What the classifier remembers between requests.
#[derive(Default)]
struct Memory {
    /// The key of the classifications that were loaded.
    classifier_id: String,
    known: HashMap<(String, String), Vec<(String, f64)>>,
    /// How many requests about each tool had no valid answer.
    tries: HashMap<ToolId, u32>,
    failures: u32,
    budget_began: Option<Instant>,
}

/// One run: a model with a set of skills.
struct LlmRun {
    skills: Arc<SkillSet>,
    /// The mark of tools classified by vectors.
    first: String,
    /// The mark of tools classified by the model.
    last: String,
    /// The key under which the registry stores its classifications.
    classifier_id: String,
}

impl FromStr for ClassifierScope {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "unsure" => Ok(Self::Unsure),
            "always" => Ok(Self::Always),
            _ => Err("expected `unsure` or `always`".to_owned()),
        }
    }
}

impl LlmClassifier {
    pub(super) fn new(setup: ClassifierSetup) -> Self {
        Self { setup, wanted: Notify::new() }
    }

    /// Signals that there may be work.
    pub(super) fn wake(&self) {
        self.wanted.notify_one();
    }

    /// Whether the model still has to classify a tool with this mark.
    pub(super) fn is_pending(&self, told_by: Option<&str>, is_classified: bool) -> bool {
        let is_asked = told_by.is_some_and(|by| by.ends_with(&self.suffix()));
        !is_asked && (self.setup.about == ClassifierScope::Always || !is_classified)
    }

    /// Whether the model still has to classify this tool, which vectors have classified.
    pub(super) fn is_pending_about(&self, entry: &IndexedTool) -> bool {
        entry.is_enabled && self.is_pending(entry.classified_by.as_deref(), entry.is_classified)
    }

    fn suffix(&self) -> String {
        format!("{MARK_SEPARATOR}{}", self.setup.model.provider().model)
    }
}

/// Classifies tools until shutdown.
pub(super) async fn run(finder: Arc<Finder>) {
    let Some(llm_classifier) = &finder.llm_classifier else { return };
    let mut memory = Memory::default();
    loop {
        llm_classifier.wanted.notified().await;
        while let Some(pause) = finder.classify_with_llm(llm_classifier, &mut memory).await {
            sleep(pause).await;
        }
    }
}

impl Finder {
    /// Classifies some tools. Returns how long to wait before the next request; `None` if no tools are left.
    async fn classify_with_llm(&self, llm_classifier: &LlmClassifier, memory: &mut Memory) -> Option<Duration> {
        let embedder = self.embedder.as_ref()?;
        let skills = self.skills();
        let first = skills.mark_by_vectors(embedder.id());
        let llm_run = LlmRun {
            last: format!("{first}{}", llm_classifier.suffix()),
            classifier_id: skills.mark(&llm_classifier.setup.model.provider().model),
            first,
            skills,
        };
        let pending = {
            let tool_index = self.tool_index.read().unwrap_or_else(PoisonError::into_inner);
            tool_index.llm_candidates(&llm_run.first, |by, is_classified| llm_classifier.is_pending(by, is_classified))
        };
        if pending.is_empty() {
            return None;
        }
        let judged = self.classify_batch_with_llm(llm_classifier, memory, &llm_run, pending).await;
        Some(judged.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to store classifications; will retry");
            llm_classifier.setup.pause
        }))
    }

    async fn classify_batch_with_llm(
        &self,
        llm_classifier: &LlmClassifier,
        memory: &mut Memory,
        llm_run: &LlmRun,
        pending: Vec<LlmCandidate>,
    ) -> Result<Duration, Error> {
        self.remember(memory, llm_run).await?;
        let (known, asked): (Vec<LlmCandidate>, Vec<LlmCandidate>) =
            pending.into_iter().partition(|tool| memory.known.contains_key(&tool.key()));
        if !known.is_empty() {
            let classified_tools = known.into_iter().map(|tool| {
                let skills = memory.known[&tool.key()].clone();
                classified(tool, skills, llm_run)
            });
            self.settle_on(classified_tools.collect()).await?;
            return Ok(Duration::ZERO);
        }
        memory.renew(&llm_classifier.setup);
        let batches = batches(asked, &memory.tries);
        let asking = batches.iter().map(|batch| ask(llm_classifier, llm_run, batch));
        let answers = join_all(asking.collect()).await;
        let mut away = None;
        for (batch, answer) in batches.into_iter().zip(answers) {
            match answer {
                Ok(llm_answer) => {
                    memory.failures = 0;
                    self.take(memory, llm_run, batch, llm_answer).await?;
                }
                Err(failure) if is_about_the_question(&failure) => {
                    tracing::warn!(%failure, tools = batch.len(), "the response of the classification model is not valid");
                    let nothing = LlmAnswer { skills: vec![None; batch.len()], suggestions: Vec::new() };
                    self.take(memory, llm_run, batch, nothing).await?;
                }
                Err(failure) => away = Some(failure),
            }
        }
        // Several concurrent requests that find the model unreachable count as one failure.
        Ok(away.map_or(Duration::ZERO, |failure| memory.pause(&llm_classifier.setup, &failure)))
    }

    /// Loads the stored classifications of this run.
    async fn remember(&self, memory: &mut Memory, llm_run: &LlmRun) -> Result<(), Error> {
        if memory.classifier_id == llm_run.classifier_id {
            return Ok(());
        }
        let said = self.store.llm_classifications(&llm_run.classifier_id).await?;
        memory.known = said.into_iter().map(|it| ((it.server, it.text_hash), it.skills)).collect();
        memory.tries.clear();
        memory.classifier_id.clone_from(&llm_run.classifier_id);
        Ok(())
    }

    /// Stores classifications of some tools.
    async fn take(
        &self,
        memory: &mut Memory,
        llm_run: &LlmRun,
        batch: Vec<LlmCandidate>,
        said: LlmAnswer,
    ) -> Result<(), Error> {
        self.suggest(&batch, said.suggestions).await?;
        let (mut llm_classifications, mut classified_tools) = (Vec::new(), Vec::new());
        for (tool, skills) in batch.into_iter().zip(said.skills) {
            if let Some(skills) = skills {
                let (server, text_hash) = tool.key();
                memory.known.insert(tool.key(), skills.clone());
                llm_classifications.push(LlmClassification {
                    server,
                    text_hash,
                    classifier: llm_run.classifier_id.clone(),
                    skills: skills.clone(),
                });
                classified_tools.push(classified(tool, skills, llm_run));
                continue;
            }
            let tries = memory.tries.entry(tool.tool).or_default();
            *tries += 1;
            if *tries >= MAX_TRIES {
                // The result of the vector stays.
                let skills = tool.skills.iter().cloned().zip(tool.confidences.iter().copied()).collect();
                classified_tools.push(classified(tool, skills, llm_run));
            }
        }
        self.store.put_llm_classifications(llm_classifications).await?;
        self.settle_on(classified_tools).await
    }

    /// Applies classifications to the index.
    async fn settle_on(&self, classified_tools: Vec<Classified>) -> Result<(), Error> {
        if classified_tools.is_empty() {
            return Ok(());
        }
        self.store.put_classified(classified_tools.clone()).await?;
        tracing::debug!(tools = classified_tools.len(), "the model classified tools");
        self.change(move |tool_index| classified_tools.into_iter().for_each(|tool| tool_index.set_skills(tool)))
            .await?;
        self.settle().await;
        Ok(())
    }
}

impl Memory {
    /// Starts a new budget each day.
    fn renew(&mut self, setup: &ClassifierSetup) {
        let began = *self.budget_began.get_or_insert_with(Instant::now);
        if began.elapsed() >= DAY {
            setup.budget.renew();
            self.budget_began = Some(Instant::now());
        }
    }

    /// How long to wait before an unreachable model is asked again.
    fn pause(&mut self, setup: &ClassifierSetup, failure: &ModelError) -> Duration {
        self.failures += 1;
        let unless_told = setup.pause.saturating_mul(2_u32.saturating_pow(self.failures - 1)).min(MAX_RETRY_DELAY);
        let pause = match &failure.kind {
            ModelErrorKind::BudgetSpent(_) => {
                self.budget_began.map_or(DAY, |began| DAY.saturating_sub(began.elapsed())).max(unless_told)
            }
            // A pause of a whole day is a mistake of a proxy.
            _ => failure.retry_after().map_or(unless_told, |asked| asked.min(MAX_PROVIDER_PAUSE)),
        };
        tracing::warn!(%failure, hint = failure.hint(), retry_in = ?pause, "the classification model is unreachable; tools are classified by embeddings");
        pause
    }
}

/// Whether the same request would fail in the same way.
fn is_about_the_question(failure: &ModelError) -> bool {
    matches!(failure.kind, ModelErrorKind::NoJson(_) | ModelErrorKind::Refused { status: 400 | 413 | 422, .. })
}

async fn ask(
    llm_classifier: &LlmClassifier,
    llm_run: &LlmRun,
    tools: &[LlmCandidate],
) -> Result<LlmAnswer, ModelError> {
    let skills = llm_run.skills.enabled();
    let tool_texts: Vec<ToolText<'_>> = tools
        .iter()
        .map(|tool| ToolText { name: &tool.name, description: tool.description.as_deref().unwrap_or_default() })
        .collect();
    let boundary = format!("=== {} ===", Uuid::new_v4().simple());
    let question = Question {
        system: &llm_prompt::task(&skills, &boundary),
        user: &llm_prompt::data(&tool_texts, &boundary),
        name: "tool_skills",
        schema: &llm_prompt::schema(&skills),
        max_tokens: None,
    };
    let answer = llm_classifier.setup.model.json(question).await?;
    Ok(llm_prompt::read(&answer, tools.len(), &skills))
}

/// Splits tools into batches, each of one server, as many as run at once. Tools without a valid answer so far go into
/// small batches, so that one that spoils an answer affects few others.
fn batches(tools: Vec<LlmCandidate>, tries: &HashMap<ToolId, u32>) -> Vec<Vec<LlmCandidate>> {
    let mut groups: Vec<((String, bool), Vec<LlmCandidate>)> = Vec::new();
    for tool in tools {
        let kind = (tool.server_name.clone(), tries.contains_key(&tool.tool));
        let most = if kind.1 { RETRY_BATCH_SIZE } else { BATCH_SIZE };
        match groups.iter_mut().find(|(known, group)| *known == kind && group.len() < most) {
            Some((_, group)) => group.push(tool),
            None => groups.push((kind, vec![tool])),
        }
    }
    groups.into_iter().map(|(_, group)| group).take(MAX_PARALLEL_REQUESTS).collect()
}

/// The skills that a model assigned to a tool.
fn classified(tool: LlmCandidate, skills: Vec<(String, f64)>, llm_run: &LlmRun) -> Classified {
    let primary = skills.first().filter(|(_, confidence)| *confidence >= f64::from(MIN_PRIMARY));
    let primary = primary.map(|(id, _)| id.clone());
    // As with vectors: an uncertain skill helps nobody to choose.
    let skills = if primary.is_some() { skills } else { Vec::new() };
    let (skills, confidences) = skills.into_iter().unzip();
    Classified { tool: tool.tool, text_hash: tool.text_hash, skills, confidences, primary, by: llm_run.last.clone() }
}

/// Awaits all futures concurrently.
async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(move |cx| {
        for (future, output) in waiting.iter_mut().filter(|(_, output)| output.is_none()) {
            if let std::task::Poll::Ready(ready) = future.as_mut().poll(cx) {
                *output = Some(ready);
            }
        }
        let is_done = waiting.iter().all(|(_, output)| output.is_some());
        match is_done {
            true => std::task::Poll::Ready(waiting.iter_mut().filter_map(|(_, output)| output.take()).collect()),
            false => std::task::Poll::Pending,
        }
    })
    .await
}
