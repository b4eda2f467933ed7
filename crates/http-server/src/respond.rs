//! From the way of a request to its response: one piece of JSON if the answer comes first, else a stream of events.

use std::sync::Arc;

use bytes::Bytes;
use hyper::{Response, StatusCode};
use tokio::time::timeout;

use crate::accept::Accepts;
use crate::answer;
use crate::body::{Body, Events};
use crate::limits::Limits;
use crate::on_disconnect::OnDisconnect;
use crate::server::Shared;
use crate::session::Session;
use crate::sse_frame::Pieces;
use crate::stream::{First, Reader, Stream};
use crate::tokens::Credential;
use crate::{legacy, modern};

/// A message that was taken.
pub(crate) enum Dispatch {
    /// There is nothing to wait for.
    Response(Response<Body>),
    /// Its answer is to come.
    Pending(PendingRequest),
}

/// A request whose answer is to come, and what is needed to put it into a response.
pub(crate) struct PendingRequest {
    pub(crate) pending: PendingResponse,
    pub(crate) accepts: Accepts,
    pub(crate) context: ResponseContext,
}

/// The lifecycle of a request; a legacy one has a session, which may have begun with it.
pub(crate) enum ResponseContext {
    Modern {
        /// The method is one we know, and a server had its part in the answer.
        is_relayed: bool,
        /// Who asks; nothing without tokens.
        credential: Option<Credential>,
    },
    Legacy {
        session: Arc<Session>,
        is_new: bool,
    },
}

impl PendingRequest {
    /// Waits for the answer, or for the beginning of it.
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

/// A request whose answer is awaited. Dropped before it is answered, its client is gone.
pub(crate) struct PendingResponse {
    stream: Arc<Stream>,
    on_disconnect: OnDisconnect,
    is_answered: bool,
}

/// How a request is answered.
pub(crate) enum Outcome {
    /// By this, and nothing else.
    Answer(Pieces),
    /// By events, of which the first may already be there.
    Events(PendingResponse),
    /// Not at all.
    Nothing,
}

impl PendingResponse {
    pub(crate) fn new(stream: Arc<Stream>, on_disconnect: OnDisconnect) -> Self {
        Self { stream, on_disconnect, is_answered: false }
    }

    /// Waits for what decides how the request is answered. If nothing comes for so long that the connection should be
    /// told that somebody is still there, only a stream can do that.
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

    /// The stream, opened for the client that waited; and the response it reads it from.
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

/// The response to a request that was given up.
pub(crate) fn given_up() -> Response<Body> {
    answer::empty(StatusCode::ACCEPTED)
}
