//! An assistant that uses tools, for the commands `ask` and `context` and for `assistant` blocks of documents.
//!
//! - `model_choice`: which model
//! - `offered_tools`: which tools it may use
//! - `service_assistant`: the assistant of a running service
//! - `tool_finder`: searches tools if there are many
//! - `tool_executor`: makes its calls; `consent`: asks the user before destructive calls
//! - `event_printer`: prints its progress

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
pub(crate) use model_choice::{AssistantArguments, ModelArguments, check, model};
pub(crate) use offered_tools::{NarrowingArguments, OfferedTools, ToolRequest};
pub(crate) use service_assistant::{ServiceAskError, ask_service};
pub(crate) use tool_executor::{CliToolExecutor, ToolBackend};

/// The source of an assistant's calls.
pub(crate) const SOURCE: &str = "ai-autonomous";

/// Why a model did not answer.
pub(crate) fn unanswered(failure: &models::ModelError) -> Failure {
    let message = Failure::new(failure.to_string());
    match failure.hint() {
        Some(hint) => message.with_hint(hint),
        None => message,
    }
}
