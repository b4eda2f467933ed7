//! Anthropic's messages.

use serde_json::{Map, Value, json};

use crate::conversation::{Answer, Conversation, Part, Stop, ToolCall, ToolResult, Turn, Usage};
use crate::error::{ModelErrorKind, error_text_of, excerpt};
use crate::stream_reader::{AnswerReader, StreamEvent};
use crate::{Provider, SafeNames, Tool, tool_format::Format};

/// The path of a conversation.
pub(crate) const MESSAGES: &str = "/v1/messages";

/// It wants a bound. This is what all its models can write.
const DEFAULT_MAX_TOKENS: u32 = 4096;

/// A request for a streamed answer.
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

/// One turn; nothing, if nothing was said in it, for empty messages are refused.
fn message(provider: &Provider, turn: &Turn) -> Option<Value> {
    let (role, content): (&str, Vec<Value>) = match turn {
        Turn::User(parts) => ("user", blocks(provider, parts)),
        Turn::Assistant { text, calls } => {
            let words = (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }));
            let uses = calls.iter().map(|call| {
                // What was no JSON would be refused, though the model said it.
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

/// An answer that is being read.
#[derive(Debug, Default)]
pub(crate) struct Message {
    answer: Answer,
    /// Which call each block is, if it is one.
    blocks: Vec<(u64, usize)>,
    has_stopped: bool,
    is_done: bool,
}

impl AnswerReader for Message {
    fn event(&mut self, data: &[u8], heard: &mut dyn FnMut(StreamEvent<'_>)) -> Result<(), ModelErrorKind> {
        let event: Value = serde_json::from_slice(data).map_err(|_| foreign(data))?;
        let index = event.get("index").and_then(Value::as_u64).unwrap_or_default();
        match event.get("type").and_then(Value::as_str).unwrap_or_default() {
            "message_start" => self.note_usage(event.pointer("/message/usage")),
            "content_block_start" => {
                if let Some(block) = event.get("content_block") {
                    self.begin(index, block, heard);
                }
            }
            "content_block_delta" => self.take(index, &event, heard),
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
            // `ping`, `content_block_stop`, and what may be new.
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, body: &[u8], heard: &mut dyn FnMut(StreamEvent<'_>)) -> Result<(), ModelErrorKind> {
        let message: Value = serde_json::from_slice(body).map_err(|_| foreign(body))?;
        let Some(content) = message.get("content").and_then(Value::as_array) else { return Err(foreign(body)) };
        for (index, block) in (0..).zip(content) {
            self.begin(index, block, heard);
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
            return Err(ModelErrorKind::BrokeOff("the stream ended without a last word".to_owned()));
        }
        Ok(self.answer)
    }
}

impl Message {
    fn begin(&mut self, index: u64, block: &Value, heard: &mut dyn FnMut(StreamEvent<'_>)) {
        let word = |member: &str| block.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
        match block.get("type").and_then(Value::as_str) {
            Some("text") => self.say(&word("text"), heard),
            Some("tool_use") => {
                let (id, name) = (word("id"), word("name"));
                // In a stream the input comes later, and is empty here.
                let input = block.get("input").filter(|input| input.as_object().is_some_and(|map| !map.is_empty()));
                let arguments = input.map(Value::to_string).unwrap_or_default();
                heard(StreamEvent::Call(&name));
                self.blocks.push((index, self.answer.calls.len()));
                self.answer.calls.push(ToolCall { id, name, arguments });
            }
            _ => {}
        }
    }

    fn take(&mut self, index: u64, event: &Value, heard: &mut dyn FnMut(StreamEvent<'_>)) {
        if let Some(text) = event.pointer("/delta/text").and_then(Value::as_str) {
            return self.say(text, heard);
        }
        let Some(json) = event.pointer("/delta/partial_json").and_then(Value::as_str) else { return };
        if let Some((_, place)) = self.blocks.iter().find(|(known, _)| *known == index) {
            self.answer.calls[*place].arguments.push_str(json);
        }
    }

    fn say(&mut self, text: &str, heard: &mut dyn FnMut(StreamEvent<'_>)) {
        if !text.is_empty() {
            self.answer.text.push_str(text);
            heard(StreamEvent::Text(text));
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

    /// The counts so far. What is read from a cache was read, too.
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

fn foreign(body: &[u8]) -> ModelErrorKind {
    ModelErrorKind::Foreign(excerpt(&String::from_utf8_lossy(body)))
}
