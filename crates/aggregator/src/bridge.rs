//! The bridge: requests of a legacy client to a modern server, and of a modern client to a legacy server.
//!
//! # Layout
//! - here: which direction a request is bridged in, and what both directions share
//! - `legacy_client`: a modern server sends no requests; its `input_required` becomes server requests to the legacy
//!   client
//! - `modern_client`: a legacy server sends requests during a call; the call is parked, and the client receives an
//!   `input_required` and a sealed request state to retry with
//! - `parked_calls`: the table of parked calls
//! - `request_state`: tokens that cannot be forged, transferred or used too late

mod legacy_client;
mod modern_client;
pub(crate) mod parked_calls;
mod request_state;

use std::sync::Arc;

use bytes::Bytes;
use protocol::bridge::task;
use protocol::splice::{Edit, spliced};
use protocol::{Envelope, Kind, Lifecycle, Params, RequestEnvelope, Span, text};
use upstream::Connection;

use crate::client::lifecycle_of;
use crate::dispatch::Aggregator;
use crate::responder::Responder;

pub(crate) use parked_calls::ParkedCalls;

/// A request to a server of the other lifecycle.
pub(crate) struct BridgedRequest<'c> {
    pub(crate) aggregator: &'c Arc<Aggregator>,
    pub(crate) to: &'c Arc<Responder>,
    /// The request as the client wrote it.
    pub(crate) line: &'c Bytes,
    pub(crate) envelope: &'c RequestEnvelope,
    pub(crate) connection: &'c Arc<Connection>,
    /// The same request with the name the server uses.
    pub(crate) renamed: Bytes,
    pub(crate) method: String,
}

/// Sends a request that was counted as open to a server of the other lifecycle.
pub(crate) fn send(
    aggregator: &Arc<Aggregator>,
    to: &Arc<Responder>,
    line: &Bytes,
    envelope: &RequestEnvelope,
    connection: &Arc<Connection>,
    renamed: Option<Edit<'_>>,
) {
    let method = text::decode(envelope.method.of(line)).unwrap_or_default().into_owned();
    let renamed = renamed.map_or_else(|| line.clone(), |edit| edited(line, &[edit]));
    let renamed = if method == "tools/call" { without_task(renamed, line, &envelope.params) } else { renamed };
    let bridged = BridgedRequest { aggregator, to, line, envelope, connection, renamed, method };
    match lifecycle_of(&envelope.params) {
        Lifecycle::Session => legacy_client::send(&bridged),
        Lifecycle::SelfContained => modern_client::send(&bridged),
    }
}

/// The request with the server's name, without the `task` member that asks for a task.
fn without_task(renamed: Bytes, line: &Bytes, params: &Params) -> Bytes {
    // Checked in the client's own line: most calls have no such member, and need not be scanned again.
    if task::without_task_member(line, params).is_none() {
        return renamed;
    }
    let params = scanned_request(&renamed).params;
    task::without_task_member(&renamed, &params).unwrap_or(renamed)
}

impl BridgedRequest<'_> {
    /// The client's id of the request.
    pub(crate) fn id(&self) -> &[u8] {
        self.envelope.id.of(self.line)
    }

    /// The envelope of the request with the server's name.
    pub(crate) fn renamed_envelope(&self) -> RequestEnvelope {
        scanned_request(&self.renamed)
    }
}

/// The envelope of a request that is a valid one with some members replaced.
pub(crate) fn scanned_request(line: &[u8]) -> RequestEnvelope {
    scanned(line).into_request().expect("a request with some members replaced is a request")
}

/// The span of the id in a response that is a valid one with some members replaced.
pub(crate) fn scanned_response_id(line: &[u8]) -> Span {
    match scanned(line).kind {
        Kind::Response { id, .. } => id,
        Kind::Request { .. } | Kind::Notification { .. } => {
            unreachable!("a response with some members replaced is a response")
        }
    }
}

/// The envelope of a message that is a valid one with some members replaced.
fn scanned(line: &[u8]) -> Envelope {
    Envelope::scan(line).expect("a valid message with some members replaced is a valid message")
}

/// `line` with some spans replaced.
pub(crate) fn edited(line: &Bytes, edits: &[Edit<'_>]) -> Bytes {
    Bytes::from(spliced(line, edits))
}
