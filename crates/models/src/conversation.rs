//! A conversation with a model, in words of our own: each provider gets it in its own form.

use serde_json::{Map, Value};

/// What was said so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// What the model is told about its task. May be empty.
    pub system: String,
    /// In the order they came.
    pub turns: Vec<Turn>,
}

/// What one side said.
#[derive(Debug, Clone, PartialEq)]
pub enum Turn {
    /// Who asks.
    User(Vec<Part>),
    /// The model.
    Assistant {
        /// May be empty.
        text: String,
        /// The tools it wants to use.
        calls: Vec<ToolCall>,
    },
    /// What the tools gave, one result for each call of the turn before.
    Tools(Vec<ToolResult>),
}

/// A piece of what was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Words.
    Text(String),
    /// A picture. Models that see none are told that there is one.
    Image {
        /// Such as `image/png`.
        media_type: String,
        /// Its bytes in base64.
        data: String,
    },
}

/// A tool that a model wants to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Which call, for its result.
    pub id: String,
    /// The safe name, as the model said it; it need not be the name of any tool.
    pub name: String,
    /// As the model wrote them; they need not be JSON.
    pub arguments: String,
}

/// What a tool gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// Of which call.
    pub call: String,
    /// Of which tool, by its safe name.
    pub name: String,
    /// What it said.
    pub parts: Vec<Part>,
    /// It went wrong, and what it said tells why.
    pub is_error: bool,
}

/// What a model answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Its words.
    pub text: String,
    /// The tools it wants to use before it goes on.
    pub calls: Vec<ToolCall>,
    /// Why it stopped.
    pub stop: Stop,
    /// What it cost.
    pub usage: Usage,
}

/// Why a model stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Stop {
    /// It has said what it had to say.
    #[default]
    Done,
    /// It waits for tools.
    Tools,
    /// It had no room for more words: what it said is not whole.
    Length,
    /// It, or its provider, would not.
    Refused,
    /// Something else, in the provider's words.
    Other(String),
}

/// What an answer cost, in tokens, as the provider counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// What was read.
    pub input: u64,
    /// What was written.
    pub output: u64,
}

/// Why arguments cannot be used; in words that a model understands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadArguments {
    /// Not JSON.
    #[error("the arguments are not JSON: {0}")]
    NoJson(String),
    /// JSON, but no object.
    #[error("the arguments must be a JSON object")]
    NoObject,
}

impl Conversation {
    /// Nothing was said yet.
    pub fn new(system: impl Into<String>) -> Self {
        Self { system: system.into(), turns: Vec::new() }
    }

    /// The user says something.
    pub fn ask(&mut self, text: impl Into<String>) {
        self.turns.push(Turn::User(vec![Part::Text(text.into())]));
    }

    /// The model has answered.
    pub fn answered(&mut self, answer: &Answer) {
        self.turns.push(Turn::Assistant { text: answer.text.clone(), calls: answer.calls.clone() });
    }

    /// The tools have given their results.
    pub fn results(&mut self, results: Vec<ToolResult>) {
        self.turns.push(Turn::Tools(results));
    }
}

impl ToolCall {
    /// The arguments, if they are any. Nothing at all stands for none.
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
    /// Words.
    pub fn text(call: &ToolCall, text: impl Into<String>) -> Self {
        Self { call: call.id.clone(), name: call.name.clone(), parts: vec![Part::Text(text.into())], is_error: false }
    }

    /// Words that tell what went wrong.
    pub fn error(call: &ToolCall, text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(call, text) }
    }

    /// All its words, and a word for each picture.
    pub(crate) fn words(&self) -> String {
        let words: Vec<String> = self.parts.iter().map(Part::words).collect();
        let words = words.join("\n");
        if self.is_error { format!("Error: {words}") } else { words }
    }
}

impl Part {
    /// For who sees no pictures.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Image { media_type, data } => format!("[a picture, {media_type}, {} bytes]", data.len() / 4 * 3),
        }
    }
}

impl Usage {
    /// Both together.
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
