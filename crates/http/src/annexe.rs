//! What else is served at the same address, by somebody else: who comes is checked at our door, and what they want is
//! not our business.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::header::{ACCEPT, HeaderValue, WWW_AUTHENTICATE};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use crate::answer;
use crate::body::Body;
use crate::front::Shared;
use crate::intake;
use crate::place::Place;
use crate::tokens::{Denied, Identity};

/// A response of the annexe, which may go on for as long as somebody reads it.
pub type Foreign = Response<ForeignBody>;

/// The body of such a response.
pub struct ForeignBody(Pin<Box<dyn hyper::body::Body<Data = Bytes, Error = Infallible> + Send>>);

/// Whoever answers at paths that are none of MCP's.
pub trait Annexe: Send + Sync {
    /// Whether a path is its own.
    fn has(&self, path: &str) -> bool;

    /// Whether everybody may ask for it, also without a token.
    fn is_public(&self, path: &str) -> bool;

    /// The token of a session of its own that a request without a token came with, if it did.
    fn vouch(&self, parts: &Parts) -> Option<Arc<str>>;

    /// Answers a request that was let in, on behalf of who sent it: the name of a token, or nothing without tokens.
    fn answer(
        self: Arc<Self>,
        parts: Parts,
        body: Bytes,
        principal: Arc<str>,
    ) -> Pin<Box<dyn Future<Output = Foreign> + Send>>;

    /// The response to one that is not let in, in its own words.
    fn refuse(&self, status: StatusCode, why: &str) -> Foreign;

    /// We stop: what has no end must end.
    fn leave(&self);
}

impl ForeignBody {
    /// Takes a body of another make.
    pub fn new(body: impl hyper::body::Body<Data = Bytes, Error = Infallible> + Send + 'static) -> Self {
        Self(Box::pin(body))
    }

    /// The same, but it ends when `over` does: whoever may not listen any more hears nothing any more.
    pub fn until(self, over: impl Future<Output = ()> + Send + 'static) -> Self {
        Self::new(Bounded { body: self, over: Box::pin(over) })
    }

    /// A body whose end is open ends with the token it was asked for with, if there was one; others are as good as sent.
    fn while_welcome(self, revoked: Option<impl Future<Output = ()> + Send + 'static>) -> Self {
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
    body: ForeignBody,
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

impl fmt::Debug for ForeignBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ForeignBody(..)")
    }
}

/// The annexe that a path belongs to, if it does.
pub(crate) fn at<'s>(shared: &'s Shared, path: &str) -> Option<&'s Arc<dyn Annexe>> {
    shared.annexe.as_ref().filter(|annexe| annexe.has(path))
}

/// Lets a request in and has it answered.
pub(crate) async fn answer(shared: &Shared, annexe: &Arc<dyn Annexe>, parts: Parts, body: Incoming) -> Response<Body> {
    let (principal, identity) = match admit(shared, &parts) {
        Some(Ok(identity)) => (Arc::clone(identity.name()), Some(identity)),
        None => (Arc::clone(&shared.nobody), None),
        Some(Err(_)) if annexe.is_public(parts.uri.path()) => (Arc::clone(&shared.nobody), None),
        Some(Err(denied)) => {
            let (why, challenge) = answer::challenge(denied);
            let mut response = refuse(annexe, StatusCode::UNAUTHORIZED, why);
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            return response;
        }
    };
    match intake::whole(body, &shared.limits).await {
        Ok(body) => {
            let response = Arc::clone(annexe).answer(parts, body, principal).await;
            response.map(|body| Body::Foreign(body.while_welcome(shared.until_revoked(identity.as_ref()))))
        }
        Err(refused) => {
            let (status, why) = refused.told();
            refuse(annexe, status, &why)
        }
    }
}

/// The annexe, for somebody with a browser who has lost the way, if it has pages for people: they are told so on a page.
pub(crate) fn for_people<'s>(shared: &'s Shared, parts: &Parts) -> Option<&'s Arc<dyn Annexe>> {
    let wants_page = parts.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok())?.contains("text/html");
    let is_lost = parts.method == Method::GET && Place::at(parts.uri.path()) == Place::Nowhere;
    at(shared, "/").filter(|_| wants_page && is_lost)
}

/// Whose request it is, by its token or by that of the annexe's session; nothing where everybody may come in.
pub(crate) fn admit(shared: &Shared, parts: &Parts) -> Option<Result<Identity, Denied>> {
    let tokens = shared.tokens.as_ref()?;
    let admitted = tokens.admit(&parts.headers);
    // Who shows a wrong token is told so, whatever else is known.
    let vouch = |denied| match (denied, &shared.annexe) {
        (Denied::Missing, Some(annexe)) => annexe.vouch(parts).and_then(|token| tokens.identify(&token)).ok_or(denied),
        _ => Err(denied),
    };
    Some(admitted.or_else(vouch))
}

/// Turns a request away in the annexe's own words.
pub(crate) fn refuse(annexe: &Arc<dyn Annexe>, status: StatusCode, why: &str) -> Response<Body> {
    annexe.refuse(status, why).map(Body::Foreign)
}
