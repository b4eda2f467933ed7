//! The checks of `doctor`, and their report.
//!
//! - [`diagnosis`]: one finding
//! - [`configuration`]: the config, its variables, and its programs
//! - [`environment`]: the port, the registry, the disk, the container engine
//! - [`profiles`]: profiles, and patterns in them that match nothing
//! - [`servers`]: every server, started for the check or reported by the running service
//! - [`tool_checks`]: all tools together, as clients see them

pub(crate) mod configuration;
pub(crate) mod diagnosis;
pub(crate) mod environment;
pub(crate) mod profiles;
pub(crate) mod servers;
pub(crate) mod tool_checks;
