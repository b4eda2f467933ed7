//! A model that can be asked: one request for each answer, asked again where that helps.
//!
//! To drop a future of these cancels: the connection is closed, and the provider hears it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use bytes::Bytes;
use protocol::events::Events;
use remote::{Exchange, Reply, Unanswered};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::anthropic::{self, Message};
use crate::conversation::{Answer, Conversation};
use crate::failure::{Failure, Trouble, excerpt};
use crate::limits::{Budget, Limits, Tries, retry_after};
use crate::openai::{self, Chat};
use crate::provider::{Dialect, Provider, ToolCalling};
use crate::reading::{Heard, Reading};
use crate::{SafeNames, Tool, text_calls};

/// No answer has an event as long as this.
const LONGEST_EVENT: usize = 16 << 20;

/// A model that can be asked.
pub struct Model {
    pub(crate) provider: Provider,
    pub(crate) limits: Limits,
    pub(crate) budget: Arc<Budget>,
    conversations: Exchange,
    pub(crate) embeddings: Option<Exchange>,
    turns: Semaphore,
    /// The provider has said that this model can call no tools.
    needs_words: AtomicBool,
    /// Which way to ask for JSON worked last.
    pub(crate) rung: AtomicU8,
}

/// What a model is asked.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// What was said so far.
    pub conversation: &'a Conversation,
    /// What it may use.
    pub tools: &'a [Tool],
    /// What it knows them by.
    pub names: &'a SafeNames,
    /// The longest answer, if it matters.
    pub most_tokens: Option<u32>,
}

impl Model {
    /// A model, which shares a budget with others. Nothing is sent yet.
    pub fn new(provider: Provider, limits: Limits, budget: Arc<Budget>) -> Result<Self, Failure> {
        let exchange = |path: &str| {
            Exchange::new(&provider.url(path), provider.headers())
                .map_err(|why| Failure::new(&provider, Trouble::BadAddress(why)))
        };
        let (conversations, embeddings) = match provider.dialect {
            Dialect::OpenAi => (exchange(openai::CHAT)?, Some(exchange(crate::embeddings::PATH)?)),
            Dialect::Anthropic => (exchange(anthropic::MESSAGES)?, None),
        };
        Ok(Self {
            needs_words: (provider.tool_calling == ToolCalling::Text).into(),
            turns: Semaphore::new(limits.at_once.max(1)),
            rung: AtomicU8::new(0),
            provider,
            limits,
            budget,
            conversations,
            embeddings,
        })
    }

    /// Where it is, and which.
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    /// Asks, and tells what is heard as it comes. What was heard is never heard twice: an answer that breaks off after
    /// its first words has failed, and is not asked for again.
    pub async fn answer(&self, ask: Ask<'_>, heard: &mut (dyn FnMut(Heard<'_>) + Send)) -> Result<Answer, Failure> {
        let _turn = self.turn().await;
        if ask.tools.is_empty() {
            return self.converse(&self.request(&ask), heard).await;
        }
        if !self.needs_words.load(Ordering::Relaxed) {
            match self.converse(&self.request(&ask), heard).await {
                Err(failure) if cannot_call(&failure) => self.needs_words.store(true, Ordering::Relaxed),
                answered => return answered,
            }
        }
        let spoken = text_calls::spoken(ask.conversation, ask.tools, ask.names);
        let request = self.request(&Ask { conversation: &spoken, tools: &[], ..ask });
        // Calls are in the text there, and the user is not to read them.
        let answer = text_calls::understood(self.converse(&request, &mut |_| {}).await?, ask.names);
        if !answer.text.is_empty() {
            heard(Heard::Text(&answer.text));
        }
        answer.calls.iter().for_each(|call| heard(Heard::Call(&call.name)));
        Ok(answer)
    }

    pub(crate) async fn turn(&self) -> tokio::sync::SemaphorePermit<'_> {
        self.turns.acquire().await.expect("it is never closed")
    }

    pub(crate) fn request(&self, ask: &Ask<'_>) -> Map<String, Value> {
        let make = match self.provider.dialect {
            Dialect::OpenAi => openai::request,
            Dialect::Anthropic => anthropic::request,
        };
        make(&self.provider, ask.conversation, ask.tools, ask.names, ask.most_tokens)
    }

    /// Sends a request until it is answered or there is no hope.
    pub(crate) async fn converse(
        &self,
        request: &Map<String, Value>,
        heard: &mut (dyn FnMut(Heard<'_>) + Send),
    ) -> Result<Answer, Failure> {
        let body: Bytes = serde_json::to_vec(request).expect("a map of JSON can be written").into();
        let mut tries = Tries::new(&self.limits);
        loop {
            let mut was_heard = false;
            let mut hear = |piece: Heard<'_>| {
                was_heard = true;
                heard(piece);
            };
            let trouble = match self.attempt(body.clone(), &mut hear).await {
                Ok(answer) => return Ok(answer),
                Err(trouble) if was_heard => return Err(self.failure(trouble)),
                Err(trouble) => trouble,
            };
            tries.again(trouble).await.map_err(|trouble| self.failure(trouble))?;
        }
    }

    async fn attempt(&self, body: Bytes, heard: &mut (dyn FnMut(Heard<'_>) + Send)) -> Result<Answer, Trouble> {
        let length = body.len();
        let reply = self.send(&self.conversations, body).await?;
        let mut reading: Box<dyn Reading> = match self.provider.dialect {
            Dialect::OpenAi => Box::<Chat>::default(),
            Dialect::Anthropic => Box::<Message>::default(),
        };
        self.read(reply, &mut *reading, heard).await?;
        let answer = reading.finish()?;
        let estimate = (length + answer.text.len()) as u64 / 4;
        self.budget.spend(if answer.usage.total() > 0 { answer.usage.total() } else { estimate });
        Ok(answer)
    }

    /// Sends a request once; an answer that is no success is trouble.
    pub(crate) async fn send(&self, exchange: &Exchange, body: Bytes) -> Result<Reply, Trouble> {
        self.budget.take()?;
        let limit = self.limits.first_byte;
        let sent = timeout(limit, exchange.send(body)).await;
        let reply = sent.map_err(|_| Trouble::TimedOut { what: "the beginning of its answer", limit })?;
        let reply = reply.map_err(unanswered)?;
        if (200..300).contains(&reply.status()) {
            return Ok(reply);
        }
        let (status, pause) = (reply.status(), retry_after(&reply));
        let words = timeout(self.limits.idle, reply.whole()).await.ok().and_then(Result::ok).unwrap_or_default();
        Err(Trouble::of_status(status, &words, pause))
    }

    async fn read(
        &self,
        mut reply: Reply,
        reading: &mut dyn Reading,
        heard: &mut (dyn FnMut(Heard<'_>) + Send),
    ) -> Result<(), Trouble> {
        let media = reply.header("content-type").unwrap_or_default().to_ascii_lowercase();
        if media.starts_with("application/json") {
            return reading.whole(&self.whole(reply).await?, heard);
        }
        if !media.starts_with("text/event-stream") {
            let start = self.next(&mut reply).await?.unwrap_or_default();
            let words = excerpt(&String::from_utf8_lossy(&start));
            return Err(Trouble::Foreign(format!("{media}: {words}")));
        }
        let mut events = Events::default();
        while let Some(data) = self.next(&mut reply).await? {
            events.push(&data);
            while let Some(event) = events.next_event() {
                if !event.data.is_empty() {
                    reading.event(&event.data, heard)?;
                }
                if reading.is_done() {
                    return Ok(());
                }
            }
            if events.pending() > LONGEST_EVENT {
                return Err(Trouble::BrokeOff("an event without end".to_owned()));
            }
        }
        Ok(())
    }

    async fn next(&self, reply: &mut Reply) -> Result<Option<Bytes>, Trouble> {
        let limit = self.limits.idle;
        let next = timeout(limit, reply.next()).await;
        let next = next.map_err(|_| Trouble::TimedOut { what: "the next piece of its answer", limit })?;
        next.transpose().map_err(unanswered)
    }

    pub(crate) async fn whole(&self, reply: Reply) -> Result<Bytes, Trouble> {
        let limit = self.limits.first_byte;
        let whole = timeout(limit, reply.whole()).await;
        whole.map_err(|_| Trouble::TimedOut { what: "its answer", limit })?.map_err(unanswered)
    }

    pub(crate) fn failure(&self, trouble: Trouble) -> Failure {
        let hide = |words: String| self.provider.hide(&words);
        let trouble = match trouble {
            Trouble::Refused { status, words } => Trouble::Refused { status, words: hide(words) },
            Trouble::Busy { status, words, retry_after } => Trouble::Busy { status, words: hide(words), retry_after },
            Trouble::InStream(words) => Trouble::InStream(hide(words)),
            Trouble::Foreign(words) => Trouble::Foreign(hide(words)),
            other => other,
        };
        Failure::new(&self.provider, trouble)
    }
}

/// Whether a provider says that the model can call no tools, as Ollama does.
fn cannot_call(failure: &Failure) -> bool {
    match &failure.trouble {
        Trouble::Refused { status: 400, words } => words.contains("does not support tools"),
        _ => false,
    }
}

fn unanswered(unanswered: Unanswered) -> Trouble {
    match unanswered {
        Unanswered::Unreachable(why) => Trouble::Unreachable(why),
        Unanswered::Lost(why) => Trouble::BrokeOff(why),
    }
}
