//! The responses of a scripted model.

use std::io::{self, Read};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::http_server::wire::{Head, begin_chunks, end_chunks, write_chunk, write_whole};

/// A response.
#[derive(Debug, Clone)]
pub struct ModelReply {
    head: Head,
    body: Vec<u8>,
    is_stream: bool,
    /// The number of bytes per write.
    piece: usize,
    end: End,
}

/// How a response ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Orderly,
    /// The connection is closed after this many bytes.
    Broken(usize),
    /// Nothing follows after this many bytes, until the client disconnects.
    Silent(usize),
}

impl ModelReply {
    /// Text of an OpenAI model, streamed word by word.
    pub fn openai_text(text: &str) -> Self {
        let words = text.split_inclusive(' ').map(|word| json!({ "content": word }));
        Self::openai(words.collect(), "stop")
    }

    /// Calls of tools (id, name, arguments), as OpenAI streams them: arguments in two pieces each.
    pub fn openai_calls(calls: &[(&str, &str, &str)]) -> Self {
        let mut deltas = vec![json!({ "role": "assistant", "content": null })];
        for (index, (id, name, arguments)) in calls.iter().enumerate() {
            let half = (0..=arguments.len() / 2).rev().find(|&at| arguments.is_char_boundary(at)).unwrap_or_default();
            let function = json!({ "name": name, "arguments": "" });
            deltas.push(
                json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": function }] }),
            );
            for part in [&arguments[..half], &arguments[half..]] {
                deltas.push(json!({ "tool_calls": [{ "index": index, "function": { "arguments": part } }] }));
            }
        }
        Self::openai(deltas, "tool_calls")
    }

    /// Deltas of a model that speaks like OpenAI, and why it stopped.
    pub fn openai(deltas: Vec<Value>, finish_reason: &str) -> Self {
        let chunk =
            |choices: Value| json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": choices });
        let mut events: Vec<Value> = deltas
            .into_iter()
            .map(|delta| chunk(json!([{ "index": 0, "delta": delta, "finish_reason": null }])))
            .collect();
        events.push(chunk(json!([{ "index": 0, "delta": {}, "finish_reason": finish_reason }])));
        let mut last = chunk(json!([]));
        last["usage"] = json!({ "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 });
        events.push(last);
        let mut body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        body.push_str("data: [DONE]\n\n");
        Self::events(body)
    }

    /// Text of an Anthropic model, streamed word by word.
    pub fn anthropic_text(text: &str) -> Self {
        let words: Vec<Value> =
            text.split_inclusive(' ').map(|word| json!({ "type": "text_delta", "text": word })).collect();
        Self::anthropic(&[(json!({ "type": "text", "text": "" }), words)], "end_turn")
    }

    /// Calls of tools (id, name, arguments), as Anthropic streams them: arguments in two pieces each.
    pub fn anthropic_calls(calls: &[(&str, &str, &str)]) -> Self {
        let blocks: Vec<(Value, Vec<Value>)> = calls
            .iter()
            .map(|(id, name, arguments)| {
                let half =
                    (0..=arguments.len() / 2).rev().find(|&at| arguments.is_char_boundary(at)).unwrap_or_default();
                let parts = ["", &arguments[..half], &arguments[half..]];
                let deltas = parts.map(|part| json!({ "type": "input_json_delta", "partial_json": part }));
                (json!({ "type": "tool_use", "id": id, "name": name, "input": {} }), deltas.to_vec())
            })
            .collect();
        Self::anthropic(&blocks, "tool_use")
    }

    /// Blocks of a model that speaks like Anthropic, each with its deltas, and why it stopped.
    pub fn anthropic(blocks: &[(Value, Vec<Value>)], stop_reason: &str) -> Self {
        let usage = json!({ "input_tokens": 10, "output_tokens": 1 });
        let message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": usage });
        let mut events = vec![json!({ "type": "message_start", "message": message }), json!({ "type": "ping" })];
        for (index, (block, deltas)) in blocks.iter().enumerate() {
            events.push(json!({ "type": "content_block_start", "index": index, "content_block": block }));
            for delta in deltas {
                events.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
            }
            events.push(json!({ "type": "content_block_stop", "index": index }));
        }
        let delta = json!({ "stop_reason": stop_reason, "stop_sequence": null });
        events.push(json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": 5 } }));
        events.push(json!({ "type": "message_stop" }));
        let named = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default());
        Self::events(events.iter().map(named).collect())
    }

    /// A whole response of an OpenAI model whose text is this JSON.
    pub fn openai_json(answer: &Value) -> Self {
        Self::openai_text(&answer.to_string())
    }

    /// One vector for each text of the request.
    pub fn embeddings(vectors: &[Vec<f32>]) -> Self {
        let data: Vec<Value> = vectors
            .iter()
            .enumerate()
            .map(|(index, vector)| json!({ "object": "embedding", "index": index, "embedding": vector }))
            .collect();
        Self::json(&json!({ "object": "list", "data": data, "usage": { "prompt_tokens": 8, "total_tokens": 8 } }))
    }

    /// JSON in one piece.
    pub fn json(body: &Value) -> Self {
        Self::whole(Head::new(200).json(), body.to_string())
    }

    /// A body that is neither JSON nor a stream.
    pub fn html(body: &str) -> Self {
        Self::whole(Head::new(200).html(), body.to_owned())
    }

    /// An error in the format of OpenAI, which that of Anthropic resembles.
    pub fn refused(status: u16, words: &str) -> Self {
        let error = json!({ "message": words, "type": "scripted" });
        Self::whole(Head::new(status).json(), json!({ "type": "error", "error": error }).to_string())
    }

    /// A stream of events as they are.
    pub fn events(body: String) -> Self {
        Self { is_stream: true, ..Self::whole(Head::new(200).events(), body) }
    }

    fn whole(head: Head, body: String) -> Self {
        let body = body.into_bytes();
        Self { head, piece: usize::MAX, body, is_stream: false, end: End::Orderly }
    }

    /// With one more header.
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.head = self.head.with(name, value);
        self
    }

    /// Written in pieces of this many bytes, wherever that splits it.
    pub fn cut(mut self, piece: usize) -> Self {
        self.piece = piece;
        self
    }

    /// The connection breaks after this percentage of it.
    pub fn breaks_after(mut self, percent: usize) -> Self {
        self.end = End::Broken(self.body.len() * percent / 100);
        self
    }

    /// Nothing follows after this percentage of it.
    pub fn falls_silent_after(mut self, percent: usize) -> Self {
        self.end = End::Silent(self.body.len() * percent / 100);
        self
    }

    /// Writes it; returns whether the connection can be used again.
    pub(super) fn write(self, mut stream: &TcpStream) -> io::Result<bool> {
        if !self.is_stream && self.end == End::Orderly {
            write_whole(&mut stream, self.head, &self.body)?;
            return Ok(true);
        }
        if self.end == End::Silent(0) {
            return wait_for_leaving(stream);
        }
        begin_chunks(&mut stream, self.head)?;
        let written = match self.end {
            End::Orderly => self.body.len(),
            End::Broken(length) | End::Silent(length) => length,
        };
        for piece in self.body[..written].chunks(self.piece) {
            write_chunk(&mut stream, piece)?;
        }
        match self.end {
            End::Orderly => end_chunks(&mut stream).map(|()| true),
            End::Broken(_) => Ok(false),
            End::Silent(_) => wait_for_leaving(stream),
        }
    }
}

/// Waits until the client has closed the connection.
fn wait_for_leaving(mut stream: &TcpStream) -> io::Result<bool> {
    while stream.read(&mut [0; 64])? > 0 {}
    Ok(false)
}
