//! What tools are for, as a language model says it: asked behind everybody's back, where the vectors are not sure or
//! always, in batches, and never twice about the same text.
//!
//! Until it has answered, a tool has the skills that its vector gives it. A model that is away is asked again later; one
//! that talks nonsense is asked once more, and then the vector's word stands.

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

/// How many tools are asked about at once; fewer, where an answer made no sense before.
const BATCH_SIZE: usize = 30;
const RETRY_BATCH_SIZE: usize = 5;
/// How many questions are under way at once.
const MAX_PARALLEL_REQUESTS: usize = 3;
/// How often a tool is asked about in vain.
const MAX_TRIES: u32 = 2;
/// The longest pause while a model is away.
const MAX_PAUSE: Duration = Duration::from_secs(600);
/// The longest that it is left alone because it says so.
const MAX_PROVIDER_PAUSE: Duration = Duration::from_secs(3600);
/// A budget is for a day.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Stands between who told a tool's skills first, and the model that was asked then.
pub(super) const MARK_SEPARATOR: &str = " + ";

/// About which tools a language model is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClassifierScope {
    /// Those whose vectors are not sure.
    #[default]
    Unsure,
    /// All.
    Always,
}

/// A language model that says what tools are for.
pub struct ClassifierSetup {
    /// Who is asked.
    pub model: Model,
    /// How much may be asked in a day: the model's own.
    pub budget: Arc<Budget>,
    /// About which tools.
    pub about: ClassifierScope,
    /// How long to wait before it is asked again when it is away; then longer and longer.
    pub pause: Duration,
}

/// Who is asked, and when there is something to ask.
pub(super) struct LlmClassifier {
    setup: ClassifierSetup,
    wanted: Notify,
}

/// What is remembered from question to question.
#[derive(Default)]
struct Memory {
    /// Whose judgements are known.
    classifier_id: String,
    known: HashMap<(String, String), Vec<(String, f64)>>,
    /// How often a tool was asked about in vain.
    tries: HashMap<ToolId, u32>,
    failures: u32,
    budget_began: Option<Instant>,
}

/// Who says it, under which skills.
struct LlmRun {
    skills: Arc<SkillSet>,
    /// What the vectors say is marked with this.
    first: String,
    /// What the model says is marked with this.
    last: String,
    /// Under which judgements are kept.
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

    /// There may be something to ask.
    pub(super) fn wake(&self) {
        self.wanted.notify_one();
    }

    /// Whether a tool with these marks is still to be asked about.
    pub(super) fn is_pending(&self, told_by: Option<&str>, is_classified: bool) -> bool {
        let is_asked = told_by.is_some_and(|by| by.ends_with(&self.suffix()));
        !is_asked && (self.setup.about == ClassifierScope::Always || !is_classified)
    }

    /// Whether this tool, whose vector has had its say, is still to be asked about.
    pub(super) fn is_pending_about(&self, entry: &IndexedTool) -> bool {
        entry.is_enabled && self.is_pending(entry.classified_by.as_deref(), entry.is_classified)
    }

    fn suffix(&self) -> String {
        format!("{MARK_SEPARATOR}{}", self.setup.model.provider().model)
    }
}

/// Asks about tools until everything ends.
pub(super) async fn run(finder: Arc<Finder>) {
    let Some(llm_classifier) = &finder.llm_classifier else { return };
    let judging = async {
        let mut memory = Memory::default();
        loop {
            llm_classifier.wanted.notified().await;
            while let Some(pause) = finder.classify_with_llm(llm_classifier, &mut memory).await {
                sleep(pause).await;
            }
        }
    };
    tokio::select! {
        () = judging => {}
        () = finder.context.stop_requested() => {}
    }
}

impl Finder {
    /// Asks about some tools; how long to wait before the next, or nothing if there are none.
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
            tracing::warn!(%error, "what was said about tools could not be kept; it is tried again");
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
            let told = known.into_iter().map(|tool| {
                let skills = memory.known[&tool.key()].clone();
                classified(tool, skills, llm_run)
            });
            self.settle_on(told.collect()).await?;
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
                    tracing::warn!(%failure, tools = batch.len(), "a classifier's answer made no sense");
                    let nothing = LlmAnswer { skills: vec![None; batch.len()], suggestions: Vec::new() };
                    self.take(memory, llm_run, batch, nothing).await?;
                }
                Err(failure) => away = Some(failure),
            }
        }
        // Several questions at once that find nobody there are one absence.
        Ok(away.map_or(Duration::ZERO, |failure| memory.pause(&llm_classifier.setup, &failure)))
    }

    /// Reads what this judge has said before.
    async fn remember(&self, memory: &mut Memory, llm_run: &LlmRun) -> Result<(), Error> {
        if memory.classifier_id == llm_run.classifier_id {
            return Ok(());
        }
        let said = self.context.store.llm_classifications(&llm_run.classifier_id).await?;
        memory.known = said.into_iter().map(|it| ((it.server, it.text_hash), it.skills)).collect();
        memory.tries.clear();
        memory.classifier_id.clone_from(&llm_run.classifier_id);
        Ok(())
    }

    /// Keeps what was said about some tools.
    async fn take(
        &self,
        memory: &mut Memory,
        llm_run: &LlmRun,
        batch: Vec<LlmCandidate>,
        said: LlmAnswer,
    ) -> Result<(), Error> {
        self.suggest(&batch, said.suggestions).await?;
        let (mut llm_classifications, mut told) = (Vec::new(), Vec::new());
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
                told.push(classified(tool, skills, llm_run));
                continue;
            }
            let tries = memory.tries.entry(tool.tool).or_default();
            *tries += 1;
            if *tries >= MAX_TRIES {
                // The vector's word stands.
                let skills = tool.skills.iter().cloned().zip(tool.confidences.iter().copied()).collect();
                told.push(classified(tool, skills, llm_run));
            }
        }
        self.context.store.put_llm_classifications(llm_classifications).await?;
        self.settle_on(told).await
    }

    /// Tools have these skills now.
    async fn settle_on(&self, told: Vec<Classified>) -> Result<(), Error> {
        if told.is_empty() {
            return Ok(());
        }
        self.context.store.put_classified(told.clone()).await?;
        tracing::debug!(tools = told.len(), "judged");
        self.change(move |tool_index| told.into_iter().for_each(|told| tool_index.set_skills(told))).await?;
        self.settle().await;
        Ok(())
    }
}

impl Memory {
    /// Every day has a budget of its own.
    fn renew(&mut self, setup: &ClassifierSetup) {
        let began = *self.budget_began.get_or_insert_with(Instant::now);
        if began.elapsed() >= DAY {
            setup.budget.renew();
            self.budget_began = Some(Instant::now());
        }
    }

    /// How long to leave a model alone that could not be asked.
    fn pause(&mut self, setup: &ClassifierSetup, failure: &ModelError) -> Duration {
        self.failures += 1;
        let unless_told = setup.pause.saturating_mul(2_u32.saturating_pow(self.failures - 1)).min(MAX_PAUSE);
        let pause = match &failure.kind {
            ModelErrorKind::BudgetSpent(_) => {
                self.budget_began.map_or(DAY, |began| DAY.saturating_sub(began.elapsed())).max(unless_told)
            }
            // A day off is a mistake of somebody on the way.
            _ => failure.retry_after().map_or(unless_told, |asked| asked.min(MAX_PROVIDER_PAUSE)),
        };
        tracing::warn!(%failure, hint = failure.hint(), retry_in = ?pause, "tools are classified by vectors alone for now");
        pause
    }
}

/// The same question would be answered like this again.
fn is_about_the_question(failure: &ModelError) -> bool {
    matches!(failure.kind, ModelErrorKind::NoJson(_) | ModelErrorKind::Refused { status: 400 | 413 | 422, .. })
}

async fn ask(
    llm_classifier: &LlmClassifier,
    llm_run: &LlmRun,
    tools: &[LlmCandidate],
) -> Result<LlmAnswer, ModelError> {
    let skills = llm_run.skills.enabled();
    let told: Vec<ToolText<'_>> = tools
        .iter()
        .map(|tool| ToolText { name: &tool.name, description: tool.description.as_deref().unwrap_or_default() })
        .collect();
    let boundary = format!("=== {} ===", Uuid::new_v4().simple());
    let question = Question {
        system: &llm_prompt::task(&skills, &boundary),
        user: &llm_prompt::data(&told, &boundary),
        name: "tool_skills",
        schema: &llm_prompt::schema(&skills),
        max_tokens: None,
    };
    let answer = llm_classifier.setup.model.json(question).await?;
    Ok(llm_prompt::read(&answer, tools.len(), &skills))
}

/// Batches of one server each, as many as are asked at once. Tools that were asked about in vain are in small ones, so
/// that one that spoils the answer spoils little.
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

/// What a model said that a tool is for.
fn classified(tool: LlmCandidate, skills: Vec<(String, f64)>, llm_run: &LlmRun) -> Classified {
    let primary = skills.first().filter(|(_, confidence)| *confidence >= f64::from(MIN_PRIMARY));
    let primary = primary.map(|(id, _)| id.clone());
    // As with vectors: what is uncertain helps nobody to choose.
    let skills = if primary.is_some() { skills } else { Vec::new() };
    let (skills, confidences) = skills.into_iter().unzip();
    Classified { tool: tool.tool, text_hash: tool.text_hash, skills, confidences, primary, by: llm_run.last.clone() }
}

/// All of some futures, side by side.
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
