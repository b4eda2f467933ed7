//! The exit statuses. `--help` lists the same.

/// Success.
pub(crate) const OK: u8 = 0;
/// The config cannot be used, a server failed, or a call was answered with a JSON-RPC error.
pub(crate) const FAILED: u8 = 1;
/// The command line is invalid. The number is clap's.
pub(crate) const USAGE: u8 = 2;
/// The tool ran, and reports that it failed (`isError`).
pub(crate) const TOOL_FAILED: u8 = 3;
/// Ended by Ctrl-C or another signal, in the numbering of shells.
pub(crate) const INTERRUPTED: u8 = 130;
