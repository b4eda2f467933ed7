//! Talking to language models: those that speak like OpenAI's (Ollama, llama.cpp, vLLM and most others do), and Anthropic's.
//!
//! # Layout
//! - [`Tool`]: what a model may use; [`SafeNames`]: names that every provider accepts, and the way back
//! - [`Format`]: tools as each provider wants them
//! - [`Provider`]: where a model is and how it is spoken to; [`Model`]: one that can be asked
//! - [`Conversation`]: what was said, in words of our own; [`Answer`]: what a model says to it
//! - `openai`, `anthropic`: the same in the words of each; `reader`: an answer as it comes
//! - [`text_calls`]: tools for models that cannot call any by themselves
//! - `structured`: answers that are JSON; `embeddings`: vectors
//! - [`Limits`], [`Budget`]: how patient we are, and how much may be asked; [`ModelError`]: what can go wrong
//!
//! ```no_run
//! # async fn ask() -> Result<(), Box<dyn std::error::Error>> {
//! use models::{ModelRequest, Budget, Conversation, StreamEvent, Limits, Model, Provider, SafeNames};
//!
//! let provider = Provider::from_environment(|name| std::env::var(name).ok(), Some("llama3.1"))?;
//! let model = Model::new(provider, Limits::default(), Budget::unlimited().into())?;
//! let mut conversation = Conversation::new("Be brief.");
//! conversation.ask("What is MCP?");
//! let names = SafeNames::default();
//! let ask = ModelRequest { conversation: &conversation, tools: &[], names: &names, max_tokens: None };
//! let mut hear = |heard: StreamEvent<'_>| if let StreamEvent::Text(text) = heard { eprint!("{text}") };
//! let answer = model.answer(ask, &mut hear).await?;
//! conversation.answered(&answer);
//! # Ok(())
//! # }
//! ```

mod anthropic;
mod conversation;
mod embeddings;
mod error;
mod limits;
mod model;
mod names;
mod openai;
mod provider;
mod stream_reader;
mod structured;
pub mod text_calls;
mod tool;
mod tool_format;

pub use conversation::{Answer, BadArguments, Conversation, Part, Stop, ToolCall, ToolResult, Turn, Usage};
pub use error::{ModelError, ModelErrorKind};
pub use limits::{Budget, Limits, Spent};
pub use model::{Model, ModelRequest};
pub use names::SafeNames;
pub use provider::{Dialect, Key, Provider, ProviderError, ToolCalling, variables};
pub use stream_reader::StreamEvent;
pub use structured::{Question, first_object};
pub use tool::Tool;
pub use tool_format::{Format, Forms, TooSlow, UnknownFormat};
