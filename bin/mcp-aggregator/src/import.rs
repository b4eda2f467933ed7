//! Servers that other programs know, made fit for ours.
//!
//! - `clients`: which programs, and where their files are; `jsonc`: JSON with comments
//! - `pasted`: a whole config, or a part of one; `entries`: from a file to servers; `plan`: which of them are added, under which names

pub(crate) mod clients;
mod entries;
pub(crate) mod jsonc;
pub(crate) mod pasted;
pub(crate) mod plan;

pub(crate) use entries::{Found, found_in, registration_of_entry};
pub(crate) use jsonc::read as read_jsonc;

/// What an exported registry says of itself.
const FORMAT: &str = "mcp-aggregator registry";

/// Whether a file is an exported registry and no config.
pub(crate) fn is_export(file: &serde_json::Value) -> bool {
    file["format"] == FORMAT
}
