//! Real servers from npm and PyPI, driven through us by real clients.
//!
//! `scripts/test` installs them and says where they are in `MCP_TEST_PARTS`; without it these tests are skipped loudly.
//! Wherever a server can be asked directly, it is, and the answers through us must be the same.
//!
//! - [`parts`]: where the real things are; [`servers`]: how each server is started; [`sandbox`]: what they work on
//! - [`python_client`]: the `mcp` client, which runs a list of steps (`client.py`)
//! - the tests: [`answers`], [`listing`], [`long_calls`], [`inspector`], [`processes`], [`remote`]

mod answers;
mod inspector;
mod listing;
mod long_calls;
mod parts;
mod processes;
mod python_client;
mod remote;
mod sandbox;
mod servers;
