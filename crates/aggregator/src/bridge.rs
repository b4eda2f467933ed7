//! Requests between the lifecycles: a legacy client at a modern server, a modern client at a legacy server.
//!
//! # Layout
//! - here: which way a request crosses, and what both have in common
//! - `legacy_client`: a modern server cannot ask; its `input_required` becomes questions to a client that can be asked
//! - `modern_client`: a legacy server asks while it works; its call is parked, and the client is given an
//!   `input_required` and a sealed request state to come back with
//! - `parked_calls`: the parked calls
//! - `request_state`: tokens that cannot be made up, passed on or used too late

mod legacy_client;
mod modern_client;
mod parked_calls;
mod request_state;

use std::sync::Arc;

use bytes::Bytes;
use protocol::bridge::task;
use protocol::splice::Edit;
use protocol::{Envelope, Lifecycle};
use upstream::Connection;

use crate::call::id_of;
use crate::client::lifecycle_of;
use crate::client_sink::Message;
use crate::dispatch::Aggregator;
use crate::responder::Responder;

pub use parked_calls::ParkedCalls;

/// A request on its way to a server of the other lifecycle.
pub(crate) struct BridgedRequest<'c> {
    pub(crate) aggregator: &'c Arc<Aggregator>,
    pub(crate) to: &'c Arc<Responder>,
    /// The request as the client wrote it.
    pub(crate) line: &'c Bytes,
    pub(crate) envelope: &'c Envelope,
    pub(crate) connection: &'c Arc<Connection>,
    /// The same with the name the server knows.
    pub(crate) renamed: Bytes,
    pub(crate) method: String,
}

/// Sends a request that was counted as open to a server of the other lifecycle.
pub(crate) fn send(
    aggregator: &Arc<Aggregator>,
    to: &Arc<Responder>,
    line: &Bytes,
    envelope: &Envelope,
    connection: &Arc<Connection>,
    renamed: Option<Edit<'_>>,
) {
    let protocol::Kind::Request { method, .. } = envelope.kind else { return };
    let method = crate::responder::method_of(line, method);
    let renamed = renamed.map_or_else(|| line.clone(), |edit| edited(line, &[edit]));
    let renamed = if method == "tools/call" { without_task(renamed, line, envelope) } else { renamed };
    let bridged = BridgedRequest { aggregator, to, line, envelope, connection, renamed, method };
    match lifecycle_of(&envelope.params) {
        Lifecycle::Session => legacy_client::send(&bridged),
        Lifecycle::SelfContained => modern_client::send(&bridged),
    }
}

/// The request under the server's name, without the wish that it become a task.
fn without_task(renamed: Bytes, line: &Bytes, envelope: &Envelope) -> Bytes {
    // Looked for in the client's own line: most calls have no such wish, and need not be scanned again.
    if task::without_task_member(line, &envelope.params).is_none() {
        return renamed;
    }
    let params = scanned(&renamed).params;
    task::without_task_member(&renamed, &params).unwrap_or(renamed)
}

impl BridgedRequest<'_> {
    /// The id under which the client knows it.
    pub(crate) fn id(&self) -> &[u8] {
        id_of(self.envelope).of(self.line)
    }

    /// What it says under the server's name.
    pub(crate) fn renamed_envelope(&self) -> Envelope {
        scanned(&self.renamed)
    }
}

/// What a message says that we have put together from valid ones.
pub(crate) fn scanned(line: &[u8]) -> Envelope {
    Envelope::scan(line).expect("a valid message with some members replaced is a valid message")
}

/// `line` with some spans replaced.
pub(crate) fn edited(line: &Bytes, edits: &[Edit<'_>]) -> Bytes {
    let mut edited = Vec::with_capacity(line.len() + 32);
    Message::Spliced { line, edits }.write_to(&mut edited);
    Bytes::from(edited)
}
