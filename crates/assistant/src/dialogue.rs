//! A question on its way to its answer: the model speaks, tools are called, their results go back, until it has said
//! what it had to say or a bound is reached.

use std::cmp::Reverse;

use futures_util::future::join_all;
use models::{Answer, Ask, Conversation, Failure, Heard, Model, SafeNames, Stop, Tool, ToolCall, ToolResult, Usage};
use serde_json::{Map, Value};

use crate::call::{Kind, Prepared, Unmade, Went, one_call, repeated};
use crate::content;
use crate::offer::{Hands, Offer, Told};
use crate::repeats::Repeats;
use crate::search_surface::{self, DESCRIBE, MOST_LISTED, SEARCH};

/// How many calls of one turn run at once, where that is safe.
const MOST_AT_ONCE: usize = 8;
/// So many rounds in a row may bring nothing new: the first time the model is told, and may answer with what it knows.
const MOST_FRUITLESS: usize = 2;
/// So many names are told to a model that calls a tool that is not there.
const MOST_NAMED: usize = 30;

/// How far a dialogue may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// How often the model is asked.
    pub rounds: usize,
    /// How many calls are made in all; no limit, if whoever makes them has one.
    pub calls: Option<usize>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { rounds: 10, calls: None }
    }
}

/// How a dialogue ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The model has said what it had to say.
    Answered,
    /// It had no room for more words: what it said is not whole.
    CutShort,
    /// It, or its provider, would not; in the provider's words, where there are any.
    Refused(String),
    /// It was asked as often as it may be, and still wanted tools.
    RoundsSpent(usize),
    /// It asked for the same again and again.
    GoesInCircles,
    /// It had nothing to say.
    Silent,
    /// As many calls were made as may be, and it still wanted more.
    CallsSpent(usize),
    /// Somebody stopped its calls.
    Stopped(String),
}

/// What came of a dialogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The model's last words.
    pub answer: String,
    /// How it ended.
    pub ended: Ended,
    /// What it cost.
    pub usage: Usage,
}

/// A question on its way to its answer.
#[derive(Debug)]
pub struct Dialogue {
    /// All that was said, also if the dialogue was dropped in the middle.
    pub conversation: Conversation,
    /// The words of an answer that is not over, or broke off.
    pub(crate) unfinished: String,
    offers: Vec<Offer>,
    /// What the model is told of: the tools that are offered, or our own, with which it finds them.
    tools: Vec<Tool>,
    searches: bool,
    names: SafeNames,
    bounds: Bounds,
    repeats: Repeats,
    calls_made: usize,
    usage: Usage,
}

/// What a round of calls was good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Round {
    /// Something new was tried.
    Fruitful,
    /// Nothing but what was asked for before.
    OnlyRepeats,
    /// Nothing new, and no more calls may be made.
    OnlySpent,
}

impl Dialogue {
    /// Nothing was said yet. If there are many tools, the model is told how to find them instead of all their definitions.
    pub fn new(system: impl Into<String>, question: impl Into<String>, offers: Vec<Offer>, bounds: Bounds) -> Self {
        let mut conversation = Conversation::new(system);
        conversation.ask(question);
        let searches = offers.len() > MOST_LISTED;
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

    /// What a tool is really called.
    pub(crate) fn original<'n>(&'n self, safe: &'n str) -> &'n str {
        self.names.original(safe).unwrap_or(safe)
    }

    /// Goes on until there is an answer or a bound is reached. Dropping this stops it: calls are cancelled, and what was
    /// said so far stays in the conversation.
    pub async fn run(
        &mut self,
        model: &Model,
        hands: &impl Hands,
        tell: &mut (dyn FnMut(Told<'_>) + Send),
    ) -> Result<Outcome, Failure> {
        let mut last_words = String::new();
        let mut fruitless = 0;
        let rounds = self.bounds.rounds.max(1);
        for round in 1..=rounds {
            let answer = self.hear(model, tell).await?;
            if !answer.text.is_empty() {
                last_words.clone_from(&answer.text);
            }
            if let Some(ended) = end_of(&answer) {
                return Ok(self.outcome(answer.text, ended));
            }
            if round == rounds {
                // Nobody would hear what these calls give.
                break;
            }
            match self.use_tools(&answer.calls, hands, tell).await {
                Ok(Round::Fruitful) => fruitless = 0,
                Ok(_) if fruitless + 1 < MOST_FRUITLESS => fruitless += 1,
                Ok(Round::OnlyRepeats) => return Ok(self.outcome(last_words, Ended::GoesInCircles)),
                Ok(Round::OnlySpent) => {
                    let ended = Ended::CallsSpent(self.calls_made);
                    return Ok(self.outcome(last_words, ended));
                }
                Err(why) => return Ok(self.outcome(last_words, Ended::Stopped(why))),
            }
        }
        Ok(self.outcome(last_words, Ended::RoundsSpent(rounds)))
    }

    fn outcome(&self, answer: String, ended: Ended) -> Outcome {
        Outcome { answer, ended, usage: self.usage }
    }

    async fn hear(&mut self, model: &Model, tell: &mut (dyn FnMut(Told<'_>) + Send)) -> Result<Answer, Failure> {
        let ask = Ask { conversation: &self.conversation, tools: &self.tools, names: &self.names, most_tokens: None };
        let unfinished = &mut self.unfinished;
        unfinished.clear();
        let mut hear = |heard: Heard<'_>| {
            if let Heard::Text(text) = heard {
                unfinished.push_str(text);
                tell(Told::Words(text));
            }
        };
        let answer = model.answer(ask, &mut hear).await;
        if !self.unfinished.is_empty() {
            tell(Told::EndOfWords);
        }
        let answer = answer?;
        self.unfinished.clear();
        self.usage.input += answer.usage.input;
        self.usage.output += answer.usage.output;
        self.conversation.answered(&answer);
        Ok(answer)
    }

    /// Makes the calls of a turn and puts their results into the conversation; whether any of them was something new.
    /// Calls that do no harm beside others run at the same time, all others alone and in their order.
    async fn use_tools(
        &mut self,
        calls: &[ToolCall],
        hands: &impl Hands,
        tell: &mut (dyn FnMut(Told<'_>) + Send),
    ) -> Result<Round, String> {
        let (mut meant, mut prepared) = (Vec::with_capacity(calls.len()), Vec::with_capacity(calls.len()));
        for call in calls {
            let inner = if self.searches { search_surface::meant(call) } else { Ok(call.clone()) };
            prepared.push(match &inner {
                Ok(inner) => self.prepare(inner, hands).await,
                Err(why) => Err(self.mistake(call, why.clone())),
            });
            meant.push(inner.unwrap_or_else(|_| call.clone()));
        }
        let mut results: Vec<Option<ToolResult>> = calls.iter().map(|_| None).collect();
        let mut stopped = None;
        let mut next = 0;
        while next < calls.len() && stopped.is_none() {
            let beside = |at: usize| match &prepared[at] {
                Ok(Prepared::Call { place, .. }) => self.offers[*place].is_safe_beside_others(),
                Ok(Prepared::Search { .. } | Prepared::Describe { .. }) | Err(_) => true,
            };
            let together = (next..calls.len()).take(MOST_AT_ONCE).take_while(|&at| beside(at)).count().max(1);
            for call in &meant[next..next + together] {
                tell(Told::Calling { tool: self.original(&call.name), arguments: &call.arguments });
            }
            let batch = (next..next + together).map(|at| one_call(&meant[at], &prepared[at], &self.offers, hands));
            for (at, (went, took)) in (next..).zip(join_all(batch).await) {
                let result = match went {
                    Went::Made(result) => result,
                    Went::Unmade(result) => {
                        // It was counted when it was prepared.
                        self.calls_made -= usize::from(matches!(prepared[at], Ok(Prepared::Call { .. })));
                        result
                    }
                    Went::Stopped(why) => {
                        stopped = Some(why.clone());
                        ToolResult::error(&meant[at], why)
                    }
                };
                let tool = self.original(&meant[at].name);
                let problem = result.is_error.then(|| content::first_words(&result));
                tell(Told::Called { tool, took, problem: problem.as_deref() });
                // The model gets it under the name that it called.
                results[at] = Some(ToolResult { name: calls[at].name.clone(), ..result });
            }
            next += together;
        }
        let unmade = |call: &ToolCall| ToolResult::error(call, "not called: everything was stopped");
        let results = results.into_iter().zip(calls).map(|(result, call)| result.unwrap_or_else(|| unmade(call)));
        self.conversation.results(results.collect());
        match stopped {
            Some(why) => Err(why),
            None => Ok(worth(&prepared)),
        }
    }

    /// What is to be called, or what the model is told instead.
    async fn prepare(&mut self, call: &ToolCall, hands: &impl Hands) -> Result<Prepared, Unmade> {
        if self.searches && [SEARCH, DESCRIBE].contains(&call.name.as_str()) {
            return self.prepare_own(call);
        }
        let place = self.place_of(&call.name).ok_or_else(|| match call.parsed() {
            Err(error) => self.mistake(call, format!("{error}; and {}", self.no_such_tool(&call.name))),
            Ok(_) => self.mistake(call, self.no_such_tool(&call.name)),
        })?;
        let parsed: Map<String, Value> = call.parsed().map_err(|error| self.misfit(call, place, &error.to_string()))?;
        if self.bounds.calls.is_some_and(|most| self.calls_made >= most) {
            let why =
                format!("no further calls may be made: the limit is {}. Answer with what you know.", self.calls_made);
            return Err(Unmade { why, kind: Kind::Spent });
        }
        let checked = hands.check(&self.offers[place], &parsed).await;
        checked.map_err(|why| self.misfit(call, place, &why))?;
        if !self.repeats.may_call(&self.offers[place].tool.name, &parsed) {
            return Err(repeated());
        }
        self.calls_made += 1;
        let is_object = call.arguments.trim_start().starts_with('{');
        let arguments = if is_object { call.arguments.clone() } else { "{}".to_owned() };
        Ok(Prepared::Call { place, arguments })
    }

    /// The same for a tool of ours. It is no call of a server's, so it does not count as one.
    fn prepare_own(&mut self, call: &ToolCall) -> Result<Prepared, Unmade> {
        let parsed = call.parsed().map_err(|error| self.mistake(call, error.to_string()))?;
        let prepared = if call.name == SEARCH {
            let (query, limit) = search_surface::wish(&parsed).map_err(|why| self.mistake(call, why))?;
            Prepared::Search { query, limit }
        } else {
            let name = parsed.get("name").and_then(Value::as_str).unwrap_or_default();
            let place = self.place_of(name).ok_or_else(|| self.mistake(call, self.no_such_tool(name)))?;
            Prepared::Describe { place }
        };
        if self.repeats.may_call(&call.name, &parsed) { Ok(prepared) } else { Err(repeated()) }
    }

    /// The place of a tool among those offered, by either name.
    fn place_of(&self, name: &str) -> Option<usize> {
        // Documents and people use the name that the service has for it, and models repeat it.
        let own = || self.names.safe(name).map(|_| name);
        let offered = self.names.original(name).or_else(own)?;
        self.offers.iter().position(|offer| offer.tool.name == offered)
    }

    /// A call that the model got wrong. Who makes the same mistake again and again goes in circles, too.
    fn mistake(&mut self, call: &ToolCall, why: String) -> Unmade {
        let kind = if self.repeats.may_err(call) { Kind::Mistake } else { Kind::Repeat };
        Unmade { why, kind }
    }

    /// The same, where the tool is there and its arguments are wrong.
    fn misfit(&mut self, call: &ToolCall, place: usize, why: &str) -> Unmade {
        let schema = &self.offers[place].tool.schema;
        let why = format!("{why}. Call it again with arguments that fit this schema: {schema}");
        self.mistake(call, why)
    }

    /// Names what there is, what looks most like it first.
    fn no_such_tool(&self, name: &str) -> String {
        let mut known: Vec<&str> = self.offers.iter().filter_map(|offer| self.names.safe(&offer.tool.name)).collect();
        let wanted: Vec<&str> = words(name).collect();
        known.sort_by_key(|known| Reverse(words(known).filter(|word| wanted.contains(word)).count()));
        let more = match known.len().saturating_sub(MOST_NAMED) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        known.truncate(MOST_NAMED);
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

/// Whether an answer is the last.
fn end_of(answer: &Answer) -> Option<Ended> {
    if !answer.calls.is_empty() && answer.stop != Stop::Length {
        return None;
    }
    Some(match &answer.stop {
        Stop::Length => Ended::CutShort,
        Stop::Refused => Ended::Refused(answer.text.clone()),
        Stop::Done | Stop::Tools | Stop::Other(_) if answer.text.trim().is_empty() => Ended::Silent,
        Stop::Done | Stop::Tools | Stop::Other(_) => Ended::Answered,
    })
}

/// What a round was good for, by the calls that were wanted in it.
fn worth(prepared: &[Result<Prepared, Unmade>]) -> Round {
    let is = |kind: Kind| prepared.iter().any(|it| it.as_ref().err().is_some_and(|unmade| unmade.kind == kind));
    match () {
        () if prepared.iter().any(Result::is_ok) || is(Kind::Mistake) => Round::Fruitful,
        () if is(Kind::Spent) => Round::OnlySpent,
        () => Round::OnlyRepeats,
    }
}
