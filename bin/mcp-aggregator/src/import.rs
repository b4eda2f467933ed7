//! Imports the servers of other programs.
//!
//! - `clients`: these programs, and the paths of their files; `jsonc`: JSON with comments
//! - `pasted`: a whole config, or a part of one; `entries`: reads servers from a file; `plan`: decides which of them
//!   are added, and their names

pub(crate) mod clients;
mod entries;
pub(crate) mod jsonc;
pub(crate) mod pasted;
pub(crate) mod plan;

pub(crate) use entries::{Found, found_in, registration_of_entry};
pub(crate) use jsonc::read as read_jsonc;

/// The member that identifies an export.
const FORMAT: &str = "mcp-aggregator registry";

/// Whether a file is an export and not a config.
pub(crate) fn is_export(file: &serde_json::Value) -> bool {
    file["format"] == FORMAT
}
