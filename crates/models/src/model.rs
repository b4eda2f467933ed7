//! A model that can be asked: one request for each answer, asked again where that helps.
//!
//! To drop a future of these cancels: the connection is closed, and the provider hears it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use bytes::Bytes;
use protocol::events::Events;
use remote::{NoResponse, Reply, StreamingRequest};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::anthropic::{self, Message};
use crate::conversation::{Answer, Conversation};
use crate::error::{ModelError, ModelErrorKind, excerpt};
use crate::limits::{Budget, Limits, RetryState, retry_after};
use crate::openai::{self, Chat};
use crate::provider::{Dialect, Provider, ToolCalling};
use crate::stream_reader::{AnswerReader, StreamEvent};
use crate::{SafeNames, Tool, text_calls};

/// No answer has an event as long as this.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// A model that can be asked.
pub struct Model {
    pub(crate) provider: Provider,
    pub(crate) limits: Limits,
    pub(crate) budget: Arc<Budget>,
    conversations: StreamingRequest,
    pub(crate) embeddings: Option<StreamingRequest>,
    turns: Semaphore,
    /// The provider has said that this model can call no tools.
    tools_as_text: AtomicBool,
    /// Which way to ask for JSON worked last.
    pub(crate) json_mode: AtomicU8,
}

/// What a model is asked.
#[derive(Debug, Clone, Copy)]
pub struct ModelRequest<'a> {
    /// What was said so far.
    pub conversation: &'a Conversation,
    /// What it may use.
    pub tools: &'a [Tool],
    /// What it knows them by.
    pub names: &'a SafeNames,
    /// The longest answer, if it matters.
    pub max_tokens: Option<u32>,
}

impl Model {
    /// A model, which shares a budget with others. Nothing is sent yet.
    pub fn new(provider: Provider, limits: Limits, budget: Arc<Budget>) -> Result<Self, ModelError> {
        let requests = |path: &str| {
            StreamingRequest::new(&provider.url(path), provider.headers())
                .map_err(|why| ModelError::new(&provider, ModelErrorKind::BadAddress(why)))
        };
        let (conversations, embeddings) = match provider.dialect {
            Dialect::OpenAi => (requests(openai::CHAT)?, Some(requests(crate::embeddings::PATH)?)),
            Dialect::Anthropic => (requests(anthropic::MESSAGES)?, None),
        };
        Ok(Self {
            tools_as_text: (provider.tool_calling == ToolCalling::Text).into(),
            turns: Semaphore::new(limits.at_once.max(1)),
            json_mode: AtomicU8::new(0),
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
    pub async fn answer(
        &self,
        ask: ModelRequest<'_>,
        heard: &mut (dyn FnMut(StreamEvent<'_>) + Send),
    ) -> Result<Answer, ModelError> {
        let _turn = self.turn().await;
        if ask.tools.is_empty() {
            return self.converse(&self.request(&ask), heard).await;
        }
        if !self.tools_as_text.load(Ordering::Relaxed) {
            match self.converse(&self.request(&ask), heard).await {
                Err(failure) if cannot_call(&failure) => self.tools_as_text.store(true, Ordering::Relaxed),
                answered => return answered,
            }
        }
        let spoken = text_calls::spoken(ask.conversation, ask.tools, ask.names);
        let request = self.request(&ModelRequest { conversation: &spoken, tools: &[], ..ask });
        // Calls are in the text there, and the user is not to read them.
        let answer = text_calls::understood(self.converse(&request, &mut |_| {}).await?, ask.names);
        if !answer.text.is_empty() {
            heard(StreamEvent::Text(&answer.text));
        }
        answer.calls.iter().for_each(|call| heard(StreamEvent::Call(&call.name)));
        Ok(answer)
    }

    pub(crate) async fn turn(&self) -> tokio::sync::SemaphorePermit<'_> {
        self.turns.acquire().await.expect("it is never closed")
    }

    pub(crate) fn request(&self, ask: &ModelRequest<'_>) -> Map<String, Value> {
        let make = match self.provider.dialect {
            Dialect::OpenAi => openai::request,
            Dialect::Anthropic => anthropic::request,
        };
        make(&self.provider, ask.conversation, ask.tools, ask.names, ask.max_tokens)
    }

    /// Sends a request until it is answered or there is no hope.
    pub(crate) async fn converse(
        &self,
        request: &Map<String, Value>,
        heard: &mut (dyn FnMut(StreamEvent<'_>) + Send),
    ) -> Result<Answer, ModelError> {
        let body: Bytes = serde_json::to_vec(request).expect("a map of JSON can be written").into();
        let mut tries = RetryState::new(&self.limits);
        loop {
            let mut was_heard = false;
            let mut hear = |piece: StreamEvent<'_>| {
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

    async fn attempt(
        &self,
        body: Bytes,
        heard: &mut (dyn FnMut(StreamEvent<'_>) + Send),
    ) -> Result<Answer, ModelErrorKind> {
        let length = body.len();
        let reply = self.send(&self.conversations, body).await?;
        let mut reader: Box<dyn AnswerReader> = match self.provider.dialect {
            Dialect::OpenAi => Box::<Chat>::default(),
            Dialect::Anthropic => Box::<Message>::default(),
        };
        self.read(reply, &mut *reader, heard).await?;
        let answer = reader.finish()?;
        let estimate = (length + answer.text.len()) as u64 / 4;
        self.budget.spend(if answer.usage.total() > 0 { answer.usage.total() } else { estimate });
        Ok(answer)
    }

    /// Sends a request once; an answer that is no success is trouble.
    pub(crate) async fn send(&self, requests: &StreamingRequest, body: Bytes) -> Result<Reply, ModelErrorKind> {
        self.budget.take()?;
        let limit = self.limits.first_byte;
        let sent = timeout(limit, requests.send(body)).await;
        let reply = sent.map_err(|_| ModelErrorKind::TimedOut { what: "the beginning of its answer", limit })?;
        let reply = reply.map_err(unanswered)?;
        if (200..300).contains(&reply.status()) {
            return Ok(reply);
        }
        let (status, pause) = (reply.status(), retry_after(&reply));
        let words = timeout(self.limits.idle, reply.whole()).await.ok().and_then(Result::ok).unwrap_or_default();
        Err(ModelErrorKind::of_status(status, &words, pause))
    }

    async fn read(
        &self,
        mut reply: Reply,
        reader: &mut dyn AnswerReader,
        heard: &mut (dyn FnMut(StreamEvent<'_>) + Send),
    ) -> Result<(), ModelErrorKind> {
        let media = reply.header("content-type").unwrap_or_default().to_ascii_lowercase();
        if media.starts_with("application/json") {
            return reader.whole(&self.whole(reply).await?, heard);
        }
        if !media.starts_with("text/event-stream") {
            let start = self.next(&mut reply).await?.unwrap_or_default();
            let words = excerpt(&String::from_utf8_lossy(&start));
            return Err(ModelErrorKind::Foreign(format!("{media}: {words}")));
        }
        let mut events = Events::default();
        while let Some(data) = self.next(&mut reply).await? {
            events.push(&data);
            while let Some(event) = events.next_event() {
                if !event.data.is_empty() {
                    reader.event(&event.data, heard)?;
                }
                if reader.is_done() {
                    return Ok(());
                }
            }
            if events.pending() > MAX_EVENT_BYTES {
                return Err(ModelErrorKind::BrokeOff("an event without end".to_owned()));
            }
        }
        Ok(())
    }

    async fn next(&self, reply: &mut Reply) -> Result<Option<Bytes>, ModelErrorKind> {
        let limit = self.limits.idle;
        let next = timeout(limit, reply.next()).await;
        let next = next.map_err(|_| ModelErrorKind::TimedOut { what: "the next piece of its answer", limit })?;
        next.transpose().map_err(unanswered)
    }

    pub(crate) async fn whole(&self, reply: Reply) -> Result<Bytes, ModelErrorKind> {
        let limit = self.limits.first_byte;
        let whole = timeout(limit, reply.whole()).await;
        whole.map_err(|_| ModelErrorKind::TimedOut { what: "its answer", limit })?.map_err(unanswered)
    }

    pub(crate) fn failure(&self, trouble: ModelErrorKind) -> ModelError {
        let hide = |words: String| self.provider.hide(&words);
        let trouble = match trouble {
            ModelErrorKind::Refused { status, words } => ModelErrorKind::Refused { status, words: hide(words) },
            ModelErrorKind::Busy { status, words, retry_after } => {
                ModelErrorKind::Busy { status, words: hide(words), retry_after }
            }
            ModelErrorKind::InStream(words) => ModelErrorKind::InStream(hide(words)),
            ModelErrorKind::Foreign(words) => ModelErrorKind::Foreign(hide(words)),
            other => other,
        };
        ModelError::new(&self.provider, trouble)
    }
}

/// Whether a provider says that the model can call no tools, as Ollama does.
fn cannot_call(failure: &ModelError) -> bool {
    match &failure.kind {
        ModelErrorKind::Refused { status: 400, words } => words.contains("does not support tools"),
        _ => false,
    }
}

fn unanswered(unanswered: NoResponse) -> ModelErrorKind {
    match unanswered {
        NoResponse::Unreachable(why) => ModelErrorKind::Unreachable(why),
        NoResponse::Lost(why) => ModelErrorKind::BrokeOff(why),
    }
}
