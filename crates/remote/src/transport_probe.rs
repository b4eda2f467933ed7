//! Getting in touch with a server: in the way it is said to speak, else in one way after the other.
//!
//! Each attempt is a conversation of its own, so nothing of one that failed is left in the next. Over HTTP a server that knows
//! both lifecycles does not lock to one: after the legacy handshake the modern one is tried as well (see `dual`).

use std::sync::Arc;
use std::time::Duration;

use catalog::{Dialect, Offer, Remote, Secrets};
use protocol::Lifecycle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use upstream::connection::ConnectionContext;
use upstream::failure::Cause;
use upstream::transport::{HttpQueue, UpstreamTransport};
use upstream::{Connection, Handshake, Upstream, UpstreamObserver};

use crate::dispatcher::{RequestDispatcher, Route};
use crate::dual::ModernSide;
use crate::error::RequestError;
use crate::http::Http;
use crate::session::Session;
use crate::sse::{Endpoint, Stream};

/// How often we look for what is no longer needed.
const TIDY_INTERVAL: Duration = Duration::from_secs(15);

/// The least time between two looks at what a server that has forgotten us offers, and the most if it does so all the
/// time.
const MIN_RELIST_INTERVAL: Duration = Duration::from_millis(500);
const MAX_RELIST_INTERVAL: Duration = Duration::from_secs(60);

/// A server we are talking to.
pub(crate) struct ServerSession {
    pub(crate) connection: Arc<Connection>,
    dispatcher: Arc<RequestDispatcher>,
    /// The modern handshake of a server that was met in the legacy way and speaks both.
    pub(crate) modern: Option<Box<ModernSide>>,
}

impl ServerSession {
    /// What the server offers, as far as it can be used.
    pub(crate) fn screened(&self, mut offer: Offer) -> Offer {
        if let Some(session) = self.dispatcher.session() {
            session.screen(&self.connection, &mut offer);
        }
        offer
    }

    /// Gives up what is under way.
    pub(crate) async fn stop(&self) {
        self.dispatcher.stop().await;
    }

    /// Gives up what is under way, and says goodbye.
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

/// The ways to talk to a server over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HttpProtocol {
    Legacy,
    Modern,
    /// HTTP+SSE, which is older than lifecycles.
    Older,
}

/// Why a server could not be met in one way.
enum Failure {
    /// It looks as if it does not speak like this.
    Foreign(Cause),
    /// It speaks over Streamable HTTP, but not so.
    Refused(Cause),
    /// Another way would not help.
    Final(Cause),
}

/// What a contact consists of: the contact, what ends only when the server is lost, and what the server offers.
pub(crate) type Connected = (ServerSession, JoinHandle<Cause>, Offer);

/// Gets in touch.
pub(crate) async fn open_session(
    upstream: &Upstream,
    remote: &Remote,
    observer: &Arc<dyn UpstreamObserver>,
) -> Result<Connected, Cause> {
    let http = Http::new(remote).map_err(|error| Cause::Remote(error.to_string()))?;
    let http = http.of(Arc::clone(&upstream.loop_detector));
    let (mut server_session, listener, offer) = connect_first_working(upstream, remote, &http, observer).await?;
    let is_legacy =
        server_session.connection.lifecycle() == Lifecycle::Session && server_session.dispatcher.session().is_some();
    if is_legacy && upstream.spec.lifecycle.is_none() {
        server_session.modern =
            ModernSide::connect(upstream, http, observer, &server_session.connection).await.map(Box::new);
    }
    Ok((server_session, listener, offer))
}

/// Gets in touch in the first way that works.
async fn connect_first_working(
    upstream: &Upstream,
    remote: &Remote,
    http: &Http,
    observer: &Arc<dyn UpstreamObserver>,
) -> Result<Connected, Cause> {
    // What it said first explains best why it cannot be met in any way.
    let mut first: Option<Failure> = None;
    for &protocol in protocols(remote.dialect, upstream.spec.lifecycle) {
        if let Some(Failure::Refused(_)) = first
            && protocol == HttpProtocol::Older
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
            (None, Failure::Final(cause)) => return Err(cause),
            (None, failure) => failure,
            (Some(Failure::Foreign(newer)), Failure::Foreign(older) | Failure::Final(older))
                if protocol == HttpProtocol::Older =>
            {
                let text = format!("it speaks neither Streamable HTTP ({newer}) nor HTTP+SSE ({older})");
                return Err(Cause::Remote(text));
            }
            (Some(first), _) => first,
        });
        tracing::debug!(server = %upstream.spec.name, ?protocol, "could not be met like this");
    }
    match first {
        Some(Failure::Foreign(cause) | Failure::Refused(cause) | Failure::Final(cause)) => Err(cause),
        None => Err(Cause::ClosedOutput),
    }
}

/// What to try, in this order.
fn protocols(dialect: Dialect, lifecycle: Option<Lifecycle>) -> &'static [HttpProtocol] {
    match (dialect, lifecycle) {
        (Dialect::Sse, _) => &[HttpProtocol::Older],
        (_, Some(Lifecycle::SelfContained)) => &[HttpProtocol::Modern],
        (Dialect::Streamable, Some(Lifecycle::Session)) => &[HttpProtocol::Legacy],
        (Dialect::Streamable, None) => &[HttpProtocol::Legacy, HttpProtocol::Modern],
        (Dialect::Unknown, Some(Lifecycle::Session)) => &[HttpProtocol::Legacy, HttpProtocol::Older],
        (Dialect::Unknown, None) => &[HttpProtocol::Legacy, HttpProtocol::Modern, HttpProtocol::Older],
    }
}

/// Gets in touch in the modern way, beside a handshake that there is already.
pub(crate) async fn connect_modern(
    upstream: &Upstream,
    handshake: &Handshake,
    http: Http,
    connection_context: ConnectionContext,
) -> Result<Connected, Cause> {
    let met = connect_with(upstream, handshake, http, HttpProtocol::Modern, connection_context).await;
    met.map_err(|(Failure::Foreign(cause) | Failure::Refused(cause) | Failure::Final(cause))| cause)
}

/// Gets in touch in one way.
async fn connect_with(
    upstream: &Upstream,
    handshake: &Handshake,
    http: Http,
    protocol: HttpProtocol,
    connection_context: ConnectionContext,
) -> Result<Connected, Failure> {
    let detected_loop = http.detected_loop();
    let lifecycle = if protocol == HttpProtocol::Modern { Lifecycle::SelfContained } else { Lifecycle::Session };
    let (route, stream) = if protocol == HttpProtocol::Older {
        let opening =
            timeout(upstream.handshake.start_timeout, Endpoint::open(http, upstream.handshake.initialize_params()));
        let too_slow = |_| Failure::Final(Cause::Remote("it did not open its event stream in time".to_owned()));
        let opened = opening.await.map_err(too_slow)?.map_err(Failure::from);
        let opened = opened.map_err(|failure| failure.hiding(&upstream.spec.secrets));
        let (stream, endpoint) = opened?;
        (Route::Older(Box::new(endpoint)), Some(stream))
    } else {
        (Route::Streamable(Box::new(Session::new(http, lifecycle, upstream.handshake.initialize_params()))), None)
    };
    let dispatcher = RequestDispatcher::new(route);
    let postbox = HttpQueue::new(Arc::clone(&dispatcher) as _);
    let connection = Arc::new(Connection::new(connection_context, UpstreamTransport::Http(postbox)));
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

/// An attempt to get in touch. Nothing of it stays unless it is kept.
struct Attempt {
    dispatcher: Arc<RequestDispatcher>,
    listener: Option<JoinHandle<Cause>>,
}

impl Attempt {
    fn keep(mut self) -> (Arc<RequestDispatcher>, JoinHandle<Cause>) {
        (Arc::clone(&self.dispatcher), self.listener.take().expect("kept once"))
    }

    async fn explain(&self, cause: Cause) -> Failure {
        self.dispatcher.stop().await;
        match (cause, &self.dispatcher.route) {
            // A question without an answer has a better explanation in what happened to its request.
            (Cause::ClosedOutput, Route::Streamable(session)) => session.last_error().into(),
            (Cause::ClosedOutput, Route::Older(endpoint)) => {
                let error = endpoint.error().unwrap_or(RequestError::NoAnswer);
                Failure::Final(Cause::Remote(format!("its event stream ended: {error}")))
            }
            (cause @ Cause::Refused { method: "initialize" | "server/discover", .. }, Route::Streamable(_)) => {
                Failure::Refused(cause)
            }
            (cause, _) => Failure::Final(cause),
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

impl Failure {
    /// The same without the secrets of its server. At once: put into other words, one that was cut off is not found.
    fn hiding(self, secrets: &Secrets) -> Self {
        match self {
            Self::Foreign(cause) => Self::Foreign(cause.hiding(secrets)),
            Self::Refused(cause) => Self::Refused(cause.hiding(secrets)),
            Self::Final(cause) => Self::Final(cause.hiding(secrets)),
        }
    }
}

impl From<RequestError> for Failure {
    fn from(error: RequestError) -> Self {
        let cause = match &error {
            RequestError::Unauthorized { .. } => Cause::Unauthorized(error.to_string()),
            RequestError::Loop(why) => Cause::Loop(why),
            _ => Cause::Remote(error.to_string()),
        };
        if error.is_foreign() { Self::Foreign(cause) } else { Self::Final(cause) }
    }
}

/// Hears what the server says unasked, and clears away what is no longer needed. Ends only if the task breaks, for a server
/// that is lost may be back for the next call, or if the server turns out to be one of those who use us.
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
            (Route::Older(endpoint), Some(stream)) => endpoint.read_unsolicited(stream, &connection).await,
            (Route::Older(_), None) => {}
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

/// Tells when the server had forgotten us and knows us anew, for it must then be asked and told everything again. That is
/// when one that forgets us with every request would forget us again, so it is told less and less often.
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

/// Keeps the stream open for what the server says unasked; a new session gets a new one.
async fn read_unsolicited(session: &Session, connection: &Arc<Connection>) {
    loop {
        session.may_listen().await;
        loop {
            tokio::select! {
                () = session.may_listen() => {}
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
        use HttpProtocol::{Legacy, Modern, Older};
        assert_eq!(protocols(Dialect::Unknown, None), [Legacy, Modern, Older]);
        assert_eq!(protocols(Dialect::Unknown, Some(Lifecycle::Session)), [Legacy, Older]);
        assert_eq!(protocols(Dialect::Streamable, None), [Legacy, Modern]);
        assert_eq!(protocols(Dialect::Streamable, Some(Lifecycle::Session)), [Legacy]);
        assert_eq!(protocols(Dialect::Unknown, Some(Lifecycle::SelfContained)), [Modern]);
        assert_eq!(protocols(Dialect::Sse, None), [Older]);
    }
}
