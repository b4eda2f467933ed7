//! Whether all is well: what is looked at, and what is said about it.
//!
//! - [`finding`]: one line of the report
//! - [`configuration`]: the config, its variables, the programs it names
//! - [`environment`]: the port, the registry, the disk, the container engine
//! - [`servers`]: every server, started for it or asked of the running service
//! - [`offered`]: all tools together, as clients will take them

pub(crate) mod configuration;
pub(crate) mod diagnosis;
pub(crate) mod environment;
pub(crate) mod servers;
pub(crate) mod tool_checks;
