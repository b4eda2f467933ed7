//! What a tool is, and what it answers.

use crate::input::{self, Arguments, Field};
use serde_json::{Map, Value, json};

/// One thing a model can do.
pub struct Tool {
    /// What it is called by.
    pub name: &'static str,
    /// Tells the model when and how to use it.
    pub description: &'static str,
    /// Lets the client decide whether to ask the person first.
    pub effect: Effect,
    /// The arguments it takes.
    pub input: Vec<Field>,
    /// Does the work. It sees only arguments that fit `input`.
    pub run: Box<Run>,
}

/// The work of a tool.
pub type Run = dyn Fn(&Arguments) -> Result<Answer, ToolError>;

/// What a tool does to the world.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Reads,
    /// It adds, and takes nothing away.
    Adds,
    /// It removes or overwrites.
    Destroys,
}

/// What a tool found out: for the reader, and for programs.
pub struct Answer {
    /// Shown to the model and the person.
    pub text: String,
    /// The same as a JSON object.
    pub data: Value,
}

/// Why a tool could not do it: a sentence that helps the model to try again.
#[derive(Debug)]
pub struct ToolError(String);

impl ToolError {
    /// The sentence says what is wrong and, where possible, what to do instead.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }

    /// The sentence.
    #[must_use]
    pub fn sentence(&self) -> &str {
        &self.0
    }
}

impl Tool {
    /// The entry of this tool in `tools/list`.
    pub(crate) fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": input::schema(&self.input),
            "annotations": {
                "readOnlyHint": self.effect == Effect::Reads,
                "destructiveHint": self.effect == Effect::Destroys,
                "openWorldHint": false,
            },
        })
    }

    /// The result of one `tools/call`. Failures are results too: a model reads results, not protocol errors.
    pub(crate) fn call(&self, arguments: &Map<String, Value>) -> Value {
        match Arguments::check(&self.input, arguments).and_then(|checked| (self.run)(&checked)) {
            Ok(answer) => json!({
                "content": [{"type": "text", "text": answer.text}],
                "structuredContent": answer.data,
                "isError": false,
            }),
            Err(error) => json!({
                "content": [{"type": "text", "text": error.sentence()}],
                "isError": true,
            }),
        }
    }
}
