//! An assistant that uses tools, for the verbs `ask` and `context` and for the block `assistant` of a document.
//!
//! - `choosing`: which model
//! - `offered`: which tools it may use
//! - `asking_service`: the assistant of a running service
//! - `finding`: how it finds tools where there are many
//! - `calling`: who makes its calls; `consent`: who says whether a tool that may destroy something may be called
//! - `telling`: what is told meanwhile

mod asking_service;
mod calling;
mod choosing;
mod consent;
mod finding;
mod offered;
mod telling;

use crate::failure::Failure;
pub(crate) use asking_service::{Unasked, ask_service};
pub(crate) use calling::{CallingHands, Way};
pub(crate) use choosing::{AssistantArguments, check, model};
pub(crate) use consent::Consent;
pub(crate) use offered::{Offered, Wanted};
pub(crate) use telling::{Telling, call_line};

/// What the calls of an assistant are known by.
pub(crate) const SOURCE: &str = "ai-autonomous";

/// Why a model gave no answer.
pub(crate) fn unanswered(failure: &models::Failure) -> Failure {
    let told = Failure::new(failure.to_string());
    match failure.hint() {
        Some(hint) => told.with_hint(hint),
        None => told,
    }
}
