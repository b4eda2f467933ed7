//! One server behind us: its process, its pipes, its ids and its end.
//!
//! # Layout
//! - [`lifecycle`]: the life of a server, however it is reached
//! - `child`: a server that we start, read top-down: start → initialize → list → serve → stop
//! - [`acquaintance`]: asking a server who it is and what it offers
//! - `notices`: what was wrong with the entries of its lists, each reason once
//! - [`connection`]: requests on their way, each under an id of ours, and where its answer goes
//! - [`caller`]: who made requests, and what reaches them besides the answer
//! - `open`: the table of open requests, and whose question it is when the server asks something
//! - [`doubts`]: signs that nobody is there any more
//! - `ears`: hearing what changes at a modern server; `changes`: what was heard
//! - `numbers`: the ids of ours
//! - [`wire`]: the way to a server: a pipe, or letters to be posted
//! - [`outbox`]: bytes on their way out: written at once if the receiver takes them, else queued within bounds
//! - [`stream`]: the two ends of a pipe or socket
//! - [`process`]: the only place that starts and ends programs
//! - [`limits`]: what one server, and all together, may make us hold
//! - [`lineage`]: the mark every process of ours carries, and how to find all that carry it
//! - [`ancestry`]: which aggregators our requests come from, so that none becomes a server of itself
//! - [`watchdog`]: the process that outlives us by a moment to clear up if we are killed
//! - `exit_pipe`: how the kernel kills servers when the watchdog is killed with us
//! - [`inherited`]: the limits and descriptors that a program inherits from us
//! - [`stderr`]: the last words of a server
//! - [`housing`]: the container a server may live in
//! - [`holder`]: which process holds a port or a file
//! - [`failure`]: how a server or a call failed, in words

pub mod acquaintance;
pub mod ancestry;
pub mod caller;
mod changes;
mod child;
pub mod connection;
pub mod doubts;
mod ears;
mod exit_pipe;
pub mod failure;
pub mod holder;
pub mod housing;
pub mod inherited;
pub mod lifecycle;
pub mod limits;
pub mod lineage;
mod list_reader;
mod notices;
mod numbers;
mod open;
pub mod outbox;
pub mod process;
mod signs;
pub mod stderr;
pub mod stream;
pub mod usage;
pub mod watchdog;
pub mod wire;

pub use acquaintance::Manners;
pub use caller::{Answered, Caller, Notice, Party, Question};
pub use connection::{Connection, Request};
pub use failure::{CallError, Ending, Phase, Report};
pub use holder::Holder;
pub use housing::{Housing, Tenancy, Usage};
pub use lifecycle::{Finding, Life, Living, Probe, Stop, Upstream, Watcher, tell_changed, tell_running};
pub use limits::{Limit, OverLimit, ServerLimits};
pub use outbox::Outbox;
pub use signs::Signs;
