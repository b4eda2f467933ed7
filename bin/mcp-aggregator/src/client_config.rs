//! The config files of MCP clients, changed so that they use us and back again.
//!
//! - [`edit`]: one member of a JSON text with comments is set or taken out, and no other byte is touched
//! - [`entry`]: what we are in the words of each client
//! - `scan`: where things stand in such a text
//! - [`file`]: the file, what it was before, and what we made of it
//! - [`undo`]: what it would be without our changes; `merge`: two changes of one text
//! - [`duplicates`]: servers of the client that we serve, too
//! - [`diff`]: what would change, for people; [`mask`]: without secrets

pub(crate) mod diff;
pub(crate) mod duplicates;
pub(crate) mod edit;
pub(crate) mod entry;
pub(crate) mod file;
pub(crate) mod mask;
mod merge;
mod scan;
pub(crate) mod undo;
