//! The running whole: the servers behind us, the clients in front, and the way between them.
//!
//! # Layout, in the order a call travels
//! - [`stdio`]: the front: lines in from the client, the end of everything when it leaves
//! - [`dispatch`]: one `match` over the methods, which is all we offer
//! - [`call`]: a tool call on its way to the server that has the tool
//! - [`waiting_room`]: calls that wait for their server to start
//! - [`listing`]: the merged list of tools
//! - [`client`]: who is connected, and the way back to it
//! - [`batch`]: several messages in one array, which one revision allows
//! - [`fleet`]: all servers: started, watched, stopped; the current view of what exists
//!
//! Beside the way: [`load`] (the configuration file), [`cycle`] (an aggregator that would start itself), [`logging`],
//! [`local`] (the engine as a library, for the commands of `mcp-aggregator`).

pub mod batch;
pub mod call;
pub mod client;
pub mod cycle;
pub mod dispatch;
pub mod fleet;
pub mod listing;
pub mod load;
pub mod local;
pub mod logging;
pub mod stdio;
pub mod waiting_room;

pub use catalog::{Accepted, NamePolicy, NameStyle, Separator, ServerState};
pub use dispatch::{Aggregator, Options};
pub use fleet::Fleet;
pub use upstream::watchdog::run_if_asked as become_watchdog_if_asked;
