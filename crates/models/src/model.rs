//! A model: sends one request for each answer, and retries where that helps.
//!
//! Dropping one of these futures cancels the request: the connection is closed, which the provider notices.

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

/// The size limit of one event.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// A model.
pub struct Model {
    pub(crate) provider: Provider,
    pub(crate) limits: Limits,
    pub(crate) budget: Arc<Budget>,
    conversations: StreamingRequest,
    pub(crate) embeddings: Option<StreamingRequest>,
    turns: Semaphore,
    /// Whether the provider has reported that this model does not support tools.
    tools_as_text: AtomicBool,
    /// The way to request JSON that worked last.
    pub(crate) json_mode: AtomicU8,
}

/// A request to a model.
#[derive(Debug, Clone, Copy)]
pub struct ModelRequest<'a> {
    /// The conversation so far.
    pub conversation: &'a Conversation,
    /// The tools it may use.
    pub tools: &'a [Tool],
    /// The safe names of the tools.
    pub names: &'a SafeNames,
    /// The limit of output tokens, if any.
    pub max_tokens: Option<u32>,
}

impl Model {
    /// A model that shares a budget with others. Sends nothing yet.
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

    /// The provider and the model name.
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    /// Requests an answer, and reports its parts as they arrive. No part is reported twice: a response that ends early
    /// after its first part fails, and is not retried.
    pub async fn answer(
        &self,
        ask: ModelRequest<'_>,
        on_event: &mut (dyn FnMut(StreamEvent<'_>) + Send),
    ) -> Result<Answer, ModelError> {
        let _turn = self.turn().await;
        if ask.tools.is_empty() {
            return self.converse(&self.request(&ask), on_event).await;
        }
        if !self.tools_as_text.load(Ordering::Relaxed) {
            match self.converse(&self.request(&ask), on_event).await {
                Err(failure) if cannot_call(&failure) => self.tools_as_text.store(true, Ordering::Relaxed),
                answered => return answered,
            }
        }
        let text_conversation = text_calls::text_conversation(ask.conversation, ask.tools, ask.names);
        let request = self.request(&ModelRequest { conversation: &text_conversation, tools: &[], ..ask });
        // Calls are part of the text there, and users should not see them.
        let answer = text_calls::understood(self.converse(&request, &mut |_| {}).await?, ask.names);
        if !answer.text.is_empty() {
            on_event(StreamEvent::Text(&answer.text));
        }
        answer.calls.iter().for_each(|call| on_event(StreamEvent::Call(&call.name)));
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

    /// Sends a request until it is answered or a retry cannot help.
    pub(crate) async fn converse(
        &self,
        request: &Map<String, Value>,
        on_event: &mut (dyn FnMut(StreamEvent<'_>) + Send),
    ) -> Result<Answer, ModelError> {
        let body: Bytes = serde_json::to_vec(request).expect("a map of JSON can be written").into();
        let mut tries = RetryState::new(&self.limits);
        loop {
            let mut has_reported = false;
            let mut forward = |event: StreamEvent<'_>| {
                has_reported = true;
                on_event(event);
            };
            let error = match self.attempt(body.clone(), &mut forward).await {
                Ok(answer) => return Ok(answer),
                Err(error) if has_reported => return Err(self.failure(error)),
                Err(error) => error,
            };
            tries.again(error).await.map_err(|error| self.failure(error))?;
        }
    }

    async fn attempt(
        &self,
        body: Bytes,
        on_event: &mut (dyn FnMut(StreamEvent<'_>) + Send),
    ) -> Result<Answer, ModelErrorKind> {
        let length = body.len();
        let reply = self.send(&self.conversations, body).await?;
        let mut reader: Box<dyn AnswerReader> = match self.provider.dialect {
            Dialect::OpenAi => Box::<Chat>::default(),
            Dialect::Anthropic => Box::<Message>::default(),
        };
        self.read(reply, &mut *reader, on_event).await?;
        let answer = reader.finish()?;
        let estimate = (length + answer.text.len()) as u64 / 4;
        self.budget.spend(if answer.usage.total() > 0 { answer.usage.total() } else { estimate });
        Ok(answer)
    }

    /// Sends a request once. An unsuccessful status is an error.
    pub(crate) async fn send(&self, requests: &StreamingRequest, body: Bytes) -> Result<Reply, ModelErrorKind> {
        self.budget.take()?;
        let limit = self.limits.first_byte;
        let sent = timeout(limit, requests.send(body)).await;
        let reply = sent.map_err(|_| ModelErrorKind::TimedOut { what: "the start of its response", limit })?;
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
        on_event: &mut (dyn FnMut(StreamEvent<'_>) + Send),
    ) -> Result<(), ModelErrorKind> {
        let media = reply.header("content-type").unwrap_or_default().to_ascii_lowercase();
        if media.starts_with("application/json") {
            return reader.whole(&self.whole(reply).await?, on_event);
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
                    reader.event(&event.data, on_event)?;
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
        let next = next.map_err(|_| ModelErrorKind::TimedOut { what: "the next part of its response", limit })?;
        next.transpose().map_err(unanswered)
    }

    pub(crate) async fn whole(&self, reply: Reply) -> Result<Bytes, ModelErrorKind> {
        let limit = self.limits.first_byte;
        let whole = timeout(limit, reply.whole()).await;
        whole.map_err(|_| ModelErrorKind::TimedOut { what: "its response", limit })?.map_err(unanswered)
    }

    pub(crate) fn failure(&self, error: ModelErrorKind) -> ModelError {
        let hide = |words: String| self.provider.hide(&words);
        let error = match error {
            ModelErrorKind::Refused { status, words } => ModelErrorKind::Refused { status, words: hide(words) },
            ModelErrorKind::Busy { status, words, retry_after } => {
                ModelErrorKind::Busy { status, words: hide(words), retry_after }
            }
            ModelErrorKind::InStream(words) => ModelErrorKind::InStream(hide(words)),
            ModelErrorKind::Foreign(words) => ModelErrorKind::Foreign(hide(words)),
            other => other,
        };
        ModelError::new(&self.provider, error)
    }
}

/// Whether a provider reports that the model does not support tools, as Ollama does.
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
