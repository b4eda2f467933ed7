//! The dialogue with a model about one question: the model answers or requests tools, tools are called, their results
//! go back, until there is an answer or a limit is reached.

use std::cmp::Reverse;

use futures_util::future::join_all;
use models::{
    Answer, Conversation, Model, ModelError, ModelRequest, SafeNames, Stop, StreamEvent, Tool, ToolCall, ToolResult,
    Usage,
};
use serde_json::{Map, Value};

use crate::call::{CallOutcome, Kind, Prepared, RejectedCall, execute_call, rejected_repeat};
use crate::content;
use crate::executor::{DialogueEvent, OfferedTool, ToolExecutor};
use crate::repeats::Repeats;
use crate::search_surface::{self, DESCRIBE, MAX_LISTED_TOOLS, SEARCH};

/// How many calls of one turn run in parallel, where that is safe.
const MAX_PARALLEL_CALLS: usize = 8;
/// How many consecutive rounds may bring nothing new. After the first, the model is told so and may answer with what it
/// knows.
const MAX_UNPRODUCTIVE_ROUNDS: usize = 2;
/// How many tool names a model gets when it calls an unknown one.
const MAX_NAMED: usize = 30;

/// The limits of a dialogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DialogueLimits {
    /// The maximum number of requests to the model.
    pub rounds: usize,
    /// The maximum number of calls; None if the executor has its own limit.
    pub calls: Option<usize>,
}

impl Default for DialogueLimits {
    fn default() -> Self {
        Self { rounds: 10, calls: None }
    }
}

/// Why a dialogue ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DialogueEnd {
    /// The model answered.
    Answered,
    /// The model reached its output limit: the answer is incomplete.
    CutShort,
    /// The model or its provider refused; with the provider's text, if any.
    Refused(String),
    /// The limit of rounds is reached, and the model still requested tools.
    RoundsSpent(usize),
    /// The model kept requesting the same calls.
    Repeating,
    /// The model returned no text.
    Silent,
    /// The limit of calls is reached, and the model still requested more.
    CallsSpent(usize),
    /// The calls were stopped.
    Stopped(String),
}

/// The outcome of a dialogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The last text of the model.
    pub answer: String,
    /// Why it ended.
    pub ended: DialogueEnd,
    /// The tokens it cost.
    pub usage: Usage,
}

/// A dialogue about one question.
#[derive(Debug)]
pub struct Dialogue {
    /// Everything that was said, also if the dialogue was dropped in the middle.
    pub conversation: Conversation,
    /// The text of an answer that is incomplete or ended early.
    pub(crate) unfinished: String,
    offers: Vec<OfferedTool>,
    /// The tools in requests to the model: the offered ones, or the search tools that find them.
    tools: Vec<Tool>,
    searches: bool,
    names: SafeNames,
    bounds: DialogueLimits,
    repeats: Repeats,
    calls_made: usize,
    usage: Usage,
}

/// What a round of calls brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// A new call.
    Productive,
    /// Only calls that were made before.
    OnlyRepeats,
    /// Nothing new, and the limit of calls is reached.
    OnlySpent,
}

impl Dialogue {
    /// A new dialogue. If there are many tools, the model gets tools to search for them instead of all definitions.
    pub fn new(
        system: impl Into<String>,
        question: impl Into<String>,
        offers: Vec<OfferedTool>,
        bounds: DialogueLimits,
    ) -> Self {
        let mut conversation = Conversation::new(system);
        conversation.ask(question);
        let searches = offers.len() > MAX_LISTED_TOOLS;
        let all = || offers.iter().map(|offer| offer.tool.clone()).collect();
        let tools: Vec<Tool> = if searches { search_surface::tools(&offers) } else { all() };
        let offered = offers.iter().map(|offer| offer.tool.name.as_str());
        let names = SafeNames::of(tools.iter().map(|tool| tool.name.as_str()).chain(offered));
        let (unfinished, repeats, usage) = (String::new(), Repeats::default(), Usage::default());
        Self { conversation, unfinished, offers, tools, searches, names, bounds, repeats, calls_made: 0, usage }
    }

    /// How many calls were made.
    pub fn calls_made(&self) -> usize {
        self.calls_made
    }

    /// The original name of a tool.
    pub(crate) fn original<'n>(&'n self, safe: &'n str) -> &'n str {
        self.names.original(safe).unwrap_or(safe)
    }

    /// Runs until there is an answer or a limit is reached. Dropping the future stops it: calls are cancelled, and the
    /// conversation so far is kept.
    pub async fn run(
        &mut self,
        model: &Model,
        executor: &impl ToolExecutor,
        tell: &mut (dyn FnMut(DialogueEvent<'_>) + Send),
    ) -> Result<Outcome, ModelError> {
        let mut last_words = String::new();
        let mut unproductive = 0;
        let rounds = self.bounds.rounds.max(1);
        for round in 1..=rounds {
            let answer = self.receive_answer(model, tell).await?;
            if !answer.text.is_empty() {
                last_words.clone_from(&answer.text);
            }
            if let Some(ended) = end_of(&answer) {
                return Ok(self.outcome(answer.text, ended));
            }
            if round == rounds {
                // The model would never see the results of these calls.
                break;
            }
            match self.use_tools(&answer.calls, executor, tell).await {
                Ok(Round::Productive) => unproductive = 0,
                Ok(_) if unproductive + 1 < MAX_UNPRODUCTIVE_ROUNDS => unproductive += 1,
                Ok(Round::OnlyRepeats) => return Ok(self.outcome(last_words, DialogueEnd::Repeating)),
                Ok(Round::OnlySpent) => {
                    let ended = DialogueEnd::CallsSpent(self.calls_made);
                    return Ok(self.outcome(last_words, ended));
                }
                Err(why) => return Ok(self.outcome(last_words, DialogueEnd::Stopped(why))),
            }
        }
        Ok(self.outcome(last_words, DialogueEnd::RoundsSpent(rounds)))
    }

    fn outcome(&self, answer: String, ended: DialogueEnd) -> Outcome {
        Outcome { answer, ended, usage: self.usage }
    }

    async fn receive_answer(
        &mut self,
        model: &Model,
        tell: &mut (dyn FnMut(DialogueEvent<'_>) + Send),
    ) -> Result<Answer, ModelError> {
        let ask =
            ModelRequest { conversation: &self.conversation, tools: &self.tools, names: &self.names, max_tokens: None };
        let unfinished = &mut self.unfinished;
        unfinished.clear();
        let mut on_event = |event: StreamEvent<'_>| {
            if let StreamEvent::Text(text) = event {
                unfinished.push_str(text);
                tell(DialogueEvent::Words(text));
            }
        };
        let answer = model.answer(ask, &mut on_event).await;
        if !self.unfinished.is_empty() {
            tell(DialogueEvent::EndOfWords);
        }
        let answer = answer?;
        self.unfinished.clear();
        self.usage.input += answer.usage.input;
        self.usage.output += answer.usage.output;
        self.conversation.answered(&answer);
        Ok(answer)
    }

    /// Makes the calls of a turn and adds their results to the conversation. Calls that are safe in parallel run at the
    /// same time, all others alone and in order.
    async fn use_tools(
        &mut self,
        calls: &[ToolCall],
        executor: &impl ToolExecutor,
        tell: &mut (dyn FnMut(DialogueEvent<'_>) + Send),
    ) -> Result<Round, String> {
        let (mut meant, mut prepared) = (Vec::with_capacity(calls.len()), Vec::with_capacity(calls.len()));
        for call in calls {
            let inner = if self.searches { search_surface::inner_call(call) } else { Ok(call.clone()) };
            prepared.push(match &inner {
                Ok(inner) => self.prepare(inner, executor).await,
                Err(why) => Err(self.rejected_mistake(call, why.clone())),
            });
            meant.push(inner.unwrap_or_else(|_| call.clone()));
        }
        let mut results: Vec<Option<ToolResult>> = calls.iter().map(|_| None).collect();
        let mut stopped = None;
        let mut next = 0;
        while next < calls.len() && stopped.is_none() {
            let is_parallel = |at: usize| match &prepared[at] {
                Ok(Prepared::Call { place, .. }) => self.offers[*place].is_parallel_safe(),
                Ok(Prepared::Search { .. } | Prepared::Describe { .. }) | Err(_) => true,
            };
            let together =
                (next..calls.len()).take(MAX_PARALLEL_CALLS).take_while(|&at| is_parallel(at)).count().max(1);
            for call in &meant[next..next + together] {
                tell(DialogueEvent::Calling { tool: self.original(&call.name), arguments: &call.arguments });
            }
            let batch =
                (next..next + together).map(|at| execute_call(&meant[at], &prepared[at], &self.offers, executor));
            for (at, (outcome, took)) in (next..).zip(join_all(batch).await) {
                let result = match outcome {
                    CallOutcome::Made(result) => result,
                    CallOutcome::RejectedCall(result) => {
                        // It was counted when it was prepared.
                        self.calls_made -= usize::from(matches!(prepared[at], Ok(Prepared::Call { .. })));
                        result
                    }
                    CallOutcome::Stopped(why) => {
                        stopped = Some(why.clone());
                        ToolResult::error(&meant[at], why)
                    }
                };
                let tool = self.original(&meant[at].name);
                let problem = result.is_error.then(|| content::excerpt(&result));
                tell(DialogueEvent::Called { tool, took, problem: problem.as_deref() });
                // The model gets it under the name that it called.
                results[at] = Some(ToolResult { name: calls[at].name.clone(), ..result });
            }
            next += together;
        }
        let rejected = |call: &ToolCall| ToolResult::error(call, "not called: executions are stopped");
        let results = results.into_iter().zip(calls).map(|(result, call)| result.unwrap_or_else(|| rejected(call)));
        self.conversation.results(results.collect());
        match stopped {
            Some(why) => Err(why),
            None => Ok(round_value(&prepared)),
        }
    }

    /// The call to make, or the reason not to make it.
    async fn prepare(&mut self, call: &ToolCall, executor: &impl ToolExecutor) -> Result<Prepared, RejectedCall> {
        if self.searches && [SEARCH, DESCRIBE].contains(&call.name.as_str()) {
            return self.prepare_own(call);
        }
        let place = self.place_of(&call.name).ok_or_else(|| match call.parsed() {
            Err(error) => self.rejected_mistake(call, format!("{error}; and {}", self.no_such_tool(&call.name))),
            Ok(_) => self.rejected_mistake(call, self.no_such_tool(&call.name)),
        })?;
        let parsed: Map<String, Value> =
            call.parsed().map_err(|error| self.rejected_arguments(call, place, &error.to_string()))?;
        if self.bounds.calls.is_some_and(|most| self.calls_made >= most) {
            let why =
                format!("no further calls may be made: the limit is {}. Answer with what you know.", self.calls_made);
            return Err(RejectedCall { why, kind: Kind::Spent });
        }
        let checked = executor.check(&self.offers[place], &parsed).await;
        checked.map_err(|why| self.rejected_arguments(call, place, &why))?;
        if !self.repeats.record_call(&self.offers[place].tool.name, &parsed) {
            return Err(rejected_repeat());
        }
        self.calls_made += 1;
        let is_object = call.arguments.trim_start().starts_with('{');
        let arguments = if is_object { call.arguments.clone() } else { "{}".to_owned() };
        Ok(Prepared::Call { place, arguments })
    }

    /// The same for a search tool, which is not a call of a server and does not count.
    fn prepare_own(&mut self, call: &ToolCall) -> Result<Prepared, RejectedCall> {
        let parsed = call.parsed().map_err(|error| self.rejected_mistake(call, error.to_string()))?;
        let prepared = if call.name == SEARCH {
            let (query, limit) =
                search_surface::search_arguments(&parsed).map_err(|why| self.rejected_mistake(call, why))?;
            Prepared::Search { query, limit }
        } else {
            let name = parsed.get("name").and_then(Value::as_str).unwrap_or_default();
            let place = self.place_of(name).ok_or_else(|| self.rejected_mistake(call, self.no_such_tool(name)))?;
            Prepared::Describe { place }
        };
        if self.repeats.record_call(&call.name, &parsed) { Ok(prepared) } else { Err(rejected_repeat()) }
    }

    /// The index of an offered tool, by either name.
    fn place_of(&self, name: &str) -> Option<usize> {
        // Documents and people use the name in the service, and models repeat it.
        let own = || self.names.safe(name).map(|_| name);
        let offered = self.names.original(name).or_else(own)?;
        self.offers.iter().position(|offer| offer.tool.name == offered)
    }

    /// Rejects a wrong call. A model that repeats the same mistake is going in circles, too.
    fn rejected_mistake(&mut self, call: &ToolCall, why: String) -> RejectedCall {
        let kind = if self.repeats.record_mistake(call) { Kind::Mistake } else { Kind::Repeat };
        RejectedCall { why, kind }
    }

    /// The same for wrong arguments of an existing tool.
    fn rejected_arguments(&mut self, call: &ToolCall, place: usize, why: &str) -> RejectedCall {
        let schema = &self.offers[place].tool.schema;
        let why = format!("{why}. Call it again with arguments that fit this schema: {schema}");
        self.rejected_mistake(call, why)
    }

    /// A message that names the tools, the most similar ones first.
    fn no_such_tool(&self, name: &str) -> String {
        let mut known: Vec<&str> = self.offers.iter().filter_map(|offer| self.names.safe(&offer.tool.name)).collect();
        let wanted: Vec<&str> = words(name).collect();
        known.sort_by_key(|known| Reverse(words(known).filter(|word| wanted.contains(word)).count()));
        let more = match known.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        known.truncate(MAX_NAMED);
        match known.as_slice() {
            [] => format!("there is no tool `{name}`; there are no tools at all"),
            known => format!("there is no tool `{name}`; there are {}{more}", known.join(", ")),
        }
    }
}

/// The words of a name.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Why an answer ends the dialogue, if it does.
fn end_of(answer: &Answer) -> Option<DialogueEnd> {
    if !answer.calls.is_empty() && answer.stop != Stop::Length {
        return None;
    }
    Some(match &answer.stop {
        Stop::Length => DialogueEnd::CutShort,
        Stop::Refused => DialogueEnd::Refused(answer.text.clone()),
        Stop::Done | Stop::Tools | Stop::Other(_) if answer.text.trim().is_empty() => DialogueEnd::Silent,
        Stop::Done | Stop::Tools | Stop::Other(_) => DialogueEnd::Answered,
    })
}

/// What a round brought, by its calls.
fn round_value(prepared: &[Result<Prepared, RejectedCall>]) -> Round {
    let is = |kind: Kind| prepared.iter().any(|it| it.as_ref().err().is_some_and(|rejected| rejected.kind == kind));
    match () {
        () if prepared.iter().any(Result::is_ok) || is(Kind::Mistake) => Round::Productive,
        () if is(Kind::Spent) => Round::OnlySpent,
        () => Round::OnlyRepeats,
    }
}
