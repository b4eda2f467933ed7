//! Endpoints of the assistant: the tools it may use, also in the format of a provider, and questions to it.

use std::fmt;
use std::sync::Arc;

use assistant::{Dialogue, DialogueEnd, DialogueEvent, DialogueLimits};
use executions::Error as CallError;
use models::{Format, Forms, SafeNames};
use notebook::LineContext;
use registry::{RawJson, ServerId, ToolRecord};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use service::{Error, ListPlace, Service, ToolList, took_too_long};
use tokio::sync::watch;

use super::documents::{Context, wants_events};
use crate::assistant::{AssistantContext, Hints, NO_MODEL, UnreadSchemas, dialogue, end_code, event, model_tool};
use crate::documents::{RequestedDocument, own_session};
use crate::endpoint::Endpoint;
use crate::error;
use crate::request::{ApiRequest, Members};
use crate::response::ApiResponse;
use crate::schema::Schema;
use crate::schemas::documents as shapes;
use crate::sse_job::SseJob;

/// How to get fewer tools.
const HINT: &str = "pass `servers` or `skills` to get fewer tools";
/// How many tools a remark names.
const MAX_NAMED: usize = 10;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let format = || {
        Schema::one_of(Format::ALL.map(Format::as_str))
            .about("Also return the tools in the format that this provider expects in a request.")
    };
    let fails = ["DOCUMENT_NOT_FOUND", "SERVER_NOT_FOUND", "SKILL_NOT_FOUND", "VALIDATION_ERROR"];
    vec![
        Endpoint::get("/assistant/tools", "List the tools an assistant may use", |request| Box::pin(by_query(request)))
            .for_users()
            .within_profile()
            .about(
                "Returns the tools of enabled servers that can be called now. On a line of a document that is bound to \
                 a server, only the tools of that server. The document must be in the folder of `serve --documents`; \
                 for any other document, send its text with POST.",
            )
            .optional_query("format", format())
            .optional_query(
                "servers",
                Schema::storable_text().about("Only tools of these servers, by id or name, separated by commas."),
            )
            .optional_query(
                "skills",
                Schema::storable_text()
                    .about("Only tools with one of these skills, by id or name, separated by commas."),
            )
            .optional_query("path", shapes::path())
            .optional_query("line", shapes::line())
            .answers(200, "The tools.", Schema::named("AssistantTools"))
            .fails(&fails),
        Endpoint::post("/assistant/tools", "List the tools an assistant may use in a given text", |request| {
            Box::pin(by_body(request))
        })
        .for_users()
        .within_profile()
        .ends_with_client()
        .takes(
            shapes::requested()
                .with_optional("line", shapes::line())
                .with_optional("format", format())
                .with_optional(
                    "servers",
                    Schema::list(Schema::storable_text()).about("Only tools of these servers, by id or name."),
                )
                .with_optional(
                    "skills",
                    Schema::list(Schema::storable_text()).about("Only tools with one of these skills, by id or name."),
                ),
        )
        .answers(200, "The tools.", Schema::named("AssistantTools"))
        .fails(&fails),
        Endpoint::post("/assistant/ask", "Ask the assistant", |request| Box::pin(ask(request)))
            .for_users()
            .within_profile()
            .ends_with_client()
            .about(
                "The model of `serve --assistant-model` answers. It may call the tools that `/assistant/tools` returns \
                 for the same document, line, servers and skills. Its calls have the source `ai-autonomous` and all \
                 belong to one session. Closing the connection cancels them. With `Accept: text/event-stream`, the \
                 response is a stream: text arrives as `assistant.words` while the model produces it, calls as \
                 `assistant.calling` and `assistant.called`, and the answer as the last event, `assistant.finished` \
                 (or `assistant.failed`, with an Error).",
            )
            .takes(shapes::question())
            .answers(200, "The answer and the calls that were made for it.", Schema::named("AssistantAnswer"))
            .answers_with(200, "The same, as a stream of events.", "text/event-stream", Some(Schema::text()))
            .fails(&fails)
            .fails(&["ASSISTANT_UNAVAILABLE", "MODEL_FAILED", "EXECUTION_STOPPED"]),
    ]
}

/// Which tools to keep.
struct ToolNarrowing {
    servers: Vec<String>,
    skills: Vec<String>,
    format: Option<Format>,
}

async fn by_query(request: ApiRequest) -> Result<ApiResponse, Error> {
    let list = |name: &str| {
        let parts = request.text(name).unwrap_or_default().split(',').map(str::trim);
        parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    let narrowing =
        ToolNarrowing { servers: list("servers"), skills: list("skills"), format: format(request.text("format")) };
    let requested = match request.text("path") {
        Some(path) => Some(RequestedDocument::in_folder(request.documents.as_ref(), path.to_owned()).await?),
        None => None,
    };
    let line = request.query.get("line").and_then(Value::as_u64).unwrap_or(1);
    offered(&request.service, requested, line, &narrowing).await
}

async fn by_body(request: ApiRequest) -> Result<ApiResponse, Error> {
    let requested = meant_by_body(&request).await?;
    let line = request.body.number("line").unwrap_or(1);
    offered(&request.service, requested, line, &ToolNarrowing::by_body(&request.body)).await
}

/// The document that a body contains or names, if any.
async fn meant_by_body(request: &ApiRequest) -> Result<Option<RequestedDocument>, Error> {
    let has_document = request.body.raw("text").is_some() || request.body.raw("path").is_some();
    Ok(if has_document { Some(RequestedDocument::by_body(request).await?) } else { None })
}

impl ToolNarrowing {
    fn by_body(body: &Members) -> Self {
        let list = |name: &str| {
            let items = body.get(name).and_then(|items| items.as_array().cloned()).unwrap_or_default();
            items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let format = format(body.text("format").as_deref());
        Self { servers: list("servers"), skills: list("skills"), format }
    }
}

fn format(word: Option<&str>) -> Option<Format> {
    word.and_then(|word| word.trim().to_ascii_lowercase().parse().ok())
}

async fn offered(
    service: &Service,
    requested: Option<RequestedDocument>,
    line: u64,
    narrowing: &ToolNarrowing,
) -> Result<ApiResponse, Error> {
    let (place, narrowed) = Narrowed::of(service, requested, line, narrowing).await?;
    let format = narrowing.format;
    place.run(move |is_over| described(&narrowed, format, is_over)).await
}

/// The response with the tools that are left, also in the format of a provider. Stops when `is_over` returns true.
///
/// No tree of all tools is made: it would take many times the bytes of their definitions.
fn described(narrowed: &Narrowed, format: Option<Format>, is_over: &dyn Fn() -> bool) -> Result<ApiResponse, Error> {
    let Narrowed { context, tools, servers } = narrowed;
    let names = SafeNames::of(tools.iter().map(|tool| tool.name.as_str()));
    let mut remarks = context.remarks.clone();
    let mut provider_tools = None;
    if let Some(format) = format {
        let mut unread = UnreadSchemas::default();
        let models = tools.iter().map(|tool| model_tool(tool, &mut unread));
        let Forms { tools, cut } = format.json_until(models, &names, is_over).map_err(|error| too_slow(&error))?;
        remarks.extend(unread.remark());
        remarks.extend(cut_remark(&cut));
        provider_tools = Some(RawValue::from_string(tools).expect("trees are written as JSON"));
    }
    let mut shown = Vec::with_capacity(tools.len());
    for tool in tools {
        if is_over() {
            return Err(too_slow(&"describing the tools took too long"));
        }
        shown.push(AssistantTool::new(tool, &names));
    }
    let enabled = context.allowed_servers.iter().filter(|name| servers.is_empty() || servers.contains(name));
    Ok(ApiResponse::ok(&AssistantTools {
        tools: shown,
        enabled_servers: enabled.collect(),
        section_binding: context.bound.as_ref().map(|bound| bound.binding.server.as_str()),
        why: json!(context.why),
        remarks,
        format: format.map(Format::as_str),
        provider_tools,
    }))
}

/// The answer to `/assistant/tools`.
#[derive(Serialize)]
struct AssistantTools<'a> {
    tools: Vec<AssistantTool<'a>>,
    enabled_servers: Vec<&'a String>,
    section_binding: Option<&'a str>,
    why: Value,
    remarks: Vec<String>,
    format: Option<&'static str>,
    provider_tools: Option<Box<RawValue>>,
}

/// One tool of it.
#[derive(Serialize)]
struct AssistantTool<'a> {
    server_id: ServerId,
    server_name: &'a str,
    tool_name: &'a str,
    name: &'a str,
    safe_name: Option<&'a str>,
    description: Option<&'a str>,
    input_schema: Option<&'a RawJson>,
    definition_bytes: usize,
    is_read_only: bool,
    is_idempotent: bool,
    is_destructive: bool,
    skill_ids: &'a [String],
}

impl<'a> AssistantTool<'a> {
    fn new(tool: &'a ToolRecord, names: &'a SafeNames) -> Self {
        let Hints { is_read_only, is_idempotent, is_destructive } = Hints::of(&tool.definition);
        Self {
            server_id: tool.source_server_id,
            server_name: &tool.server_name,
            tool_name: &tool.original_name,
            name: &tool.name,
            safe_name: names.safe(&tool.name),
            description: tool.description.as_deref(),
            input_schema: tool.input_schema.as_ref(),
            definition_bytes: tool.definition.get().len(),
            is_read_only,
            is_idempotent,
            is_destructive,
            skill_ids: &tool.skills,
        }
    }
}

fn too_slow(why: &dyn fmt::Display) -> Error {
    took_too_long(&format_args!("{why}; {HINT}"))
}

/// A remark about tools whose parameters a model does not get completely.
fn cut_remark(cut: &[String]) -> Option<String> {
    let some = cut.iter().take(MAX_NAMED).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let more = if cut.len() > MAX_NAMED { format!(" and {} more", cut.len() - MAX_NAMED) } else { String::new() };
    (!cut.is_empty()).then(|| {
        format!("the schemas of {some}{more} are too large for this format, so some of their parameters are left out")
    })
}

/// The tools that are left.
struct Narrowed {
    context: LineContext,
    tools: Vec<ToolRecord>,
    /// The names of the requested servers.
    servers: Vec<String>,
}

impl Narrowed {
    async fn of(
        service: &Service,
        requested: Option<RequestedDocument>,
        line: u64,
        narrowing: &ToolNarrowing,
    ) -> Result<(ListPlace, Self), Error> {
        // Without a document, use an empty text: nothing is bound.
        let requested = requested.unwrap_or_else(|| RequestedDocument { text: String::new(), path: None, file: None });
        let found = Context::of(service, requested, line).await?;
        let servers = server_names(service, &narrowing.servers).await?;
        let skills = skill_ids(service, &narrowing.skills)?;
        let ToolList { place, tools } = found.tools(service, &servers, &skills, HINT).await?;
        Ok((place, Self { context: found.context, tools, servers }))
    }
}

async fn ask(request: ApiRequest) -> Result<ApiResponse, Error> {
    let question = Question::of(&request).await?;
    if wants_events(&request) {
        return Ok(ApiResponse::events(SseJob::of(request.job_limit, |event_sender| async move {
            let report = |name: &str, data: &Value| event_sender.event(name, data);
            match Box::pin(question.execute(report)).await {
                Ok(answer) => event_sender.event("assistant.finished", &answer),
                Err(error) => event_sender.event("assistant.failed", &error::to_value(&error)),
            }
        })));
    }
    Ok(ApiResponse::ok(&Box::pin(question.execute(|_, _| {})).await?))
}

/// A question that is ready to run.
struct Question {
    assistant_context: AssistantContext,
    dialogue: Dialogue,
    tools: Arc<[ToolRecord]>,
    line: usize,
    remarks: Vec<String>,
    with_transcript: bool,
    /// Becomes true when the service stops.
    closing: watch::Receiver<bool>,
}

impl Question {
    async fn of(request: &ApiRequest) -> Result<Self, Error> {
        let model = request.model.clone();
        let model = model.ok_or_else(|| Error::AssistantUnavailable { why: NO_MODEL.to_owned() })?;
        let body = &request.body;
        let (requested, narrowing) = (meant_by_body(request).await?, ToolNarrowing::by_body(body));
        let (text, document) =
            requested.as_ref().map(|requested| (requested.text.clone(), requested.path.clone())).unzip();
        let line = body.number("line").unwrap_or(1);
        let (_, Narrowed { context, tools, .. }) = Narrowed::of(&request.service, requested, line, &narrowing).await?;
        let rounds = body.number("max_rounds").and_then(|rounds| usize::try_from(rounds).ok());
        let bounds = rounds
            .map_or_else(DialogueLimits::default, |rounds| DialogueLimits { rounds, ..DialogueLimits::default() });
        let line = usize::try_from(line).unwrap_or(usize::MAX);
        let words = body.text("question").unwrap_or_default();
        let tools: Arc<[ToolRecord]> = tools.into();
        let (dialogue, unread) = dialogue(&words, text.as_deref(), line, &tools, bounds).await?;
        let remarks = context.remarks.into_iter().chain(unread).collect();
        Ok(Self {
            assistant_context: AssistantContext {
                model,
                service: Arc::clone(&request.service),
                actor: request.actor.clone(),
                document: document.flatten(),
                session: body.text("session").unwrap_or_else(own_session),
                may_destroy: request.flag("confirm_destructive"),
            },
            dialogue,
            tools,
            line,
            remarks,
            with_transcript: request.flag("transcript"),
            closing: request.closing.clone(),
        })
    }

    /// Runs the dialogue, reports its events, and returns the response. Dropping the future cancels the calls.
    async fn execute(mut self, mut report: impl FnMut(&str, &Value) + Send) -> Result<Value, Error> {
        let mut calls: Vec<Value> = Vec::new();
        let mut closing = self.closing.clone();
        let mut on_event = |dialogue_event: DialogueEvent<'_>| {
            let Some((name, data)) = event(dialogue_event) else { return };
            note_call(&mut calls, name, &data);
            report(name, &data);
        };
        let outcome = tokio::select! {
            outcome = self.assistant_context.converse(&mut self.dialogue, &self.tools, self.line, &mut on_event) => outcome,
            // The sender is dropped only when the program ends.
            _ = closing.wait_for(|is_closing| *is_closing) => return Err(Error::Call(CallError::ExecutionStopped)),
        };
        let outcome = outcome.map_err(|failure| Error::ModelFailed { message: failure.to_string() })?;
        let model = &self.assistant_context.model.provider().model;
        let mut answer = json!({
            "ok": outcome.ended == DialogueEnd::Answered,
            "answer": outcome.answer,
            "ended": end_code(&outcome.ended),
            "message": outcome.ended.to_string(),
            "calls": calls,
            "model": model,
            "input_tokens": outcome.usage.input,
            "output_tokens": outcome.usage.output,
            "remarks": self.remarks,
        });
        if self.with_transcript {
            answer["transcript"] = self.dialogue.transcript(model, Some(&outcome));
        }
        Ok(answer)
    }
}

/// Records a call. The end of a call belongs to the first unfinished call of the same tool.
fn note_call(calls: &mut Vec<Value>, name: &str, data: &Value) {
    match name {
        "assistant.calling" => {
            calls.push(json!({"tool": data["tool"], "arguments": data["arguments"], "took_ms": null, "problem": null}));
        }
        "assistant.called" => {
            let is_it = |call: &&mut Value| call["tool"] == data["tool"] && call["took_ms"].is_null();
            if let Some(call) = calls.iter_mut().find(is_it) {
                call["took_ms"] = data["took_ms"].clone();
                call["problem"] = data["problem"].clone();
            }
        }
        _ => {}
    }
}

async fn server_names(service: &Service, wanted: &[String]) -> Result<Vec<String>, Error> {
    let mut names = Vec::new();
    for key in wanted {
        names.push(service.server(key).await?.record.name);
    }
    Ok(names)
}

fn skill_ids(service: &Service, wanted: &[String]) -> Result<Vec<String>, Error> {
    let all = service.skills();
    let found = |key: &String| {
        let is_it = |id: &str, name: &str| id == key || name.eq_ignore_ascii_case(key);
        let known = all.iter().find(|skill| is_it(&skill.id, &skill.name));
        known.map(|skill| skill.id.clone()).ok_or_else(|| Error::SkillNotFound { key: key.clone() })
    };
    wanted.iter().map(found).collect()
}
