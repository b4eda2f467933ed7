//! One connection: the TLS handshake, the choice of HTTP/1.1 or HTTP/2, and its requests, from the first to the last.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::sync::watch;

use crate::admission::Connection;
use crate::body::Body;
use crate::client_stream::ClientStream;
use crate::guard::GuardedConnection;
use crate::http2;
use crate::identity::{SMALL_ANSWER, Unread};
use crate::panics::caught;
use crate::routes;
use crate::self_wake::self_wake;
use crate::server::Shared;
use crate::socket::ClientSocket;
use crate::tls::Tls;
use crate::watch::{Watch, Watched};

/// A connection that was accepted.
pub(crate) struct Accepted {
    pub(crate) stream: ClientSocket,
    /// How clients of its listener encrypt; `None` if they do not.
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) guarded: Arc<GuardedConnection>,
}

/// When a connection is to end: after its current request, or at once.
#[derive(Clone)]
pub(crate) struct Ends {
    pub(crate) is_closing: watch::Receiver<bool>,
    pub(crate) is_over: watch::Receiver<bool>,
}

/// Serves one connection to its end.
pub(crate) async fn serve(shared: Arc<Shared>, accepted: Accepted, ends: Ends) {
    let Accepted { stream, tls, watch, guarded } = accepted;
    if let Err(error) = stream.set_nodelay() {
        tracing::debug!(%error, "failed to set TCP_NODELAY");
    }
    let Some(mut connection) = Connection::of(&shared, &stream, guarded, tls.is_some()) else { return };
    let mut is_closing = ends.is_closing.clone();
    let opened = tokio::select! {
        opened = open(&shared, stream, tls, &connection, &watch) => opened,
        // It has no request that could be waited for.
        _ = is_closing.wait_for(|&is_closing| is_closing) => return,
    };
    let Some((stream, is_http2)) = opened else { return };
    if let Some(certificate) = stream.client_certificate() {
        connection.set_certificate(&shared, certificate);
    }
    let served = match is_http2 {
        false => serve_http1(&shared, &connection, stream, &watch, ends).await,
        true => serve_http2(shared, connection, stream, watch, ends).await,
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// The stream of a connection, and whether it is HTTP/2. `None` if there is none, because a handshake failed.
async fn open(
    shared: &Shared,
    stream: ClientSocket,
    tls: Option<Arc<Tls>>,
    connection: &Connection,
    watch: &Watch,
) -> Option<(ClientStream, bool)> {
    let Some(tls) = tls else {
        let is_http2 = connection.is_from_this_machine() && http2::is_announced(&stream).await;
        return Some((ClientStream::Plain(stream), is_http2));
    };
    // A handshake may take as long as the head of a request.
    watch.note_head();
    let stream = tls.accept(stream).await;
    let stream = stream.inspect_err(|error| connection.note_failed_handshake(shared, error)).ok()?;
    watch.note_idle();
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(http2::ALPN);
    Some((ClientStream::Tls(Box::new(stream)), is_http2))
}

async fn serve_http1(
    shared: &Arc<Shared>,
    connection: &Connection,
    stream: ClientStream,
    watch: &Arc<Watch>,
    ends: Ends,
) -> hyper::Result<()> {
    let Ends { mut is_closing, is_over } = ends;
    let service = service_fn(|request| {
        let (watch, is_over) = (Arc::clone(watch), is_over.clone());
        answer(shared, connection, watch, is_over, request)
    });
    let stream = Watched { stream: TokioIo::new(stream), watch: Arc::clone(watch) };
    let mut served = pin!(http1::Builder::new().max_header_size(shared.limits.head).serve_connection(stream, service));
    tokio::select! {
        ended = self_wake(served.as_mut()) => ended,
        _ = is_closing.changed() => {
            served.as_mut().graceful_shutdown();
            self_wake(served).await
        }
    }
}

async fn serve_http2(
    shared: Arc<Shared>,
    connection: Connection,
    stream: ClientStream,
    watch: Arc<Watch>,
    ends: Ends,
) -> hyper::Result<()> {
    let Ends { mut is_closing, is_over } = ends;
    watch.set_multiplexed();
    let stream = Watched { stream: TokioIo::new(stream), watch: Arc::clone(&watch) };
    let (tasks, head) = (http2::StreamTasks::default(), shared.limits.head);
    let connection = Arc::new(connection);
    // A stream is a task of its own, so it holds what it needs.
    let service = service_fn(move |request| {
        let (shared, connection) = (Arc::clone(&shared), Arc::clone(&connection));
        let (watch, is_over) = (Arc::clone(&watch), is_over.clone());
        async move { answer(&shared, &connection, watch, is_over, http2::like_http1(request)).await }
    });
    let served = http2::builder(tasks.clone(), head).serve_connection(stream, service);
    let mut served = http2::Multiplexed::new(served, tasks);
    tokio::select! {
        ended = self_wake(&mut served) => ended,
        _ = is_closing.changed() => {
            served.connection().graceful_shutdown();
            self_wake(served).await
        }
    }
}

/// Answers one request.
async fn answer(
    shared: &Arc<Shared>,
    connection: &Connection,
    watch: Arc<Watch>,
    mut is_over: watch::Receiver<bool>,
    request: Request<Incoming>,
) -> Result<Response<Tracked>, Infallible> {
    watch.note_request();
    let answered = AnsweredGuard(watch);
    let path = request.uri().clone();
    let response = tokio::select! {
        biased;
        response = caught(routes::answer(shared, connection, request)) => response.unwrap_or_else(|panicked| {
            routes::panicked(shared, path.path(), &panicked)
        }),
        // This response distinguishes a shutdown from a crash.
        _ = is_over.wait_for(|&is_over| is_over) => routes::too_late(shared, path.path()),
    };
    Ok(response.map(|body| Tracked::new(body, &connection.guarded, answered)))
}

/// Records, when dropped, that a request is answered.
struct AnsweredGuard(Arc<Watch>);

impl Drop for AnsweredGuard {
    fn drop(&mut self) {
        self.0.note_response();
    }
}

/// A body that records its end. Its large chunks count as unread until they are written.
struct Tracked {
    body: Body,
    guarded: Arc<GuardedConnection>,
    unread: Option<Unread>,
    _answered: AnsweredGuard,
}

impl Tracked {
    fn new(body: Body, guarded: &Arc<GuardedConnection>, answered: AnsweredGuard) -> Self {
        let length = hyper::body::Body::size_hint(&body).exact().and_then(|length| usize::try_from(length).ok());
        let large = length.filter(|&length| length > SMALL_ANSWER);
        let unread = large.and_then(|length| Some(guarded.identity()?.hold_unread(length)));
        Self { body, guarded: Arc::clone(guarded), unread, _answered: answered }
    }

    /// The same bytes, which count until the connection has written them.
    fn counted(&mut self, bytes: Bytes) -> Bytes {
        if self.unread.is_none() && bytes.len() > SMALL_ANSWER {
            self.unread = self.guarded.identity().map(|identity| identity.hold_unread(0));
        }
        match &mut self.unread {
            Some(unread) if bytes.len() > SMALL_ANSWER => unread.hand_out(bytes),
            _ => bytes,
        }
    }
}

impl hyper::body::Body for Tracked {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|bytes| self.counted(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
