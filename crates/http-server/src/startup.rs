//! Answers every request with 503 while the service cannot start yet, with what it waits for.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONNECTION, HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use protocol::reply;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::answer;
use crate::body::Body;
use crate::client_stream::ClientStream;
use crate::serve::Listener;
use crate::socket::ClientSocket;
use crate::tls::Tls;

/// Connections at once; more are closed without a response.
const MAX_CONNECTIONS: usize = 256;
/// A connection without a request by then is closed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest head of a request, and the most that is read of a body.
const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_BODY_BYTES: usize = 1 << 20;
/// The delay after the system has refused another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Runs `work` to its end, and meanwhile responds to every connection that it is not done. `message` is what is waited
/// for, without anything confidential.
pub async fn answer_while<T>(
    listener: &Listener,
    message: impl Fn() -> String + Send + Sync + 'static,
    work: impl Future<Output = T>,
) -> T {
    let message = Arc::new(message);
    let mut connections = JoinSet::new();
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            Some(_) = connections.join_next() => {}
            arrived = poll_fn(|context| listener.socket.poll_accept(context)) => match arrived {
                Ok(stream) if connections.len() < MAX_CONNECTIONS => {
                    connections.spawn(answer(stream, listener.tls.clone(), Arc::clone(&message)));
                }
                Ok(_) => tracing::debug!("too many connections while the service starts; closed one"),
                // No descriptors left, or the client has disconnected. Either passes.
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

/// Answers one request, and closes the connection.
async fn answer(stream: ClientSocket, tls: Option<Arc<Tls>>, message: Arc<impl Fn() -> String + Send + Sync>) {
    let stream = match tls {
        None => ClientStream::Plain(stream),
        Some(tls) => match timeout(REQUEST_TIMEOUT, tls.accept_http1(stream)).await {
            Ok(Ok(stream)) => ClientStream::Tls(Box::new(stream)),
            Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => return tracing::debug!("closed a connection that took too long"),
        },
    };
    let service = service_fn(|request: Request<Incoming>| {
        let message = message();
        async move {
            drain(request.into_body()).await;
            Ok::<_, Infallible>(not_ready(&message))
        }
    });
    let connection = http1::Builder::new()
        .max_header_size(MAX_HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(REQUEST_TIMEOUT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection ended early"),
        Err(_) => tracing::debug!("closed a connection that took too long"),
    }
}

/// Reads and discards a body. Closing the connection with unread data would discard the response, too.
async fn drain(mut body: Incoming) {
    let mut length = 0;
    while length < MAX_BODY_BYTES
        && let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
    {
        length += frame.data_ref().map_or(0, Bytes::len);
    }
}

fn not_ready(message: &str) -> Response<Body> {
    let status = reply::object([("status", reply::string("starting")), ("message", reply::string(message))]);
    let mut response = answer::json(StatusCode::SERVICE_UNAVAILABLE, Body::Whole(Bytes::from(status)));
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
