//! Calls of a document through the service that we are: its limits hold, and its account has them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use assistant::{DialogueEnd, DialogueLimits};
use models::Model;
use notebook::{Answer, Failure, Question, Request, Server, ToolSchema, ToolTable, Toolbox, WantedTools};
use registry::{RawJson, Source, Status, Timestamp, ToolRecord};
use service::calls::Call;
use service::{Actor, Error, Service};

use crate::assistant::{AssistantContext, NO_MODEL, dialogue, event};
use crate::sse_job::EventSender;

/// The servers of the service.
pub(crate) struct ServiceTools {
    pub(crate) service: Arc<Service>,
    pub(crate) actor: Actor,
    pub(crate) servers: Vec<Server>,
    /// Where the document is, if that was said.
    pub(crate) path: Option<String>,
    /// What the calls count for.
    pub(crate) session: String,
    /// What `assistant` blocks need.
    pub(crate) assistant_options: AssistantOptions,
    /// Who is told of what the assistant does meanwhile.
    pub(crate) event_sender: Option<EventSender>,
}

/// What `assistant` blocks need.
pub(crate) struct AssistantOptions {
    /// Nothing, if none is configured.
    pub(crate) model: Option<Arc<Model>>,
    /// Whether tools that may destroy something may be called.
    pub(crate) may_destroy: bool,
    /// The document.
    pub(crate) text: String,
}

/// A session of its own for a run: no two have the same, also after a restart.
pub(crate) fn own_session() -> String {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    format!("run {} {}", RUNS.fetch_add(1, Ordering::Relaxed), Timestamp::now())
}

/// What the service knows of the tools of a server.
pub(super) async fn tool_table(service: &Service, server: &str, wanted: &WantedTools) -> Option<ToolTable> {
    // If nobody can tell now, the call will say why.
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
        // A call wakes a server that sleeps, and waits for one that starts.
        let is_down = status == Status::Error || status == Status::Disconnected && !view.lazy;
        is_down.then(|| view.record.error_message.unwrap_or_else(|| format!("it is {status}")))
    }

    async fn call(&self, request: &Request) -> Result<String, Failure> {
        let arguments = RawJson::parse(request.arguments.clone());
        let call = Call {
            name: request.tool.clone(),
            server: Some(request.server.clone()),
            arguments: arguments.map_err(|error| Failure::new(format!("the parameters are no JSON: {error}")))?,
            source: Source::UserCodeblock,
            actor: self.actor.clone(),
            document: self.path.clone().map(|path| (path, u32::try_from(request.line).ok())),
            session: Some(self.session.clone()),
            timeout_ms: None,
            trace: None,
        };
        match self.service.call(call).await {
            Ok(outcome) => Ok(outcome.result.get().to_owned()),
            Err(error @ (Error::ExecutionCancelled { .. } | Error::ExecutionStopped)) => {
                Err(Failure::stopped(error.to_string()))
            }
            Err(Error::LimitReached { message, context })
                if context.get("limit").is_some_and(|it| it == "session_limit") =>
            {
                Err(Failure::run_over(message))
            }
            Err(
                error @ (Error::LimitReached { .. } | Error::ServerUnavailable { .. } | Error::ServerNotFound { .. }),
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
            tracing::warn!(%remark, "an assistant is not told what some tools take");
        }
        let mut tell = |told: assistant::DialogueEvent<'_>| {
            if let (Some(event_sender), Some((name, mut data))) = (&self.event_sender, event(told)) {
                data["line"] = question.line.into();
                event_sender.event(name, &data);
            }
        };
        let outcome = assistant_context.converse(&mut dialogue, &tools, question.line, &mut tell).await;
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
