//! Streamable HTTP of the revisions that begin with `initialize`: sessions, and resumable streams.

use std::sync::Arc;

use aggregator::client_sink::ClientSink;
use aggregator::{FlushSet, Incoming, Responder};
use bytes::Bytes;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use protocol::envelope::{EnvelopeError, Reason};
use protocol::reply::code;
use protocol::scan::each_element;
use protocol::{Envelope, Kind, Revision, Span, text};

use crate::accept::Accepts;
use crate::answer::{self, LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID};
use crate::body::{Body, Events, OPENING_COMMENT};
use crate::limits::Limits;
use crate::on_disconnect::OnDisconnect;
use crate::post::{Posted, refuse_invalid};
use crate::respond::{Dispatch, Outcome, PendingRequest, PendingResponse, ResponseContext, given_up};
use crate::server::{RequestContext, Shared};
use crate::session::{Session, Transport};
use crate::sse_frame::EventId;
use crate::stream::Reader;

/// Handles a legacy message.
pub(crate) fn begin(posted: Posted<'_>) -> Dispatch {
    let (session, is_new) = match find(posted.shared, &posted.request_context, &posted.parts.headers) {
        Ok(session) => (session, false),
        Err(Lost::NotNamed) if is_initialize(&posted) => {
            (Session::new(posted.shared, posted.request_context.clone(), Transport::Streamable), true)
        }
        Err(lost) => return Dispatch::Response(lost.response()),
    };
    match expectation(&posted, &session) {
        Expected::Nothing => {
            take(posted.shared, &session, &session.responder, &posted.line, posted.envelope);
            Dispatch::Response(answer::empty(StatusCode::ACCEPTED))
        }
        Expected::Answer(id) => request(posted, session, id, is_new),
        Expected::Complaint(fault) => Dispatch::Response(refuse_invalid(fault, &posted.line)),
    }
}

/// What a message expects.
enum Expected {
    /// A response, to the request with that id, or to a batch.
    Answer(Option<Span>),
    Nothing,
    /// An error response.
    Complaint(EnvelopeError),
}

fn expectation(posted: &Posted<'_>, session: &Session) -> Expected {
    match &posted.envelope {
        Ok(Envelope { kind: Kind::Request { id, .. }, .. }) => Expected::Answer(Some(*id)),
        Ok(_) => Expected::Nothing,
        Err(EnvelopeError { reason: Reason::Batch, .. }) if session.client.revision().has_batches() => {
            if batch_wants_answer(&posted.line) {
                Expected::Answer(None)
            } else {
                Expected::Nothing
            }
        }
        Err(fault) => Expected::Complaint(*fault),
    }
}

/// Whether a batch contains a request. Invalid messages and an empty batch get an error response, too.
pub(crate) fn batch_wants_answer(line: &[u8]) -> bool {
    let (mut is_empty, mut has_request) = (true, false);
    // One by one: the spans of a million tiny elements would take many times the memory of the elements.
    each_element(line, Span { start: 0, end: line.len() }, |part| {
        is_empty = false;
        has_request = has_request
            || match Envelope::scan(part.of(line)) {
                Ok(Envelope { kind, .. }) => matches!(kind, Kind::Request { .. }),
                Err(EnvelopeError { .. }) => true,
            };
    });
    is_empty || has_request
}

fn request(posted: Posted<'_>, session: Arc<Session>, id: Option<Span>, is_new: bool) -> Dispatch {
    let Posted { shared, accepts, line, envelope, .. } = posted;
    let Some(stream) = session.begin(&shared.limits, accepts.events) else {
        return Dispatch::Response(answer::too_many_requests(id.map_or(b"null", |id| id.of(&line))));
    };
    let to = Responder::to(&session.client, Arc::clone(&stream) as Arc<dyn ClientSink>);
    let pending = PendingResponse::new(stream, OnDisconnect::Nothing);
    take(shared, &session, &to, &line, envelope);
    Dispatch::Pending(PendingRequest { pending, accepts, context: ResponseContext::Legacy { session, is_new } })
}

/// The response to a legacy request.
pub(crate) fn conclude(shared: &Shared, session: &Arc<Session>, is_new: bool, outcome: Outcome) -> Response<Body> {
    // A client whose `initialize` failed has no session.
    let is_admitted = is_new && session.client.has_initialize();
    if is_admitted {
        shared.admit(session);
    }
    let mut response = match outcome {
        Outcome::Answer(answer) => answer::json(StatusCode::OK, answer),
        Outcome::Nothing => given_up(),
        // The session ends with its token, and its streams with the session. A call that began with a token that expires
        // meanwhile is finished.
        Outcome::Events(pending) => pending.open(&shared.limits, None::<std::future::Pending<()>>, |stream, reader| {
            if let Some(number) = stream.number() {
                session.keep(number, stream, &shared.limits);
            }
            Some(opening(session, reader, &shared.limits))
        }),
    };
    if is_admitted {
        let id = HeaderValue::from_str(&session.id).expect("an id is made of visible characters");
        response.headers_mut().insert(SESSION_ID.clone(), id);
    }
    response
}

fn take(
    shared: &Shared,
    session: &Session,
    to: &Arc<Responder>,
    line: &Bytes,
    scanned: Result<Envelope, EnvelopeError>,
) {
    let mut flush_set = FlushSet::default();
    let message = Incoming { client: &session.client, to, line, flush_set: &mut flush_set };
    shared.aggregator.take_scanned(message, scanned);
    flush_set.flush();
    to.flush();
}

fn is_initialize(posted: &Posted<'_>) -> bool {
    let Ok(Envelope { kind: Kind::Request { method, .. }, .. }) = &posted.envelope else { return false };
    text::token_is(method.of(&posted.line), "initialize")
}

/// Opens the stream for messages about no request, or resumes a broken one.
pub(crate) fn listen(shared: &Arc<Shared>, request_context: &RequestContext, parts: &Parts) -> Response<Body> {
    if !Accepts::read(&parts.headers).events {
        return answer::refuse(StatusCode::NOT_ACCEPTABLE, "Not acceptable: accept text/event-stream");
    }
    if let Some(refusal) = refusal_of_revision(&parts.headers) {
        return refusal;
    }
    let session = match find(shared, request_context, &parts.headers) {
        Ok(session) => session,
        Err(lost) => return lost.response(),
    };
    let (stream, after) = match last_event(&parts.headers) {
        Some(last) => (session.stream(last.stream), Some(last.number)),
        None => (Some(Arc::clone(&session.general)), None),
    };
    let taken = stream.and_then(|stream| stream.take_over(after).map(|reader| (stream, reader)));
    // The stream has ended after that event. This status makes clients stop reconnecting.
    let Some((stream, reader)) = taken else { return answer::empty(StatusCode::NO_CONTENT) };
    let opening = opening(&session, reader, &shared.limits);
    let events = Events::new(stream, reader.number, Some(opening), shared.limits.keep_alive, OnDisconnect::Nothing);
    // The session ends with a static token, and its streams with the session. It goes on with another token of the same
    // identity, which the client has to send.
    let expired = request_context.lifetime().map(tokio::time::sleep);
    answer::events(events.until(expired))
}

/// Ends a session at the request of its client.
pub(crate) fn end(shared: &Arc<Shared>, request_context: &RequestContext, parts: &Parts) -> Response<Body> {
    if let Some(refusal) = refusal_of_revision(&parts.headers) {
        return refusal;
    }
    match find(shared, request_context, &parts.headers) {
        Ok(session) => {
            shared.end(&session);
            answer::empty(StatusCode::NO_CONTENT)
        }
        Err(lost) => lost.response(),
    }
}

/// The first bytes of a stream. Clients whose revision supports it receive an event id first, so that they can resume
/// even if nothing follows; older ones would treat the empty event as a message.
fn opening(session: &Session, reader: Reader, limits: &Limits) -> Bytes {
    match reader.at {
        Some(at) if session.client.revision() >= Revision::V2025_11_25 => {
            Bytes::from(format!("id: {at}\nretry: {}\ndata: \n\n", limits.retry.as_millis()))
        }
        _ => Bytes::from_static(OPENING_COMMENT),
    }
}

pub(crate) fn last_event(headers: &HeaderMap) -> Option<EventId> {
    EventId::parse(headers.get(&LAST_EVENT_ID)?.to_str().ok()?)
}

/// Modern clients neither open this stream nor have sessions to end.
pub(crate) fn refusal_of_revision(headers: &HeaderMap) -> Option<Response<Body>> {
    match headers.get(&PROTOCOL_VERSION)?.to_str() {
        Ok(revision) if Revision::named_with_sessions(revision).is_some() => None,
        Ok(protocol::revision::SELF_CONTAINED_REVISION) => Some(answer::not_allowed("POST")),
        _ => Some(answer::refuse(StatusCode::BAD_REQUEST, "Bad request: unsupported MCP-Protocol-Version")),
    }
}

/// Why there is no session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lost {
    NotNamed,
    NotFound,
}

impl Lost {
    fn response(self) -> Response<Body> {
        let (status, why) = match self {
            Self::NotNamed => {
                (StatusCode::BAD_REQUEST, "Bad request: Mcp-Session-Id is missing; start with `initialize`")
            }
            Self::NotFound => {
                (StatusCode::NOT_FOUND, "Session not found: it has ended; start a new one with `initialize`")
            }
        };
        answer::refuse_request(status, b"null", code::INVALID_REQUEST, why)
    }
}

fn find(shared: &Shared, request_context: &RequestContext, headers: &HeaderMap) -> Result<Arc<Session>, Lost> {
    let id = headers.get(&SESSION_ID).ok_or(Lost::NotNamed)?;
    let id = id.to_str().map_err(|_| Lost::NotFound)?;
    shared.sessions.find(id, request_context, Transport::Streamable).ok_or(Lost::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_notifications_gets_no_response() {
        let notice = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let request = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        assert!(!batch_wants_answer(format!("[{notice}, {notice}]").as_bytes()));
        assert!(batch_wants_answer(format!("[{notice},{request}]").as_bytes()));
        assert!(batch_wants_answer(format!("[{notice},7]").as_bytes()));
        assert!(batch_wants_answer(b"[]"));
    }

    #[test]
    fn a_revision_of_the_other_lifecycle_gets_the_allowed_methods() {
        let status = |revision: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(&PROTOCOL_VERSION, revision.parse().unwrap());
            refusal_of_revision(&headers).map_or(200, |refusal| refusal.status().as_u16())
        };
        assert_eq!(status("2025-06-18"), 200);
        assert_eq!(status("2026-07-28"), 405);
        assert_eq!(status("1999-01-01"), 400);
        assert!(refusal_of_revision(&HeaderMap::new()).is_none());
    }
}
