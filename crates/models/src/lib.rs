//! Clients for language models: OpenAI and compatible servers (Ollama, llama.cpp, vLLM and most others), and Anthropic.
//!
//! # Layout
//! - [`Tool`]: a tool that a model may use; [`SafeNames`]: names that every provider accepts, and the mapping back
//! - [`Format`]: tools in the format of each provider
//! - [`Provider`]: address, credentials and dialect of a model; [`Model`]: sends requests to it
//! - [`Conversation`]: a conversation, independent of the provider; [`Answer`]: the answer of a model
//! - `openai`, `anthropic`: the API of each; `stream_reader`: reads a response as it arrives
//! - [`text_calls`]: tools as text, for models without tool support
//! - `structured`: answers that are JSON; `embeddings`: vectors
//! - [`Limits`], [`Budget`]: timeouts, retries and budgets; [`ModelError`]: errors
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
//! let mut on_event = |event: StreamEvent<'_>| if let StreamEvent::Text(text) = event { eprint!("{text}") };
//! let answer = model.answer(ask, &mut on_event).await?;
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
