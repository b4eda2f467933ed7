//! The body of a response: empty, JSON, or a stream of events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use crate::fallback::FallbackBody;
use crate::on_disconnect::OnDisconnect;
use crate::sse_frame::Pieces;
use crate::stream::Stream;

/// The first bytes of a stream that has no event yet.
pub(crate) const OPENING_COMMENT: &[u8] = b": hello\n\n";
const KEEP_ALIVE_COMMENT: &[u8] = b": still here\n\n";

/// The body of a response.
#[derive(Debug)]
pub(crate) enum Body {
    Empty,
    Whole(Bytes),
    Pieces(VecDeque<Bytes>),
    /// Boxed, because it is large and the other variants are frequent.
    Events(Box<Events>),
    /// A body of the fallback service.
    Fallback(FallbackBody),
}

impl From<Pieces> for Body {
    fn from(pieces: Pieces) -> Self {
        match pieces {
            Pieces::One(bytes) => Self::Whole(bytes),
            Pieces::Several(pieces) => Self::Pieces(pieces.into()),
        }
    }
}

/// A stream of events for one reader.
pub(crate) struct Events {
    stream: Arc<Stream>,
    reader: u32,
    /// Sent before everything else.
    opening: Option<Bytes>,
    period: Duration,
    last_word: Instant,
    /// Created when there is something to wait for.
    keep_alive: Option<Pin<Box<Sleep>>>,
    /// When this is ready, the stream ends for its reader.
    revoked: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Runs when the reader has disconnected.
    _on_disconnect: OnDisconnect,
}

impl Events {
    /// The events of `stream` for `reader`, after an `opening`, with a keep-alive comment every `period`.
    pub(crate) fn new(
        stream: Arc<Stream>,
        reader: u32,
        opening: Option<Bytes>,
        period: Duration,
        on_disconnect: OnDisconnect,
    ) -> Self {
        Self {
            stream,
            reader,
            opening,
            period,
            last_word: Instant::now(),
            keep_alive: None,
            revoked: None,
            _on_disconnect: on_disconnect,
        }
    }

    /// The same, but it ends when `revoked` is ready, if given.
    pub(crate) fn until(mut self, revoked: Option<impl Future<Output = ()> + Send + 'static>) -> Self {
        self.revoked = revoked.map(|revoked| Box::pin(revoked) as Pin<Box<_>>);
        self
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.revoked.as_mut().is_some_and(|revoked| revoked.as_mut().poll(context).is_ready()) {
            return Poll::Ready(None);
        }
        if let Some(opening) = self.opening.take() {
            return Poll::Ready(Some(opening));
        }
        if let Poll::Ready(piece) = self.stream.poll_next(context, self.reader) {
            self.last_word = Instant::now();
            return Poll::Ready(piece);
        }
        loop {
            let due = self.last_word + self.period;
            let keep_alive = self.keep_alive.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            if keep_alive.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            let now = Instant::now();
            if now >= due {
                self.last_word = now;
                keep_alive.as_mut().reset(now + self.period);
                return Poll::Ready(Some(Bytes::from_static(KEEP_ALIVE_COMMENT)));
            }
            // Something was sent since the timer was set.
            keep_alive.as_mut().reset(due);
        }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("reader", &self.reader).finish_non_exhaustive()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.stream.leave(self.reader);
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = match &mut *self {
            Self::Empty => None,
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Empty;
                Some(bytes)
            }
            Self::Pieces(pieces) => pieces.pop_front(),
            Self::Events(events) => std::task::ready!(events.poll_event(context)),
            Self::Fallback(body) => return body.poll_frame(context),
        };
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(_) | Self::Events(_) => false,
            Self::Pieces(pieces) => pieces.is_empty(),
            Self::Fallback(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let length = match self {
            Self::Empty => 0,
            Self::Whole(bytes) => bytes.len(),
            Self::Pieces(pieces) => pieces.iter().map(Bytes::len).sum(),
            Self::Events(_) => return SizeHint::default(),
            Self::Fallback(body) => return body.size_hint(),
        };
        SizeHint::with_exact(length as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Identity;
    use crate::limits::Limits;
    use aggregator::client_sink::{ClientSink, Message, Outbound};
    use hyper::body::Body as _;

    async fn next(body: &mut Body) -> Option<String> {
        let frame = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
        Some(String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_stream_sends_keep_alive_comments() {
        let stream = Arc::new(Stream::of_request(&Limits::default(), true, &Identity::alone(&Limits::default())));
        let reader = stream.open().number;
        let opening = Some(Bytes::from_static(b"hello"));
        let period = Duration::from_secs(15);
        let events = Events::new(Arc::clone(&stream), reader, opening, period, OnDisconnect::Nothing);
        let mut body = Body::Events(Box::new(events));
        assert_eq!(next(&mut body).await.unwrap(), "hello");

        let start = Instant::now();
        assert_eq!(next(&mut body).await.unwrap(), ": still here\n\n");
        assert_eq!(start.elapsed(), period);

        tokio::time::sleep(Duration::from_secs(10)).await;
        stream.send(Outbound::Notification, Message::Own(b"1\n"));
        assert_eq!(next(&mut body).await.unwrap(), "event: message\ndata: 1\n\n");
        let start = Instant::now();
        assert_eq!(next(&mut body).await.unwrap(), ": still here\n\n");
        assert_eq!(start.elapsed(), period, "counted from the last word");

        stream.send(Outbound::Response, Message::Own(b"2\n"));
        assert_eq!(next(&mut body).await.unwrap(), "event: message\ndata: 2\n\n");
        assert_eq!(next(&mut body).await, None);
        drop(body);
        assert!(stream.is_gone());
    }

    #[tokio::test]
    async fn a_whole_body_knows_its_length() {
        let mut body = Body::Pieces([Bytes::from_static(b"ab"), Bytes::from_static(b"c")].into());
        assert_eq!(body.size_hint().exact(), Some(3));
        assert_eq!(next(&mut body).await.unwrap(), "ab");
        assert_eq!(next(&mut body).await.unwrap(), "c");
        assert!(body.is_end_stream());
        let mut body = Body::Whole(Bytes::from_static(b"abc"));
        assert_eq!(next(&mut body).await.unwrap(), "abc");
        assert!(body.is_end_stream());
    }
}
