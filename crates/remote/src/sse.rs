//! The older HTTP+SSE: the server opens a stream, names an address for requests on it, and answers there. A stream that
//! ends takes with it the answers that were to come on it, and the session; both are begun anew.

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
use upstream::acquaintance::read_introduction;
use upstream::connection::IncomingMessage;
use upstream::failure::Mishap;
use upstream::{CallError, Connection};

use crate::body::Body;
use crate::http::{Errand, Http, Media};
use crate::news::{FIRST_RETRY, LONGEST_RETRY, one_line};
use crate::refusal::Refusal;
use crate::trouble::Trouble;

/// How long a server may take to open a stream again and to get to know us on it.
const REOPENING_PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of the event that names the address.
const LONGEST_ADDRESS: usize = 64 << 10;
/// A stream that was open for this long was not ended at once.
const LONG_ENOUGH: Duration = Duration::from_secs(10);

/// Where requests go.
pub(crate) struct Endpoint {
    pub(crate) http: Http,
    headers: HeaderMap,
    /// The parameters of `initialize`, for when the stream is opened again.
    introduction: Vec<u8>,
    /// The address that the stream named; without a stream, why there is none.
    address: watch::Sender<Result<Uri, Trouble>>,
    /// Somebody has something to send although there is no stream.
    wanted: Notify,
}

/// An open stream.
pub(crate) struct Stream {
    body: Body,
    events: Events,
}

/// Opens the stream and waits for the address.
async fn open(http: &Http) -> Result<(Stream, Uri), Trouble> {
    let headers = http.get_headers();
    let errand =
        Errand { method: Method::GET, url: &http.url, headers: &headers, own_headers: &[], body: Bytes::new() };
    let response = http.send(errand).await?;
    if !response.status().is_success() {
        return Err(Refusal::read(response).await?.into_trouble());
    }
    match Media::of(response.headers()) {
        Media::Events => {}
        Media::Json => return Err(Trouble::ForeignAnswer("application/json".to_owned())),
        Media::Other(other) => return Err(Trouble::ForeignAnswer(other)),
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
    pub(crate) async fn open(http: Http, introduction: Vec<u8>) -> Result<(Stream, Self), Trouble> {
        let (stream, url) = open(&http).await?;
        let (headers, address) = (http.post_headers(), watch::Sender::new(Ok(url)));
        Ok((stream, Self { http, headers, introduction, address, wanted: Notify::new() }))
    }

    /// Where to post. Without a stream, one more attempt to open it is waited for.
    pub(crate) async fn address(&self) -> Result<Uri, Trouble> {
        let mut address = self.address.subscribe();
        let known = address.borrow_and_update().clone();
        let Err(trouble) = known else { return known };
        self.wanted.notify_one();
        let attempted = timeout(REOPENING_PATIENCE, address.changed()).await;
        match if attempted.is_ok() { address.borrow().clone() } else { Err(trouble) } {
            // Whatever it was that failed, it was not the letter at hand: that was not sent.
            Err(trouble) if !trouble.left_untouched() => Err(Trouble::NotRenewed(trouble.to_string())),
            found => found,
        }
    }

    /// Why there is no stream, if there is none.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        self.address.borrow().as_ref().err().cloned()
    }

    /// Posts one message. The answer comes on the stream, so only a refusal says anything.
    pub(crate) async fn post(&self, url: &Uri, body: Bytes) -> Result<(), Trouble> {
        let errand = Errand { method: Method::POST, url, headers: &self.headers, own_headers: &[], body };
        let response = self.http.send(errand).await?;
        if !response.status().is_success() {
            return Err(Refusal::read(response).await?.into_trouble());
        }
        response.into_body().discard().await;
        Ok(())
    }

    /// Hands over every message, on one stream after the other.
    pub(crate) async fn hear(&self, mut stream: Stream, connection: &Arc<Connection>) {
        loop {
            let opened_at = Instant::now();
            let trouble = stream.hear_all(connection).await;
            tracing::debug!(server = %connection.server(), trouble = connection.hide(&trouble.to_string()), "its event stream ended");
            self.address.send_modify(|address| *address = Err(trouble.clone()));
            connection.await_verdict().await;
            connection.lose_answers(&CallError::Remote {
                server: connection.server(),
                problem: connection.hide(&format!("its event stream ended: {trouble}")),
                mishap: Mishap::AnswerLost,
            });
            let introduction;
            (stream, introduction) = self.reopen(connection, opened_at.elapsed() > LONG_ENOUGH).await;
            connection.introduced_anew(introduction);
        }
    }

    /// Opens the stream again: less and less often in vain, but at once when somebody has something to send.
    async fn reopen(&self, connection: &Arc<Connection>, at_once: bool) -> (Stream, Offer) {
        let mut pause = if at_once { Some(Duration::ZERO) } else { Some(FIRST_RETRY) };
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
            let begun = timeout(REOPENING_PATIENCE, self.begin(connection)).await;
            let trouble = match begun.unwrap_or(Err(Trouble::NoAnswer)) {
                Ok((stream, url, introduction)) => {
                    tracing::debug!(server = %connection.server(), "its event stream is open again");
                    self.address.send_modify(|address| *address = Ok(url));
                    return (stream, introduction);
                }
                Err(trouble) => trouble,
            };
            tracing::debug!(server = %connection.server(), trouble = connection.hide(&trouble.to_string()), "could not open its event stream again");
            trouble.tell_doubts(connection);
            // One that wants other credentials is not bothered with ours again and again.
            pause = match trouble {
                Trouble::Unauthorized { .. } => None,
                _ => Some((pause.unwrap_or_default() * 2).clamp(FIRST_RETRY, LONGEST_RETRY)),
            };
            self.address.send_modify(|address| *address = Err(trouble));
        }
    }

    /// Opens a stream and introduces us on it.
    async fn begin(&self, connection: &Arc<Connection>) -> Result<(Stream, Uri, Offer), Trouble> {
        let (mut stream, url) = open(&self.http).await?;
        self.post(&url, reply::request(0, "initialize", Some(&self.introduction)).into()).await?;
        let answer = stream.answer_to_introduction(connection).await?;
        let met =
            read_introduction(answer, connection.limits()).map_err(|cause| Trouble::NotRenewed(cause.to_string()))?;
        self.post(&url, reply::notification("notifications/initialized", None).into()).await?;
        Ok((stream, url, met.offer))
    }
}

impl Stream {
    /// Hands over every message, until the stream ends.
    async fn hear_all(&mut self, connection: &Arc<Connection>) -> Trouble {
        let mut incoming = connection.incoming(None);
        loop {
            let message = match self.next_event(Some(&mut incoming)).await {
                Ok(event) if event.data.is_empty() => continue,
                Ok(event) => incoming.whole(one_line(event.data)).map_err(Trouble::TooLarge),
                Err(trouble) => Err(trouble),
            };
            match message {
                Ok(message) => connection.take(message, None).await,
                Err(trouble) => return trouble,
            }
        }
    }

    /// The answer to our request 0. What comes before it is handed over.
    async fn answer_to_introduction(&mut self, connection: &Arc<Connection>) -> Result<Bytes, Trouble> {
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

    async fn next_event(&mut self, mut incoming: Option<&mut IncomingMessage>) -> Result<Event, Trouble> {
        loop {
            if let Some(event) = self.events.next_event() {
                return Ok(event);
            }
            let pending = self.events.pending();
            match &mut incoming {
                Some(incoming) => incoming.grow(pending).map_err(Trouble::TooLarge)?,
                None if pending > LONGEST_ADDRESS => {
                    return Err(Trouble::BrokeOff("an event without end instead of its address".to_owned()));
                }
                None => {}
            }
            match self.body.next().await {
                Some(data) => self.events.push(&data?),
                None => return Err(Trouble::BrokeOff("the server closed it".to_owned())),
            }
        }
    }
}
