//! Calls of a document through this service, with its limits and its records.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use assistant::{DialogueEnd, DialogueLimits};
use executions::{Call, Error as CallError};
use models::Model;
use notebook::{Answer, Failure, Question, Request, Server, ToolSchema, ToolTable, Toolbox, WantedTools};
use registry::{Actor, RawJson, Source, Status, Timestamp, ToolRecord};
use service::{Error, Service};

use crate::assistant::{AssistantContext, NO_MODEL, dialogue, event};
use crate::sse_job::EventSender;

/// The toolbox of the service.
pub(crate) struct ServiceTools {
    pub(crate) service: Arc<Service>,
    pub(crate) actor: Actor,
    pub(crate) servers: Vec<Server>,
    /// The path of the document, if the client sent one.
    pub(crate) path: Option<String>,
    /// The session that the calls belong to.
    pub(crate) session: String,
    pub(crate) assistant_options: AssistantOptions,
    /// Receives events about the work of the assistant.
    pub(crate) event_sender: Option<EventSender>,
}

/// Options of `assistant` blocks.
pub(crate) struct AssistantOptions {
    /// None if no model is configured.
    pub(crate) model: Option<Arc<Model>>,
    /// Whether destructive tools may be called.
    pub(crate) may_destroy: bool,
    /// The text of the document.
    pub(crate) text: String,
}

/// A new session id for a run, unique across restarts.
pub(crate) fn own_session() -> String {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    format!("run {} {}", RUNS.fetch_add(1, Ordering::Relaxed), Timestamp::now())
}

/// The tools of a server that the service knows.
pub(super) async fn tool_table(service: &Service, server: &str, wanted: &WantedTools) -> Option<ToolTable> {
    // If the tools are unknown now, the call will report why.
    let tools = service.tools(Some(server)).await.ok()?;
    let is_connected = service.server(server).await.is_ok_and(|view| view.record.status.is_up());
    let mut table = ToolTable::new(wanted, is_connected);
    for tool in tools {
        let schema = tool.input_schema;
        table.add(&tool.original_name, || schema.map(|schema| ToolSchema::Text(schema.get().to_owned())));
    }
    Some(table)
}

impl Toolbox for ServiceTools {
    fn servers(&self) -> Vec<Server> {
        self.servers.clone()
    }

    async fn tools(&self, server: &str, wanted: &WantedTools) -> Option<ToolTable> {
        tool_table(&self.service, server, wanted).await
    }

    async fn out_of_reach(&self, server: &str) -> Option<String> {
        let view = self.service.server(server).await.ok()?;
        let status = view.record.status;
        // A call starts a server that is asleep, and waits for one that is starting.
        let is_down =
            matches!(status, Status::Error | Status::SignInRequired) || status == Status::Disconnected && !view.lazy;
        is_down.then(|| view.record.error_message.unwrap_or_else(|| format!("it is {status}")))
    }

    async fn call(&self, request: &Request) -> Result<String, Failure> {
        let arguments = RawJson::parse(request.arguments.clone());
        let call = Call {
            name: request.tool.clone(),
            server: Some(request.server.clone()),
            arguments: arguments
                .map_err(|error| Failure::new(format!("the parameters are not valid JSON: {error}")))?,
            source: Source::UserCodeblock,
            actor: self.actor.clone(),
            document: self.path.clone().map(|path| (path, u32::try_from(request.line).ok())),
            session: Some(self.session.clone()),
            timeout_ms: None,
            trace: None,
        };
        match self.service.call(call).await {
            Ok(outcome) => Ok(outcome.result.get().to_owned()),
            Err(error @ Error::Call(CallError::ExecutionCancelled { .. } | CallError::ExecutionStopped)) => {
                Err(Failure::stopped(error.to_string()))
            }
            Err(Error::Call(CallError::LimitReached { message, context }))
                if context.get("limit").is_some_and(|it| it == "session_limit") =>
            {
                Err(Failure::run_over(message))
            }
            Err(
                error @ Error::Call(
                    CallError::LimitReached { .. }
                    | CallError::ServerUnavailable { .. }
                    | CallError::ServerNotFound { .. },
                ),
            ) => Err(Failure::not_tried(error.to_string())),
            Err(error) => Err(Failure::new(error.to_string())),
        }
    }

    async fn assistant_unavailable(&self) -> Option<String> {
        self.assistant_options.model.is_none().then(|| NO_MODEL.to_owned())
    }

    async fn ask(&self, question: &Question) -> Result<Answer, Failure> {
        let model = self.assistant_options.model.clone().ok_or_else(|| Failure::stopped(NO_MODEL))?;
        let tools = self.service.tools(question.server.as_deref()).await;
        let tools = tools.map_err(|error| Failure::new(error.to_string()))?.into_iter().filter(|tool| tool.enabled);
        let assistant_context = AssistantContext {
            model,
            service: Arc::clone(&self.service),
            actor: self.actor.clone(),
            document: self.path.clone(),
            session: self.session.clone(),
            may_destroy: self.assistant_options.may_destroy,
        };
        let tools: Arc<[ToolRecord]> = tools.collect();
        let text = Some(self.assistant_options.text.as_str());
        let dialogue = dialogue(&question.words, text, question.line, &tools, DialogueLimits::default()).await;
        let (mut dialogue, unread) = dialogue.map_err(|error| Failure::new(error.to_string()))?;
        if let Some(remark) = unread {
            tracing::warn!(%remark, "the assistant does not get the schemas of some tools");
        }
        let mut on_event = |dialogue_event: assistant::DialogueEvent<'_>| {
            if let (Some(event_sender), Some((name, mut data))) = (&self.event_sender, event(dialogue_event)) {
                data["line"] = question.line.into();
                event_sender.event(name, &data);
            }
        };
        let outcome = assistant_context.converse(&mut dialogue, &tools, question.line, &mut on_event).await;
        let outcome = outcome.map_err(|failure| Failure::new(failure.to_string()))?;
        match outcome.ended {
            DialogueEnd::Answered => {
                let tokens = Some(outcome.usage.total()).filter(|&tokens| tokens > 0);
                Ok(Answer { markdown: outcome.answer, tokens })
            }
            DialogueEnd::Stopped(why) => Err(Failure::stopped(why)),
            ended => Err(Failure::new(ended.to_string())),
        }
    }
}
