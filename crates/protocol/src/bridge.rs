//! What crosses from a legacy conversation to a modern one or back, translated. Pure, and it touches only the members
//! it must: every other byte of a message leaves as it came.
//!
//! Every function is for messages that [`crate::Envelope::scan`] has found valid; whatever else they are given, they
//! do not panic.
//!
//! # Layout
//! - [`change`]: edits to one message, collected and applied once
//! - [`meta`]: what requests tell about their client; [`problem`]: the answer to one that does not
//! - [`result`], [`error`], [`definition`]: what servers answer
//! - [`input`]: requests that take several rounds; [`elicitation`]: what is asked in them; [`label`]: by whom
//! - [`listen`]: subscriptions to what changes; [`task`]: a wish that only one lifecycle understands
//! - [`headers`], [`header_params`]: what a request over HTTP repeats in its headers

mod annotations;
pub mod base64;
pub mod change;
pub mod definition;
pub mod elicitation;
pub mod error;
pub mod header_params;
pub mod headers;
pub mod input;
pub mod label;
pub mod listen;
pub mod meta;
pub mod problem;
pub mod result;
pub mod task;

#[cfg(test)]
mod tests;
