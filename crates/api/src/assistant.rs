//! The assistant of the service, for those who ask over HTTP: its calls go through the service, like any others.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use assistant::{
    Dialogue, DialogueEnd, DialogueEvent, DialogueLimits, OfferedTool, Outcome, Permission, ToolCallError, ToolExecutor,
};
use models::{Model, ModelError, Tool};
use notebook::{ArgumentCheck, check_arguments};
use registry::{RawJson, Source, ToolRecord};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use service::calls::Call;
use service::tool_search::{DEFAULT_SKILL_THRESHOLD, SearchRequest, Strategy};
use service::{Actor, Error, Service};

use crate::documents::compute;

/// Why nobody answers.
pub(crate) const NO_MODEL: &str = "this service has no assistant: `mcp-aggregator serve --assistant-model` names one, and `mcp-aggregator run` asks yours";

/// So many of the tools that fit a wish best are looked at; a model may be allowed few of them.
const MAX_CANDIDATES: usize = 1_000;

/// So many tools are named in a remark.
const MOST_NAMED: usize = 10;

/// A model, and on whose behalf it is asked.
pub(crate) struct AssistantContext {
    pub(crate) model: Arc<Model>,
    pub(crate) service: Arc<Service>,
    pub(crate) actor: Actor,
    /// Where the document is that is asked from, if there is one.
    pub(crate) document: Option<String>,
    /// What the calls count for.
    pub(crate) session: String,
    /// Whether tools that may destroy something may be called.
    pub(crate) may_destroy: bool,
}

impl AssistantContext {
    /// Goes on until there is an answer. Whoever drops this cancels the calls.
    pub(crate) async fn converse(
        &self,
        dialogue: &mut Dialogue,
        tools: &[ToolRecord],
        line: usize,
        tell: &mut (dyn FnMut(DialogueEvent<'_>) + Send),
    ) -> Result<Outcome, ModelError> {
        let whose = tools.iter().map(|tool| (tool.name.as_str(), tool)).collect();
        let executor = ServiceToolExecutor { assistant_context: self, line: u32::try_from(line).ok(), whose };
        dialogue.run(&self.model, &executor, tell).await
    }
}

/// A question about which nothing was said yet, and a remark about tools that cannot be offered as they are. The schemas of
/// all tools are read, on a thread for that.
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

/// What happens, as an event.
pub(crate) fn event(told: DialogueEvent<'_>) -> Option<(&'static str, Value)> {
    match told {
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

/// A stable word for how it ended.
pub(crate) fn word(ended: &DialogueEnd) -> &'static str {
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

/// What a tool's server says of it.
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
        let Some(said) = definition.annotations else {
            return Self { is_read_only: false, is_idempotent: false, is_destructive: false };
        };
        let is_read_only = said.read_only_hint == true;
        let is_destructive = said.destructive_hint == true && !is_read_only;
        Self { is_read_only, is_idempotent: said.idempotent_hint == true, is_destructive }
    }
}

/// Tools as models take them, and a remark about those whose schemas cannot be read: models are told nothing of what they
/// take.
pub(crate) fn model_tools(tools: &[ToolRecord]) -> (Vec<Tool>, Option<String>) {
    let mut unread = Vec::new();
    let all = tools.iter().map(|tool| {
        let schema = tool.input_schema.as_ref().map(|schema| serde_json::from_str(schema.get()));
        let schema = schema.transpose().unwrap_or_else(|error: serde_json::Error| {
            unread.push(format!("`{}` ({error})", tool.name));
            None
        });
        let about = tool.description.as_deref().unwrap_or_default();
        Tool::new(&tool.name, about, schema.unwrap_or_else(|| json!({})))
    });
    let all = all.collect();
    let count = unread.len();
    unread.truncate(MOST_NAMED);
    let remark = || format!("the schemas of {count} tools cannot be read: {}", unread.join(", "));
    (all, (count > 0).then(remark))
}

fn offers(tools: &[ToolRecord]) -> (Vec<OfferedTool>, Option<String>) {
    let (all, unread) = model_tools(tools);
    let offer = |(tool, record): (Tool, &ToolRecord)| {
        let Hints { is_read_only, is_idempotent, is_destructive } = Hints::of(&record.definition);
        OfferedTool { tool, is_read_only, is_idempotent, is_destructive }
    };
    (all.into_iter().zip(tools).map(offer).collect(), unread)
}

/// Hands that call tools through the service.
struct ServiceToolExecutor<'a> {
    assistant_context: &'a AssistantContext,
    line: Option<u32>,
    whose: HashMap<&'a str, &'a ToolRecord>,
}

impl ToolExecutor for ServiceToolExecutor<'_> {
    async fn call(&self, tool: &str, arguments: &str) -> Result<String, ToolCallError> {
        let failed = |why: String| ToolCallError::Failed(why);
        let tool = self.whose.get(tool).ok_or_else(|| failed(format!("there is no tool `{tool}`")))?;
        // Servers over stdio are sent lines, and between two tokens a blank does as well as a line end.
        let arguments = RawJson::parse(arguments.replace(['\n', '\r'], " "));
        let call = Call {
            name: tool.original_name.clone(),
            server: Some(tool.server_name.clone()),
            arguments: arguments.map_err(|error| failed(format!("the arguments are no JSON: {error}")))?,
            source: Source::AiAutonomous,
            actor: self.assistant_context.actor.clone(),
            document: self.assistant_context.document.clone().map(|path| (path, self.line)),
            session: Some(self.assistant_context.session.clone()),
            timeout_ms: None,
            trace: None,
        };
        match self.assistant_context.service.call(call).await {
            Ok(outcome) => Ok(outcome.result.get().to_owned()),
            Err(error @ (Error::ExecutionCancelled { .. } | Error::ExecutionStopped)) => {
                Err(ToolCallError::Stopped(error.to_string()))
            }
            Err(error) => Err(failed(error.to_string())),
        }
    }

    async fn find(&self, wish: &str, limit: usize) -> Result<Vec<String>, String> {
        let servers: BTreeSet<&str> = self.whose.values().map(|tool| tool.server_name.as_str()).collect();
        let wanted = SearchRequest {
            query: wish.to_owned(),
            // What may not be used here is left out below.
            limit: self.whose.len().min(MAX_CANDIDATES),
            servers: servers.into_iter().map(str::to_owned).collect(),
            skills: Vec::new(),
            strategy: Strategy::default(),
            skill_threshold: DEFAULT_SKILL_THRESHOLD,
            threshold: 0.0,
            include_schemas: false,
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
                tracing::warn!(tool = %offer.tool.name, %reason, "arguments were not checked against the tool's schema");
                Ok(())
            }
        }
    }

    async fn permit(&self, _offer: &OfferedTool, _arguments: &str) -> Permission {
        if self.assistant_context.may_destroy {
            return Permission::Given;
        }
        let why =
            "not called: it may destroy something, and whoever asks has not confirmed that (`confirm_destructive`)";
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
        // What is said of other things does not matter.
        let read = hints(r#"{"name":"a","description":"\ud800","annotations":{"readOnlyHint":true,"title":"\ud800"}}"#);
        assert!(read.is_read_only && !read.is_destructive);
        assert!(!hints(r#"{"name":"a"}"#).is_destructive);
        assert!(hints(r#"{"annotations":{"destructiveHint":true}}"#).is_destructive);
        assert!(!hints(r#"{"annotations":{"destructiveHint":true,"readOnlyHint":true}}"#).is_destructive);
    }
}
