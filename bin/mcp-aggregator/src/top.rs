//! The live view of servers and calls.
//!
//! - [`listening`]: when to look: when something happens, and now and then; [`snapshot`]: what a service says then
//! - [`frame`]: a snapshot in lines, for a width and a height; pure
//! - [`keys`]: what was typed
//! - [`screen`]: the terminal, which gets back what it had, whatever happens

pub(crate) mod event_feed;
pub(crate) mod keys;
pub(crate) mod screen;
pub(crate) mod snapshot;
pub(crate) mod view;
