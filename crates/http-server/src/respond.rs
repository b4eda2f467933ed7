//! From the stream of a request to its response: JSON if the response comes first, else a stream of events.

use std::sync::Arc;

use bytes::Bytes;
use hyper::{Response, StatusCode};
use tokio::time::timeout;

use crate::accept::Accepts;
use crate::answer;
use crate::body::{Body, Events};
use crate::credential::Credential;
use crate::limits::Limits;
use crate::on_disconnect::OnDisconnect;
use crate::server::Shared;
use crate::session::Session;
use crate::sse_frame::Pieces;
use crate::stream::{First, Reader, Stream};
use crate::{legacy, modern};

/// The result of dispatching a message.
pub(crate) enum Dispatch {
    /// There is nothing to wait for.
    Response(Response<Body>),
    /// Its response is pending.
    Pending(PendingRequest),
}

/// A pending request, with what is needed to build its HTTP response.
pub(crate) struct PendingRequest {
    pub(crate) pending: PendingResponse,
    pub(crate) accepts: Accepts,
    pub(crate) context: ResponseContext,
}

/// The lifecycle of a request; a legacy one has a session, which may have begun with it.
pub(crate) enum ResponseContext {
    Modern {
        /// The method is known, and a server took part in the response.
        is_relayed: bool,
        /// The credential of the request; `None` without tokens.
        credential: Option<Credential>,
    },
    Legacy {
        session: Arc<Session>,
        is_new: bool,
    },
}

impl PendingRequest {
    /// Waits for the response, or for its beginning.
    pub(crate) async fn response(self, shared: &Shared) -> Response<Body> {
        let outcome = self.pending.outcome(self.accepts, &shared.limits).await;
        match self.context {
            ResponseContext::Modern { is_relayed, credential } => {
                modern::conclude(shared, is_relayed, credential.as_ref(), outcome)
            }
            ResponseContext::Legacy { session, is_new } => legacy::conclude(shared, &session, is_new, outcome),
        }
    }
}

/// A request that waits for its response. If it is dropped before, its client has disconnected.
pub(crate) struct PendingResponse {
    stream: Arc<Stream>,
    on_disconnect: OnDisconnect,
    is_answered: bool,
}

/// How a request is answered.
pub(crate) enum Outcome {
    /// By a single response.
    Answer(Pieces),
    /// By events, of which the first may have arrived.
    Events(PendingResponse),
    /// Not at all.
    Nothing,
}

impl PendingResponse {
    pub(crate) fn new(stream: Arc<Stream>, on_disconnect: OnDisconnect) -> Self {
        Self { stream, on_disconnect, is_answered: false }
    }

    /// Waits for what determines the form of the response. If nothing arrives for so long that a keep-alive is due,
    /// only a stream can send it.
    async fn outcome(mut self, accepts: Accepts, limits: &Limits) -> Outcome {
        let first = if accepts.events {
            let first = timeout(limits.keep_alive, self.stream.first(!accepts.json)).await;
            first.unwrap_or(First::Events)
        } else {
            self.stream.first(false).await
        };
        match first {
            First::Events => Outcome::Events(self),
            First::Answer(answer) => {
                self.is_answered = true;
                Outcome::Answer(answer)
            }
            First::Nothing => {
                self.is_answered = true;
                Outcome::Nothing
            }
        }
    }

    /// Opens the stream for the waiting client; returns the response that carries it.
    pub(crate) fn open(
        mut self,
        limits: &Limits,
        revoked: Option<impl Future<Output = ()> + Send + 'static>,
        opening: impl FnOnce(&Arc<Stream>, Reader) -> Option<Bytes>,
    ) -> Response<Body> {
        self.is_answered = true;
        let reader = self.stream.open();
        let opening = opening(&self.stream, reader);
        let on_disconnect = std::mem::replace(&mut self.on_disconnect, OnDisconnect::Nothing);
        let stream = Arc::clone(&self.stream);
        let events = Events::new(stream, reader.number, opening, limits.keep_alive, on_disconnect);
        answer::events(events.until(revoked))
    }
}

impl Drop for PendingResponse {
    fn drop(&mut self) {
        if !self.is_answered {
            self.stream.leave(0);
        }
    }
}

/// The response to a cancelled request.
pub(crate) fn given_up() -> Response<Body> {
    answer::empty(StatusCode::ACCEPTED)
}
