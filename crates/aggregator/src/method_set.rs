//! The part of the protocol that a program supports.
//!
//! A table of functions rather than a flag, so that unsupported methods are not linked: the tools-only program never
//! names [`MethodSet::EVERYTHING`], and nothing else refers to those functions.

use std::sync::Arc;

use bytes::Bytes;
use protocol::{Envelope, Lifecycle, RequestEnvelope};
use upstream::Connection;

use crate::client::Client;
use crate::dispatch::{Aggregator, Incoming};
use crate::fleet::Fleet;
use crate::surface;

/// The methods that clients can use and servers are sent.
#[derive(Debug, Clone, Copy)]
pub struct MethodSet {
    /// Only tools.
    pub(crate) is_tools_only: bool,
    /// Handles a request: the message, its envelope, and its method.
    pub(crate) request: fn(&Arc<Aggregator>, Incoming<'_>, &RequestEnvelope, &str),
    /// The list of tools, where it is not the complete one.
    pub(crate) tools_page: fn(&Aggregator, &Client, Lifecycle) -> Option<Bytes>,
    /// Handles a server's notification that belongs to no pending request.
    pub(crate) on_notification: fn(&Fleet, &Arc<Connection>, &str, &Bytes, &Envelope),
}

impl MethodSet {
    /// The whole protocol.
    pub const EVERYTHING: Self = Self {
        is_tools_only: false,
        request: Aggregator::request_of_anything,
        tools_page: surface::page,
        on_notification: Fleet::on_any_notification,
    };

    /// Tools, and what they need.
    pub const TOOLS: Self = Self {
        is_tools_only: true,
        request: Aggregator::request_of_tools,
        tools_page: |_, _, _| None,
        on_notification: Fleet::on_tools_notification,
    };
}
