//! What the exit status says. `--help` tells the same.

/// All went well.
pub(crate) const OK: u8 = 0;
/// The config cannot be run, a server failed, or a call was answered with a JSON-RPC error.
pub(crate) const FAILED: u8 = 1;
/// The command line makes no sense. The number is clap's.
pub(crate) const USAGE: u8 = 2;
/// The tool did run, and says itself that it failed (`isError`).
pub(crate) const TOOL_FAILED: u8 = 3;
/// Ended by Ctrl-C or another signal, as shells count it.
pub(crate) const INTERRUPTED: u8 = 130;
