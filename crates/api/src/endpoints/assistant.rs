//! What an assistant may use: the tools of enabled servers, narrowed, and in the form that its provider takes; and
//! questions to the one that the service has.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use assistant::{Dialogue, DialogueEnd, DialogueEvent, DialogueLimits};
use models::{Format, Forms, SafeNames};
use notebook::Place;
use registry::ToolRecord;
use serde_json::{Value, json};
use service::{Error, Service};
use tokio::sync::watch;

use super::documents::{Context, wants_events};
use crate::assistant::{AssistantContext, Hints, NO_MODEL, dialogue, event, model_tools, word};
use crate::documents::{RequestedDocument, compute_until, own_session};
use crate::endpoint::Endpoint;
use crate::error;
use crate::request::{ApiRequest, Members};
use crate::response::ApiResponse;
use crate::schema::Schema;
use crate::schemas::documents as shapes;
use crate::sse_job::SseJob;

/// How long it may take to describe the tools of one request.
const LIST_DEADLINE: Duration = Duration::from_secs(10);
/// Bytes of the definitions of the tools of one request.
const MOST_LISTED_BYTES: usize = 64 * 1024 * 1024;
/// So many tools are named in a remark.
const MOST_NAMED: usize = 10;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let format = || {
        Schema::word(Format::ALL.map(Format::as_str)).about("Also give them as this provider wants them in a request.")
    };
    let fails = ["DOCUMENT_NOT_FOUND", "SERVER_NOT_FOUND", "SKILL_NOT_FOUND", "VALIDATION_ERROR"];
    vec![
        Endpoint::get("/assistant/tools", "What an assistant may use", |request| Box::pin(by_query(request)))
            .about(
                "The tools of enabled servers that can be called now; in a line of a document that is bound to a server, \
                 those of that server alone. The document must be below the folder of `serve --documents`; the text of \
                 another is sent by POST.",
            )
            .asks("format", format())
            .asks("servers", Schema::kept_text().about("Only of these, by id or name, with commas between them."))
            .asks("skills", Schema::kept_text().about("Only with one of these, by id or name, with commas between."))
            .asks("path", shapes::path())
            .asks("line", shapes::line())
            .answers(200, "The tools.", Schema::named("AssistantTools"))
            .fails(&fails),
        Endpoint::post("/assistant/tools", "The same for a text that is sent", |request| Box::pin(by_body(request)))
            .ends_with_client()
            .takes(
                shapes::requested()
                    .with_optional("line", shapes::line())
                    .with_optional("format", format())
                    .with_optional("servers", Schema::list(Schema::kept_text()).about("Only of these, by id or name."))
                    .with_optional("skills", Schema::list(Schema::kept_text()).about("Only with one of these.")),
            )
            .answers(200, "The tools.", Schema::named("AssistantTools"))
            .fails(&fails),
        Endpoint::post("/assistant/ask", "Ask the assistant", |request| Box::pin(ask(request)))
            .ends_with_client()
            .about(
                "The model of `serve --assistant-model` answers, and may use the tools that `/assistant/tools` would offer \
                 for the same document, line, servers and skills. Its calls have the source `ai-autonomous`; all of one \
                 question count for one session. A request that is given up cancels them. With \
                 `Accept: text/event-stream` its words come as they are said as events `assistant.words`, its calls as \
                 `assistant.calling` and `assistant.called`, and the answer as the last one, `assistant.finished` (or \
                 `assistant.failed`, with an Error).",
            )
            .takes(shapes::question())
            .answers(200, "What came of it.", Schema::named("AssistantAnswer"))
            .answers_with(200, "The same, as it happens.", "text/event-stream", Some(Schema::text()))
            .fails(&fails)
            .fails(&["ASSISTANT_UNAVAILABLE", "MODEL_FAILED", "EXECUTION_STOPPED"]),
    ]
}

/// What is to be left out.
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

/// The document that a body has or names, if it does.
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
    let narrowed = Narrowed::of(service, requested, line, narrowing).await?;
    let format = narrowing.format;
    compute_until(move |interrupt| {
        let begun = Instant::now();
        described(narrowed, format, &|| interrupt.is_set() || begun.elapsed() >= LIST_DEADLINE)
    })
    .await
}

/// The tools that are left, and in the form of a provider. The work ends when `is_over` says so.
fn described(narrowed: Narrowed, format: Option<Format>, is_over: &dyn Fn() -> bool) -> Result<ApiResponse, Error> {
    let Narrowed { place, tools, servers } = narrowed;
    let names = SafeNames::of(tools.iter().map(|tool| tool.name.as_str()));
    let mut remarks = place.remarks;
    let mut forms = None;
    if let Some(format) = format {
        let (tools, unread) = model_tools(&tools);
        let Forms { tools, cut } = format.tools_until(&tools, &names, is_over).map_err(|error| too_slow(&error))?;
        remarks.extend(unread);
        remarks.extend(cut_remark(&cut));
        forms = Some(tools);
    }
    let mut described = Vec::with_capacity(tools.len());
    for tool in &tools {
        if is_over() {
            return Err(too_slow(&"the tools were not all described in time"));
        }
        described.push(shown(tool, &names));
    }
    let enabled = place.allowed_servers.iter().filter(|name| servers.is_empty() || servers.contains(name));
    Ok(ApiResponse::ok(&json!({
        "tools": described,
        "enabled_servers": enabled.collect::<Vec<_>>(),
        "section_binding": place.bound.as_ref().map(|bound| &bound.binding.server),
        "why": place.why,
        "remarks": remarks,
        "format": format.map(Format::as_str),
        "provider_tools": forms,
    })))
}

fn too_slow(why: &dyn fmt::Display) -> Error {
    let message = format!("{why}, which is {LIST_DEADLINE:?}; name `servers` or `skills` to get fewer of them");
    Error::LimitReached { message, context: serde_json::Map::new() }
}

/// Which tools a model is not told all parameters of.
fn cut_remark(cut: &[String]) -> Option<String> {
    let some = cut.iter().take(MOST_NAMED).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let more = if cut.len() > MOST_NAMED { format!(" and {} more", cut.len() - MOST_NAMED) } else { String::new() };
    (!cut.is_empty())
        .then(|| format!("the schemas of {some}{more} are too large for this form, so not all parameters are in it"))
}

/// What is left.
struct Narrowed {
    place: Place,
    tools: Vec<ToolRecord>,
    /// The servers that were named, by name.
    servers: Vec<String>,
}

impl Narrowed {
    async fn of(
        service: &Service,
        requested: Option<RequestedDocument>,
        line: u64,
        narrowing: &ToolNarrowing,
    ) -> Result<Self, Error> {
        // Without a document, every line of no text at all: bound to nothing.
        let requested = requested.unwrap_or_else(|| RequestedDocument { text: String::new(), path: None, file: None });
        let Context { place, mut tools, .. } = Context::of(service, requested, line).await?;
        let servers = server_names(service, &narrowing.servers).await?;
        let skills = skill_ids(service, &narrowing.skills)?;
        tools.retain(|tool| servers.is_empty() || servers.contains(&tool.server_name));
        tools.retain(|tool| skills.is_empty() || tool.skills.iter().any(|skill| skills.contains(skill)));
        let bytes: usize = tools.iter().map(|tool| tool.definition.get().len()).sum();
        if bytes > MOST_LISTED_BYTES {
            let message = format!(
                "{} tools have definitions of {bytes} bytes; at most {MOST_LISTED_BYTES} are given at once: name \
                 `servers` or `skills` to get fewer of them",
                tools.len()
            );
            return Err(Error::LimitReached { message, context: serde_json::Map::new() });
        }
        Ok(Self { place, tools, servers })
    }
}

async fn ask(request: ApiRequest) -> Result<ApiResponse, Error> {
    let question = Question::of(&request).await?;
    if wants_events(&request) {
        return Ok(ApiResponse::events(SseJob::of(|event_sender| async move {
            let tell = |name: &str, data: &Value| event_sender.event(name, data);
            match Box::pin(question.execute(tell)).await {
                Ok(answer) => event_sender.event("assistant.finished", &answer),
                Err(error) => event_sender.event("assistant.failed", &error::to_value(&error)),
            }
        })));
    }
    Ok(ApiResponse::ok(&Box::pin(question.execute(|_, _| {})).await?))
}

/// A question, ready to be asked.
struct Question {
    assistant_context: AssistantContext,
    dialogue: Dialogue,
    tools: Arc<[ToolRecord]>,
    line: usize,
    remarks: Vec<String>,
    with_transcript: bool,
    /// Turns true when we stop.
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
        let Narrowed { place, tools, .. } = Narrowed::of(&request.service, requested, line, &narrowing).await?;
        let rounds = body.number("max_rounds").and_then(|rounds| usize::try_from(rounds).ok());
        let bounds = rounds
            .map_or_else(DialogueLimits::default, |rounds| DialogueLimits { rounds, ..DialogueLimits::default() });
        let line = usize::try_from(line).unwrap_or(usize::MAX);
        let words = body.text("question").unwrap_or_default();
        let tools: Arc<[ToolRecord]> = tools.into();
        let (dialogue, unread) = dialogue(&words, text.as_deref(), line, &tools, bounds).await?;
        let remarks = place.remarks.into_iter().chain(unread).collect();
        Ok(Self {
            assistant_context: AssistantContext {
                model,
                service: Arc::clone(&request.service),
                actor: request.actor.clone(),
                document: document.flatten(),
                session: body.text("session").unwrap_or_else(own_session),
                may_destroy: request.says("confirm_destructive"),
            },
            dialogue,
            tools,
            line,
            remarks,
            with_transcript: request.says("transcript"),
            closing: request.closing.clone(),
        })
    }

    /// Asks, and tells what happens; what is to be answered. Whoever drops this cancels the calls.
    async fn execute(mut self, mut tell: impl FnMut(&str, &Value) + Send) -> Result<Value, Error> {
        let mut calls: Vec<Value> = Vec::new();
        let mut closing = self.closing.clone();
        let mut hear = |told: DialogueEvent<'_>| {
            let Some((name, data)) = event(told) else { return };
            note_call(&mut calls, name, &data);
            tell(name, &data);
        };
        let outcome = tokio::select! {
            outcome = self.assistant_context.converse(&mut self.dialogue, &self.tools, self.line, &mut hear) => outcome,
            // The sender goes away only when everything does.
            _ = closing.wait_for(|is_closing| *is_closing) => return Err(Error::ExecutionStopped),
        };
        let outcome = outcome.map_err(|failure| Error::ModelFailed { message: failure.to_string() })?;
        let model = &self.assistant_context.model.provider().model;
        let mut answer = json!({
            "ok": outcome.ended == DialogueEnd::Answered,
            "answer": outcome.answer,
            "ended": word(&outcome.ended),
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

/// Keeps what is told of calls: one that is over is the first of its name that is not.
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

fn shown(tool: &ToolRecord, names: &SafeNames) -> Value {
    let Hints { is_read_only, is_idempotent, is_destructive } = Hints::of(&tool.definition);
    json!({
        "server_id": tool.source_server_id,
        "server_name": tool.server_name,
        "tool_name": tool.original_name,
        "name": tool.name,
        "safe_name": names.safe(&tool.name),
        "description": tool.description,
        "input_schema": tool.input_schema.as_ref().map(registry::RawJson::to_value),
        "definition_bytes": tool.definition.get().len(),
        "is_read_only": is_read_only,
        "is_idempotent": is_idempotent,
        "is_destructive": is_destructive,
        "skill_ids": tool.skills,
    })
}
