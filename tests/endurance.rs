//! The service under bad conditions: killed at any moment, without its database, overloaded, with failing servers, with many
//! servers.
//!
//! - [`kills`]: nothing that was acknowledged is lost, nothing is half-written
//! - [`outage`]: the database becomes unreachable and comes back under load
//! - [`overload`]: limits are enforced, and every call gets a response
//! - [`auto_disable`]: a server that fails is retried, disabled, and enabled again
//! - [`many`]: many servers with many tools

mod auto_disable;
mod kills;
mod many;
mod outage;
mod overload;
