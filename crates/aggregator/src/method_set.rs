//! How much of the protocol a program speaks.
//!
//! A table of functions rather than a flag, so that what a program does not speak is not linked into it: the tiny program
//! never names [`MethodSet::EVERYTHING`], and nothing else leads to what stands there.

use std::sync::Arc;

use bytes::Bytes;
use protocol::envelope::Envelope;
use protocol::{Lifecycle, Span};
use upstream::Connection;

use crate::client::Client;
use crate::dispatch::{Aggregator, Incoming};
use crate::fleet::Fleet;
use crate::surface;

/// What is offered to clients and asked of servers.
#[derive(Debug, Clone, Copy)]
pub struct MethodSet {
    /// Nothing but tools.
    pub(crate) is_tools_only: bool,
    /// Takes a request: the message, what was found in it, its id and its method.
    pub(crate) request: fn(&Arc<Aggregator>, Incoming<'_>, &Envelope, Span, &str),
    /// The list of tools, where it is another than all of them.
    pub(crate) tools_page: fn(&Aggregator, &Client, Lifecycle) -> Option<Bytes>,
    /// Takes what a server says that is about no open request.
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

    /// Tools, and what belongs to them.
    pub const TOOLS: Self = Self {
        is_tools_only: true,
        request: Aggregator::request_of_tools,
        tools_page: |_, _, _| None,
        on_notification: Fleet::on_tools_notification,
    };
}
