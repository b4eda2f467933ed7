//! HTTP/2: how a connection is recognised as such, and how its requests are served.
//!
//! hyper would spawn a task for each request. Here the connection polls its requests itself: nothing wakes another
//! thread, and everything ends with the connection.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_util::stream::{FuturesUnordered, Stream as _};
use hyper::Request;
use hyper::header::{HOST, HeaderValue};
use hyper::rt::Executor;
use hyper::server::conn::http2;

use crate::socket::ClientSocket;

/// The name of the protocol in a TLS handshake.
pub(crate) const ALPN: &[u8] = b"h2";
/// How an HTTP/2 connection begins: a request line that HTTP/1.1 cannot have.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";
/// As much of it as distinguishes it from every method.
const DISTINCT: usize = 4;
/// Requests at once on one connection; hyper's default, which clients are told.
const MAX_STREAMS: u32 = 200;

/// Whether the client announces HTTP/2 with its first bytes, which are left to be read again.
pub(crate) async fn is_announced(stream: &ClientSocket) -> bool {
    let mut start = [0; PREFACE.len()];
    match stream.peek(&mut start).await {
        Ok(length) => length >= DISTINCT && PREFACE.starts_with(&start[..length]),
        // Reading reports it.
        Err(error) => {
            tracing::debug!(%error, "failed to look at the first bytes of a connection");
            false
        }
    }
}

/// The settings of HTTP/2 connections. `head` limits the bytes of a request's headers.
pub(crate) fn builder(tasks: StreamTasks, head: usize) -> http2::Builder<StreamTasks> {
    let mut builder = http2::Builder::new(tasks);
    builder.max_concurrent_streams(MAX_STREAMS).max_header_list_size(u32::try_from(head).unwrap_or(u32::MAX));
    builder
}

/// The request as HTTP/1.1 has it: the host in a header, and only the path in its first line. So what looks at requests
/// need not know the version.
pub(crate) fn like_http1<B>(mut request: Request<B>) -> Request<B> {
    if request.headers().contains_key(HOST) {
        // Both are compared later.
        return request;
    }
    let host = request.uri().authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).parse();
    if let (Some(host), Ok(path)) = (host, path) {
        request.headers_mut().insert(HOST, host);
        *request.uri_mut() = path;
    }
    request
}

type StreamTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The requests that a connection has begun to serve since it was polled last.
#[derive(Clone, Default)]
pub(crate) struct StreamTasks(Arc<Mutex<Vec<StreamTask>>>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamTasks {
    fn execute(&self, task: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(task));
    }
}

impl StreamTasks {
    fn take(&self) -> Vec<StreamTask> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A connection together with its requests.
pub(crate) struct Multiplexed<C> {
    connection: Pin<Box<C>>,
    begun: StreamTasks,
    tasks: FuturesUnordered<StreamTask>,
}

impl<C> Multiplexed<C> {
    /// `tasks` is where the connection puts its requests.
    pub(crate) fn new(connection: C, tasks: StreamTasks) -> Self {
        Self { connection: Box::pin(connection), begun: tasks, tasks: FuturesUnordered::new() }
    }

    pub(crate) fn connection(&mut self) -> Pin<&mut C> {
        self.connection.as_mut()
    }
}

impl<C: Future> Future for Multiplexed<C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<C::Output> {
        let this = &mut *self;
        let ended = this.connection.as_mut().poll(context);
        if ended.is_ready() {
            return ended;
        }
        this.tasks.extend(this.begun.take());
        // Each task that ends, or sends something, has woken the connection.
        while let Poll::Ready(Some(())) = Pin::new(&mut this.tasks).poll_next(context) {}
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream, UnixStream};

    async fn announces(bytes: &[u8]) -> bool {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        client.write_all(bytes).await.unwrap();
        client.shutdown().await.unwrap();
        let (mut local, other) = UnixStream::pair().unwrap();
        local.write_all(bytes).await.unwrap();
        local.shutdown().await.unwrap();
        let answers = [ClientSocket::Tcp(accepted), ClientSocket::Unix(other)];
        let answers = [is_announced(&answers[0]).await, is_announced(&answers[1]).await];
        assert_eq!(answers[0], answers[1], "both kinds of sockets");
        answers[0]
    }

    #[tokio::test]
    async fn only_the_preface_announces_http2() {
        assert!(announces(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await);
        for other in
            ["", "P", "POST /mcp HTTP/1.1\r\n", "PROPFIND / HTTP/1.1\r\n", "PRINT / HTTP/1.1\r\n", "GET / HTTP/1.1\r\n"]
        {
            assert!(!announces(other.as_bytes()).await, "{other}");
        }
    }

    #[test]
    fn a_request_gets_the_form_that_http1_has() {
        let request = Request::get("https://mcp.example.com:8443/mcp?surface=search").body(()).unwrap();
        let request = like_http1(request);
        assert_eq!(request.headers()[HOST], "mcp.example.com:8443");
        assert_eq!(request.uri(), "/mcp?surface=search");
        let both = Request::get("https://one.example/x").header(HOST, "two.example").body(()).unwrap();
        let both = like_http1(both);
        assert_eq!(both.uri().authority().unwrap(), "one.example", "the guard compares them");
    }

    #[tokio::test]
    async fn tasks_run_with_the_connection_and_end_with_it() {
        let tasks = StreamTasks::default();
        let (dropped, mut is_dropped) = tokio::sync::oneshot::channel::<()>();
        let (tell, reported) = tokio::sync::oneshot::channel::<()>();
        let connection = {
            let tasks = tasks.clone();
            async move {
                tasks.execute(async move {
                    let _dropped = dropped;
                    std::future::pending::<()>().await;
                });
                tasks.execute(async move { tell.send(()).unwrap() });
                drop(reported.await);
            }
        };
        Multiplexed::new(connection, tasks).await;
        assert!(is_dropped.try_recv().is_err(), "its sender is gone");
        assert_eq!(is_dropped.try_recv(), Err(tokio::sync::oneshot::error::TryRecvError::Closed));
    }
}
