//! Talking to language models: tools in the form each provider takes, and names they all accept.
//!
//! # Layout
//! - [`Tool`]: what a model may use; [`SafeNames`]: names that every provider accepts, and the way back
//! - [`Format`]: tools as each provider wants them

mod forms;
mod names;
mod tool;

pub use forms::{Format, UnknownFormat};
pub use names::SafeNames;
pub use tool::Tool;
