//! Connections to one server, kept for the next request.
//!
//! hyper would use a separate task for each connection. Here the task that has sent a request polls its connection
//! while it waits for the response, so no other task is woken; and an idle connection is polled only when it is needed
//! again.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Context;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HeaderMap, HeaderName};
use hyper::http::uri::Scheme;
use hyper::rt::{Read, Write};
use hyper::{Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use oauth::Network;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout};
use tower_service::Service;

use crate::body::Body;
use crate::error::RequestError;
use crate::network::{Resolver, check_literal};
use crate::unix;

/// How long a server's machine may take to accept a TCP connection. A reachable one takes a fraction of that.
const REACH_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a connection may take in total: DNS lookup and TLS handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
/// How long an idle connection is kept, and how many.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_IDLE: usize = 64;
/// A server that declares how long it keeps connections may measure differently.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// All connections to one server that are not in use.
#[derive(Debug)]
pub(crate) struct Pool {
    origin: Uri,
    connector: Dialer,
    idle: Mutex<Vec<PooledConnection>>,
}

/// How connections are made. Without TLS no certificates are needed, and not every machine has some.
#[derive(Debug, Clone)]
enum Dialer {
    Plain(TcpConnector),
    Tls(TlsConnector),
    /// A service of ours on this machine.
    Unix(PathBuf),
}

type TcpConnector = HttpConnector<Resolver>;
type TlsConnector = HttpsConnector<TcpConnector>;

/// One connection.
pub(crate) struct PooledConnection {
    sender: SendRequest<Full<Bytes>>,
    /// Moves bytes in both directions; `None` once the connection has ended.
    work: Option<Work>,
    /// After this the server may close it at any moment.
    use_until: Instant,
}

type Work = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

impl Pool {
    /// A pool without connections for the server at `address`.
    pub(crate) fn new(address: &Uri) -> Result<Self, RequestError> {
        Self::within(Network::Any, address)
    }

    /// The same with limits on the addresses that connections are made to.
    pub(crate) fn within(network: Network, address: &Uri) -> Result<Self, RequestError> {
        check_literal(network, address)?;
        let is_safe = address.scheme() == Some(&Scheme::HTTPS);
        let connector = match unix::path_in(address) {
            Some(path) => Dialer::Unix(path),
            None if is_safe => Dialer::Tls(tls(network)?),
            None => Dialer::Plain(tcp(network)),
        };
        Ok(Self { origin: address.clone(), connector, idle: Mutex::default() })
    }

    /// Sends a request once. A connection that turns out to be closed before the request was written is replaced.
    pub(crate) async fn send(
        self: &Arc<Self>,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Body>, RequestError> {
        let now = Instant::now();
        while let Some(connection) = self.take_idle(now) {
            match self.send_on(connection, now, request).await {
                Err(Unsent { request: Some(unsent), .. }) => request = *unsent,
                sent => return sent.map_err(|unsent| RequestError::broke_off(&unsent.error)),
            }
        }
        let connection = self.connect().await?;
        self.send_first(connection, request).await
    }

    /// Sends a request on a new connection.
    pub(crate) async fn send_first(
        self: &Arc<Self>,
        connection: PooledConnection,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Body>, RequestError> {
        self.send_on(connection, Instant::now(), request).await.map_err(|unsent| match unsent.request {
            Some(_) => RequestError::unreachable(&unsent.error),
            None => RequestError::broke_off(&unsent.error),
        })
    }

    async fn send_on(
        self: &Arc<Self>,
        mut connection: PooledConnection,
        now: Instant,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Body>, Unsent> {
        let mut sending = std::pin::pin!(connection.sender.try_send_request(request));
        let work = &mut connection.work;
        let sent = std::future::poll_fn(|cx| {
            move_along(work, cx);
            sending.as_mut().poll(cx)
        });
        match sent.await {
            Ok(response) => {
                connection.use_until = now + keep_alive_timeout(response.headers());
                Ok(response.map(|incoming| Body::new(incoming, connection, Arc::clone(self))))
            }
            Err(mut error) => {
                let request = error.take_message().map(Box::new);
                Err(Unsent { request, error: error.into_error() })
            }
        }
    }

    /// Keeps a connection for the next request, if it can be reused.
    pub(crate) fn keep(&self, mut connection: PooledConnection, cx: &mut Context<'_>) {
        if connection.is_ready(cx) {
            let mut idle = self.lock();
            if idle.len() < MAX_IDLE {
                idle.push(connection);
            }
        }
    }

    /// Closes connections that were idle for too long.
    pub(crate) fn tidy(&self) {
        let now = Instant::now();
        self.lock().retain(|connection| connection.use_until > now);
    }

    /// The connection that was used last. Whether it is still open shows when something is sent on it.
    fn take_idle(&self, now: Instant) -> Option<PooledConnection> {
        let mut idle = self.lock();
        loop {
            let connection = idle.pop()?;
            if connection.use_until > now {
                return Some(connection);
            }
        }
    }

    /// A new connection.
    pub(crate) async fn connect(&self) -> Result<PooledConnection, RequestError> {
        let connecting = async {
            match self.connector.clone() {
                Dialer::Plain(connector) => begin(connector, self.origin.clone()).await,
                Dialer::Tls(connector) => begin(connector, self.origin.clone()).await,
                Dialer::Unix(path) => {
                    let stream = UnixStream::connect(path).await;
                    let stream = TokioIo::new(stream.map_err(|error| RequestError::unreachable(&error))?);
                    Box::pin(begin_on(stream)).await
                }
            }
        };
        timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| {
            Err(RequestError::Unreachable(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())))
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PooledConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that got no response; it is returned if nothing of it was sent.
struct Unsent {
    request: Option<Box<Request<Full<Bytes>>>>,
    error: hyper::Error,
}

impl PooledConnection {
    /// Polls the connection.
    pub(crate) fn move_along(&mut self, cx: &mut Context<'_>) {
        move_along(&mut self.work, cx);
    }

    /// Whether it is open and idle.
    fn is_ready(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.sender.is_ready() {
            self.move_along(cx);
        }
        self.work.is_some() && self.sender.is_ready()
    }
}

impl std::fmt::Debug for PooledConnection {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("PooledConnection").field("is_open", &self.work.is_some()).finish_non_exhaustive()
    }
}

/// The end of a connection is reported to the request that waits on it.
fn move_along(work: &mut Option<Work>, cx: &mut Context<'_>) {
    if work.as_mut().is_some_and(|work| work.as_mut().poll(cx).is_ready()) {
        *work = None;
    }
}

async fn begin<C>(mut connector: C, origin: Uri) -> Result<PooledConnection, RequestError>
where
    C: Service<Uri>,
    C::Response: Read + Write + Unpin + Send + 'static,
    C::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let unreachable = |error: C::Error| RequestError::unreachable(&*error.into());
    std::future::poll_fn(|cx| connector.poll_ready(cx)).await.map_err(unreachable)?;
    // Every request contains this future, which is needed rarely.
    Box::pin(begin_on(connector.call(origin).await.map_err(unreachable)?)).await
}

async fn begin_on(stream: impl Read + Write + Unpin + Send + 'static) -> Result<PooledConnection, RequestError> {
    let (sender, work) = http1::handshake(stream).await.map_err(|error| RequestError::unreachable(&error))?;
    Ok(PooledConnection { sender, work: Some(Box::pin(work)), use_until: Instant::now() })
}

/// How long a server keeps a connection after such a response, as far as it declares it.
fn keep_alive_timeout(headers: &HeaderMap) -> Duration {
    let said = || {
        let value = headers.get(KEEP_ALIVE)?.to_str().ok()?;
        let seconds = value.split(',').find_map(|part| part.trim().strip_prefix("timeout="))?;
        seconds.trim().parse().ok().map(Duration::from_secs)
    };
    said().map_or(IDLE_TIMEOUT, |said| said.saturating_sub(KEEP_ALIVE_MARGIN).min(IDLE_TIMEOUT))
}

/// Made once for each kind of limit: reading the root certificates takes a while.
fn tls(network: Network) -> Result<TlsConnector, RequestError> {
    static ANY: OnceLock<Result<TlsConnector, RequestError>> = OnceLock::new();
    static PUBLIC_OR_LOOPBACK: OnceLock<Result<TlsConnector, RequestError>> = OnceLock::new();
    static PUBLIC: OnceLock<Result<TlsConnector, RequestError>> = OnceLock::new();
    let made = match network {
        Network::Any => &ANY,
        Network::PublicOrLoopback => &PUBLIC_OR_LOOPBACK,
        Network::Public => &PUBLIC,
    };
    let made = made.get_or_init(|| {
        let mut tcp = tcp(network);
        tcp.enforce_http(false);
        let tls = HttpsConnectorBuilder::new()
            .with_native_roots()
            .map_err(|error| RequestError::NoCertificates(error.to_string()))?
            .https_only()
            .enable_http1()
            .wrap_connector(tcp);
        Ok(tls)
    });
    made.clone()
}

fn tcp(network: Network) -> TcpConnector {
    let mut tcp = HttpConnector::new_with_resolver(Resolver::new(network));
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(REACH_TIMEOUT));
    tcp
}

#[cfg(test)]
mod tests;
