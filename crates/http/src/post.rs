//! A message that came by POST: taken in, looked at, and given to the era it belongs to.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use protocol::envelope::{Fault, Reason, is_id};
use protocol::reply::code;
use protocol::{Envelope, Revision};

use crate::accept::{Accepts, sends_json};
use crate::answer::{self, PROTOCOL_VERSION};
use crate::body::Body;
use crate::front::{Asker, Shared};
use crate::respond::Begun;
use crate::{intake, legacy, modern};

/// A message as it came.
pub(crate) struct Posted<'p> {
    pub(crate) shared: &'p Arc<Shared>,
    pub(crate) asker: Asker,
    pub(crate) parts: &'p Parts,
    pub(crate) accepts: Accepts,
    pub(crate) line: Bytes,
    pub(crate) envelope: Result<Envelope, Fault>,
}

/// Answers a message to `/mcp`.
pub(crate) async fn answer(shared: &Arc<Shared>, asker: Asker, parts: &Parts, body: Incoming) -> Response<Body> {
    let accepts = Accepts::read(&parts.headers);
    if !accepts.json && !accepts.events {
        let why = "Not acceptable: accept application/json, text/event-stream or both";
        return answer::refuse(StatusCode::NOT_ACCEPTABLE, why);
    }
    if !sends_json(&parts.headers) {
        let why = "Unsupported media type: send Content-Type: application/json";
        return answer::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, why);
    }
    let line = match intake::read(body, &shared.limits, &asker.identity).await {
        Ok(line) => line,
        Err(refused) => return refused.response(),
    };
    match begin(shared, asker, parts, accepts, line) {
        Begun::Answered(response) => response,
        Begun::Waits(waiting) => waiting.response(shared).await,
    }
}

/// Gives the message to its era. Not a part of the future that waits, which would carry all of it about.
fn begin(shared: &Arc<Shared>, asker: Asker, parts: &Parts, accepts: Accepts, line: Bytes) -> Begun {
    let envelope = Envelope::scan(&line);
    let posted = Posted { shared, asker, parts, accepts, line, envelope };
    if is_modern(&posted.envelope, &parts.headers) { modern::begin(posted) } else { legacy::begin(posted) }
}

/// A request says itself that it is a modern one. What says nothing, like a notification, is known by its header.
pub(crate) fn is_modern(envelope: &Result<Envelope, Fault>, headers: &HeaderMap) -> bool {
    let says_so = |envelope: &Envelope| envelope.params.version.is_some();
    let is_foreign = || {
        let revision = headers.get(&PROTOCOL_VERSION);
        revision.is_some_and(|revision| revision.to_str().ok().and_then(Revision::named).is_none())
    };
    envelope.as_ref().is_ok_and(says_so) || is_foreign()
}

/// The response to what is no message.
pub(crate) fn complain(fault: Fault, line: &[u8]) -> Response<Body> {
    let (code, text) = match fault.reason {
        Reason::NotJson { .. } | Reason::NotUtf8 { .. } => (code::PARSE_ERROR, "Parse error"),
        Reason::NotAnObject | Reason::Batch | Reason::Invalid(_) => (code::INVALID_REQUEST, "Invalid Request"),
    };
    // A broken message has no id that can be trusted; a well-formed one keeps its own where it is a legal one.
    let id = fault.id.filter(|&id| code == code::INVALID_REQUEST && is_id(id, line));
    let why = format!("{text}: {}", fault.reason);
    answer::refuse_request(StatusCode::BAD_REQUEST, id.map_or(b"null", |id| id.of(line)), code, &why)
}
