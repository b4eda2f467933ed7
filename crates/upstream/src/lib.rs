//! One server behind us: its process, its pipes, its ids and its end.
//!
//! # Layout
//! - [`server`]: the life of a server, however it is reached
//! - `child`: a server that we start, read top-down: start → initialize → list → serve → stop
//! - [`handshake`]: asking a server who it is and what it offers
//! - `notices`: what was wrong with the entries of its lists, each reason once
//! - [`connection`]: requests on their way, each under an id of ours, and where its answer goes
//! - [`response_handler`]: who made requests, and what reaches them besides the answer
//! - `open`: the table of open requests, and whose question it is when the server asks something
//! - [`liveness`]: process_info that nobody is there any more
//! - `listen_stream`: hearing what changes at a modern server; `changes`: what was heard
//! - `numbers`: the ids of ours
//! - [`transport`]: the way to a server: a pipe, or messages to be sent over HTTP
//! - [`outbox`]: bytes on their way out: written at once if the receiver takes them, else queued within bounds
//! - [`stream`]: the two ends of a pipe or socket
//! - [`process`]: the only place that starts and ends programs
//! - [`limits`]: what one server, and all together, may make us hold
//! - [`instance_mark`]: the mark every process of ours carries, and how to find all that carry it
//! - [`loop_detector`]: which aggregators our requests come from, so that none becomes a server of itself
//! - [`watchdog`]: the process that outlives us by a moment to clear up if we are killed
//! - `exit_pipe`: how the kernel kills servers when the watchdog is killed with us
//! - [`inherited`]: the limits and descriptors that a program inherits from us
//! - [`stderr`]: the last words of a server
//! - [`container`]: the container a server may live in
//! - [`holder`]: which process holds a port or a file
//! - [`failure`]: how a server or a call failed, in words

mod changes;
mod child;
pub mod connection;
pub mod container;
mod exit_pipe;
pub mod failure;
pub mod handshake;
pub mod holder;
pub mod inherited;
pub mod limits;
mod list_findings;
mod list_reader;
mod listen_stream;
pub mod liveness;
pub mod loop_detection;
pub mod outbox;
mod pending;
pub mod process;
mod process_info;
pub mod process_mark;
mod request_id;
pub mod response_handler;
pub mod server;
pub mod stderr;
pub mod stream;
pub mod transport;
pub mod usage;
pub mod watchdog;

pub use connection::{Connection, Request};
pub use container::{ContainerHandle, ContainerInfo, Usage};
pub use failure::{CallError, Ending, Phase, Report};
pub use handshake::Handshake;
pub use holder::Holder;
pub use limits::{Limit, OverLimit, ServerLimits};
pub use outbox::Outbox;
pub use process_info::ProcessInfo;
pub use response_handler::{Notification, Requester, ResponseHandler, ServerRequest, ServerResponse};
pub use server::{
    Connector, ConnectorTask, Probe, ProbeResult, Stop, Upstream, UpstreamObserver, tell_changed, tell_running,
};
