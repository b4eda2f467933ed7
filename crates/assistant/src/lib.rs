//! An assistant: a model that answers a question and may call tools, within limits.
//!
//! This crate uses only `models`. Making calls, granting permission and observing are left to its users, so it works
//! the same for a service, for the servers of a config and for a document.
//!
//! # Layout
//! - [`OfferedTool`]: a tool that may be used; [`ToolExecutor`]: makes calls and grants permission; [`DialogueEvent`]:
//!   events
//! - [`Dialogue`]: the dialogue about one question, round by round
//! - `search_surface`: with many tools, the model searches for them instead of getting all definitions
//! - `call`: one call of a model
//! - [`DialogueLimits`]: limits; `repeats`: detects repeated calls
//! - [`task`]: the system prompt
//! - `content`: converts results for a model
//! - `transcript`: the whole conversation as JSON

mod call;
mod content;
mod dialogue;
mod executor;
mod repeats;
mod search_surface;
mod task;
mod transcript;

pub use dialogue::{Dialogue, DialogueEnd, DialogueLimits, Outcome};
pub use executor::{DialogueEvent, OfferedTool, Permission, ToolCallError, ToolExecutor};
pub use task::task;
