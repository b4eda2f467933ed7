//! Responses: JSON, other text, a stream of events, or nothing.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Response, StatusCode};
use http_body::{Frame, SizeHint};
use registry::Role;
use serde::Serialize;

static TOTAL: HeaderName = HeaderName::from_static("x-total-count");
/// Asks proxies not to buffer events.
static UNBUFFERED: HeaderName = HeaderName::from_static("x-accel-buffering");
static CONTENT_TYPE_OPTIONS: HeaderName = HeaderName::from_static("x-content-type-options");

/// A response.
#[derive(Debug)]
pub(crate) struct ApiResponse(Box<Response<Body>>);

/// The body of a response.
#[derive(Debug)]
pub struct Body(Kind);

#[derive(Debug)]
enum Kind {
    Whole(Bytes),
    Events(Box<dyn BodyStream>),
}

/// A body that is sent piece by piece.
pub(crate) trait BodyStream: fmt::Debug + Send {
    /// The next piece; None at the end.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>>;
}

impl ApiResponse {
    /// JSON with a status.
    pub(crate) fn json(status: StatusCode, value: &(impl Serialize + ?Sized)) -> Self {
        let text = serde_json::to_vec(value).expect("what we show has texts as its keys");
        Self::text(status, "application/json", text)
    }

    /// The same, with the role that the request needs.
    pub(crate) fn needing(mut self, role: Role) -> Self {
        self.0.extensions_mut().insert(role);
        self
    }

    /// JSON with status 200.
    pub(crate) fn ok(value: &(impl Serialize + ?Sized)) -> Self {
        Self::json(StatusCode::OK, value)
    }

    /// A part of a list with the length of the whole list.
    pub(crate) fn page(items: &(impl Serialize + ?Sized), total: u64) -> Self {
        let mut answer = Self::ok(items);
        answer.header(TOTAL.clone(), HeaderValue::from(total));
        answer
    }

    /// Text of a content type.
    pub(crate) fn text(status: StatusCode, content_type: &'static str, text: impl Into<Bytes>) -> Self {
        let mut answer = Self::new(status, Kind::Whole(text.into()));
        answer.header(CONTENT_TYPE, HeaderValue::from_static(content_type));
        answer
    }

    /// Only a status.
    pub(crate) fn nothing(status: StatusCode) -> Self {
        Self::new(status, Kind::Whole(Bytes::new()))
    }

    /// A stream of events.
    pub(crate) fn events(stream: impl BodyStream + 'static) -> Self {
        let mut answer = Self::new(StatusCode::OK, Kind::Events(Box::new(stream)));
        answer.header(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        answer.header(UNBUFFERED.clone(), HeaderValue::from_static("no"));
        answer
    }

    fn new(status: StatusCode, kind: Kind) -> Self {
        let mut response = Response::new(Body(kind));
        *response.status_mut() = status;
        let mut answer = Self(Box::new(response));
        // Responses describe the current state, so they must not be cached; and browsers must not interpret what
        // servers wrote.
        answer.header(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        answer.header(CONTENT_TYPE_OPTIONS.clone(), HeaderValue::from_static("nosniff"));
        answer
    }

    pub(crate) fn header(&mut self, name: HeaderName, value: HeaderValue) {
        self.0.headers_mut().insert(name, value);
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.0.status()
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        *self.0
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.0 {
            Kind::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Kind::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Kind::Events(stream) => stream.poll_next(context).map(|data| data.map(|data| Ok(Frame::data(data)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Kind::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Events(_) => SizeHint::default(),
        }
    }
}
