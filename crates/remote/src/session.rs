//! Streamable HTTP: every message is a request, answered as JSON or as a stream. A legacy server may create a session,
//! and has a stream for unsolicited messages; a modern one has neither, and requires more headers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use catalog::Offer;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Response, StatusCode};
use protocol::{Lifecycle, reply};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use upstream::transport::OutgoingMessage;
use upstream::{Connection, read_initialize_result};

use crate::annotations::Annotations;
use crate::body::Body;
use crate::error::RequestError;
use crate::event_stream::{self, DEFAULT_RETRY_DELAY, MAX_RETRY_DELAY, StreamPosition, one_line};
use crate::http::{Http, Media, OutgoingRequest};
use crate::refusal::Refusal;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How long a new handshake may take after a server has lost our session.
const REINITIALIZE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a stream that broke before the response is resumed repeatedly without a message on it. A server may be
/// waiting for a person's answer meanwhile.
const RESUME_TIMEOUT: Duration = Duration::from_secs(600);
/// How many attempts in a row may fail completely.
const MAX_RESUME_FAILURES: u32 = 4;

/// Our session with one server.
pub(crate) struct Session {
    pub(crate) http: Http,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) annotations: Annotations,
    /// The parameters of `initialize`, for a new handshake.
    initialize_params: Vec<u8>,
    state: Mutex<State>,
    /// Serialises new handshakes.
    reinitialize_lock: tokio::sync::Mutex<()>,
    /// Notified when to open the stream for unsolicited messages.
    listening: Notify,
    /// Notified after a new handshake.
    reinitialized: Notify,
}

#[derive(Default)]
struct State {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
    /// The headers of every message, rebuilt when one of the above changes.
    headers: Arc<HeaderMap>,
    /// The last error, for a request of ours that got no response.
    error: Option<RequestError>,
    /// The result of a new handshake, until it is taken.
    server_offer: Option<Offer>,
}

impl Session {
    pub(crate) fn new(http: Http, lifecycle: Lifecycle, initialize_params: Vec<u8>) -> Self {
        let state = State { headers: Arc::new(http.post_headers()), ..State::default() };
        Self {
            http,
            lifecycle,
            annotations: Annotations::default(),
            initialize_params,
            state: Mutex::new(state),
            reinitialize_lock: tokio::sync::Mutex::default(),
            listening: Notify::new(),
            reinitialized: Notify::new(),
        }
    }

    /// Records the revision of the server; every later request contains it.
    pub(crate) fn greeted(&self, revision: Option<&str>) {
        if self.lifecycle == Lifecycle::Session {
            self.change(|state| state.version = revision.and_then(|revision| HeaderValue::from_str(revision).ok()));
        }
    }

    /// Checks the offer of the server, before it is published.
    pub(crate) fn screen(&self, connection: &Connection, offer: &mut Offer) {
        if self.lifecycle == Lifecycle::SelfContained {
            self.annotations.learn(&connection.server(), offer);
        }
    }

    /// From now on the server may send unsolicited messages. A modern one never does.
    pub(crate) fn start_listening(&self) {
        if self.lifecycle == Lifecycle::Session {
            self.listening.notify_one();
        }
    }

    /// Waits until the server may send unsolicited messages.
    pub(crate) async fn wait_until_listening_allowed(&self) {
        self.listening.notified().await;
    }

    /// Records an error.
    pub(crate) fn note(&self, error: &RequestError) {
        self.lock().error = Some(error.clone());
    }

    /// The last error.
    pub(crate) fn last_error(&self) -> RequestError {
        self.lock().error.clone().unwrap_or(RequestError::NoAnswer)
    }

    /// Ends the session, if the server created one.
    pub(crate) async fn leave(&self) {
        if self.lock().id.is_some() {
            drop(self.http.send(self.outgoing(Method::DELETE, &self.get_headers(None), &[], Bytes::new())).await);
        }
    }

    /// Posts one message and delivers what comes back to `connection`.
    pub(crate) async fn post(
        &self,
        connection: &Arc<Connection>,
        message: &OutgoingMessage,
    ) -> Result<(), RequestError> {
        match self.lifecycle {
            Lifecycle::Session => self.post_in_session(connection, message).await,
            Lifecycle::SelfContained => self.post_self_contained(connection, message).await,
        }
    }

    async fn post_in_session(
        &self,
        connection: &Arc<Connection>,
        message: &OutgoingMessage,
    ) -> Result<(), RequestError> {
        let mut was_renewed = false;
        loop {
            let headers = Arc::clone(&self.lock().headers);
            let outgoing = self.outgoing(Method::POST, &headers, &[], message.body.clone());
            let response = self.http.send(outgoing).await?;
            let id = headers.get(SESSION_ID);
            if response.status().is_success() {
                if id.is_none() {
                    self.remember(&response);
                }
                return self.take(connection, message.number, response).await;
            }
            let refusal = Refusal::read_for(connection, message.number, response).await?;
            if was_renewed && refusal.insists(message.number) {
                return Err(RequestError::Forgetful(refusal.status()));
            }
            // The server has lost our session: make a new handshake, and retry once.
            if id.is_none() || was_renewed || !refusal.means_forgotten(message.number) {
                return refusal.hand_over(connection, message.number).await;
            }
            // Whatever the server did with the handshake, it has not carried out the request.
            Box::pin(self.reinitialize(connection, id)).await.map_err(RequestError::at_renewal)?;
            was_renewed = true;
        }
    }

    /// Posts a self-contained message.
    async fn post_self_contained(
        &self,
        connection: &Arc<Connection>,
        message: &OutgoingMessage,
    ) -> Result<(), RequestError> {
        let headers = Arc::clone(&self.lock().headers);
        let mut was_relearned = false;
        loop {
            let own = self.annotations.headers(&message.body);
            let response = self.http.send(self.outgoing(Method::POST, &headers, &own, message.body.clone())).await?;
            if response.status().is_success() {
                return self.take(connection, message.number, response).await;
            }
            let refusal = Refusal::read_for(connection, message.number, response).await?;
            // The tool may require other arguments in headers than before: list again, and retry once.
            let is_call = own.iter().any(|(_, value)| value == "tools/call");
            if !is_call || was_relearned || !refusal.is_header_mismatch() {
                return refusal.hand_over(connection, message.number).await;
            }
            self.annotations.relearn(connection).await;
            was_relearned = true;
        }
    }

    /// Delivers the content of a successful response.
    async fn take(
        &self,
        connection: &Arc<Connection>,
        number: Option<u64>,
        response: Response<Body>,
    ) -> Result<(), RequestError> {
        let is_open = || number.is_some_and(|number| connection.is_open(number));
        let media = Media::of(response.headers());
        let body = response.into_body();
        match media {
            Media::Events => Box::pin(self.follow(connection, number, body)).await?,
            Media::Json => {
                let body = body.message(&mut connection.incoming(number)).await?;
                if !body.is_empty() {
                    connection.take(one_line(body), number).await;
                }
            }
            Media::Other(other) if is_open() => {
                return Err(RequestError::ForeignAnswer(if other.is_empty() { "nothing".into() } else { other }));
            }
            Media::Other(_) => body.discard().await,
        }
        if is_open() { Err(RequestError::NoAnswer) } else { Ok(()) }
    }

    /// Delivers the messages of a stream. One that breaks before the response is resumed where it broke, if a legacy
    /// server sent an event id.
    async fn follow(&self, connection: &Arc<Connection>, number: Option<u64>, body: Body) -> Result<(), RequestError> {
        let mut position = StreamPosition::default();
        let mut ended = event_stream::read(connection, body, number, &mut position).await;
        let (mut in_vain, mut failures, mut last_news) = (0, 0, Instant::now());
        while failures < MAX_RESUME_FAILURES && last_news.elapsed() < RESUME_TIMEOUT {
            let is_answered = !number.is_some_and(|number| connection.is_open(number));
            let (false, Some(id), Lifecycle::Session) = (is_answered, &position.id, self.lifecycle) else {
                return ended;
            };
            let (id, messages) = (id.clone(), position.messages);
            sleep(position.pause(in_vain)).await;
            ended = match self.open_stream(Some(id)).await {
                Ok(body) => {
                    failures = 0;
                    event_stream::read(connection, body, number, &mut position).await
                }
                Err(error @ (RequestError::Unreachable(_) | RequestError::BrokeOff(_))) => {
                    failures += 1;
                    Err(error)
                }
                Err(error) => return Err(error),
            };
            in_vain += 1;
            if position.messages > messages {
                (in_vain, last_news) = (0, Instant::now());
            }
        }
        ended
    }

    /// Opens a stream: one that broke before, or the one for unsolicited messages.
    async fn open_stream(&self, resumed_at: Option<HeaderValue>) -> Result<Body, RequestError> {
        let headers = self.get_headers(resumed_at);
        let response = self.http.send(self.outgoing(Method::GET, &headers, &[], Bytes::new())).await?;
        if !response.status().is_success() {
            return Err(Refusal::read(response).await?.into_error());
        }
        match Media::of(response.headers()) {
            Media::Events => Ok(response.into_body()),
            Media::Json => Err(RequestError::ForeignAnswer("application/json".to_owned())),
            Media::Other(other) => Err(RequestError::ForeignAnswer(other)),
        }
    }

    /// Reads unsolicited messages, as long as the server has a stream for them.
    pub(crate) async fn read_unsolicited(&self, connection: &Arc<Connection>) {
        let mut position = StreamPosition::default();
        let (mut pause, mut was_open) = (Duration::ZERO, false);
        loop {
            let session = self.lock().id.clone();
            let mut heard = match self.open_stream(position.id.clone()).await {
                Ok(body) => {
                    was_open = true;
                    pause = Duration::ZERO;
                    drop(event_stream::read(connection, body, None, &mut position).await);
                    Ok(())
                }
                Err(error) => Err(error),
            };
            // It had a stream for us and has lost our session since. Without a call nothing else would notice; after
            // the new handshake, this is started again.
            if was_open && session.is_some() && heard.as_ref().is_err_and(RequestError::means_forgotten) {
                heard = self.reinitialize(connection, session.as_ref()).await;
                if heard.is_ok() {
                    return;
                }
            }
            match heard {
                Ok(()) => {}
                Err(error) if is_passing(&error) => {
                    error.report_liveness(connection);
                    pause = (pause * 2).clamp(DEFAULT_RETRY_DELAY, MAX_RETRY_DELAY);
                }
                // Most often it has none.
                Err(_) => return,
            }
            sleep(position.pause(0).max(pause)).await;
        }
    }

    /// Makes a new handshake, unless another task has just done so.
    async fn reinitialize(
        &self,
        connection: &Arc<Connection>,
        forgotten: Option<&HeaderValue>,
    ) -> Result<(), RequestError> {
        let _alone = self.reinitialize_lock.lock().await;
        if self.lock().id.as_ref() != forgotten {
            return Ok(());
        }
        let server_offer = timeout(REINITIALIZE_TIMEOUT, self.send_initialize(connection))
            .await
            .unwrap_or(Err(RequestError::NoAnswer))?;
        tracing::debug!(server = %connection.server(), "the server ended the session; established a new one");
        self.lock().server_offer = Some(server_offer);
        self.start_listening();
        self.reinitialized.notify_one();
        Ok(())
    }

    /// Waits for a new handshake, and returns its result.
    pub(crate) async fn reinitialized(&self) -> Offer {
        loop {
            if let Some(server_offer) = self.lock().server_offer.take() {
                return server_offer;
            }
            self.reinitialized.notified().await;
        }
    }

    async fn send_initialize(&self, connection: &Arc<Connection>) -> Result<Offer, RequestError> {
        let request = reply::request(0, "initialize", Some(&self.initialize_params));
        let headers = self.http.post_headers();
        let response = self.http.send(self.outgoing(Method::POST, &headers, &[], request.into())).await?;
        if !response.status().is_success() {
            return Err(Refusal::read(response).await?.into_error());
        }
        // The old id stays until there is a new one, because its refusal shows that the session is still lost.
        let id = response.headers().get(SESSION_ID).cloned();
        let answer = event_stream::first_answer(connection, response).await?;
        let met = read_initialize_result(answer, connection.limits())
            .map_err(|cause| RequestError::NotRenewed(cause.to_string()))?;
        let version = met.revision.and_then(|revision| HeaderValue::from_str(&revision).ok());
        self.change(|state| {
            state.id = id;
            state.version = version;
        });
        let headers = Arc::clone(&self.lock().headers);
        let notice = reply::notification("notifications/initialized", None);
        let response = self.http.send(self.outgoing(Method::POST, &headers, &[], notice.into())).await?;
        response.into_body().discard().await;
        Ok(met.offer)
    }

    fn remember(&self, response: &Response<Body>) {
        if let Some(id) = response.headers().get(SESSION_ID) {
            self.change(|state| {
                state.id.get_or_insert_with(|| id.clone());
            });
        }
    }

    fn outgoing<'e>(
        &'e self,
        method: Method,
        headers: &'e HeaderMap,
        own_headers: &'e [(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> OutgoingRequest<'e> {
        OutgoingRequest { method, url: &self.http.url, headers, own_headers, body }
    }

    fn get_headers(&self, last_event: Option<HeaderValue>) -> HeaderMap {
        let mut headers = self.http.get_headers();
        self.lock().add_to(&mut headers);
        headers.extend(last_event.map(|id| (LAST_EVENT_ID, id)));
        headers
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let mut headers = self.http.post_headers();
        state.add_to(&mut headers);
        state.headers = Arc::new(headers);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in [(SESSION_ID, &self.id), (PROTOCOL_VERSION, &self.version)] {
            if let Some(value) = value {
                headers.insert(name, value.clone());
            }
        }
    }
}

/// Whether a server with this error may recover soon.
fn is_passing(error: &RequestError) -> bool {
    match error {
        RequestError::Status { status, .. } => status.is_server_error() && *status != StatusCode::NOT_IMPLEMENTED,
        RequestError::Unreachable(_)
        | RequestError::BrokeOff(_)
        | RequestError::Busy(_)
        | RequestError::TokenUnavailable(_) => true,
        _ => false,
    }
}
