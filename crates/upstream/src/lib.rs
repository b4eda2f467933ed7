//! One upstream server: its process, its pipes, its request ids and its shutdown.
//!
//! # Layout
//! - `server`: what the run of every server has in common, whatever its transport
//! - [`stdio_server`]: a server over pipes, read top-down: start → initialize → list → serve → stop
//! - `child`: a server that we start as a process
//! - `handshake`: the handshake and the listing of items
//! - `list_reader`: reads the pages of a list; `list_findings`: what was wrong with their entries, each reason once;
//!   `listing`: a complete list, and how it becomes part of the offer
//! - `connection`: requests to the server, each under an id of ours, and the routing of its responses
//! - `audience`: whom the run of a server serves: everybody, or one identity or session
//! - `response_handler`: the interface of requesters: responses, notifications and server requests
//! - `pending`: the table of pending requests, and the owner of a server request
//! - `liveness`: signs that a server has disconnected
//! - `listen_stream`: receives the changes of a modern server; `changes`: what was reported
//! - `request_id`: our request ids
//! - [`transport`]: the transport to a server: a pipe, or a queue of HTTP messages
//! - `outbox`: outgoing bytes: written at once if the receiver accepts them, else queued within bounds
//! - [`stream`]: the two ends of a pipe or socket
//! - [`process`]: the only module that starts and ends programs
//! - `process_info`: the process and stderr of a server
//! - `usage`: the CPU time and memory of a process and its descendants
//! - `limits`: limits on what one server, and all together, may make us store
//! - `process_mark`: the mark every process of ours carries, and how to find all that carry it
//! - [`loop_detection`]: which aggregators our requests come from, so that none becomes a server of itself
//! - [`watchdog`]: the process that cleans up if we are killed
//! - `exit_pipe`: how the kernel kills servers when the watchdog is killed with us
//! - `inherited`: the limits and descriptors that a program inherits from us
//! - [`stderr`]: the last stderr lines of a server
//! - `container`: the container a server may run in
//! - `holder`: which process holds a port or a file
//! - `failure`: how a server or a call failed, as text

mod audience;
mod changes;
mod child;
mod connection;
mod container;
mod exit_pipe;
mod failure;
mod handshake;
mod holder;
mod inherited;
mod limits;
mod list_findings;
mod list_reader;
mod listen_stream;
mod listing;
mod liveness;
pub mod loop_detection;
mod outbox;
mod pending;
pub mod process;
mod process_info;
mod process_mark;
mod request_id;
mod response_handler;
mod server;
pub mod stderr;
pub mod stdio_server;
pub mod stream;
pub mod transport;
pub mod usage;
pub mod watchdog;

pub use audience::{Audience, UpstreamKey};
pub use connection::{Connection, ConnectionContext, IncomingMessage, Request, Response};
pub use container::{ContainerHandle, ContainerInfo, Usage};
pub use failure::{CallError, Cause, Ending, Phase, RemoteFailure, Report, Unreadable};
pub use handshake::{Handshake, read_initialize_result};
pub use holder::Holder;
pub use inherited::raise_open_files;
pub use limits::{Limit, OverLimit, ServerLimits};
pub use outbox::Outbox;
pub use process_info::ProcessInfo;
pub use process_mark::{INSTANCE_MARK_VARIABLE, InstanceMark};
pub use response_handler::{Notification, Requester, ResponseFilter, ResponseHandler, ServerRequest, ServerResponse};
pub use server::{
    Connector, ConnectorTask, Probe, ProbeResult, Stop, Upstream, UpstreamObserver, are_many, beside_calls,
    compute_beside_calls, is_large, report_ended, report_offer_changed, report_running,
};
