//! Translates messages between legacy and modern revisions. Pure; it changes only the members it must, and copies every
//! other byte unchanged.
//!
//! Every function expects messages that [`crate::Envelope::scan`] found valid. Other input gives a wrong result, but
//! never a panic.
//!
//! # Layout
//!
//! - [`change`]: edits to one message, collected and applied once
//! - [`meta`]: the members of `_meta` that describe the client; [`problem`]: checks them, and the error if they are
//!   invalid
//! - [`result`], [`error`], [`definition`]: responses of servers
//! - [`input`]: requests that take several rounds; [`elicitation`]: the server requests in them; [`label`]: the name of
//!   the server in texts for people
//! - [`listen`]: subscriptions to changes; [`task`]: the request for a task, which only one lifecycle understands
//! - [`headers`], [`header_params`]: the parts of a request that are repeated in HTTP headers

mod annotations;
pub mod change;
pub mod definition;
pub mod elicitation;
pub mod error;
mod header_arguments;
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
