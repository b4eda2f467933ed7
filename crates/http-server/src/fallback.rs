//! What else is served at the same address, by somebody else: who comes is checked at our door, and what they want is
//! not our business.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::header::{ACCEPT, CONNECTION, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use crate::admission::{self, Connection, Refusal};
use crate::body::Body;
use crate::identity::{Full, Identity, SMALL_ANSWER};
use crate::path::PathTarget;
use crate::read_body;
use crate::server::Shared;
use crate::tokens::Denied;

/// A response of the fallback service, which may go on for as long as somebody reads it.
pub type FallbackResponse = Response<FallbackBody>;

/// The body of such a response.
pub struct FallbackBody(Pin<Box<dyn hyper::body::Body<Data = Bytes, Error = Infallible> + Send>>);

/// Whoever answers at paths that are none of MCP's.
pub trait FallbackService: Send + Sync {
    /// Whether a path is its own.
    fn has(&self, path: &str) -> bool;

    /// Whether everybody may ask for it, also without a token.
    fn is_public(&self, path: &str) -> bool;

    /// Whether pages of an origin that the user allowed may read it. Pages of other origins never may.
    fn is_for_allowed_origins(&self, path: &str) -> bool;

    /// The token of a session of its own that a request without a token came with, if it did.
    fn vouch(&self, parts: &Parts) -> Option<Arc<str>>;

    /// The token of the session that a request belongs to, whether or not it may act for it.
    fn session_token(&self, parts: &Parts) -> Option<Arc<str>>;

    /// Whether a request shows a token in its body. If that is a wrong one it is answered with status 401.
    fn is_sign_in(&self, parts: &Parts) -> bool;

    /// Answers a request that was let in, on behalf of who sent it: the name of a token, or nothing without tokens.
    fn answer(
        self: Arc<Self>,
        parts: Parts,
        body: Bytes,
        principal: Arc<str>,
    ) -> Pin<Box<dyn Future<Output = FallbackResponse> + Send>>;

    /// The response to one that is not let in, in its own words.
    fn refuse(&self, status: StatusCode, why: &str) -> FallbackResponse;

    /// We stop: what has no end must end.
    fn leave(&self);
}

impl FallbackBody {
    /// Takes a body of another make.
    pub fn new(body: impl hyper::body::Body<Data = Bytes, Error = Infallible> + Send + 'static) -> Self {
        Self(Box::pin(body))
    }

    /// The same, but it ends when `over` does: whoever may not listen any more hears nothing any more.
    pub fn until(self, over: impl Future<Output = ()> + Send + 'static) -> Self {
        Self::new(Bounded { body: self, over: Box::pin(over) })
    }

    /// A body whose end is open ends with the token it was asked for with, if there was one; others are as good as sent.
    fn until_revoked_or_end(self, revoked: Option<impl Future<Output = ()> + Send + 'static>) -> Self {
        match revoked {
            Some(revoked) if self.size_hint().exact().is_none() => self.until(revoked),
            _ => self,
        }
    }

    pub(crate) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.as_mut().poll_frame(context)
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

/// A body that may end before its end.
struct Bounded {
    body: FallbackBody,
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl hyper::body::Body for Bounded {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.over.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        self.body.poll_frame(context)
    }
}

impl fmt::Debug for FallbackBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ForeignBody(..)")
    }
}

/// The fallback service that a path belongs to, if it does.
pub(crate) fn at<'s>(shared: &'s Shared, path: &str) -> Option<&'s Arc<dyn FallbackService>> {
    shared.fallback.as_ref().filter(|fallback| fallback.has(path))
}

/// A mark on a request whose connection alone lets it in: there are no tokens, and it belongs to the user of the service.
#[derive(Debug, Clone, Copy)]
pub struct AdmittedByConnection;

/// Lets a request in and has it answered.
pub(crate) async fn answer(
    shared: &Shared,
    connection: &Connection,
    fallback: &Arc<dyn FallbackService>,
    mut parts: Parts,
    body: Incoming,
) -> Response<Body> {
    let path = parts.uri.path().to_owned();
    // Who shows no token, and may ask without one.
    let mut is_unknown = false;
    let credential = match admission::admit(shared, connection, &parts) {
        Some(Ok(credential)) => Some(credential),
        None => {
            parts.extensions.insert(AdmittedByConnection);
            None
        }
        // A wrong token counts, and who belongs to another user is told so at once.
        Some(Err(Denied::Missing | Denied::UnknownUser)) if fallback.is_public(&path) => {
            is_unknown = true;
            None
        }
        Some(Err(denied)) => return refused(fallback, &admission::refusal(shared, connection, &path, denied)),
    };
    let principal = Arc::clone(credential.as_ref().map_or(&shared.nobody, |credential| credential.name()));
    // A form shows in its body that it may act for its session. Until then it only counts as a request of that session.
    let session = if is_unknown { fallback.session_token(&parts) } else { None };
    let credential = credential.or_else(|| admission::identify(shared, &session?));
    let name = credential.as_ref().map_or(&shared.nobody, |credential| credential.name());
    let identity = match connection.guarded.identify(&shared.identities, name) {
        Ok(identity) => identity,
        Err(full) => {
            let mut response = refuse(fallback, StatusCode::TOO_MANY_REQUESTS, &full.why);
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            return response;
        }
    };
    let request = Request { parts, body, principal, is_unknown: is_unknown && credential.is_none() };
    let answered = take(shared, connection, fallback, request, &identity);
    match shared.until_revoked_or_end(credential.as_ref(), answered).await {
        Some(response) => match refusal_of_answer(&response, &identity) {
            Some((status, why)) => refuse(fallback, status, &why),
            None => response
                .map(|body| Body::Fallback(body.until_revoked_or_end(shared.until_revoked(credential.as_ref())))),
        },
        None => read_body::closing(refused(fallback, &admission::revoked())),
    }
}

/// A request that was let in.
struct Request {
    parts: Parts,
    body: Incoming,
    principal: Arc<str>,
    /// Nobody knows who sent it.
    is_unknown: bool,
}

/// Takes a request in and has it answered.
async fn take(
    shared: &Shared,
    connection: &Connection,
    fallback: &Arc<dyn FallbackService>,
    request: Request,
    identity: &Arc<Identity>,
) -> FallbackResponse {
    let Request { parts, body, principal, is_unknown } = request;
    let body = match is_unknown {
        true => read_body::of_unknown(body, &shared.limits, identity).await,
        false => read_body::whole(body, &shared.limits, identity).await,
    };
    let body = match body {
        Ok(body) => body,
        Err(failed) => {
            let (status, why) = failed.status_and_message();
            let mut response = fallback.refuse(status, &why);
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            return response;
        }
    };
    let is_sign_in = fallback.is_sign_in(&parts) && parts.extensions.get::<AdmittedByConnection>().is_none();
    // Once it is whole: nobody may have many of them wait here, and try as many tokens at once.
    if is_sign_in && let Some(refusal) = admission::sign_in_refusal(shared, connection) {
        return refused_by(fallback, &refusal);
    }
    let path = is_sign_in.then(|| parts.uri.path().to_owned());
    let response = Arc::clone(fallback).answer(parts, body, principal).await;
    if let Some(path) = path.filter(|_| response.status() == StatusCode::UNAUTHORIZED) {
        let refusal = admission::refusal(shared, connection, &path, Denied::Wrong);
        if refusal.status == StatusCode::TOO_MANY_REQUESTS {
            return refused_by(fallback, &refusal);
        }
    }
    response
}

/// Why a large answer is not sent, if that is so: its clients have not read others.
fn refusal_of_answer(response: &FallbackResponse, identity: &Identity) -> Option<(StatusCode, String)> {
    let length = response.body().size_hint().exact()?;
    if usize::try_from(length).is_ok_and(|length| length <= SMALL_ANSWER) {
        return None;
    }
    let Full { is_own, why } = identity.refusal_of_answer()?;
    let status = if is_own { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::SERVICE_UNAVAILABLE };
    Some((status, format!("The answer was dropped: {why}")))
}

/// The fallback service, for somebody with a browser who has lost the way, if it has pages for people: they are told so on a page.
pub(crate) fn for_people<'s>(shared: &'s Shared, parts: &Parts) -> Option<&'s Arc<dyn FallbackService>> {
    let wants_page = parts.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok())?.contains("text/html");
    let is_lost = parts.method == Method::GET && PathTarget::at(parts.uri.path()) == PathTarget::Nowhere;
    at(shared, "/").filter(|_| wants_page && is_lost)
}

/// Turns a request away, with the headers that belong to the refusal.
fn refused(fallback: &Arc<dyn FallbackService>, refusal: &Refusal) -> Response<Body> {
    refused_by(fallback, refusal).map(Body::Fallback)
}

fn refused_by(fallback: &Arc<dyn FallbackService>, refusal: &Refusal) -> FallbackResponse {
    let mut response = fallback.refuse(refusal.status, &refusal.why);
    refusal.add_headers(response.headers_mut());
    response
}

/// Turns a request away in the fallback service's own words.
pub(crate) fn refuse(fallback: &Arc<dyn FallbackService>, status: StatusCode, why: &str) -> Response<Body> {
    fallback.refuse(status, why).map(Body::Fallback)
}
