//! Connections to one server, kept for the next request.
//!
//! hyper would have a task of its own for each connection. Here whoever has sent a request moves its connection along
//! while it waits for the answer, so no other task is woken on the way; and an idle connection is looked at only when it
//! is wanted again.

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
use tokio::time::{Instant, timeout};
use tower_service::Service;

use crate::body::Body;
use crate::trouble::Trouble;

/// How long it may take until a server's machine answers at all. One that is there does so in a fraction of that.
const REACH_TIMEOUT: Duration = Duration::from_secs(4);
/// How long it may take until there is a connection: looking up the address and agreeing on keys included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
/// How long an idle connection is kept, and how many.
const KEPT_FOR: Duration = Duration::from_secs(30);
const MOST_IDLE: usize = 64;
/// A server that says for how long it keeps connections may count differently.
const KEPT_SHORTER_BY: Duration = Duration::from_secs(1);

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// All connections to one server that are not in use.
#[derive(Debug)]
pub(crate) struct Pool {
    origin: Uri,
    connector: Connector,
    idle: Mutex<Vec<Line>>,
}

/// How connections are made. Without TLS no certificates are needed, and not every machine has some.
#[derive(Debug, Clone)]
enum Connector {
    Plain(HttpConnector),
    Tls(HttpsConnector<HttpConnector>),
}

/// One connection.
pub(crate) struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// What moves bytes in both directions; nothing once the connection has ended.
    work: Option<Work>,
    /// From then on the server may close it any moment.
    use_until: Instant,
}

type Work = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

impl Pool {
    /// No connection yet to the server at `address`.
    pub(crate) fn new(address: &Uri) -> Result<Self, Trouble> {
        let is_safe = address.scheme() == Some(&Scheme::HTTPS);
        let connector = if is_safe { Connector::Tls(tls()?) } else { Connector::Plain(tcp()) };
        Ok(Self { origin: address.clone(), connector, idle: Mutex::default() })
    }

    /// Sends a request once. A connection that turns out to be closed before the request was written is replaced.
    pub(crate) async fn send(self: &Arc<Self>, mut request: Request<Full<Bytes>>) -> Result<Response<Body>, Trouble> {
        let now = Instant::now();
        while let Some(line) = self.take_idle(now) {
            match self.send_on(line, now, request).await {
                Err(Unsent { request: Some(unsent), .. }) => request = *unsent,
                sent => return sent.map_err(|unsent| Trouble::broke_off(&unsent.error)),
            }
        }
        let line = self.connect().await?;
        self.send_on(line, Instant::now(), request).await.map_err(|unsent| match unsent.request {
            Some(_) => Trouble::unreachable(&unsent.error),
            None => Trouble::broke_off(&unsent.error),
        })
    }

    async fn send_on(
        self: &Arc<Self>,
        mut line: Line,
        now: Instant,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Body>, Unsent> {
        let mut sending = std::pin::pin!(line.sender.try_send_request(request));
        let work = &mut line.work;
        let sent = std::future::poll_fn(|cx| {
            move_along(work, cx);
            sending.as_mut().poll(cx)
        });
        match sent.await {
            Ok(response) => {
                line.use_until = now + kept_for(response.headers());
                Ok(response.map(|incoming| Body::new(incoming, line, Arc::clone(self))))
            }
            Err(mut error) => {
                let request = error.take_message().map(Box::new);
                Err(Unsent { request, error: error.into_error() })
            }
        }
    }

    /// Keeps a connection for the next request, if it can take one.
    pub(crate) fn keep(&self, mut line: Line, cx: &mut Context<'_>) {
        if line.is_ready(cx) {
            let mut idle = self.lock();
            if idle.len() < MOST_IDLE {
                idle.push(line);
            }
        }
    }

    /// Closes connections that were idle for too long.
    pub(crate) fn tidy(&self) {
        let now = Instant::now();
        self.lock().retain(|line| line.use_until > now);
    }

    /// The connection that was used last. Whether it is still open shows when something is sent on it.
    fn take_idle(&self, now: Instant) -> Option<Line> {
        let mut idle = self.lock();
        loop {
            let line = idle.pop()?;
            if line.use_until > now {
                return Some(line);
            }
        }
    }

    async fn connect(&self) -> Result<Line, Trouble> {
        let connecting = async {
            match self.connector.clone() {
                Connector::Plain(connector) => begin(connector, self.origin.clone()).await,
                Connector::Tls(connector) => begin(connector, self.origin.clone()).await,
            }
        };
        timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| {
            Err(Trouble::Unreachable(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())))
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Line>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that got no answer; it is here again if nothing of it was sent.
struct Unsent {
    request: Option<Box<Request<Full<Bytes>>>>,
    error: hyper::Error,
}

impl Line {
    /// Lets bytes move.
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

impl std::fmt::Debug for Line {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Line").field("is_open", &self.work.is_some()).finish_non_exhaustive()
    }
}

/// How a connection ended is told to whoever waits for an answer on it.
fn move_along(work: &mut Option<Work>, cx: &mut Context<'_>) {
    if work.as_mut().is_some_and(|work| work.as_mut().poll(cx).is_ready()) {
        *work = None;
    }
}

async fn begin<C>(mut connector: C, origin: Uri) -> Result<Line, Trouble>
where
    C: Service<Uri>,
    C::Response: Read + Write + Unpin + Send + 'static,
    C::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let unreachable = |error: C::Error| Trouble::unreachable(&*error.into());
    std::future::poll_fn(|cx| connector.poll_ready(cx)).await.map_err(unreachable)?;
    let stream = connector.call(origin).await.map_err(unreachable)?;
    let (sender, work) = http1::handshake(stream).await.map_err(|error| Trouble::unreachable(&error))?;
    Ok(Line { sender, work: Some(Box::pin(work)), use_until: Instant::now() })
}

/// For how long a server keeps a connection after such an answer, as far as it says so.
fn kept_for(headers: &HeaderMap) -> Duration {
    let said = || {
        let value = headers.get(KEEP_ALIVE)?.to_str().ok()?;
        let seconds = value.split(',').find_map(|part| part.trim().strip_prefix("timeout="))?;
        seconds.trim().parse().ok().map(Duration::from_secs)
    };
    said().map_or(KEPT_FOR, |said| said.saturating_sub(KEPT_SHORTER_BY).min(KEPT_FOR))
}

fn tls() -> Result<HttpsConnector<HttpConnector>, Trouble> {
    static TLS: OnceLock<Result<HttpsConnector<HttpConnector>, Trouble>> = OnceLock::new();
    let made = TLS.get_or_init(|| {
        let mut tcp = tcp();
        tcp.enforce_http(false);
        let tls = HttpsConnectorBuilder::new()
            .with_native_roots()
            .map_err(|error| Trouble::NoCertificates(error.to_string()))?
            .https_only()
            .enable_http1()
            .wrap_connector(tcp);
        Ok(tls)
    });
    made.clone()
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(REACH_TIMEOUT));
    tcp
}

#[cfg(test)]
mod tests;
