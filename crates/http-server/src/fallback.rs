//! The fallback service: other paths at the same address, served by another crate after our authentication.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use catalog::{Principal, Role};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::header::{ACCEPT, CONNECTION, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use crate::admission::{self, Connection, Refusal, Requested};
use crate::body::Body;
use crate::credential::Credential;
use crate::identity::{Full, Identity, SMALL_ANSWER};
use crate::path::PathTarget;
use crate::read_body;
use crate::server::Shared;
use crate::tokens::Denied;

/// A response of the fallback service, which may be an endless stream.
pub type FallbackResponse = Response<FallbackBody>;

/// The body of such a response.
pub struct FallbackBody(Pin<Box<dyn hyper::body::Body<Data = Bytes, Error = Infallible> + Send>>);

/// Answers requests at paths that are not MCP's.
pub trait FallbackService: Send + Sync {
    /// Whether it serves a path.
    fn has(&self, path: &str) -> bool;

    /// Whether a path is served without a token as well.
    fn is_public(&self, path: &str) -> bool;

    /// Whether pages of an allowed origin may read it. Pages of other origins never may.
    fn is_for_allowed_origins(&self, path: &str) -> bool;

    /// Whose session of the fallback service a request without a token belongs to, if it is authorised for it.
    fn vouch(&self, parts: &Parts) -> Option<Voucher>;

    /// Whose session a request belongs to, whether or not it is authorised for it.
    fn session_owner(&self, parts: &Parts) -> Option<Voucher>;

    /// The role that a request needs.
    fn required_role(&self, parts: &Parts) -> Role;

    /// Whether a request carries a token in its body. A wrong one is answered with status 401.
    fn is_sign_in(&self, parts: &Parts) -> bool;

    /// Answers an accepted request on behalf of a principal. A response that refuses it because of its role has the
    /// [`Role`] that is needed as an extension.
    fn answer(
        self: Arc<Self>,
        parts: Parts,
        body: Bytes,
        principal: Arc<Principal>,
    ) -> Pin<Box<dyn Future<Output = FallbackResponse> + Send>>;

    /// The response to a refused request, in the service's own format.
    fn refuse(&self, status: StatusCode, why: &str) -> FallbackResponse;

    /// Shutdown: endless streams must end.
    fn leave(&self);
}

/// Whom the fallback service vouches for.
#[derive(Clone)]
pub enum Voucher {
    /// The holder of a token.
    Token(Arc<str>),
    /// A person that signed in.
    Person(Arc<Principal>),
}

impl FallbackBody {
    /// Wraps a body.
    pub fn new(body: impl hyper::body::Body<Data = Bytes, Error = Infallible> + Send + 'static) -> Self {
        Self(Box::pin(body))
    }

    /// The same, but it ends when `over` does: a client whose access was revoked receives no more.
    pub fn until(self, over: impl Future<Output = ()> + Send + 'static) -> Self {
        Self::new(Bounded { body: self, over: Box::pin(over) })
    }

    /// A streaming body ends when the token of its request is revoked, if there was one; other bodies are sent
    /// completely.
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

/// A body that may be ended early.
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

/// The fallback service, if it serves the path.
pub(crate) fn at<'s>(shared: &'s Shared, path: &str) -> Option<&'s Arc<dyn FallbackService>> {
    shared.fallback.as_ref().filter(|fallback| fallback.has(path))
}

/// Marks a request that is accepted because of its connection: there are no tokens, and it belongs to the service's
/// user.
#[derive(Debug, Clone, Copy)]
pub struct AdmittedByConnection;

/// Authenticates a request and has it answered.
pub(crate) async fn answer(
    shared: &Shared,
    connection: &Connection,
    fallback: &Arc<dyn FallbackService>,
    mut parts: Parts,
    body: Incoming,
) -> Response<Body> {
    let path = parts.uri.path().to_owned();
    connection.clean_forwarding(shared, &mut parts.headers);
    // Requests without a token, on paths that need none.
    let mut is_unknown = false;
    let credential = match admission::admit(shared, connection, &parts).await {
        Some(Ok(credential)) => Some(credential),
        None => {
            parts.extensions.insert(AdmittedByConnection);
            None
        }
        // A wrong token counts, and another user is refused at once.
        Some(Err(Denied::Missing | Denied::UnknownUser)) if fallback.is_public(&path) => {
            is_unknown = true;
            None
        }
        Some(Err(denied)) => {
            let needed = fallback.required_role(&parts);
            return refused(fallback, &admission::refusal(shared, connection, Requested::by(&parts), denied, needed));
        }
    };
    let principal = Arc::clone(credential.as_ref().map_or(&shared.local_user, Credential::principal));
    // A form proves in its body that it may act for its session. Until then it only counts as a request of that
    // session.
    let session = if is_unknown { fallback.session_owner(&parts) } else { None };
    let credential = credential.or_else(|| admission::identify(shared, session?));
    let counted = credential.as_ref().map_or(&shared.local_user, Credential::principal);
    let identity = match connection.guarded.identify(&shared.identities, counted) {
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
        Some(mut response) => match refusal_of_answer(&response, &identity) {
            Some((status, why)) => refuse(fallback, status, &why),
            None => {
                let missing = response.extensions().get::<Role>().copied();
                if let Some(missing) = missing.filter(|_| credential.as_ref().is_some_and(Credential::is_identity)) {
                    admission::add_missing_scope(shared, &path, missing, response.headers_mut());
                }
                response
                    .map(|body| Body::Fallback(body.until_revoked_or_end(shared.until_revoked(credential.as_ref()))))
            }
        },
        None => read_body::closing(refused(fallback, &admission::revoked())),
    }
}

/// An accepted request.
struct Request {
    parts: Parts,
    body: Incoming,
    principal: Arc<Principal>,
    /// Its sender is not authenticated.
    is_unknown: bool,
}

/// Reads a request and has it answered.
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
    // Checked once the body is complete: otherwise many requests could wait here and try as many tokens at once.
    if is_sign_in && let Some(refusal) = admission::sign_in_refusal(shared, connection, &parts.headers) {
        return refused_by(fallback, &refusal);
    }
    let sign_in = is_sign_in.then(|| (parts.uri.path().to_owned(), parts.headers.clone()));
    let response = Arc::clone(fallback).answer(parts, body, principal).await;
    if let Some((path, headers)) = sign_in.filter(|_| response.status() == StatusCode::UNAUTHORIZED) {
        let requested = Requested { path: &path, headers: &headers };
        let refusal = admission::refusal(shared, connection, requested, Denied::Wrong, Role::User);
        if refusal.status == StatusCode::TOO_MANY_REQUESTS {
            return refused_by(fallback, &refusal);
        }
    }
    response
}

/// Why a large response is not sent, if so: the identity's clients have not read earlier ones.
fn refusal_of_answer(response: &FallbackResponse, identity: &Identity) -> Option<(StatusCode, String)> {
    let length = response.body().size_hint().exact()?;
    if usize::try_from(length).is_ok_and(|length| length <= SMALL_ANSWER) {
        return None;
    }
    let Full { is_own, why } = identity.refusal_of_answer()?;
    let status = if is_own { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::SERVICE_UNAVAILABLE };
    Some((status, format!("The response was dropped: {why}")))
}

/// The fallback service, if a browser requests an unknown path and the service has pages: the error is shown as a
/// page.
pub(crate) fn for_people<'s>(shared: &'s Shared, parts: &Parts) -> Option<&'s Arc<dyn FallbackService>> {
    let wants_page = parts.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok())?.contains("text/html");
    let is_lost = parts.method == Method::GET && PathTarget::at(parts.uri.path()) == PathTarget::Unknown;
    at(shared, "/").filter(|_| wants_page && is_lost)
}

/// Refuses a request, with the headers of the refusal.
fn refused(fallback: &Arc<dyn FallbackService>, refusal: &Refusal) -> Response<Body> {
    refused_by(fallback, refusal).map(Body::Fallback)
}

fn refused_by(fallback: &Arc<dyn FallbackService>, refusal: &Refusal) -> FallbackResponse {
    let mut response = fallback.refuse(refusal.status, &refusal.why);
    refusal.add_headers(response.headers_mut());
    response
}

/// Refuses a request in the fallback service's own format.
pub(crate) fn refuse(fallback: &Arc<dyn FallbackService>, status: StatusCode, why: &str) -> Response<Body> {
    fallback.refuse(status, why).map(Body::Fallback)
}
