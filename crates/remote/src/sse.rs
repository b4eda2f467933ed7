//! The older HTTP+SSE: the server opens a stream, sends an address for requests on it, and responds there. When a
//! stream ends, its pending responses and its session are lost; both are started again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catalog::Offer;
use hyper::header::HeaderMap;
use hyper::{Method, Uri};
use protocol::events::{Event, Events};
use protocol::{Envelope, Kind, reply};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use upstream::{CallError, Connection, IncomingMessage, RemoteFailure, read_initialize_result};

use crate::body::Body;
use crate::error::RequestError;
use crate::event_stream::{DEFAULT_RETRY_DELAY, MAX_RETRY_DELAY, one_line};
use crate::http::{Http, Media, OutgoingRequest};
use crate::refusal::Refusal;

/// How long a server may take to open a stream again and to complete the handshake on it.
const REOPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of the event with the address.
const MAX_ENDPOINT_BYTES: usize = 64 << 10;
/// A stream that was open for this long did not end at once.
const LONG_ENOUGH: Duration = Duration::from_secs(10);

/// The address for requests.
pub(crate) struct Endpoint {
    pub(crate) http: Http,
    headers: HeaderMap,
    /// The parameters of `initialize`, for when the stream is opened again.
    initialize_params: Vec<u8>,
    /// The address that the stream sent; without a stream, why there is none.
    address: watch::Sender<Result<Uri, RequestError>>,
    /// A message is to be sent although there is no stream.
    wanted: Notify,
}

/// An open stream.
pub(crate) struct Stream {
    body: Body,
    events: Events,
}

/// Opens the stream and waits for the address.
async fn open(http: &Http) -> Result<(Stream, Uri), RequestError> {
    let headers = http.get_headers();
    let outgoing = OutgoingRequest {
        method: Method::GET,
        url: &http.url,
        headers: &headers,
        own_headers: &[],
        body: Bytes::new(),
    };
    let response = http.send(outgoing).await?;
    if !response.status().is_success() {
        return Err(Refusal::read(response).await?.into_error());
    }
    match Media::of(response.headers()) {
        Media::Events => {}
        Media::Json => return Err(RequestError::ForeignAnswer("application/json".to_owned())),
        Media::Other(other) => return Err(RequestError::ForeignAnswer(other)),
    }
    let mut stream = Stream { body: response.into_body(), events: Events::default() };
    loop {
        let event = stream.next_event(None).await?;
        if event.kind == "endpoint" {
            let url = http.relative(String::from_utf8_lossy(&event.data).trim())?;
            return Ok((stream, url));
        }
    }
}

impl Endpoint {
    /// Opens the first stream.
    pub(crate) async fn open(http: Http, initialize_params: Vec<u8>) -> Result<(Stream, Self), RequestError> {
        let (stream, url) = open(&http).await?;
        let (headers, address) = (http.post_headers(), watch::Sender::new(Ok(url)));
        Ok((stream, Self { http, headers, initialize_params, address, wanted: Notify::new() }))
    }

    /// The address to post to. Without a stream, waits for one more attempt to open it.
    pub(crate) async fn address(&self) -> Result<Uri, RequestError> {
        let mut address = self.address.subscribe();
        let known = address.borrow_and_update().clone();
        let Err(error) = known else { return known };
        self.wanted.notify_one();
        let attempted = timeout(REOPEN_TIMEOUT, address.changed()).await;
        match if attempted.is_ok() { address.borrow().clone() } else { Err(error) } {
            // Whatever failed, it was not the current message: that was not sent.
            Err(error) if !error.left_untouched() => Err(RequestError::NotRenewed(error.to_string())),
            found => found,
        }
    }

    /// Why there is no stream, if there is none.
    pub(crate) fn error(&self) -> Option<RequestError> {
        self.address.borrow().as_ref().err().cloned()
    }

    /// Posts one message. The response arrives on the stream, so only an error status matters here.
    pub(crate) async fn post(&self, url: &Uri, body: Bytes) -> Result<(), RequestError> {
        let outgoing = OutgoingRequest { method: Method::POST, url, headers: &self.headers, own_headers: &[], body };
        let response = self.http.send(outgoing).await?;
        if !response.status().is_success() {
            return Err(Refusal::read(response).await?.into_error());
        }
        response.into_body().discard().await;
        Ok(())
    }

    /// Delivers every message, on one stream after the other.
    pub(crate) async fn read_unsolicited(&self, mut stream: Stream, connection: &Arc<Connection>) {
        loop {
            let opened_at = Instant::now();
            let error = stream.read_all(connection).await;
            tracing::debug!(server = %connection.server(), error = connection.hide(&error.to_string()), "its event stream ended");
            self.address.send_modify(|address| *address = Err(error.clone()));
            connection.await_ending().await;
            connection.fail_sent_requests(&CallError::Remote {
                server: connection.server(),
                problem: connection.hide(&format!("its event stream ended: {error}")),
                failure: RemoteFailure::ResponseLost,
                command: None,
            });
            let initialize_params;
            (stream, initialize_params) = self.reopen(connection, opened_at.elapsed() > LONG_ENOUGH).await;
            connection.reinitialized(initialize_params);
        }
    }

    /// Opens the stream again: with growing delays, but at once when there is a message to send.
    async fn reopen(&self, connection: &Arc<Connection>, at_once: bool) -> (Stream, Offer) {
        let mut pause = if at_once { Some(Duration::ZERO) } else { Some(DEFAULT_RETRY_DELAY) };
        loop {
            let paused = async {
                match pause {
                    Some(pause) => sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = paused => {}
                () = self.wanted.notified() => {}
            }
            let begun = timeout(REOPEN_TIMEOUT, self.begin(connection)).await;
            let error = match begun.unwrap_or(Err(RequestError::NoAnswer)) {
                Ok((stream, url, initialize_params)) => {
                    tracing::debug!(server = %connection.server(), "reopened the event stream");
                    self.address.send_modify(|address| *address = Ok(url));
                    return (stream, initialize_params);
                }
                Err(error) => error,
            };
            tracing::debug!(server = %connection.server(), error = connection.hide(&error.to_string()), "failed to reopen the event stream");
            error.report_liveness(connection);
            // A server that refuses our credentials is retried only when there is a message to send.
            pause = match error {
                RequestError::Unauthorized { .. }
                | RequestError::SignInRequired { .. }
                | RequestError::TokenFailed(_) => None,
                _ => Some((pause.unwrap_or_default() * 2).clamp(DEFAULT_RETRY_DELAY, MAX_RETRY_DELAY)),
            };
            self.address.send_modify(|address| *address = Err(error));
        }
    }

    /// Opens a stream and makes the handshake on it.
    async fn begin(&self, connection: &Arc<Connection>) -> Result<(Stream, Uri, Offer), RequestError> {
        let (mut stream, url) = open(&self.http).await?;
        self.post(&url, reply::request(0, "initialize", Some(&self.initialize_params)).into()).await?;
        let answer = stream.initialize_response(connection).await?;
        let met = read_initialize_result(answer, connection.limits())
            .map_err(|cause| RequestError::NotRenewed(cause.to_string()))?;
        self.post(&url, reply::notification("notifications/initialized", None).into()).await?;
        Ok((stream, url, met.offer))
    }
}

impl Stream {
    /// Delivers every message, until the stream ends.
    async fn read_all(&mut self, connection: &Arc<Connection>) -> RequestError {
        let mut incoming = connection.incoming(None);
        loop {
            let message = match self.next_event(Some(&mut incoming)).await {
                Ok(event) if event.data.is_empty() => continue,
                Ok(event) => incoming.whole(one_line(event.data)).map_err(RequestError::TooLarge),
                Err(error) => Err(error),
            };
            match message {
                Ok(message) => connection.take(message, None).await,
                Err(error) => return error,
            }
        }
    }

    /// The response to our request 0. Earlier messages are delivered.
    async fn initialize_response(&mut self, connection: &Arc<Connection>) -> Result<Bytes, RequestError> {
        let mut incoming = connection.incoming(Some(0));
        loop {
            let message = self.next_event(Some(&mut incoming)).await?.data;
            match Envelope::scan(&message) {
                Ok(Envelope { kind: Kind::Response { id, .. }, .. }) if id.of(&message) == b"0" => return Ok(message),
                _ if message.is_empty() => {}
                _ => connection.take(one_line(message), None).await,
            }
        }
    }

    async fn next_event(&mut self, mut incoming: Option<&mut IncomingMessage>) -> Result<Event, RequestError> {
        loop {
            if let Some(event) = self.events.next_event() {
                return Ok(event);
            }
            let pending = self.events.pending();
            match &mut incoming {
                Some(incoming) => incoming.grow(pending).map_err(RequestError::TooLarge)?,
                None if pending > MAX_ENDPOINT_BYTES => {
                    return Err(RequestError::BrokeOff("an endless event instead of its address".to_owned()));
                }
                None => {}
            }
            match self.body.next().await {
                Some(data) => self.events.push(&data?),
                None => return Err(RequestError::BrokeOff("the server closed it".to_owned())),
            }
        }
    }
}
