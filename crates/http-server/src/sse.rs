//! HTTP+SSE of 2024-11-05: one stream for all our messages, and an address for the client's messages.

use std::sync::Arc;

use aggregator::{FlushSet, Incoming};
use bytes::Bytes;
use hyper::body::Incoming as Received;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use protocol::{Envelope, Kind};

use crate::accept::Accepts;
use crate::answer;
use crate::body::{Body, Events};
use crate::on_disconnect::OnDisconnect;
use crate::path::query;
use crate::post::refuse_invalid;
use crate::server::{RequestContext, Shared};
use crate::session::{Session, Transport};
use crate::{accept, read_body};

/// Opens the stream, which is the session: it begins with the address for messages and ends with the connection.
pub(crate) fn open(shared: &Arc<Shared>, request_context: RequestContext, parts: &Parts) -> Response<Body> {
    if !Accepts::read(&parts.headers).events {
        return answer::refuse(StatusCode::NOT_ACCEPTABLE, "Not acceptable: accept text/event-stream");
    }
    let session = Session::new(shared, request_context, Transport::Sse);
    shared.admit(&session);
    let Some(reader) = session.general.take_over(None) else {
        return answer::refuse(StatusCode::SERVICE_UNAVAILABLE, "Too many sessions");
    };
    let opening = Bytes::from(format!("event: endpoint\ndata: /message?sessionId={}\n\n", session.id));
    let stream = Arc::clone(&session.general);
    // The stream is the session, and cannot be resumed, so it lasts as long as the token it was opened with.
    let expired = session.request_context.lifetime().map(tokio::time::sleep);
    let on_disconnect = OnDisconnect::End { shared: Arc::clone(shared), session };
    let events = Events::new(stream, reader.number, Some(opening), shared.limits.keep_alive, on_disconnect);
    answer::events(events.until(expired))
}

/// Handles a message. Its response is sent on the stream.
pub(crate) async fn take(
    shared: &Arc<Shared>,
    request_context: &RequestContext,
    parts: &Parts,
    body: Received,
) -> Response<Body> {
    let Some(id) = query(parts.uri.query(), "sessionId") else {
        return answer::refuse(StatusCode::BAD_REQUEST, "Bad request: sessionId is missing; start with GET /sse");
    };
    let Some(session) = shared.sessions.find(&id, request_context, Transport::Sse) else {
        return answer::refuse(StatusCode::NOT_FOUND, "Session not found: its stream has ended; start with GET /sse");
    };
    if !accept::sends_json(&parts.headers) {
        let why = "Unsupported media type: send Content-Type: application/json";
        return answer::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, why);
    }
    let line = match read_body::read(body, &shared.limits, &request_context.identity).await {
        Ok(line) => line,
        Err(refused) => return refused.response(),
    };
    let scanned = Envelope::scan(&line);
    match scanned {
        Ok(Envelope { kind: Kind::Request { id, .. }, .. }) => {
            if !session.usage.begin_request(shared.limits.requests_in_flight) {
                return answer::too_many_requests(id.of(&line));
            }
        }
        Ok(_) => {}
        Err(fault) => return refuse_invalid(fault, &line),
    }
    let mut flush_set = FlushSet::default();
    let message = Incoming { client: &session.client, to: &session.responder, line: &line, flush_set: &mut flush_set };
    shared.aggregator.take_scanned(message, scanned);
    flush_set.flush();
    session.responder.flush();
    answer::empty(StatusCode::ACCEPTED)
}
