//! Answers that are JSON. Not every server supports schemas, so there are several modes: a schema, JSON without a
//! schema, or a request in the prompt. In each mode the answer is searched for a JSON object. The caller has to check
//! the schema, because a server may not enforce it.

use std::sync::atomic::Ordering;

use serde_json::{Map, Value, json};

use crate::conversation::Conversation;
use crate::error::{ModelError, ModelErrorKind, excerpt};
use crate::provider::Dialect;
use crate::{Model, ModelRequest, SafeNames, Tool};

/// How many places of an answer are tried.
const MAX_CANDIDATES: usize = 1000;

/// A question whose answer is a JSON object.
#[derive(Debug, Clone, Copy)]
pub struct Question<'q> {
    /// The task.
    pub system: &'q str,
    /// The input.
    pub user: &'q str,
    /// The name of the answer, in letters, digits and `_`.
    pub name: &'q str,
    /// The JSON Schema of the answer: an object, strict in OpenAI's sense (everything required, nothing additional).
    pub schema: &'q Value,
    /// The limit of output tokens, if any.
    pub max_tokens: Option<u32>,
}

/// Modes to request JSON, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JsonMode {
    Schema,
    Object,
    Words,
}

const JSON_MODES: [JsonMode; 3] = [JsonMode::Schema, JsonMode::Object, JsonMode::Words];

impl Model {
    /// The JSON object of an answer. A mode that the server refuses is not tried again.
    pub async fn json(&self, question: Question<'_>) -> Result<Value, ModelError> {
        let _turn = self.turn().await;
        let mut json_mode = usize::from(self.json_mode.load(Ordering::Relaxed));
        loop {
            match self.json_by(question, JSON_MODES[json_mode]).await {
                Err(failure) if json_mode + 1 < JSON_MODES.len() && is_refused(&failure) => json_mode += 1,
                Ok(answer) => {
                    self.json_mode.store(u8::try_from(json_mode).expect("the ladder is short"), Ordering::Relaxed);
                    return Ok(answer);
                }
                failed => return failed,
            }
        }
    }

    async fn json_by(&self, question: Question<'_>, json_mode: JsonMode) -> Result<Value, ModelError> {
        let mut conversation = Conversation::new(question.system);
        conversation.ask(question.user);
        if json_mode != JsonMode::Schema {
            let instruction = "Answer with nothing but one JSON object that keeps to this JSON Schema:";
            conversation.system = format!("{}\n\n{instruction}\n{}", conversation.system, question.schema);
        }
        let names = SafeNames::default();
        let ask =
            ModelRequest { conversation: &conversation, tools: &[], names: &names, max_tokens: question.max_tokens };
        let mut request = self.request(&ask);
        self.demand(&mut request, question, json_mode);
        let answer = self.converse(&request, &mut |_| {}).await?;
        let called = answer.calls.iter().find_map(|call| call.parsed().ok()).map(Value::Object);
        called.or_else(|| first_object(&answer.text)).ok_or_else(|| {
            let instruction = format!("{} ({:?})", excerpt(&answer.text), answer.stop);
            self.failure(ModelErrorKind::NoJson(instruction))
        })
    }

    fn demand(&self, request: &mut Map<String, Value>, question: Question<'_>, json_mode: JsonMode) {
        let Question { name, schema, .. } = question;
        match (self.provider.dialect, json_mode) {
            (Dialect::OpenAi, JsonMode::Schema) => {
                let rule = json!({ "name": name, "schema": schema, "strict": true });
                request.insert("response_format".to_owned(), json!({ "type": "json_schema", "json_schema": rule }));
            }
            (Dialect::OpenAi, JsonMode::Object) => {
                request.insert("response_format".to_owned(), json!({ "type": "json_object" }));
            }
            // A forced tool call is the mode that all models of this provider support.
            (Dialect::Anthropic, JsonMode::Schema | JsonMode::Object) => {
                let tool = Tool::new(name, "Takes the answer.", schema.clone());
                request.insert("tools".to_owned(), json!([crate::Format::Anthropic.tool(&tool, name)]));
                request.insert("tool_choice".to_owned(), json!({ "type": "tool", "name": name }));
            }
            (_, JsonMode::Words) => {}
        }
    }
}

/// Whether the server refused the request. Other errors of the request show in the last mode.
fn is_refused(failure: &ModelError) -> bool {
    matches!(failure.kind, ModelErrorKind::Refused { status: 400 | 404 | 415 | 422 | 501, .. })
}

/// The first JSON object in a text. Text in thinking tags is skipped.
pub fn first_object(text: &str) -> Option<Value> {
    let said = text.rsplit_once("</think>").map_or(text, |(_, said)| said);
    let places = said.match_indices('{').map(|(place, _)| place).take(MAX_CANDIDATES);
    let mut tried_until = 0;
    for place in places {
        if place < tried_until {
            continue;
        }
        let mut values = serde_json::Deserializer::from_str(&said[place..]).into_iter::<Value>();
        if let Some(Ok(value)) = values.next() {
            // `{}` in prose is not an answer, unless there is nothing else.
            if value.as_object().is_some_and(|object| !object.is_empty()) || said.trim() == "{}" {
                return Some(value);
            }
            tried_until = place + values.byte_offset();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_found_whatever_is_around_it() {
        for text in [
            r#"{"a": 1}"#,
            "Sure! Here it is:\n```json\n{\"a\": 1}\n```\nAnything else?",
            r#"<think>maybe {"a": 2}?</think>{"a": 1}"#,
            r#"In {braces} we trust: {"a": 1} {"a": 2}"#,
        ] {
            assert_eq!(first_object(text), Some(json!({"a": 1})), "{text}");
        }
        assert_eq!(first_object("{}"), Some(json!({})));
        for text in ["", "no", "{", r#"{"a": "#, "[1, 2]"] {
            assert_eq!(first_object(text), None, "{text}");
        }
    }
}
