//! Requests between the eras: a legacy client at a modern server, a modern client at a legacy server.
//!
//! # Layout
//! - here: which way a request crosses, and what both have in common
//! - `older_client`: a modern server cannot ask; its `input_required` becomes questions to a client that can be asked
//! - `newer_client`: a legacy server asks while it works; its call is parked, and the client is given an
//!   `input_required` and a sealed slip to come back with
//! - `parking`: the parked calls
//! - `seal`: slips that cannot be made up, passed on or used too late

mod newer_client;
mod older_client;
mod parking;
mod seal;

use std::sync::Arc;

use bytes::Bytes;
use protocol::era::task;
use protocol::splice::Edit;
use protocol::{Envelope, Era};
use upstream::Connection;

use crate::answering::Answering;
use crate::call::id_of;
use crate::client::era_of;
use crate::dispatch::Aggregator;
use crate::way::Message;

pub use parking::Crossings;

/// A request on its way to a server of the other era.
pub(crate) struct Crossing<'c> {
    pub(crate) aggregator: &'c Arc<Aggregator>,
    pub(crate) to: &'c Arc<Answering>,
    /// The request as the client wrote it.
    pub(crate) line: &'c Bytes,
    pub(crate) envelope: &'c Envelope,
    pub(crate) connection: &'c Arc<Connection>,
    /// The same with the name the server knows.
    pub(crate) renamed: Bytes,
    pub(crate) method: String,
}

/// Sends a request that was counted as open to a server of the other era.
pub(crate) fn send(
    aggregator: &Arc<Aggregator>,
    to: &Arc<Answering>,
    line: &Bytes,
    envelope: &Envelope,
    connection: &Arc<Connection>,
    renamed: Option<Edit<'_>>,
) {
    let protocol::Kind::Request { method, .. } = envelope.kind else { return };
    let method = crate::answering::method_of(line, method);
    let renamed = renamed.map_or_else(|| line.clone(), |edit| edited(line, &[edit]));
    let renamed = if method == "tools/call" { without_task(renamed, line, envelope) } else { renamed };
    let crossing = Crossing { aggregator, to, line, envelope, connection, renamed, method };
    match era_of(&envelope.params) {
        Era::Legacy => older_client::send(&crossing),
        Era::Modern => newer_client::send(&crossing),
    }
}

/// The request under the server's name, without the wish that it become a task.
fn without_task(renamed: Bytes, line: &Bytes, envelope: &Envelope) -> Bytes {
    // Looked for in the client's own line: most calls have no such wish, and need not be scanned again.
    if task::without_wish(line, &envelope.params).is_none() {
        return renamed;
    }
    let params = scanned(&renamed).params;
    task::without_wish(&renamed, &params).unwrap_or(renamed)
}

impl Crossing<'_> {
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
