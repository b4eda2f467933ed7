//! The assistant of the service for REST clients. Its calls go through the service, like any other call.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use assistant::{
    Dialogue, DialogueEnd, DialogueEvent, DialogueLimits, OfferedTool, Outcome, Permission, ToolCallError, ToolExecutor,
};
use executions::{Call, Error as CallError};
use models::{Model, ModelError, Tool};
use notebook::{ArgumentCheck, check_arguments};
use registry::{Actor, RawJson, Source, ToolRecord};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use service::{Error, Service};
use tool_search::{DEFAULT_SKILL_THRESHOLD, SearchRequest, Strategy};

use crate::documents::compute;

/// Why no assistant answers.
pub(crate) const NO_MODEL: &str = "this service has no assistant: start it with `mcp-aggregator serve \
     --assistant-model MODEL`, or run the document with `mcp-aggregator run`, which uses your own model";

/// How many of the best matches of a search are considered; the model may be allowed only a few of them.
const MAX_CANDIDATES: usize = 1_000;

/// How many tools a remark names.
const MAX_NAMED: usize = 10;

/// A model, and on whose behalf it runs.
pub(crate) struct AssistantContext {
    pub(crate) model: Arc<Model>,
    pub(crate) service: Arc<Service>,
    pub(crate) actor: Actor,
    /// The path of the document that the question comes from, if any.
    pub(crate) document: Option<String>,
    /// The session that the calls belong to.
    pub(crate) session: String,
    /// Whether destructive tools may be called.
    pub(crate) may_destroy: bool,
}

impl AssistantContext {
    /// Runs until there is an answer. Dropping the future cancels the calls.
    pub(crate) async fn converse(
        &self,
        dialogue: &mut Dialogue,
        tools: &[ToolRecord],
        line: usize,
        on_event: &mut (dyn FnMut(DialogueEvent<'_>) + Send),
    ) -> Result<Outcome, ModelError> {
        let whose = tools.iter().map(|tool| (tool.name.as_str(), tool)).collect();
        let executor = ServiceToolExecutor { assistant_context: self, line: u32::try_from(line).ok(), whose };
        dialogue.run(&self.model, &executor, on_event).await
    }
}

/// A new dialogue, and a remark about tools that cannot be used as they are. Reading the schemas of all tools is
/// computation, so it runs on a thread for that.
pub(crate) async fn dialogue(
    question: &str,
    text: Option<&str>,
    line: usize,
    tools: &Arc<[ToolRecord]>,
    bounds: DialogueLimits,
) -> Result<(Dialogue, Option<String>), Error> {
    let task = assistant::task(text.map(|text| (text, line)));
    let tools = Arc::clone(tools);
    let (offers, unread) = compute(move || Ok(offers(&tools))).await?;
    Ok((Dialogue::new(task, question, offers, bounds), unread))
}

/// The server-sent event for an event of a dialogue.
pub(crate) fn event(event: DialogueEvent<'_>) -> Option<(&'static str, Value)> {
    match event {
        DialogueEvent::Words("") | DialogueEvent::EndOfWords => None,
        DialogueEvent::Words(words) => Some(("assistant.words", json!({ "text": words }))),
        DialogueEvent::Calling { tool, arguments } => {
            Some(("assistant.calling", json!({ "tool": tool, "arguments": arguments })))
        }
        DialogueEvent::Called { tool, took, problem } => {
            let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            Some(("assistant.called", json!({ "tool": tool, "took_ms": took_ms, "problem": problem })))
        }
    }
}

/// A stable word for the end of a dialogue.
pub(crate) fn end_code(ended: &DialogueEnd) -> &'static str {
    match ended {
        DialogueEnd::Answered => "answered",
        DialogueEnd::CutShort => "cut_short",
        DialogueEnd::Refused(_) => "refused",
        DialogueEnd::Silent => "silent",
        DialogueEnd::RoundsSpent(_) => "rounds_spent",
        DialogueEnd::CallsSpent(_) => "calls_spent",
        DialogueEnd::Repeating => "goes_in_circles",
        DialogueEnd::Stopped(_) => "stopped",
    }
}

/// The behaviour that a tool's server declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hints {
    pub(crate) is_read_only: bool,
    pub(crate) is_idempotent: bool,
    pub(crate) is_destructive: bool,
}

#[derive(Deserialize)]
struct Annotated {
    annotations: Option<Annotations>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Annotations {
    #[serde(default)]
    read_only_hint: Value,
    #[serde(default)]
    idempotent_hint: Value,
    #[serde(default)]
    destructive_hint: Value,
}

impl Hints {
    /// A tool whose definition cannot be read may do anything.
    pub(crate) fn of(definition: &RawJson) -> Self {
        let Ok(definition) = serde_json::from_str::<Annotated>(definition.get()) else {
            return Self { is_read_only: false, is_idempotent: false, is_destructive: true };
        };
        let Some(annotations) = definition.annotations else {
            return Self { is_read_only: false, is_idempotent: false, is_destructive: false };
        };
        let is_read_only = annotations.read_only_hint == true;
        let is_destructive = annotations.destructive_hint == true && !is_read_only;
        Self { is_read_only, is_idempotent: annotations.idempotent_hint == true, is_destructive }
    }
}

/// Tools in the form that models take, and a remark about those whose schemas cannot be read: models get no parameters
/// for them.
pub(crate) fn model_tools(tools: &[ToolRecord]) -> (Vec<Tool>, Option<String>) {
    let mut unread = UnreadSchemas::default();
    let all = tools.iter().map(|tool| model_tool(tool, &mut unread)).collect();
    (all, unread.remark())
}

/// A tool as models take it. A schema that cannot be read is noted.
pub(crate) fn model_tool(tool: &ToolRecord, unread: &mut UnreadSchemas) -> Tool {
    let schema = tool.input_schema.as_ref().map(|schema| serde_json::from_str(schema.get()));
    let schema = schema.transpose().unwrap_or_else(|error: serde_json::Error| {
        unread.note(&tool.name, &error);
        None
    });
    let about = tool.description.as_deref().unwrap_or_default();
    Tool::new(&tool.name, about, schema.unwrap_or_else(|| json!({})))
}

/// Tools whose schemas cannot be read: how many, and the first ones with the reason.
#[derive(Debug, Default)]
pub(crate) struct UnreadSchemas {
    count: usize,
    named: Vec<String>,
}

impl UnreadSchemas {
    fn note(&mut self, tool: &str, error: &serde_json::Error) {
        self.count += 1;
        if self.named.len() < MAX_NAMED {
            self.named.push(format!("`{tool}` ({error})"));
        }
    }

    pub(crate) fn remark(&self) -> Option<String> {
        let remark = || format!("the schemas of {} tools cannot be read: {}", self.count, self.named.join(", "));
        (self.count > 0).then(remark)
    }
}

fn offers(tools: &[ToolRecord]) -> (Vec<OfferedTool>, Option<String>) {
    let (all, unread) = model_tools(tools);
    let offer = |(tool, record): (Tool, &ToolRecord)| {
        let Hints { is_read_only, is_idempotent, is_destructive } = Hints::of(&record.definition);
        OfferedTool { tool, is_read_only, is_idempotent, is_destructive }
    };
    (all.into_iter().zip(tools).map(offer).collect(), unread)
}

/// Calls tools through the service.
struct ServiceToolExecutor<'a> {
    assistant_context: &'a AssistantContext,
    line: Option<u32>,
    whose: HashMap<&'a str, &'a ToolRecord>,
}

impl ToolExecutor for ServiceToolExecutor<'_> {
    async fn call(&self, tool: &str, arguments: &str) -> Result<String, ToolCallError> {
        let failed = |why: String| ToolCallError::Failed(why);
        let tool = self.whose.get(tool).ok_or_else(|| failed(format!("there is no tool `{tool}`")))?;
        // Messages over stdio are single lines. Between two JSON tokens, a space is as good as a line break.
        let arguments = RawJson::parse(arguments.replace(['\n', '\r'], " "));
        let call = Call {
            name: tool.original_name.clone(),
            server: Some(tool.server_name.clone()),
            arguments: arguments.map_err(|error| failed(format!("the arguments are not valid JSON: {error}")))?,
            source: Source::AiAutonomous,
            actor: self.assistant_context.actor.clone(),
            document: self.assistant_context.document.clone().map(|path| (path, self.line)),
            session: Some(self.assistant_context.session.clone()),
            timeout_ms: None,
            trace: None,
        };
        match self.assistant_context.service.call(call).await {
            Ok(outcome) => Ok(outcome.result.get().to_owned()),
            Err(error @ Error::Call(CallError::ExecutionCancelled { .. } | CallError::ExecutionStopped)) => {
                Err(ToolCallError::Stopped(error.to_string()))
            }
            Err(error) => Err(failed(error.to_string())),
        }
    }

    async fn find(&self, wish: &str, limit: usize) -> Result<Vec<String>, String> {
        let servers: BTreeSet<&str> = self.whose.values().map(|tool| tool.server_name.as_str()).collect();
        let wanted = SearchRequest {
            query: wish.to_owned(),
            // Tools that may not be used here are filtered out below.
            limit: self.whose.len().min(MAX_CANDIDATES),
            servers: servers.into_iter().map(str::to_owned).collect(),
            skills: Vec::new(),
            strategy: Strategy::default(),
            skill_threshold: DEFAULT_SKILL_THRESHOLD,
            threshold: 0.0,
            include_schemas: false,
            profile: None,
        };
        let found = self.assistant_context.service.search(wanted).await.map_err(|error| error.to_string())?;
        let names = found.tools.into_iter().map(|tool| tool.name).filter(|name| self.whose.contains_key(name.as_str()));
        Ok(names.take(limit).collect())
    }

    async fn check(&self, offer: &OfferedTool, arguments: &Map<String, Value>) -> Result<(), String> {
        match check_arguments(offer.tool.schema.clone(), Value::Object(arguments.clone())).await {
            ArgumentCheck::Fit => Ok(()),
            ArgumentCheck::Misfit(faults) => Err(faults.join("; ")),
            ArgumentCheck::NotChecked(reason) => {
                tracing::warn!(tool = %offer.tool.name, %reason, "arguments were not checked against the schema of the tool");
                Ok(())
            }
        }
    }

    async fn permit(&self, _offer: &OfferedTool, _arguments: &str) -> Permission {
        if self.assistant_context.may_destroy {
            return Permission::Given;
        }
        let why =
            "not called: the tool may be destructive, and the request does not allow that (`confirm_destructive`)";
        Permission::Refused(why.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_whose_annotations_cannot_be_read_may_destroy_something() {
        let hints = |definition: &str| Hints::of(&RawJson::parse(definition).unwrap());
        let unread = hints(r#"{"name":"a","annotations":{"destructiveHint":"\ud800"}}"#);
        assert!(unread.is_destructive && !unread.is_read_only && !unread.is_idempotent);
        // What is annotations of other things does not matter.
        let read = hints(r#"{"name":"a","description":"\ud800","annotations":{"readOnlyHint":true,"title":"\ud800"}}"#);
        assert!(read.is_read_only && !read.is_destructive);
        assert!(!hints(r#"{"name":"a"}"#).is_destructive);
        assert!(hints(r#"{"annotations":{"destructiveHint":true}}"#).is_destructive);
        assert!(!hints(r#"{"annotations":{"destructiveHint":true,"readOnlyHint":true}}"#).is_destructive);
    }
}
