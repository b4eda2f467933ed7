//! Shared by the tests: a model with short timeouts, and tools.

use std::sync::Arc;
use std::time::Duration;

use models::{
    Answer, Budget, Conversation, Key, Limits, Model, ModelError, ModelRequest, Provider, SafeNames, StreamEvent, Tool,
};
use serde_json::json;
use testkit::ModelServer;

pub(crate) const QUICK: Limits = Limits {
    first_byte: Duration::from_secs(20),
    idle: Duration::from_secs(20),
    tries: 3,
    first_pause: Duration::from_millis(5),
    longest_pause: Duration::from_secs(2),
    at_once: 2,
};

pub(crate) fn openai(server: &ModelServer) -> Model {
    with(Provider::openai(server.openai_url(), Some(Key::new("sk-secret")), "gpt-test"), QUICK)
}

pub(crate) fn anthropic(server: &ModelServer) -> Model {
    with(Provider::anthropic(server.anthropic_url(), Some(Key::new("sk-secret")), "claude-test"), QUICK)
}

pub(crate) fn with(provider: Provider, limits: Limits) -> Model {
    Model::new(provider, limits, Arc::new(Budget::unlimited())).expect("the provider is right")
}

/// Some tools, one of them with a name that providers refuse.
pub(crate) fn tools() -> (Vec<Tool>, SafeNames) {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let tools =
        vec![Tool::new("sky:weather", "Tells the weather.", schema), Tool::new("now", "Tells the time.", json!({}))];
    let names = SafeNames::of(tools.iter().map(|tool| tool.name.as_str()));
    (tools, names)
}

/// Requests an answer with tools; returns it and its events.
pub(crate) async fn ask(model: &Model, conversation: &Conversation) -> (Result<Answer, ModelError>, Vec<String>) {
    let (tools, names) = tools();
    let mut heard = Vec::new();
    let ask = ModelRequest { conversation, tools: &tools, names: &names, max_tokens: None };
    let answered = model
        .answer(ask, &mut |piece| {
            heard.push(match piece {
                StreamEvent::Text(text) => text.to_owned(),
                StreamEvent::Call(name) => format!("({name})"),
            });
        })
        .await;
    (answered, heard)
}

pub(crate) fn question() -> Conversation {
    let mut conversation = Conversation::new("Be brief.");
    conversation.ask("Weather?");
    conversation
}
