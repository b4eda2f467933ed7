//! What tools are for, as a language model says it: asked behind everybody's back, where the vectors are not sure or
//! always, in batches, and never twice about the same text.
//!
//! Until it has answered, a tool has the skills that its vector gives it. A model that is away is asked again later; one
//! that talks nonsense is asked once more, and then the vector's word stands.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use models::{Budget, Failure, Model, Question, Trouble};
use registry::{Classified, Judgement, ToolId};
use search::LEAST_PRIMARY;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::Finder;
use super::library::{Book, Unjudged};
use super::skills::SkillSet;
use super::verdict::{self, Told, Verdict};
use crate::Error;

/// How many tools are asked about at once; fewer, where an answer made no sense before.
const TOGETHER: usize = 30;
const TOGETHER_AGAIN: usize = 5;
/// How many questions are under way at once.
const AT_ONCE: usize = 3;
/// How often a tool is asked about in vain.
const MOST_TRIES: u32 = 2;
/// The longest pause while a model is away.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// The longest that it is left alone because it says so.
const LONGEST_REST: Duration = Duration::from_secs(3600);
/// A budget is for a day.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Stands between who told a tool's skills first, and the model that was asked then.
pub(super) const AND: &str = " + ";

/// About which tools a language model is asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AskAbout {
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
    pub about: AskAbout,
    /// How long to wait before it is asked again when it is away; then longer and longer.
    pub pause: Duration,
}

/// Who is asked, and when there is something to ask.
pub(super) struct Judge {
    setup: ClassifierSetup,
    wanted: Notify,
}

/// What is remembered from question to question.
#[derive(Default)]
struct Memory {
    /// Whose judgements are known.
    judge: String,
    known: HashMap<(String, String), Vec<(String, f64)>>,
    /// How often a tool was asked about in vain.
    tries: HashMap<ToolId, u32>,
    failures: u32,
    budget_began: Option<Instant>,
}

/// Who says it, under which skills.
struct Court {
    skills: Arc<SkillSet>,
    /// What the vectors say is marked with this.
    first: String,
    /// What the model says is marked with this.
    last: String,
    /// Under which judgements are kept.
    judge: String,
}

impl FromStr for AskAbout {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "unsure" => Ok(Self::Unsure),
            "always" => Ok(Self::Always),
            _ => Err("expected `unsure` or `always`".to_owned()),
        }
    }
}

impl Judge {
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
        !is_asked && (self.setup.about == AskAbout::Always || !is_classified)
    }

    /// Whether this tool, whose vector has had its say, is still to be asked about.
    pub(super) fn is_pending_about(&self, book: &Book) -> bool {
        book.is_enabled && self.is_pending(book.classified_by.as_deref(), book.is_classified)
    }

    fn suffix(&self) -> String {
        format!("{AND}{}", self.setup.model.provider().model)
    }
}

/// Asks about tools until everything ends.
pub(super) async fn judge(finder: Arc<Finder>) {
    let Some(judge) = &finder.judge else { return };
    let judging = async {
        let mut memory = Memory::default();
        loop {
            judge.wanted.notified().await;
            while let Some(pause) = finder.judge_some(judge, &mut memory).await {
                sleep(pause).await;
            }
        }
    };
    tokio::select! {
        () = judging => {}
        () = finder.house.stop_asked() => {}
    }
}

impl Finder {
    /// Asks about some tools; how long to wait before the next, or nothing if there are none.
    async fn judge_some(&self, judge: &Judge, memory: &mut Memory) -> Option<Duration> {
        let embedder = self.embedder.as_ref()?;
        let skills = self.skills();
        let first = skills.mark_by_vectors(embedder.id());
        let court = Court {
            last: format!("{first}{}", judge.suffix()),
            judge: skills.mark(&judge.setup.model.provider().model),
            first,
            skills,
        };
        let pending = {
            let library = self.library.read().unwrap_or_else(PoisonError::into_inner);
            library.unjudged(&court.first, |by, is_classified| judge.is_pending(by, is_classified))
        };
        if pending.is_empty() {
            return None;
        }
        let judged = self.judge_these(judge, memory, &court, pending).await;
        Some(judged.unwrap_or_else(|error| {
            tracing::warn!(%error, "what was said about tools could not be kept; it is tried again");
            judge.setup.pause
        }))
    }

    async fn judge_these(
        &self,
        judge: &Judge,
        memory: &mut Memory,
        court: &Court,
        pending: Vec<Unjudged>,
    ) -> Result<Duration, Error> {
        self.remember(memory, court).await?;
        let (known, asked): (Vec<Unjudged>, Vec<Unjudged>) =
            pending.into_iter().partition(|tool| memory.known.contains_key(&tool.key()));
        if !known.is_empty() {
            let told = known.into_iter().map(|tool| {
                let skills = memory.known[&tool.key()].clone();
                classified(tool, skills, court)
            });
            self.settle_on(told.collect()).await?;
            return Ok(Duration::ZERO);
        }
        memory.renew(&judge.setup);
        let batches = batches(asked, &memory.tries);
        let asking = batches.iter().map(|batch| ask(judge, court, batch));
        let answers = join_all(asking.collect()).await;
        let mut away = None;
        for (batch, answer) in batches.into_iter().zip(answers) {
            match answer {
                Ok(verdict) => {
                    memory.failures = 0;
                    self.take(memory, court, batch, verdict).await?;
                }
                Err(failure) if is_about_the_question(&failure) => {
                    tracing::warn!(%failure, tools = batch.len(), "a classifier's answer made no sense");
                    let nothing = Verdict { skills: vec![None; batch.len()], suggestions: Vec::new() };
                    self.take(memory, court, batch, nothing).await?;
                }
                Err(failure) => away = Some(failure),
            }
        }
        // Several questions at once that find nobody there are one absence.
        Ok(away.map_or(Duration::ZERO, |failure| memory.pause(&judge.setup, &failure)))
    }

    /// Reads what this judge has said before.
    async fn remember(&self, memory: &mut Memory, court: &Court) -> Result<(), Error> {
        if memory.judge == court.judge {
            return Ok(());
        }
        let said = self.house.store.judgements(&court.judge).await?;
        memory.known = said.into_iter().map(|it| ((it.server, it.text_hash), it.skills)).collect();
        memory.tries.clear();
        memory.judge.clone_from(&court.judge);
        Ok(())
    }

    /// Keeps what was said about some tools.
    async fn take(&self, memory: &mut Memory, court: &Court, batch: Vec<Unjudged>, said: Verdict) -> Result<(), Error> {
        self.suggest(&batch, said.suggestions).await?;
        let (mut judgements, mut told) = (Vec::new(), Vec::new());
        for (tool, skills) in batch.into_iter().zip(said.skills) {
            if let Some(skills) = skills {
                let (server, text_hash) = tool.key();
                memory.known.insert(tool.key(), skills.clone());
                judgements.push(Judgement { server, text_hash, judge: court.judge.clone(), skills: skills.clone() });
                told.push(classified(tool, skills, court));
                continue;
            }
            let tries = memory.tries.entry(tool.tool).or_default();
            *tries += 1;
            if *tries >= MOST_TRIES {
                // The vector's word stands.
                let skills = tool.skills.iter().cloned().zip(tool.confidences.iter().copied()).collect();
                told.push(classified(tool, skills, court));
            }
        }
        self.house.store.put_judgements(judgements).await?;
        self.settle_on(told).await
    }

    /// Tools have these skills now.
    async fn settle_on(&self, told: Vec<Classified>) -> Result<(), Error> {
        if told.is_empty() {
            return Ok(());
        }
        self.house.store.put_classified(told.clone()).await?;
        tracing::debug!(tools = told.len(), "judged");
        self.change(move |library| told.into_iter().for_each(|told| library.set_skills(told))).await?;
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
    fn pause(&mut self, setup: &ClassifierSetup, failure: &Failure) -> Duration {
        self.failures += 1;
        let unless_told = setup.pause.saturating_mul(2_u32.saturating_pow(self.failures - 1)).min(LONGEST_PAUSE);
        let pause = match &failure.trouble {
            Trouble::BudgetSpent(_) => {
                self.budget_began.map_or(DAY, |began| DAY.saturating_sub(began.elapsed())).max(unless_told)
            }
            // A day off is a mistake of somebody on the way.
            _ => failure.retry_after().map_or(unless_told, |asked| asked.min(LONGEST_REST)),
        };
        tracing::warn!(%failure, hint = failure.hint(), retry_in = ?pause, "tools are classified by vectors alone for now");
        pause
    }
}

/// The same question would be answered like this again.
fn is_about_the_question(failure: &Failure) -> bool {
    matches!(failure.trouble, Trouble::NoJson(_) | Trouble::Refused { status: 400 | 413 | 422, .. })
}

async fn ask(judge: &Judge, court: &Court, tools: &[Unjudged]) -> Result<Verdict, Failure> {
    let skills = court.skills.enabled();
    let told: Vec<Told<'_>> = tools
        .iter()
        .map(|tool| Told { name: &tool.name, description: tool.description.as_deref().unwrap_or_default() })
        .collect();
    let boundary = format!("=== {} ===", Uuid::new_v4().simple());
    let question = Question {
        system: &verdict::task(&skills, &boundary),
        user: &verdict::data(&told, &boundary),
        name: "tool_skills",
        schema: &verdict::schema(&skills),
        most_tokens: None,
    };
    let answer = judge.setup.model.json(question).await?;
    Ok(verdict::read(&answer, tools.len(), &skills))
}

/// Batches of one server each, as many as are asked at once. Tools that were asked about in vain are in small ones, so
/// that one that spoils the answer spoils little.
fn batches(tools: Vec<Unjudged>, tries: &HashMap<ToolId, u32>) -> Vec<Vec<Unjudged>> {
    let mut groups: Vec<((String, bool), Vec<Unjudged>)> = Vec::new();
    for tool in tools {
        let kind = (tool.server_name.clone(), tries.contains_key(&tool.tool));
        let most = if kind.1 { TOGETHER_AGAIN } else { TOGETHER };
        match groups.iter_mut().find(|(known, group)| *known == kind && group.len() < most) {
            Some((_, group)) => group.push(tool),
            None => groups.push((kind, vec![tool])),
        }
    }
    groups.into_iter().map(|(_, group)| group).take(AT_ONCE).collect()
}

/// What a model said that a tool is for.
fn classified(tool: Unjudged, skills: Vec<(String, f64)>, court: &Court) -> Classified {
    let primary = skills.first().filter(|(_, confidence)| *confidence >= f64::from(LEAST_PRIMARY));
    let primary = primary.map(|(id, _)| id.clone());
    // As with vectors: what is uncertain helps nobody to choose.
    let skills = if primary.is_some() { skills } else { Vec::new() };
    let (skills, confidences) = skills.into_iter().unzip();
    Classified { tool: tool.tool, text_hash: tool.text_hash, skills, confidences, primary, by: court.last.clone() }
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
