//! The engine: the servers behind us, the clients in front, and the routing between them.
//!
//! # Layout, in the order of a call
//! - [`stdio`]: the stdio front end: reads lines from the client and stops everything when the client leaves
//! - `dispatch`: one `match` over the methods; `method_set`: which methods a program supports
//! - `call`: routes a call to the server that has the named item
//! - `responder`: where the response and earlier notifications go
//! - `response_rewriter`: responses that are inspected before they are forwarded: one may create a task, or contain an
//!   elicitation
//! - `client_limits`: limits on what one client, one identity and all clients may make us store
//! - `connected_clients`: which clients are connected, for programs that report it
//! - [`client_sink`]: the sink for a client's messages, whatever its transport
//!
//! The other methods: `initialize` (`initialize`, `server/discover`), `lists`, `resources`, `subscriptions`, `logs`
//! and `level`, `tasks`; `batch` for several messages in one array.
//!
//! [`surface`]: which tools a client sees.
//!
//! State: `client` (one client), `server_requests` (server requests sent to it), `fleet` (all servers: started,
//! observed, stopped; the current view of their catalogs, and what clients of a profile see of it), `startup_queue` (calls that wait for their server to
//! start), `suspended_request` (a request while it waits), `bridge` (requests between the lifecycles), `unavailable`
//! (errors for servers that are not connected), `sign_in` (clients that are sent to a sign-in page).
//!
//! Besides: `grant_key` (where the sign-in of one identity is stored), [`interceptor`] (tracking of calls), [`load`] (the configuration file), [`cycle`] (an aggregator that
//! would start itself), [`logging`], [`Signals`], `local_client` (a client in our own process, for the commands of
//! `mcp-aggregator`).

mod batch;
pub mod bounds;
mod bridge;
mod call;
mod client;
mod client_limits;
pub mod client_sink;
mod connected_clients;
pub mod cycle;
mod dispatch;
mod fleet;
mod grant_key;
mod initialize;
pub mod interceptor;
mod level;
mod lists;
pub mod load;
mod local_client;
pub mod logging;
mod logs;
mod method_set;
mod resources;
mod responder;
mod response_rewriter;
mod server_requests;
mod sign_in;
mod signals;
mod startup_queue;
pub mod stdio;
mod subscriptions;
pub mod surface;
mod suspended_request;
mod tasks;
mod unavailable;

pub use catalog::{Accepted, NamePolicy, NameStyle, Separator, ServerState};
pub use client::{Client, ClientSetup};
pub use client_limits::ClientLimits;
pub use connected_clients::ConnectedClient;
pub use dispatch::{Aggregator, FlushSet, Incoming, Options};
pub use fleet::{FAILURES_TARGET, Fleet, InstanceView, UpstreamEvent, UpstreamHandle, View};
pub use grant_key::{grant_key_of, grant_key_of_server};
pub use local_client::LocalClient;
pub use method_set::MethodSet;
pub use protocol::escape;
pub use responder::Responder;
pub use sign_in::{SignInFuture, SignInHost};
pub use signals::Signals;
pub use surface::Surface;
pub use upstream::raise_open_files;
pub use upstream::watchdog::run_if_asked as become_watchdog_if_asked;
pub use upstream::{Limit, ServerLimits};
