//! The live view of servers and calls.
//!
//! - [`snapshot`]: what a service says, once a second
//! - [`frame`]: a snapshot in lines, for a width and a height; pure
//! - [`keys`]: what was typed
//! - [`screen`]: the terminal, which gets back what it had, whatever happens

pub(crate) mod frame;
pub(crate) mod keys;
pub(crate) mod screen;
pub(crate) mod snapshot;
