//! Changes the config files of MCP clients so that they use mcp-aggregator, and restores them.
//!
//! - [`edit`]: sets or removes one member of a JSON text with comments, and changes no other byte
//! - [`entry`]: our entry in the format of each client
//! - `scan`: the positions of members in such a text
//! - [`file`]: the file, its backup, and a note of what was written
//! - [`undo`]: the file without our changes; `merge`: combines two changes of one text
//! - [`duplicates`]: servers of the client that mcp-aggregator serves, too
//! - [`diff`]: the change for display; [`mask`]: without secrets

pub(crate) mod diff;
pub(crate) mod duplicates;
pub(crate) mod edit;
pub(crate) mod entry;
pub(crate) mod file;
pub(crate) mod mask;
mod merge;
mod scan;
pub(crate) mod undo;
