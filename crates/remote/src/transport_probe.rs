//! Connects to a server: with the configured transport and lifecycle, else with one after the other.
//!
//! Each attempt has its own connection, so nothing of a failed one is left in the next. Over HTTP a server that
//! supports both lifecycles does not lock to one: after the legacy handshake the modern one is tried as well (see
//! `dual`).

use std::sync::Arc;
use std::time::Duration;

use catalog::{Dialect, Offer, Remote, Secrets};
use protocol::Lifecycle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use upstream::transport::{HttpQueue, UpstreamTransport};
use upstream::{Cause, Connection, ConnectionContext, Handshake, Upstream, UpstreamObserver};

use crate::authorization::Authorization;
use crate::dispatcher::{RequestDispatcher, Route};
use crate::dual::ModernSide;
use crate::error::RequestError;
use crate::http::Http;
use crate::session::Session;
use crate::sse::{Endpoint, Stream};

/// How often unneeded resources are released.
const TIDY_INTERVAL: Duration = Duration::from_secs(15);

/// The minimum time between two listings after a lost session, and the maximum if the session is lost all the time.
const MIN_RELIST_INTERVAL: Duration = Duration::from_millis(500);
const MAX_RELIST_INTERVAL: Duration = Duration::from_secs(60);

/// A connected server.
pub(crate) struct ServerSession {
    pub(crate) connection: Arc<Connection>,
    dispatcher: Arc<RequestDispatcher>,
    /// The modern handshake of a server that has a legacy one and supports both.
    pub(crate) modern: Option<Box<ModernSide>>,
}

impl ServerSession {
    /// The usable part of the server's offer. That of a large one is determined on a thread that serves no calls.
    pub(crate) async fn screened(&self, offer: Offer) -> Offer {
        let (dispatcher, connection) = (Arc::clone(&self.dispatcher), Arc::clone(&self.connection));
        let (is_large, as_listed) = (upstream::is_large(&offer), offer.clone());
        let screen = move || {
            let mut offer = offer;
            if let Some(session) = dispatcher.session() {
                session.screen(&connection, &mut offer);
            }
            offer
        };
        // Without a result the program is stopping.
        upstream::compute_beside_calls(is_large, screen).await.unwrap_or(as_listed)
    }

    /// Cancels what is in flight.
    pub(crate) async fn stop(&self) {
        self.dispatcher.stop().await;
    }

    /// Cancels what is in flight, and ends the session.
    pub(crate) async fn leave(&self) {
        if let Some(modern) = &self.modern {
            modern.leave().await;
        }
        self.stop().await;
        if let Some(session) = self.dispatcher.session() {
            session.leave().await;
        }
    }
}

/// The protocols for a server over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HttpProtocol {
    Legacy,
    Modern,
    /// HTTP+SSE, which is older than lifecycles.
    HttpSse,
}

/// Why one protocol failed.
enum ConnectError {
    /// The server seems not to support this transport.
    Foreign(Cause),
    /// It supports Streamable HTTP, but refuses this lifecycle.
    Refused(Cause),
    /// It demands credentials, whatever the protocol is.
    Access(Cause),
    /// Another protocol would not help.
    Final(Cause),
}

/// A connected server: its session, a task that ends only when the server is lost, and its offer.
pub(crate) type Connected = (ServerSession, JoinHandle<Cause>, Offer);

/// Connects to the server.
pub(crate) async fn open_session(
    upstream: &Upstream,
    remote: &Remote,
    authorization: Option<Authorization>,
    observer: &Arc<dyn UpstreamObserver>,
) -> Result<Connected, Cause> {
    let http = Http::new(remote).map_err(|error| Cause::Remote(error.to_string()))?;
    let http = http.of(Arc::clone(&upstream.loop_detector)).authorized(authorization);
    let (mut server_session, listener, offer) = connect_first_working(upstream, remote, &http, observer).await?;
    let is_legacy =
        server_session.connection.lifecycle() == Lifecycle::Session && server_session.dispatcher.session().is_some();
    if is_legacy && upstream.spec.lifecycle.is_none() {
        server_session.modern =
            ModernSide::connect(upstream, http, observer, &server_session.connection).await.map(Box::new);
    }
    Ok((server_session, listener, offer))
}

/// Connects with the first protocol that works.
async fn connect_first_working(
    upstream: &Upstream,
    remote: &Remote,
    http: &Http,
    observer: &Arc<dyn UpstreamObserver>,
) -> Result<Connected, Cause> {
    // The first error explains best why no protocol works.
    let mut first: Option<ConnectError> = None;
    for &protocol in protocols(remote.dialect, upstream.spec.lifecycle) {
        if let Some(ConnectError::Refused(_)) = first
            && protocol == HttpProtocol::HttpSse
        {
            break;
        }
        let connection_context = upstream.connection_context(observer);
        let failure =
            match connect_with(upstream, &upstream.handshake, http.clone(), protocol, connection_context).await {
                Ok(met) => return Ok(met),
                Err(failure) => failure,
            };
        first = Some(match (first, failure) {
            (None, ConnectError::Final(cause)) | (_, ConnectError::Access(cause)) => return Err(cause),
            (None, failure) => failure,
            (Some(ConnectError::Foreign(newer)), ConnectError::Foreign(older) | ConnectError::Final(older))
                if protocol == HttpProtocol::HttpSse =>
            {
                let text = format!("it supports neither Streamable HTTP ({newer}) nor HTTP+SSE ({older})");
                return Err(Cause::Remote(text));
            }
            (Some(first), _) => first,
        });
        tracing::debug!(server = %upstream.spec.name, ?protocol, "this transport did not work");
    }
    match first {
        Some(failure) => Err(failure.into_cause()),
        None => Err(Cause::ClosedOutput),
    }
}

/// The protocols to try, in this order.
fn protocols(dialect: Dialect, lifecycle: Option<Lifecycle>) -> &'static [HttpProtocol] {
    match (dialect, lifecycle) {
        (Dialect::Sse, _) => &[HttpProtocol::HttpSse],
        (_, Some(Lifecycle::SelfContained)) => &[HttpProtocol::Modern],
        (Dialect::Streamable, Some(Lifecycle::Session)) => &[HttpProtocol::Legacy],
        (Dialect::Streamable, None) => &[HttpProtocol::Legacy, HttpProtocol::Modern],
        (Dialect::Unknown, Some(Lifecycle::Session)) => &[HttpProtocol::Legacy, HttpProtocol::HttpSse],
        (Dialect::Unknown, None) => &[HttpProtocol::Legacy, HttpProtocol::Modern, HttpProtocol::HttpSse],
    }
}

/// Makes the modern handshake, besides an existing one.
pub(crate) async fn connect_modern(
    upstream: &Upstream,
    handshake: &Handshake,
    http: Http,
    connection_context: ConnectionContext,
) -> Result<Connected, Cause> {
    let met = connect_with(upstream, handshake, http, HttpProtocol::Modern, connection_context).await;
    met.map_err(ConnectError::into_cause)
}

/// Connects with one protocol.
async fn connect_with(
    upstream: &Upstream,
    handshake: &Handshake,
    http: Http,
    protocol: HttpProtocol,
    connection_context: ConnectionContext,
) -> Result<Connected, ConnectError> {
    let detected_loop = http.detected_loop();
    let lifecycle = if protocol == HttpProtocol::Modern { Lifecycle::SelfContained } else { Lifecycle::Session };
    let (route, stream) = if protocol == HttpProtocol::HttpSse {
        let opening =
            timeout(upstream.handshake.start_timeout, Endpoint::open(http, upstream.handshake.initialize_params()));
        let too_slow = |_| ConnectError::Final(Cause::Remote("it did not open its event stream in time".to_owned()));
        let opened = opening.await.map_err(too_slow)?.map_err(ConnectError::from);
        let opened = opened.map_err(|failure| failure.hiding(&upstream.spec.secrets));
        let (stream, endpoint) = opened?;
        (Route::HttpSse(Box::new(endpoint)), Some(stream))
    } else {
        (Route::Streamable(Box::new(Session::new(http, lifecycle, upstream.handshake.initialize_params()))), None)
    };
    let dispatcher = RequestDispatcher::new(route);
    let queue = HttpQueue::new(Arc::clone(&dispatcher) as _);
    let connection = Arc::new(Connection::new(connection_context, UpstreamTransport::Http(queue)));
    dispatcher.serve(&connection);
    let listener = tokio::spawn(listen(Arc::clone(&dispatcher), Arc::clone(&connection), stream, detected_loop));
    let server_session = Attempt { dispatcher, listener: Some(listener) };

    let greeted = |revision: Option<&str>| {
        if let Some(session) = server_session.dispatcher.session() {
            session.greeted(revision);
        }
    };
    match handshake.perform(&connection, Some(lifecycle), greeted).await {
        Ok(offer) => {
            let (dispatcher, listener) = server_session.keep();
            if let Some(session) = dispatcher.session() {
                session.start_listening();
            }
            Ok((ServerSession { connection, dispatcher, modern: None }, listener, offer))
        }
        Err(cause) => Err(server_session.explain(cause).await.hiding(&upstream.spec.secrets)),
    }
}

/// An attempt to connect. It is cleaned up unless it is kept.
struct Attempt {
    dispatcher: Arc<RequestDispatcher>,
    listener: Option<JoinHandle<Cause>>,
}

impl Attempt {
    fn keep(mut self) -> (Arc<RequestDispatcher>, JoinHandle<Cause>) {
        (Arc::clone(&self.dispatcher), self.listener.take().expect("kept once"))
    }

    async fn explain(&self, cause: Cause) -> ConnectError {
        self.dispatcher.stop().await;
        match (cause, &self.dispatcher.route) {
            // For a request without a response, the error of its HTTP request is the better explanation.
            (Cause::ClosedOutput, Route::Streamable(session)) => session.last_error().into(),
            (Cause::ClosedOutput, Route::HttpSse(endpoint)) => {
                let error = endpoint.error().unwrap_or(RequestError::NoAnswer);
                if error.is_about_access() {
                    return error.into();
                }
                ConnectError::Final(Cause::Remote(format!("its event stream ended: {error}")))
            }
            (cause @ Cause::Refused { method: "initialize" | "server/discover", .. }, Route::Streamable(_)) => {
                ConnectError::Refused(cause)
            }
            (cause, _) => ConnectError::Final(cause),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(listener) = &self.listener {
            listener.abort();
            self.dispatcher.give_up_all();
        }
    }
}

impl ConnectError {
    fn into_cause(self) -> Cause {
        let (Self::Foreign(cause) | Self::Refused(cause) | Self::Access(cause) | Self::Final(cause)) = self;
        cause
    }

    /// The same without the secrets of its server. At once: a truncated secret would not be recognised later.
    fn hiding(self, secrets: &Secrets) -> Self {
        match self {
            Self::Foreign(cause) => Self::Foreign(cause.hiding(secrets)),
            Self::Refused(cause) => Self::Refused(cause.hiding(secrets)),
            Self::Access(cause) => Self::Access(cause.hiding(secrets)),
            Self::Final(cause) => Self::Final(cause.hiding(secrets)),
        }
    }
}

impl From<RequestError> for ConnectError {
    fn from(error: RequestError) -> Self {
        let cause = match &error {
            RequestError::SignInRequired { why, command } => {
                Cause::SignInRequired { why: why.clone(), command: command.clone() }
            }
            RequestError::Unauthorized { .. } | RequestError::TokenFailed(_) => Cause::Unauthorized(error.to_string()),
            RequestError::Loop(why) => Cause::Loop(why),
            _ => Cause::Remote(error.to_string()),
        };
        if error.is_about_access() {
            Self::Access(cause)
        } else if error.is_foreign() {
            Self::Foreign(cause)
        } else {
            Self::Final(cause)
        }
    }
}

/// Reads unsolicited messages, and releases unneeded resources. Ends only if the task panics, because a lost server
/// may be reachable for the next call, or if the server turns out to be an aggregator that uses us.
async fn listen(
    dispatcher: Arc<RequestDispatcher>,
    connection: Arc<Connection>,
    stream: Option<Stream>,
    mut detected_loop: watch::Receiver<Option<&'static str>>,
) -> Cause {
    let tidying = async {
        let mut ticks = interval(TIDY_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            dispatcher.tidy();
        }
    };
    let hearing = async {
        match (&dispatcher.route, stream) {
            (Route::Streamable(session), _) => read_unsolicited(session, &connection).await,
            (Route::HttpSse(endpoint), Some(stream)) => endpoint.read_unsolicited(stream, &connection).await,
            (Route::HttpSse(_), None) => {}
        }
    };
    let renewing = async {
        match dispatcher.session() {
            Some(session) => report_reinitialize(session, &connection).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = hearing => {}
        () = tidying => {}
        () = renewing => {}
        Ok(why) = detected_loop.wait_for(Option::is_some) => return Cause::Loop(why.expect("it was waited for")),
    }
    Cause::ClosedOutput
}

/// Reports new handshakes, after which the server must be listed and configured again. A server that loses the session
/// with every request would lose it again then, so it is reported less and less often.
async fn report_reinitialize(session: &Session, connection: &Arc<Connection>) {
    let mut pause = MIN_RELIST_INTERVAL;
    loop {
        let looked_at = Instant::now();
        let introduction = session.reinitialized().await;
        let is_restless = looked_at.elapsed() < pause;
        pause = if is_restless { (pause * 2).min(MAX_RELIST_INTERVAL) } else { MIN_RELIST_INTERVAL };
        connection.reinitialized(introduction);
        sleep(pause).await;
    }
}

/// Keeps the stream for unsolicited messages open; a new session gets a new one.
async fn read_unsolicited(session: &Session, connection: &Arc<Connection>) {
    loop {
        session.wait_until_listening_allowed().await;
        loop {
            tokio::select! {
                () = session.wait_until_listening_allowed() => {}
                () = session.read_unsolicited(connection) => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_protocol_is_not_probed() {
        use HttpProtocol::{HttpSse, Legacy, Modern};
        assert_eq!(protocols(Dialect::Unknown, None), [Legacy, Modern, HttpSse]);
        assert_eq!(protocols(Dialect::Unknown, Some(Lifecycle::Session)), [Legacy, HttpSse]);
        assert_eq!(protocols(Dialect::Streamable, None), [Legacy, Modern]);
        assert_eq!(protocols(Dialect::Streamable, Some(Lifecycle::Session)), [Legacy]);
        assert_eq!(protocols(Dialect::Unknown, Some(Lifecycle::SelfContained)), [Modern]);
        assert_eq!(protocols(Dialect::Sse, None), [HttpSse]);
    }
}
