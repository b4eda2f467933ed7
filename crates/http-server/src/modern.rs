//! Modern messages: each is self-contained, and its headers repeat members of its body.

use std::borrow::Cow;
use std::sync::Arc;

use aggregator::client_sink::ClientSink;
use aggregator::{FlushSet, Incoming, Responder};
use bytes::Bytes;
use catalog::Kind as ItemKind;
use hyper::header::{HeaderMap, HeaderName};
use hyper::{Response, StatusCode};
use protocol::bridge::problem::{Problem, check_modern};
use protocol::bridge::{header_params, headers};
use protocol::reply::code;
use protocol::revision::SELF_CONTAINED_REVISION;
use protocol::scan::member;
use protocol::{Envelope, Kind, Lifecycle, Params, Span, text};

use crate::answer::{self, PROTOCOL_VERSION};
use crate::body::{Body, OPENING_COMMENT};
use crate::credential::Credential;
use crate::on_disconnect::OnDisconnect;
use crate::post::{Posted, refuse_invalid};
use crate::respond::{Dispatch, Outcome, PendingRequest, PendingResponse, ResponseContext, given_up};
use crate::server::Shared;
use crate::sse_frame::Pieces;
use crate::stream::Stream;

static METHOD: HeaderName = HeaderName::from_static("mcp-method");
static NAME: HeaderName = HeaderName::from_static("mcp-name");

/// Known methods: a "not found" error of a server for one of these does not mean that the method is unknown.
const RELAYED: [&str; 4] = ["tools/call", "prompts/get", "resources/read", "completion/complete"];

const LISTEN: &str = "subscriptions/listen";

/// Longer errors do not determine the status of a response.
const MAX_STATUS_ERROR_BYTES: usize = 16 << 10;

/// Handles a modern message.
pub(crate) fn begin(posted: Posted<'_>) -> Dispatch {
    let envelope = match posted.envelope {
        Ok(envelope) => envelope,
        Err(fault) => return Dispatch::Response(refuse_invalid(fault, &posted.line)),
    };
    Dispatch::Response(match envelope.kind {
        Kind::Request { id, method } => {
            let line = posted.line.clone();
            let method = text::decode(method.of(&line)).unwrap_or_default();
            match check(&posted, &method, &envelope.params) {
                Ok(()) => return request(posted, &envelope, id, &method),
                Err(problem) => answer::line(StatusCode::BAD_REQUEST, problem.answer(id.of(&line))),
            }
        }
        Kind::Notification { .. } => {
            let Posted { shared, request_context, line, .. } = posted;
            let client = shared.client(&request_context, Arc::clone(&shared.null_sink));
            let to = Responder::to(&client, Arc::clone(&shared.null_sink));
            let mut flush_set = FlushSet::default();
            let message = Incoming { client: &client, to: &to, line: &line, flush_set: &mut flush_set };
            shared.aggregator.take_scanned(message, Ok(envelope));
            flush_set.flush();
            answer::empty(StatusCode::ACCEPTED)
        }
        Kind::Response { .. } => {
            answer::refuse(StatusCode::BAD_REQUEST, "Invalid Request: a client sends no responses in this revision")
        }
    })
}

fn request(posted: Posted<'_>, envelope: &Envelope, id: Span, method: &str) -> Dispatch {
    let Posted { shared, request_context, accepts, line, .. } = posted;
    if method == LISTEN && !accepts.events {
        let why = "Not acceptable: accept text/event-stream to listen";
        let refusal = answer::refuse_request(StatusCode::NOT_ACCEPTABLE, id.of(&line), code::INVALID_REQUEST, why);
        return Dispatch::Response(refusal);
    }
    let client = shared.client(&request_context, Arc::clone(&shared.null_sink));
    let stream = Arc::new(Stream::of_request(&shared.limits, accepts.events, &request_context.identity));
    let to = Responder::to(&client, Arc::clone(&stream) as Arc<dyn ClientSink>);
    if method == LISTEN {
        shared.remember_listener(&client);
    }
    let on_disconnect =
        OnDisconnect::Cancel { shared: Arc::clone(shared), client: Arc::clone(&client), stream: Arc::clone(&stream) };
    let pending = PendingResponse::new(stream, on_disconnect);
    let mut flush_set = FlushSet::default();
    let message = Incoming { client: &client, to: &to, line: &line, flush_set: &mut flush_set };
    shared.aggregator.take_scanned(message, Ok(*envelope));
    flush_set.flush();
    // What began with a token that expires meanwhile is finished; only listening has no end.
    let credential = request_context.credential.filter(|credential| method == LISTEN || !credential.is_identity());
    let context = ResponseContext::Modern { is_relayed: RELAYED.contains(&method), credential };
    Dispatch::Pending(PendingRequest { pending, accepts, context })
}

/// The response to a modern request.
pub(crate) fn conclude(
    shared: &Shared,
    is_relayed: bool,
    credential: Option<&Credential>,
    outcome: Outcome,
) -> Response<Body> {
    match outcome {
        Outcome::Answer(answer) => answer::json(status(&answer, is_relayed), answer),
        Outcome::Events(pending) => {
            let revoked = shared.until_revoked(credential);
            pending.open(&shared.limits, revoked, |_, _| Some(Bytes::from_static(OPENING_COMMENT)))
        }
        Outcome::Nothing => given_up(),
    }
}

/// Whether a request has the required `_meta`, and its headers match.
fn check(posted: &Posted<'_>, method: &str, params: &Params) -> Result<(), Problem> {
    let name = check_headers(&posted.line, &posted.parts.headers, method, params)?;
    match name.filter(|_| method == "tools/call") {
        Some(tool) => check_arguments(posted, &tool, params),
        None => Ok(()),
    }
}

/// The same without the arguments; returns what the request names.
pub(crate) fn check_headers<'l>(
    line: &'l Bytes,
    headers: &HeaderMap,
    method: &str,
    params: &Params,
) -> Result<Option<Cow<'l, str>>, Problem> {
    let revision = params.version.and_then(|version| text::decode(version.of(line)));
    match (only(headers, &PROTOCOL_VERSION)?, revision) {
        (None, Some(_)) => return Err(missing(&PROTOCOL_VERSION)),
        (Some(header), Some(meant)) if header != meant => return Err(mismatch(&PROTOCOL_VERSION)),
        (Some(header), None) if header != SELF_CONTAINED_REVISION => {
            return Err(Problem::UnsupportedVersion { requested: header.to_owned() });
        }
        _ => {}
    }
    check_modern(line, params)?;
    match only(headers, &METHOD)? {
        None => return Err(missing(&METHOD)),
        Some(header) if header != method => return Err(mismatch(&METHOD)),
        Some(_) => {}
    }
    let name = headers::name_of(method, line, params);
    if let Some(name) = &name {
        let header = only(headers, &NAME)?.ok_or_else(|| missing(&NAME))?;
        if headers::decode(header).is_none_or(|header| header != *name) {
            return Err(mismatch(&NAME));
        }
    }
    Ok(name)
}

/// A tool may require some of its arguments to be repeated in headers.
fn check_arguments(posted: &Posted<'_>, tool: &str, params: &Params) -> Result<(), Problem> {
    let view = posted.shared.aggregator.fleet.view_for(posted.request_context.profile.as_deref());
    let Some(route) = view.snapshot.resolve(posted.request_context.scope, ItemKind::Tool, tool) else { return Ok(()) };
    let tool = view.snapshot.item_for(Lifecycle::SelfContained, ItemKind::Tool, route);
    // Hardly any tool does. An invalid annotation means nothing: its tool is listed by servers without headers.
    let repeated = tool.header_params().unwrap_or_default();
    if repeated.is_empty() {
        return Ok(());
    }
    let header = |name: &str| posted.parts.headers.get(name).and_then(|value| value.to_str().ok());
    header_params::check(&posted.line, params, repeated, header).map_err(Problem::HeaderMismatch)
}

/// The value of a header that must not be repeated: a proxy might read the other one.
fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::HeaderMismatch(format!("header `{name}` is given twice")));
    }
    value.to_str().map(|value| Some(value.trim())).map_err(|_| mismatch(name))
}

fn missing(name: &HeaderName) -> Problem {
    Problem::HeaderMismatch(format!("header `{name}` is missing"))
}

fn mismatch(name: &HeaderName) -> Problem {
    Problem::HeaderMismatch(format!("header `{name}` differs from the body"))
}

/// The status of a response: some errors have their own.
fn status(answer: &Pieces, is_relayed: bool) -> StatusCode {
    match error_code(answer) {
        Some(code::METHOD_NOT_FOUND) if !is_relayed => StatusCode::NOT_FOUND,
        Some(code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

fn error_code(answer: &Pieces) -> Option<i32> {
    let [line] = answer.as_slice() else { return None };
    if line.len() > MAX_STATUS_ERROR_BYTES {
        return None;
    }
    memchr::memmem::find(line, b"\"error\"")?;
    let Ok(Envelope { kind: Kind::Response { outcome: Err(error), .. }, .. }) = Envelope::scan(line) else {
        return None;
    };
    let code = member(line, error, "code")?;
    std::str::from_utf8(code.of(line)).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_of(answer: &'static str) -> u16 {
        status(&Pieces::One(Bytes::from_static(answer.as_bytes())), false).as_u16()
    }

    #[test]
    fn some_errors_have_a_status_of_their_own() {
        assert_eq!(status_of(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"?"}}"#), 404);
        for refused in [-32020, -32021, -32022] {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"message":"?","code":{refused}}}}}"#);
            assert_eq!(status_of(answer.leak()), 400);
        }
        assert_eq!(status_of(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"?"}}"#), 200);
        assert_eq!(status_of(r#"{"jsonrpc":"2.0","id":1,"result":{"error":{"code":-32601}}}"#), 200);
    }

    #[test]
    fn a_header_given_twice_is_refused() {
        let mut headers = HeaderMap::new();
        assert_eq!(only(&headers, &METHOD), Ok(None));
        headers.append(&METHOD, "tools/list".parse().unwrap());
        assert_eq!(only(&headers, &METHOD), Ok(Some("tools/list")));
        headers.append(&METHOD, "tools/list".parse().unwrap());
        assert!(matches!(only(&headers, &METHOD), Err(Problem::HeaderMismatch(_))));
    }
}
