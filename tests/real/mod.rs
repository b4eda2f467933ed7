//! Real servers from npm and PyPI, driven through us by real clients.
//!
//! `scripts/test` installs them and says where they are in `MCP_TEST_PARTS`; without it these tests are skipped loudly.
//! Wherever a server can be asked directly, it is, and the answers through us must be the same.
//!
//! - [`parts`]: where the real things are; [`sandbox`]: what servers work on
//! - [`servers`] and [`http_servers`]: how each server is started; two are our own, `fm.py` and `server.mjs`
//! - [`clients`]: real clients, which run a list of [`steps`] (`client.py`, `client.mjs`)
//! - [`service`]: `mcp-aggregator` as clients reach it
//! - the tests of tools, mostly with `mcp-simple-aggregator`: [`answers`], [`inspector`], [`listing`], [`long_calls`],
//!   [`names`], [`processes`], [`remote`]
//! - [`instances`]: real servers with an instance for each identity
//! - [`invalid_lists`]: strict clients, and servers whose lists are invalid
//! - [`documents`]: documents that run tools of real servers
//! - [`search`]: tools of real servers are found
//! - [`contract`]: everything that the OpenAPI document of the REST API allows
//! - [`oauth`]: signing in to a server that a real identity provider protects
//! - the tests of everything else, with `mcp-aggregator`: [`whole_protocol`], [`subscriptions`]

mod answers;
mod clients;
mod contract;
mod documents;
mod http_servers;
mod inspector;
mod instances;
mod invalid_lists;
mod listing;
mod long_calls;
mod names;
pub(crate) mod oauth;
mod parts;
mod processes;
mod remote;
mod sandbox;
mod search;
mod servers;
mod service;
mod steps;
mod subscriptions;
mod whole_protocol;
