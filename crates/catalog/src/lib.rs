//! What exists: the configured servers, their tools, and what both are called.
//!
//! Everything here is pure. No file, clock, environment or process is touched: bytes and a way to look
//! up variables come in, checked values or a complete list of problems go out.
//!
//! # Layout
//!
//! - [`config`]: the bytes of a config file become a [`Config`], or a [`ConfigError`] that names every problem
//! - `expand`: `$VAR`, `${VAR}` and `${VAR:-default}` in the values of a config
//! - [`server`]: [`ServerName`] and [`ServerSpec`], one configured server
//! - [`tools`]: the tools of one server, exactly as it defined them
//! - [`snapshot`]: everything that exists at one moment, and every name a tool answers to
//! - [`names`]: what a tool is called towards clients: canonical name and safe alias

pub mod config;
mod expand;
pub mod names;
pub mod server;
pub mod snapshot;
pub mod tools;

pub use config::{Accepted, Config, ConfigError};
pub use names::{NamePolicy, NameStyle, Separator};
pub use server::{Dialect, Filled, Program, Remote, ServerName, ServerSpec, Transport};
pub use snapshot::{Missing, Route, ServerEntry, ServerState, Snapshot};
pub use tools::Tool;
