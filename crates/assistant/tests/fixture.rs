//! A scripted model, tools that record their calls, and an observer.

use std::sync::Mutex;
use std::time::Duration;

use assistant::{
    Dialogue, DialogueEvent, DialogueLimits, OfferedTool, Outcome, Permission, ToolCallError, ToolExecutor,
};
use models::{Budget, Limits, Model, ModelError, Provider, Tool};
use serde_json::{Map, Value, json};
use testkit::ModelServer;
use tokio::sync::Barrier;

/// The provider to imitate.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dialect {
    OpenAi,
    Anthropic,
}

pub(crate) const BOTH: [Dialect; 2] = [Dialect::OpenAi, Dialect::Anthropic];

/// A model that retries without a delay.
pub(crate) fn model(server: &ModelServer, plays: Dialect) -> Model {
    let provider = match plays {
        Dialect::OpenAi => Provider::openai(server.openai_url(), None, "scripted"),
        Dialect::Anthropic => Provider::anthropic(server.anthropic_url(), None, "scripted"),
    };
    with(provider)
}

pub(crate) fn with(provider: Provider) -> Model {
    let limits = Limits { tries: 2, first_pause: Duration::from_millis(1), ..Limits::default() };
    Model::new(provider, limits, Budget::unlimited().into()).expect("the provider is right")
}

/// Three tools: read-only, writing and destructive.
pub(crate) fn offers() -> Vec<OfferedTool> {
    let tool = |name: &str| Tool::new(name, format!("Does {name}."), json!({"type": "object"}));
    let offer =
        |name: &str| OfferedTool { tool: tool(name), is_read_only: false, is_idempotent: false, is_destructive: false };
    vec![
        OfferedTool { is_read_only: true, ..offer("files.read") },
        offer("files.write"),
        OfferedTool { is_destructive: true, ..offer("files.delete") },
    ]
}

/// An executor that records its calls.
#[derive(Default)]
pub(crate) struct RecordingExecutor {
    pub(crate) done: Mutex<Vec<(String, Value)>>,
    /// Whether destructive tools may be called.
    pub(crate) is_allowed: bool,
    /// How many calls must run in parallel before any returns.
    pub(crate) meeting: Option<Barrier>,
    /// The error that calls return instead of a result.
    pub(crate) mishap: Option<ToolCallError>,
    /// Whether calls never return.
    pub(crate) is_stuck: bool,
    /// The result of every search.
    pub(crate) finds: Vec<String>,
}

impl ToolExecutor for RecordingExecutor {
    async fn call(&self, tool: &str, arguments: &str) -> Result<String, ToolCallError> {
        self.done
            .lock()
            .expect("no test panics while it holds this")
            .push((tool.to_owned(), serde_json::from_str(arguments).expect("arguments are JSON")));
        if self.is_stuck {
            std::future::pending::<()>().await;
        }
        if let Some(meeting) = &self.meeting {
            meeting.wait().await;
        }
        match &self.mishap {
            Some(mishap) => Err(mishap.clone()),
            None => Ok(json!({"content": [{"type": "text", "text": format!("{tool} gave {arguments}")}]}).to_string()),
        }
    }

    async fn find(&self, wish: &str, limit: usize) -> Result<Vec<String>, String> {
        match wish {
            "trouble" => Err("nobody searches today".to_owned()),
            _ => Ok(self.finds.iter().take(limit).cloned().collect()),
        }
    }

    async fn check(&self, _offer: &OfferedTool, arguments: &Map<String, Value>) -> Result<(), String> {
        match arguments.get("path") {
            None | Some(Value::String(_)) => Ok(()),
            Some(other) => Err(format!("`path`: {other} is not of type \"string\"")),
        }
    }

    async fn permit(&self, offer: &OfferedTool, _arguments: &str) -> Permission {
        match self.is_allowed {
            true => Permission::Given,
            false => Permission::Refused(format!("the user does not want {} to be called", offer.tool.name)),
        }
    }
}

impl RecordingExecutor {
    pub(crate) fn names(&self) -> Vec<String> {
        self.done.lock().expect("no test panics while it holds this").iter().map(|(name, _)| name.clone()).collect()
    }
}

/// The outcome of a question.
pub(crate) struct Went {
    pub(crate) outcome: Result<Outcome, ModelError>,
    pub(crate) dialogue: Dialogue,
    /// The events, in short.
    pub(crate) printed: Vec<String>,
}

pub(crate) async fn ask(model: &Model, executor: &RecordingExecutor, bounds: DialogueLimits) -> Went {
    ask_with(offers(), model, executor, bounds).await
}

pub(crate) async fn ask_with(
    offers: Vec<OfferedTool>,
    model: &Model,
    executor: &RecordingExecutor,
    bounds: DialogueLimits,
) -> Went {
    let mut dialogue = Dialogue::new("Be brief.", "Well?", offers, bounds);
    let mut printed = Vec::new();
    let mut tell = |it: DialogueEvent<'_>| {
        printed.push(match it {
            DialogueEvent::Words(words) => words.to_owned(),
            DialogueEvent::EndOfWords => "/".to_owned(),
            DialogueEvent::Calling { tool, arguments } => format!("calling {tool} {arguments}"),
            DialogueEvent::Called { tool, problem, .. } => format!("called {tool} {}", problem.unwrap_or("well")),
        });
    };
    let outcome = dialogue.run(model, executor, &mut tell).await;
    Went { outcome, dialogue, printed }
}

/// The results in the last request to the model, as text.
pub(crate) fn last_results(server: &ModelServer) -> String {
    let asked = server.asked();
    let messages =
        asked.last().expect("something was asked").body["messages"].as_array().expect("there are messages").clone();
    let after = messages.iter().rposition(|message| message["role"] == "assistant").map_or(0, |at| at + 1);
    json!(messages[after..]).to_string()
}
