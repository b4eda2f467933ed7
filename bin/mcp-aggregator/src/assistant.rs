//! An assistant that uses tools, for the verbs `ask` and `context` and for the block `assistant` of a document.
//!
//! - `choosing`: which model
//! - `offered`: which tools it may use
//! - `asking_service`: the assistant of a running service
//! - `finding`: how it finds tools where there are many
//! - `calling`: who makes its calls; `consent`: who says whether a tool that may destroy something may be called
//! - `telling`: what is told meanwhile

mod consent;
mod event_printer;
mod model_choice;
mod offered_tools;
mod service_assistant;
mod tool_executor;
mod tool_finder;

use crate::failure::Failure;
pub(crate) use consent::Consent;
pub(crate) use event_printer::{EventPrinter, call_line};
pub(crate) use model_choice::{AssistantArguments, check, model};
pub(crate) use offered_tools::{OfferedTools, ToolRequest};
pub(crate) use service_assistant::{ServiceAskError, ask_service};
pub(crate) use tool_executor::{CliToolExecutor, ToolBackend};

/// What the calls of an assistant are known by.
pub(crate) const SOURCE: &str = "ai-autonomous";

/// Why a model gave no answer.
pub(crate) fn unanswered(failure: &models::ModelError) -> Failure {
    let told = Failure::new(failure.to_string());
    match failure.hint() {
        Some(hint) => told.with_hint(hint),
        None => told,
    }
}
