//! The live view of servers and calls.
//!
//! - [`event_feed`]: when to refresh: after events, and regularly; [`snapshot`]: the state of a service at that time
//! - [`view`]: formats a snapshot for a width and a height; pure
//! - [`keys`]: parses keys
//! - [`screen`]: the terminal, which is restored in every case

pub(crate) mod event_feed;
pub(crate) mod keys;
pub(crate) mod screen;
pub(crate) mod snapshot;
pub(crate) mod view;
