//! A conversation with a model, independent of the provider.

use serde_json::{Map, Value};

/// A conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// The system prompt. May be empty.
    pub system: String,
    /// In the order they came.
    pub turns: Vec<Turn>,
}

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Turn {
    /// The user.
    User(Vec<Part>),
    /// The model.
    Assistant {
        /// May be empty.
        text: String,
        /// The requested tool calls.
        calls: Vec<ToolCall>,
    },
    /// The results of the calls of the previous turn, one for each.
    Tools(Vec<ToolResult>),
}

/// A part of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Text.
    Text(String),
    /// An image. Models without vision get a note that there is one.
    Image {
        /// The media type, such as `image/png`.
        media_type: String,
        /// The bytes in base64.
        data: String,
    },
}

/// A tool call that a model requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The id that links it to its result.
    pub id: String,
    /// The safe name, as the model wrote it; there may be no such tool.
    pub name: String,
    /// The arguments as the model wrote them; they may be invalid JSON.
    pub arguments: String,
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// The id of the call.
    pub call: String,
    /// The safe name of the tool.
    pub name: String,
    /// The content.
    pub parts: Vec<Part>,
    /// Whether the call failed; the content has the reason.
    pub is_error: bool,
}

/// The answer of a model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The text.
    pub text: String,
    /// The requested tool calls.
    pub calls: Vec<ToolCall>,
    /// Why it stopped.
    pub stop: Stop,
    /// The tokens it cost.
    pub usage: Usage,
}

/// Why a model stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Stop {
    /// The answer is complete.
    #[default]
    Done,
    /// It waits for tool results.
    Tools,
    /// The output limit is reached: the answer is incomplete.
    Length,
    /// The model or its provider refused.
    Refused,
    /// Another reason, in the provider's words.
    Other(String),
}

/// The cost of an answer in tokens, as the provider counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens read.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
}

/// Why arguments are invalid, in a form that models understand.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadArguments {
    /// Not JSON.
    #[error("the arguments are not JSON: {0}")]
    NoJson(String),
    /// JSON, but not an object.
    #[error("the arguments must be a JSON object")]
    NoObject,
}

impl Conversation {
    /// An empty conversation.
    pub fn new(system: impl Into<String>) -> Self {
        Self { system: system.into(), turns: Vec::new() }
    }

    /// Adds a message of the user.
    pub fn ask(&mut self, text: impl Into<String>) {
        self.turns.push(Turn::User(vec![Part::Text(text.into())]));
    }

    /// Adds an answer of the model.
    pub fn answered(&mut self, answer: &Answer) {
        self.turns.push(Turn::Assistant { text: answer.text.clone(), calls: answer.calls.clone() });
    }

    /// Adds results of tools.
    pub fn results(&mut self, results: Vec<ToolResult>) {
        self.turns.push(Turn::Tools(results));
    }
}

impl ToolCall {
    /// The parsed arguments. An empty text means no arguments.
    pub fn parsed(&self) -> Result<Map<String, Value>, BadArguments> {
        if self.arguments.trim().is_empty() {
            return Ok(Map::new());
        }
        match serde_json::from_str(&self.arguments) {
            Ok(Value::Object(arguments)) => Ok(arguments),
            Ok(Value::Null) => Ok(Map::new()),
            Ok(_) => Err(BadArguments::NoObject),
            Err(error) => Err(BadArguments::NoJson(error.to_string())),
        }
    }
}

impl ToolResult {
    /// A result with text.
    pub fn text(call: &ToolCall, text: impl Into<String>) -> Self {
        Self { call: call.id.clone(), name: call.name.clone(), parts: vec![Part::Text(text.into())], is_error: false }
    }

    /// A result with an error message.
    pub fn error(call: &ToolCall, text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(call, text) }
    }

    /// The text of all parts, with a note for each image.
    pub(crate) fn words(&self) -> String {
        let words: Vec<String> = self.parts.iter().map(Part::words).collect();
        let words = words.join("\n");
        if self.is_error { format!("Error: {words}") } else { words }
    }
}

impl Part {
    /// The text for models without vision.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Image { media_type, data } => format!("[a picture, {media_type}, {} bytes]", data.len() / 4 * 3),
        }
    }
}

impl Usage {
    /// Input and output tokens together.
    pub fn total(self) -> u64 {
        self.input + self.output
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_an_object_or_a_reason_that_a_model_understands() {
        let parsed = |arguments: &str| {
            ToolCall { id: "1".into(), name: "t".into(), arguments: arguments.into() }.parsed().map(|map| map.len())
        };
        assert_eq!((parsed(""), parsed("null"), parsed(r#"{"a": 1}"#)), (Ok(0), Ok(0), Ok(1)));
        assert_eq!(parsed("[1]"), Err(BadArguments::NoObject));
        assert!(parsed(r#"{"a": "#).unwrap_err().to_string().starts_with("the arguments are not JSON: EOF"));
    }
}
