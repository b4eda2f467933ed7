//! The messages API of Anthropic.

use serde_json::{Map, Value, json};

use crate::conversation::{Answer, Conversation, Part, Stop, ToolCall, ToolResult, Turn, Usage};
use crate::error::{ModelErrorKind, error_text_of, excerpt};
use crate::stream_reader::{AnswerReader, StreamEvent};
use crate::{Provider, SafeNames, Tool, tool_format::Format};

/// The path of the messages API.
pub(crate) const MESSAGES: &str = "/v1/messages";

/// The API requires a limit. All its models can write this much.
const DEFAULT_MAX_TOKENS: u32 = 4096;

/// A request for a streamed response.
pub(crate) fn request(
    provider: &Provider,
    conversation: &Conversation,
    tools: &[Tool],
    names: &SafeNames,
    max_tokens: Option<u32>,
) -> Map<String, Value> {
    let mut request = Map::new();
    request.insert("model".to_owned(), provider.model.clone().into());
    request.insert("max_tokens".to_owned(), max_tokens.unwrap_or(DEFAULT_MAX_TOKENS).into());
    if !conversation.system.is_empty() {
        request.insert("system".to_owned(), conversation.system.clone().into());
    }
    request
        .insert("messages".to_owned(), conversation.turns.iter().filter_map(|turn| message(provider, turn)).collect());
    if !tools.is_empty() {
        request.insert("tools".to_owned(), Format::Anthropic.tools(tools, names));
    }
    request.insert("stream".to_owned(), true.into());
    request
}

/// One turn; None if it is empty, because empty messages are refused.
fn message(provider: &Provider, turn: &Turn) -> Option<Value> {
    let (role, content): (&str, Vec<Value>) = match turn {
        Turn::User(parts) => ("user", blocks(provider, parts)),
        Turn::Assistant { text, calls } => {
            let words = (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }));
            let uses = calls.iter().map(|call| {
                // Invalid JSON would be refused, although the model wrote it.
                let input = call.parsed().unwrap_or_default();
                json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
            });
            ("assistant", words.into_iter().chain(uses).collect())
        }
        Turn::Tools(results) => ("user", results.iter().map(|result| tool_result(provider, result)).collect()),
    };
    (!content.is_empty()).then(|| json!({ "role": role, "content": content }))
}

fn tool_result(provider: &Provider, result: &ToolResult) -> Value {
    let content = blocks(provider, &result.parts);
    let mut block = json!({ "type": "tool_result", "tool_use_id": result.call, "content": content });
    if result.is_error {
        block["is_error"] = true.into();
    }
    block
}

fn blocks(provider: &Provider, parts: &[Part]) -> Vec<Value> {
    let each = parts.iter().filter_map(|part| match part {
        Part::Image { media_type, data } if provider.sees_images && is_seen(media_type) => {
            let source = json!({ "type": "base64", "media_type": media_type, "data": data });
            Some(json!({ "type": "image", "source": source }))
        }
        _ => Some(part.words())
            .filter(|text| !text.trim().is_empty())
            .map(|text| json!({ "type": "text", "text": text })),
    });
    each.collect()
}

fn is_seen(media_type: &str) -> bool {
    matches!(media_type, "image/png" | "image/jpeg" | "image/gif" | "image/webp")
}

/// The reader of a response.
#[derive(Debug, Default)]
pub(crate) struct Message {
    answer: Answer,
    /// The call of each block, if it is one.
    blocks: Vec<(u64, usize)>,
    has_stopped: bool,
    is_done: bool,
}

impl AnswerReader for Message {
    fn event(&mut self, data: &[u8], on_event: &mut dyn FnMut(StreamEvent<'_>)) -> Result<(), ModelErrorKind> {
        let event: Value = serde_json::from_slice(data).map_err(|_| not_this_api(data))?;
        let index = event.get("index").and_then(Value::as_u64).unwrap_or_default();
        match event.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message_start" => self.note_usage(event.pointer("/message/usage")),
            "content_block_start" => {
                if let Some(block) = event.get("content_block") {
                    self.start_block(index, block, on_event);
                }
            }
            "content_block_delta" => self.take(index, &event, on_event),
            "message_delta" => {
                self.note_usage(event.get("usage"));
                self.note_end(event.pointer("/delta/stop_reason"));
            }
            "message_stop" => self.is_done = true,
            "error" => {
                return Err(ModelErrorKind::InStream(
                    error_text_of(&event).unwrap_or_else(|| excerpt(&event.to_string())),
                ));
            }
            // `ping`, `content_block_stop`, and events that may be added later.
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, body: &[u8], on_event: &mut dyn FnMut(StreamEvent<'_>)) -> Result<(), ModelErrorKind> {
        let message: Value = serde_json::from_slice(body).map_err(|_| not_this_api(body))?;
        let Some(content) = message.get("content").and_then(Value::as_array) else { return Err(not_this_api(body)) };
        for (index, block) in (0..).zip(content) {
            self.start_block(index, block, on_event);
        }
        self.note_usage(message.get("usage"));
        self.note_end(message.get("stop_reason"));
        self.is_done = true;
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.is_done
    }

    fn finish(self: Box<Self>) -> Result<Answer, ModelErrorKind> {
        if !self.has_stopped && !self.is_done {
            return Err(ModelErrorKind::BrokeOff("the stream ended without a final event".to_owned()));
        }
        Ok(self.answer)
    }
}

impl Message {
    fn start_block(&mut self, index: u64, block: &Value, on_event: &mut dyn FnMut(StreamEvent<'_>)) {
        let word = |member: &str| block.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
        match block.get("type").and_then(Value::as_str) {
            Some("text") => self.push_text(&word("text"), on_event),
            Some("tool_use") => {
                let (id, name) = (word("id"), word("name"));
                // In a stream the input follows later, and is empty here.
                let input = block.get("input").filter(|input| input.as_object().is_some_and(|map| !map.is_empty()));
                let arguments = input.map(Value::to_string).unwrap_or_default();
                on_event(StreamEvent::Call(&name));
                self.blocks.push((index, self.answer.calls.len()));
                self.answer.calls.push(ToolCall { id, name, arguments });
            }
            _ => {}
        }
    }

    fn take(&mut self, index: u64, event: &Value, on_event: &mut dyn FnMut(StreamEvent<'_>)) {
        if let Some(text) = event.pointer("/delta/text").and_then(Value::as_str) {
            return self.push_text(text, on_event);
        }
        let Some(json) = event.pointer("/delta/partial_json").and_then(Value::as_str) else { return };
        if let Some((_, place)) = self.blocks.iter().find(|(known, _)| *known == index) {
            self.answer.calls[*place].arguments.push_str(json);
        }
    }

    fn push_text(&mut self, text: &str, on_event: &mut dyn FnMut(StreamEvent<'_>)) {
        if !text.is_empty() {
            self.answer.text.push_str(text);
            on_event(StreamEvent::Text(text));
        }
    }

    fn note_end(&mut self, reason: Option<&Value>) {
        let Some(reason) = reason.and_then(Value::as_str) else { return };
        self.has_stopped = true;
        self.answer.stop = match reason {
            "end_turn" | "stop_sequence" => Stop::Done,
            "tool_use" => Stop::Tools,
            "max_tokens" | "model_context_window_exceeded" => Stop::Length,
            "refusal" => Stop::Refused,
            other => Stop::Other(other.to_owned()),
        };
    }

    /// Records the token counts. Tokens read from a cache count as input.
    fn note_usage(&mut self, usage: Option<&Value>) {
        let count = |member: &str| usage.and_then(|usage| usage.get(member)).and_then(Value::as_u64);
        let inputs = ["input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"].map(count);
        if inputs[0].is_some() {
            self.answer.usage.input = inputs.into_iter().flatten().sum();
        }
        self.answer.usage =
            Usage { output: count("output_tokens").unwrap_or(self.answer.usage.output), ..self.answer.usage };
    }
}

fn not_this_api(body: &[u8]) -> ModelErrorKind {
    ModelErrorKind::Foreign(excerpt(&String::from_utf8_lossy(body)))
}
