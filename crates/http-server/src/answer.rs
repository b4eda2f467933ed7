//! Builds responses: JSON, events, an empty body, or a refusal with its reason.

use bytes::Bytes;
use hyper::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use protocol::reply::{self, code};
use upstream::loop_detection::{self, Loop};

use crate::body::{Body, Events};

/// Names the session of a legacy client.
pub(crate) static SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// Names the revision a client speaks.
pub(crate) static PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Names the last event a client has seen.
pub(crate) static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Names the aggregators a request comes from; in a refusal, the one that refuses.
pub(crate) static LOOP_HEADER: HeaderName = HeaderName::from_static(loop_detection::HEADER);

/// Makes proxies forward every event as it arrives.
static UNBUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A JSON response.
pub(crate) fn json(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// A line of ours, as JSON.
pub(crate) fn line(status: StatusCode, mut line: Vec<u8>) -> Response<Body> {
    line.truncate(line.trim_ascii_end().len());
    json(status, Body::Whole(Bytes::from(line)))
}

/// An event stream response.
pub(crate) fn events(events: Events) -> Response<Body> {
    let mut response = Response::new(Body::Events(Box::new(events)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(UNBUFFERED.clone(), HeaderValue::from_static("no"));
    response
}

/// A response without a body.
pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = status;
    response
}

/// A refusal, as a JSON-RPC error without a request id.
pub(crate) fn refuse(status: StatusCode, why: &str) -> Response<Body> {
    refuse_request(status, b"null", code::INVALID_REQUEST, why)
}

/// A refusal because the request comes from ourselves, with our name, by which a sender recognises itself.
pub(crate) fn refuse_loop(detected: Loop, name: &str) -> Response<Body> {
    let why = match detected {
        Loop::Direct => "Loop detected: this aggregator cannot be a server of itself",
        Loop::Through => "Loop detected: this aggregator cannot be a server of one that is among its own servers",
    };
    let mut response = refuse(StatusCode::LOOP_DETECTED, why);
    if let Ok(name) = HeaderValue::from_str(name) {
        response.headers_mut().insert(LOOP_HEADER.clone(), name);
    }
    response
}

/// A refusal of the request with that id.
pub(crate) fn refuse_request(status: StatusCode, id: &[u8], code: i32, why: &str) -> Response<Body> {
    line(status, reply::error(id, code, why, None))
}

/// The response to an unsupported HTTP method.
pub(crate) fn not_allowed(methods: &'static str) -> Response<Body> {
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, &format!("Method not allowed; use {methods}"));
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    response
}

/// The client must wait for responses before it sends more.
pub(crate) fn too_many_requests(id: &[u8]) -> Response<Body> {
    let why = "Too many pending requests in this session (limit `requests-per-session`)";
    let mut response = refuse_request(StatusCode::TOO_MANY_REQUESTS, id, code::INTERNAL_ERROR, why);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// The client has too many connections, so this one is closed.
pub(crate) fn too_many_connections(why: &str) -> Response<Body> {
    let mut response = refuse_request(StatusCode::TOO_MANY_REQUESTS, b"null", code::INTERNAL_ERROR, why);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
