//! HTTP+SSE of 2024-11-05: one stream for everything we say, and an address for everything the client says.

use std::sync::Arc;

use aggregator::dispatch::{Incoming, Touched};
use bytes::Bytes;
use hyper::body::Incoming as Received;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use protocol::{Envelope, Kind};

use crate::accept::Accepts;
use crate::answer;
use crate::body::{Body, Events};
use crate::front::{Asker, Shared};
use crate::leaving::Leaving;
use crate::place::query;
use crate::post::complain;
use crate::session::{Session, Transport};
use crate::{accept, intake};

/// Opens the stream, which is the session: it begins with the address for messages and ends with the connection.
pub(crate) fn open(shared: &Arc<Shared>, asker: Asker, parts: &Parts) -> Response<Body> {
    if !Accepts::read(&parts.headers).events {
        return answer::refuse(StatusCode::NOT_ACCEPTABLE, "Not acceptable: accept text/event-stream");
    }
    let session = Session::new(shared, asker, Transport::Sse);
    shared.admit(&session);
    let Some(reader) = session.general.take_over(None) else {
        return answer::refuse(StatusCode::SERVICE_UNAVAILABLE, "There are too many sessions");
    };
    let opening = Bytes::from(format!("event: endpoint\ndata: /message?sessionId={}\n\n", session.id));
    let stream = Arc::clone(&session.general);
    let leaving = Leaving::End { shared: Arc::clone(shared), session };
    answer::events(Events::new(stream, reader.number, Some(opening), shared.limits.keep_alive, leaving))
}

/// Takes a message. Its answer goes to the stream.
pub(crate) async fn take(shared: &Arc<Shared>, asker: &Asker, parts: &Parts, body: Received) -> Response<Body> {
    let Some(id) = query(parts.uri.query(), "sessionId") else {
        return answer::refuse(StatusCode::BAD_REQUEST, "Bad request: sessionId is missing; begin with GET /sse");
    };
    let Some(session) = shared.sessions.find(&id, asker, Transport::Sse) else {
        return answer::refuse(StatusCode::NOT_FOUND, "Session not found: its stream has ended; begin with GET /sse");
    };
    if !accept::sends_json(&parts.headers) {
        let why = "Unsupported media type: send Content-Type: application/json";
        return answer::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, why);
    }
    let line = match intake::read(body, &shared.limits, &asker.identity).await {
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
        Err(fault) => return complain(fault, &line),
    }
    let mut touched = Touched::default();
    let message = Incoming { client: &session.client, to: &session.answering, line: &line, touched: &mut touched };
    shared.aggregator.take_scanned(message, scanned);
    touched.flush();
    session.answering.flush();
    answer::empty(StatusCode::ACCEPTED)
}
