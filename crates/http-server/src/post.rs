//! A message that arrived by POST: read, scanned, and passed to the lifecycle it belongs to.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use protocol::envelope::{EnvelopeError, Reason, is_id};
use protocol::reply::code;
use protocol::{Envelope, Revision};

use crate::accept::{Accepts, sends_json};
use crate::answer::{self, PROTOCOL_VERSION};
use crate::body::Body;
use crate::respond::Dispatch;
use crate::server::{RequestContext, Shared};
use crate::{legacy, modern, read_body};

/// A message as it arrived.
pub(crate) struct Posted<'p> {
    pub(crate) shared: &'p Arc<Shared>,
    pub(crate) request_context: RequestContext,
    pub(crate) parts: &'p Parts,
    pub(crate) accepts: Accepts,
    pub(crate) line: Bytes,
    pub(crate) envelope: Result<Envelope, EnvelopeError>,
}

/// Answers a message to `/mcp`.
pub(crate) async fn answer(
    shared: &Arc<Shared>,
    request_context: RequestContext,
    parts: &Parts,
    body: Incoming,
) -> Response<Body> {
    let accepts = Accepts::read(&parts.headers);
    if !accepts.json && !accepts.events {
        let why = "Not acceptable: accept application/json, text/event-stream or both";
        return answer::refuse(StatusCode::NOT_ACCEPTABLE, why);
    }
    if !sends_json(&parts.headers) {
        let why = "Unsupported media type: send Content-Type: application/json";
        return answer::refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, why);
    }
    let line = match read_body::read(body, &shared.limits, &request_context.identity).await {
        Ok(line) => line,
        Err(refused) => return refused.response(),
    };
    match begin(shared, request_context, parts, accepts, line) {
        Dispatch::Response(response) => response,
        Dispatch::Pending(waiting) => waiting.response(shared).await,
    }
}

/// Passes the message to its lifecycle. Not a part of the waiting future, which would become larger by all of it.
fn begin(
    shared: &Arc<Shared>,
    request_context: RequestContext,
    parts: &Parts,
    accepts: Accepts,
    line: Bytes,
) -> Dispatch {
    let envelope = Envelope::scan(&line);
    let posted = Posted { shared, request_context, parts, accepts, line, envelope };
    if is_modern(&posted.envelope, &parts.headers) { modern::begin(posted) } else { legacy::begin(posted) }
}

/// Whether a message is modern. A request declares it itself; for others, such as notifications, the header decides.
pub(crate) fn is_modern(envelope: &Result<Envelope, EnvelopeError>, headers: &HeaderMap) -> bool {
    let says_so = |envelope: &Envelope| envelope.params.version.is_some();
    let is_foreign = || {
        let revision = headers.get(&PROTOCOL_VERSION);
        revision.is_some_and(|revision| revision.to_str().ok().and_then(Revision::named_with_sessions).is_none())
    };
    envelope.as_ref().is_ok_and(says_so) || is_foreign()
}

/// The response to an invalid message.
pub(crate) fn refuse_invalid(fault: EnvelopeError, line: &[u8]) -> Response<Body> {
    let (code, text) = match fault.reason {
        Reason::NotJson { .. } | Reason::NotUtf8 { .. } => (code::PARSE_ERROR, "Parse error"),
        Reason::NotAnObject | Reason::Batch | Reason::Invalid(_) => (code::INVALID_REQUEST, "Invalid Request"),
    };
    // The id of a malformed message cannot be trusted; a well-formed one keeps its own id if that is valid.
    let id = fault.id.filter(|&id| code == code::INVALID_REQUEST && is_id(id, line));
    let why = format!("{text}: {}", fault.reason);
    answer::refuse_request(StatusCode::BAD_REQUEST, id.map_or(b"null", |id| id.of(line)), code, &why)
}
