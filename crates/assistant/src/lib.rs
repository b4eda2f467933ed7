//! An assistant: a model that answers a question and may use tools on the way, within bounds.
//!
//! Who makes the calls, who is asked for permission and who watches is for others: this room uses models and nothing else
//! of ours, so it is the same for a service, for the servers of a config and for a document.
//!
//! # Layout
//! - [`OfferedTool`]: a tool that may be used; [`ToolExecutor`]: who makes calls, and says what may be called; [`DialogueEvent`]: what happens
//! - [`Dialogue`]: a question on its way to its answer, round by round
//! - `search_surface`: where there are many tools, the model searches for them instead of being told of all
//! - `call`: one call that a model wants
//! - [`DialogueLimits`]: how far it may go; `repeats`: calls that were made before
//! - [`task`]: what a model is told before it is asked
//! - `content`: what a tool gave, for a model
//! - `transcript`: all that was said, to be kept

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
