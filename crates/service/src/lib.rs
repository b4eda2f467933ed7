//! The aggregation service: servers that are registered, connected, watched, limited and removed while it runs, and
//! remembered in a registry; and an account of every call.
//!
//! # Layout
//! - [`Service`] (here): the whole, opened once
//! - `servers.rs`: what an administrator does with servers; `roster.rs`: all of them, in memory
//! - `keeper.rs` and below: the life of one server: connected, lost, tried again, switched off; health, and rest
//! - `spec.rs`: from what was registered to what can be started, and what is wrong with it
//! - `layer.rs`: the config file as a read-only layer of servers
//! - [`calls`]: a tool called from here; [`executions`]: the account of all calls: limits, stop, history
//! - [`metrics`]: numbers for whoever watches; `traffic.rs`: what goes on at one server
//! - [`settings`]: what can be changed while it runs; [`events`]: what happens, for who wants to know
//! - `overview`: the audit log, and whether the database is there
//! - [`Error`]: what went wrong, told once for every edge

pub mod calls;
pub mod error;
pub mod events;
pub mod executions;
pub mod metrics;
pub mod overview;
mod roster;
pub mod servers;
pub mod settings;
mod traffic;

use std::sync::Arc;
use std::time::Instant;

use aggregator::{Aggregator, Fleet};
use registry::Store;

pub use error::{Error, Problem};
pub use events::{Event, Events};
pub use settings::Settings;

/// On whose behalf something is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The name of a token, where there are tokens; or which way somebody came, as in `cli`.
    pub name: Arc<str>,
}

/// The service. Cheap to share; everything goes on in tasks of its own.
pub struct Service {
    pub(crate) store: Store,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) aggregator: Arc<Aggregator>,
    pub(crate) events: Events,
    pub(crate) settings: settings::Keeper,
    pub(crate) executions: Arc<executions::Executions>,
    pub(crate) roster: Arc<roster::Roster>,
    pub(crate) began: Instant,
}
