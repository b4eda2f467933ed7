//! The chat completions API of OpenAI and compatible servers.
//!
//! Compatible servers differ where OpenAI's documentation is silent: calls without an index, arguments as an object,
//! the usage with the last text or after it, a response in one piece although a stream was requested. The reader
//! accepts all of that.

use serde_json::{Map, Value, json};

use crate::conversation::{Answer, Conversation, Part, Stop, ToolCall, Turn, Usage};
use crate::error::{ModelErrorKind, error_text_of, excerpt};
use crate::stream_reader::{AnswerReader, StreamEvent};
use crate::{Provider, SafeNames, Tool, tool_format::Format};

/// The path of chat completions.
pub(crate) const CHAT: &str = "/chat/completions";

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
    request.insert("messages".to_owned(), messages(provider, conversation).into());
    if !tools.is_empty() {
        request.insert("tools".to_owned(), Format::OpenAi.tools(tools, names));
    }
    if let Some(most) = max_tokens {
        // Newer models of OpenAI refuse the older name, which is the only one that other servers know.
        let is_openai = provider.base_url.contains("api.openai.com");
        request.insert(if is_openai { "max_completion_tokens" } else { "max_tokens" }.to_owned(), most.into());
    }
    request.insert("stream".to_owned(), true.into());
    request.insert("stream_options".to_owned(), json!({ "include_usage": true }));
    request
}

fn messages(provider: &Provider, conversation: &Conversation) -> Vec<Value> {
    let mut messages = Vec::new();
    if !conversation.system.is_empty() {
        messages.push(json!({ "role": "system", "content": conversation.system }));
    }
    for turn in &conversation.turns {
        match turn {
            Turn::User(parts) => messages.push(json!({ "role": "user", "content": content(provider, parts) })),
            Turn::Assistant { text, calls } => messages.push(assistant(text, calls)),
            Turn::Tools(results) => {
                for result in results {
                    let words = result.words();
                    messages.push(json!({ "role": "tool", "tool_call_id": result.call, "content": words }));
                }
                // A tool result cannot contain an image, but the next message can.
                let images: Vec<Part> =
                    results.iter().flat_map(|result| result.parts.clone()).filter(is_image).collect();
                if provider.sees_images && !images.is_empty() {
                    let caption = Part::Text("The pictures of these results:".to_owned());
                    let parts: Vec<Part> = std::iter::once(caption).chain(images).collect();
                    messages.push(json!({ "role": "user", "content": content(provider, &parts) }));
                }
            }
        }
    }
    messages
}

fn assistant(text: &str, calls: &[ToolCall]) -> Value {
    let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { text.into() };
    let mut message = json!({ "role": "assistant", "content": content });
    if !calls.is_empty() {
        let each = calls.iter().map(|call| {
            // Invalid JSON would be refused, although the model wrote it.
            let arguments = if call.parsed().is_ok_and(|map| !map.is_empty()) { call.arguments.as_str() } else { "{}" };
            let function = json!({ "name": call.name, "arguments": arguments });
            json!({ "id": call.id, "type": "function", "function": function })
        });
        message["tool_calls"] = each.collect();
    }
    message
}

fn is_image(part: &Part) -> bool {
    matches!(part, Part::Image { .. })
}

/// The content as a string where possible, because not every server accepts a list.
fn content(provider: &Provider, parts: &[Part]) -> Value {
    if !provider.sees_images || !parts.iter().any(is_image) {
        return parts.iter().map(Part::words).collect::<Vec<_>>().join("\n").into();
    }
    let each = parts.iter().map(|part| match part {
        Part::Text(text) => json!({ "type": "text", "text": text }),
        Part::Image { media_type, data } => {
            json!({ "type": "image_url", "image_url": { "url": format!("data:{media_type};base64,{data}") } })
        }
    });
    each.collect()
}

/// The reader of a response.
#[derive(Debug, Default)]
pub(crate) struct Chat {
    answer: Answer,
    /// The call of each index: servers number calls differently.
    indices: Vec<Option<u64>>,
    has_stopped: bool,
    is_done: bool,
}

impl AnswerReader for Chat {
    fn event(&mut self, data: &[u8], on_event: &mut dyn FnMut(StreamEvent<'_>)) -> Result<(), ModelErrorKind> {
        if data == b"[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        let chunk: Value = serde_json::from_slice(data).map_err(|_| not_this_api(data))?;
        if chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(ModelErrorKind::InStream(error_text_of(&chunk).unwrap_or_else(|| excerpt(&chunk.to_string()))));
        }
        self.note_usage(&chunk);
        let Some(choice) = chunk.pointer("/choices/0") else { return Ok(()) };
        if let Some(delta) = choice.get("delta").filter(|delta| delta.is_object()) {
            self.take(delta, on_event);
        }
        self.note_end(choice);
        Ok(())
    }

    fn whole(&mut self, body: &[u8], on_event: &mut dyn FnMut(StreamEvent<'_>)) -> Result<(), ModelErrorKind> {
        let body: Value = serde_json::from_slice(body).map_err(|_| not_this_api(body))?;
        let Some(choice) = body.pointer("/choices/0") else { return Err(not_this_api(body.to_string().as_bytes())) };
        self.note_usage(&body);
        if let Some(message) = choice.get("message") {
            self.take(message, on_event);
        }
        self.note_end(choice);
        self.is_done = true;
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.is_done
    }

    fn finish(mut self: Box<Self>) -> Result<Answer, ModelErrorKind> {
        if !self.has_stopped && !self.is_done {
            return Err(ModelErrorKind::BrokeOff("the stream ended without a final event".to_owned()));
        }
        for (number, call) in self.answer.calls.iter_mut().enumerate() {
            if call.id.is_empty() {
                call.id = format!("call_{number}");
            }
        }
        // Some servers report `stop` when they wait for tools.
        if !self.answer.calls.is_empty() && self.answer.stop == Stop::Done {
            self.answer.stop = Stop::Tools;
        }
        Ok(self.answer)
    }
}

impl Chat {
    fn take(&mut self, delta: &Value, on_event: &mut dyn FnMut(StreamEvent<'_>)) {
        for text in ["content", "refusal"].iter().filter_map(|member| delta.get(member)?.as_str()) {
            if !text.is_empty() {
                self.answer.text.push_str(text);
                on_event(StreamEvent::Text(text));
            }
        }
        if delta.get("refusal").is_some_and(Value::is_string) {
            self.answer.stop = Stop::Refused;
        }
        for call in delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.take_call(call, on_event);
        }
    }

    fn take_call(&mut self, piece: &Value, on_event: &mut dyn FnMut(StreamEvent<'_>)) {
        let word = |place: &str| piece.pointer(place).and_then(Value::as_str).unwrap_or_default();
        let (id, name, index) = (word("/id"), word("/function/name"), piece.get("index").and_then(Value::as_u64));
        let place = self.place_of(index, id, name);
        let call = &mut self.answer.calls[place];
        if call.id.is_empty() {
            id.clone_into(&mut call.id);
        }
        // The name arrives complete; a server that repeats it means the same.
        if call.name.is_empty() && !name.is_empty() {
            name.clone_into(&mut call.name);
            on_event(StreamEvent::Call(name));
        }
        match piece.pointer("/function/arguments") {
            Some(Value::String(text)) => call.arguments.push_str(text),
            Some(object @ Value::Object(_)) => call.arguments = object.to_string(),
            _ => {}
        }
    }

    /// The call that a piece belongs to; a new one if there is none yet.
    fn place_of(&mut self, index: Option<u64>, id: &str, name: &str) -> usize {
        let calls = &self.answer.calls;
        let known = match index {
            // Some servers give every call of a turn the same index, each complete and with its own id.
            Some(_) => self.indices.iter().rposition(|known| *known == index).filter(|&place| {
                let known = &calls[place].id;
                id.is_empty() || known.is_empty() || known == id || name.is_empty()
            }),
            None if !id.is_empty() => calls.iter().rposition(|call| call.id == id),
            None if name.is_empty() => calls.len().checked_sub(1),
            None => None,
        };
        known.unwrap_or_else(|| {
            self.answer.calls.push(ToolCall { id: String::new(), name: String::new(), arguments: String::new() });
            self.indices.push(index);
            self.answer.calls.len() - 1
        })
    }

    fn note_end(&mut self, choice: &Value) {
        let Some(reason) = choice.get("finish_reason").and_then(Value::as_str) else { return };
        self.has_stopped = true;
        if self.answer.stop == Stop::Refused {
            return;
        }
        self.answer.stop = match reason {
            "stop" => Stop::Done,
            "tool_calls" | "function_call" => Stop::Tools,
            "length" => Stop::Length,
            "content_filter" => Stop::Refused,
            other => Stop::Other(other.to_owned()),
        };
    }

    fn note_usage(&mut self, chunk: &Value) {
        let count = |member: &str| chunk.pointer(&format!("/usage/{member}")).and_then(Value::as_u64);
        if let (Some(input), output) = (count("prompt_tokens"), count("completion_tokens")) {
            self.answer.usage = Usage { input, output: output.unwrap_or_default() };
        }
    }
}

fn not_this_api(body: &[u8]) -> ModelErrorKind {
    ModelErrorKind::Foreign(excerpt(&String::from_utf8_lossy(body)))
}
