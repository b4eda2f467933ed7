//! What the service promises when things go badly or there is much of everything: killed at any moment, without its
//! database, asked for more than it may do, with servers that fail, with many servers.
//!
//! - [`kills`]: nothing that was acknowledged is lost, nothing is half-written
//! - [`outage`]: the database goes away and comes back under load
//! - [`crowd`]: limits hold, and nobody goes without an answer
//! - [`giving_up`]: a server that fails is tried again, switched off, and switched on again
//! - [`many`]: many servers with many tools

mod auto_disable;
mod kills;
mod many;
mod outage;
mod overload;
