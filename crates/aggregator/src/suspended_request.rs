//! A request that waits for its server to start, for its turn, or for all servers to be known.
//!
//! It is stored as it was processed on arrival: scanned, checked, tracked, and with its target, and continues from
//! there. Only what servers may have changed in the meantime is looked up again.

use std::sync::Arc;

use bytes::Bytes;
use catalog::Kind;
use protocol::{RequestEnvelope, Span};

use crate::client::Client;
use crate::dispatch::{Aggregator, FlushSet, Incoming};
use crate::responder::Responder;
use crate::{call, sign_in};

/// Handles the requests of one method.
pub(crate) type Handler = fn(&Arc<Aggregator>, Incoming<'_>, &RequestEnvelope);

/// The target of a request.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// The tool or prompt with the name at `name_at`.
    Item {
        /// Tool or prompt.
        kind: Kind,
        /// A string that can be decoded.
        name_at: Span,
    },
    /// This server, whatever the request names.
    Server(usize),
    /// Determined by the method. A function, so that unsupported methods are not linked into a program.
    Method(Handler),
}

/// A request that waits.
pub(crate) struct SuspendedRequest {
    aggregator: Arc<Aggregator>,
    client: Arc<Client>,
    to: Arc<Responder>,
    line: Bytes,
    request: RequestEnvelope,
    target: Target,
}

impl SuspendedRequest {
    /// The request in `message`, to be resumed later.
    pub(crate) fn new(
        aggregator: &Arc<Aggregator>,
        message: &Incoming<'_>,
        request: &RequestEnvelope,
        target: Target,
    ) -> Self {
        Self {
            aggregator: Arc::clone(aggregator),
            client: Arc::clone(message.client),
            to: Arc::clone(message.to),
            line: message.line.clone(),
            request: *request,
            target,
        }
    }

    /// The client that made it.
    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Where its response goes.
    pub(crate) fn to(&self) -> &Arc<Responder> {
        &self.to
    }

    /// The client's id of the request.
    pub(crate) fn id(&self) -> &[u8] {
        self.request.id.of(&self.line)
    }

    /// Bytes of the message.
    pub(crate) fn len(&self) -> usize {
        self.line.len()
    }

    /// Sends its client to the sign-in page of its instance of a server. Returns whether the request is taken care of.
    pub(crate) fn ask_to_sign_in(&self, server: usize) -> bool {
        let Self { aggregator, client, to, line, request, target } = self;
        let mut flush_set = FlushSet::default();
        let message = Incoming { client, to, line, flush_set: &mut flush_set };
        sign_in::ask_for_instance(aggregator, &message, request, server, *target)
    }

    /// Continues the request. It may have to wait again.
    pub(crate) fn resume(&self, flush_set: &mut FlushSet) {
        let Self { aggregator, client, to, line, request, target } = self;
        let message = Incoming { client, to, line, flush_set };
        match *target {
            Target::Item { kind, name_at } => call::resume_item(aggregator, message, request, kind, name_at),
            Target::Server(server) => call::route_to(aggregator, message, request, server, *target),
            Target::Method(handler) => handler(aggregator, message, request),
        }
    }
}
