//! The running whole: the servers behind us, the clients in front, and the way between them.
//!
//! # Layout, in the order a call travels
//! - [`stdio`]: the front: lines in from the client, the end of everything when it leaves
//! - [`dispatch`]: one `match` over the methods, which is all we offer; [`method_set`]: how much of it a program offers
//! - [`call`]: a call on its way to the server that has what it names
//! - [`responder`]: where the answer goes, and what the server says before
//! - `response_rewriter`: answers that are looked at on the way: one may begin a task, or have something asked of a person
//! - [`client_limits`]: what one client, one identity and all clients may make us keep
//! - [`connected_clients`]: who is connected, for programs that tell
//! - [`client_sink`]: the way to a client, whatever it is connected by
//!
//! The other methods: [`initialize`] (`initialize`, `server/discover`), [`lists`], [`resources`], [`subscriptions`],
//! [`logs`] and [`level`], [`tasks`]; [`batch`] for several messages in one array.
//!
//! [`surface`]: how much of the tools a client sees.
//!
//! Who and what there is: [`client`] (who is connected), [`server_requests`] (what servers want to know of it), [`fleet`] (all
//! servers: started, watched, stopped; the current view of what exists), [`startup_queue`] (calls that wait for their
//! server to start), [`bridge`] (requests between the lifecycles), `unavailable` (what is told of servers that are not
//! there).
//!
//! Beside the way: [`interceptor`] (account of calls, where somebody keeps it), [`load`] (the configuration file), [`cycle`] (an aggregator that would start itself), [`logging`],
//! [`local`] (the engine as a library, for the commands of `mcp-aggregator`).

pub mod batch;
pub mod bridge;
pub mod call;
pub mod client;
pub mod client_limits;
pub mod client_sink;
pub mod connected_clients;
pub mod cycle;
pub mod dispatch;
pub mod fleet;
pub mod initialize;
pub mod interceptor;
pub mod level;
pub mod lists;
pub mod load;
pub mod local;
pub mod logging;
pub mod logs;
pub mod method_set;
pub mod resources;
pub mod responder;
mod response_rewriter;
pub mod server_requests;
pub mod startup_queue;
pub mod stdio;
pub mod subscriptions;
pub mod surface;
pub mod tasks;
mod unavailable;

pub use catalog::{Accepted, NamePolicy, NameStyle, Separator, ServerState};
pub use client_limits::ClientLimits;
pub use dispatch::{Aggregator, Options};
pub use fleet::Fleet;
pub use method_set::MethodSet;
pub use protocol::escape;
pub use surface::Surface;
pub use upstream::inherited::raise_open_files;
pub use upstream::watchdog::run_if_asked as become_watchdog_if_asked;
pub use upstream::{Limit, ServerLimits};
