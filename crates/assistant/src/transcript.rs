//! A transcript of a dialogue as readable JSON.

use models::{Part, ToolCall, ToolResult, Turn};
use serde_json::{Value, json};

use crate::dialogue::{Dialogue, Outcome};

impl Dialogue {
    /// The whole conversation, and how it ended, if it did.
    pub fn transcript(&self, model: &str, outcome: Option<&Outcome>) -> Value {
        let mut turns: Vec<Value> = self.conversation.turns.iter().map(|turn| self.turn(turn)).collect();
        if !self.unfinished.is_empty() {
            turns.push(json!({ "role": "assistant", "text": self.unfinished, "calls": [], "is_unfinished": true }));
        }
        json!({
            "model": model,
            "system": self.conversation.system,
            "turns": turns,
            "ended": outcome.map_or_else(|| "interrupted".to_owned(), |outcome| outcome.ended.to_string()),
            "calls": self.calls_made(),
            "input_tokens": outcome.map(|outcome| outcome.usage.input),
            "output_tokens": outcome.map(|outcome| outcome.usage.output),
        })
    }

    fn turn(&self, turn: &Turn) -> Value {
        match turn {
            Turn::User(parts) => json!({ "role": "user", "text": words(parts) }),
            Turn::Assistant { text, calls } => {
                let call = |call: &ToolCall| {
                    let arguments = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!(call.arguments));
                    json!({ "id": call.id, "tool": self.original(&call.name), "arguments": arguments })
                };
                json!({ "role": "assistant", "text": text, "calls": calls.iter().map(call).collect::<Vec<_>>() })
            }
            Turn::Tools(results) => {
                let result = |result: &ToolResult| {
                    let tool = self.original(&result.name);
                    let text = words(&result.parts);
                    json!({ "id": result.call, "tool": tool, "is_error": result.is_error, "text": text })
                };
                json!({ "role": "tools", "results": results.iter().map(result).collect::<Vec<_>>() })
            }
        }
    }
}

impl std::fmt::Display for crate::DialogueEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Answered => f.write_str("answered"),
            Self::CutShort => f.write_str("the model reached its output limit; the answer is incomplete"),
            Self::Refused(words) if words.is_empty() => f.write_str("the model refused to answer"),
            Self::Refused(words) => write!(f, "the model refused to answer: {words}"),
            Self::RoundsSpent(rounds) => write!(f, "the model still requested tools after {rounds} rounds"),
            Self::Repeating => f.write_str("the model kept requesting the same calls"),
            Self::Silent => f.write_str("the model returned no text"),
            Self::CallsSpent(most) => {
                write!(f, "the model still requested tools after {most} calls, which is the limit")
            }
            Self::Stopped(why) => write!(f, "its calls were stopped: {why}"),
        }
    }
}

fn words(parts: &[Part]) -> String {
    let word = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Image { media_type, data } => format!("[a picture, {media_type}, {} bytes]", data.len() / 4 * 3),
    };
    parts.iter().map(word).collect::<Vec<_>>().join("\n")
}
