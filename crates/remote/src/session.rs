//! Streamable HTTP: every message a request of its own, answered as JSON or as a stream.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Response, StatusCode};
use protocol::events::Events;
use protocol::lines::LONGEST_LINE;
use protocol::reply;
use tokio::time::{Instant, sleep, timeout};
use upstream::failure::Cause;
use upstream::wire::Letter;
use upstream::{CallError, Connection};

use crate::http::{Http, Trouble, media_type, read_all, status_trouble};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// How long a notification may take to be delivered before what follows it is sent anyway.
pub(crate) const NOTICE_PATIENCE: Duration = Duration::from_secs(5);
/// How long a server that has forgotten us may take to get to know us again.
const RENEWAL_PATIENCE: Duration = Duration::from_secs(30);
/// A server that forgets us more often than this is not asked for its tools each time.
const RENEWALS_APART: Duration = Duration::from_secs(60);
/// How long to wait before a stream is opened again, when the server does not say; and the bounds of what it says.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const SHORTEST_RETRY: Duration = Duration::from_millis(20);
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// How often a stream that broke before the answer is resumed without anything new on it.
const MOST_RESUMPTIONS: usize = 20;

/// Our session with one server.
pub(crate) struct Session {
    pub(crate) http: Http,
    /// The parameters of `initialize`, for when the server has forgotten us.
    introduction: Vec<u8>,
    state: Mutex<State>,
    /// Only one at a time may introduce us anew.
    renewing: tokio::sync::Mutex<()>,
    /// Tells the carrier to open the stream for what the server says unasked.
    listening: tokio::sync::Notify,
}

#[derive(Default)]
struct State {
    id: Option<HeaderValue>,
    version: Option<HeaderValue>,
    /// The last thing that went wrong, for a question of ours that got no answer.
    trouble: Option<Trouble>,
    renewed_at: Option<Instant>,
}

impl Session {
    pub(crate) fn new(http: Http, introduction: Vec<u8>) -> Self {
        let state = Mutex::default();
        Self {
            http,
            introduction,
            state,
            renewing: tokio::sync::Mutex::default(),
            listening: tokio::sync::Notify::new(),
        }
    }

    /// The server has said which revision it speaks; from now on every request says so too.
    pub(crate) fn greeted(&self, revision: Option<&str>) {
        self.lock().version = revision.and_then(|revision| HeaderValue::from_str(revision).ok());
    }

    /// From now on the server may speak unasked.
    pub(crate) fn start_listening(&self) {
        self.listening.notify_one();
    }

    /// Waits until the server may speak unasked.
    pub(crate) async fn may_listen(&self) {
        self.listening.notified().await;
    }

    /// Why a question got no answer, and whether it looks as if the server does not speak this dialect.
    pub(crate) fn explain(&self) -> (Cause, bool) {
        let trouble = self.lock().trouble.clone().unwrap_or(Trouble::NoAnswer);
        (Cause::Remote(trouble.to_string()), trouble.is_foreign())
    }

    /// Says goodbye, where the server gave us a session to end.
    pub(crate) async fn leave(&self) {
        if self.lock().id.is_some() {
            let headers = self.headers();
            drop(self.http.send(Method::DELETE, &self.http.url, &headers, Bytes::new()).await);
        }
    }

    /// Posts one letter and hands whatever comes back to `connection`.
    pub(crate) async fn post(&self, connection: &Connection, letter: &Letter) {
        let result = self.try_post(connection, letter).await;
        let Some(number) = letter.number else {
            if let Err(trouble) = result {
                tracing::debug!(server = %connection.server(), %trouble, "a notification did not get through");
            }
            return;
        };
        if let Err(trouble) = result {
            self.lock().trouble = Some(trouble.clone());
            fail(connection, number, &trouble);
        }
    }

    async fn try_post(&self, connection: &Connection, letter: &Letter) -> Result<(), Trouble> {
        let mut was_renewed = false;
        loop {
            let headers = self.headers();
            let response = self.http.send(Method::POST, &self.http.url, &headers, letter.body.clone()).await?;
            if response.status().is_success() {
                self.remember(&response);
                return self.take(connection, letter.number, response).await;
            }
            let refusal = Refusal::read(response).await?;
            // The server has forgotten our session: introduce ourselves once more, and ask again once.
            let is_forgotten = headers.contains_key(SESSION_ID) && refusal.means_forgotten();
            if !is_forgotten || was_renewed {
                return refusal.hand_over(connection, letter.number).await;
            }
            self.renew(connection, headers.get(SESSION_ID)).await?;
            was_renewed = true;
        }
    }

    /// Hands over what a successful answer carries.
    async fn take(
        &self,
        connection: &Connection,
        number: Option<u64>,
        response: Response<Incoming>,
    ) -> Result<(), Trouble> {
        let is_open = || number.is_some_and(|number| connection.is_open(number));
        match media_type(response.headers()).as_str() {
            "text/event-stream" => self.follow(connection, number, response).await?,
            "application/json" => {
                let body = read_all(response).await?;
                if !body.is_empty() {
                    connection.take(one_line(body)).await;
                }
            }
            other if is_open() => {
                return Err(Trouble::ForeignAnswer(if other.is_empty() { "nothing".into() } else { other.into() }));
            }
            _ => {}
        }
        if is_open() { Err(Trouble::NoAnswer) } else { Ok(()) }
    }

    /// Hands over the messages of a stream. One that breaks before the answer is resumed where it broke, if the server
    /// said how.
    async fn follow(
        &self,
        connection: &Connection,
        number: Option<u64>,
        response: Response<Incoming>,
    ) -> Result<(), Trouble> {
        let mut place = Place::default();
        let mut ended = read_events(connection, response, &mut place).await;
        let mut in_vain = 0;
        while in_vain < MOST_RESUMPTIONS {
            let is_answered = !number.is_some_and(|number| connection.is_open(number));
            let (false, Some(id)) = (is_answered, &place.id) else { return ended };
            let mut headers = self.headers();
            headers.insert(LAST_EVENT_ID, id.clone());
            sleep(place.pause()).await;
            let response = self.http.send(Method::GET, &self.http.url, &headers, Bytes::new()).await?;
            if !response.status().is_success() {
                return Err(status_trouble(response.status(), &[]));
            }
            let before = place.id.clone();
            ended = read_events(connection, response, &mut place).await;
            in_vain = if place.id == before { in_vain + 1 } else { 0 };
        }
        ended
    }

    /// Hears what the server says unasked, for as long as it offers a stream for that.
    pub(crate) async fn hear(&self, connection: &Connection) {
        let mut place = Place::default();
        let mut pause = Duration::ZERO;
        loop {
            let mut headers = self.headers();
            if let Some(id) = &place.id {
                headers.insert(LAST_EVENT_ID, id.clone());
            }
            let response = self.http.send(Method::GET, &self.http.url, &headers, Bytes::new()).await;
            let is_in_order = match response {
                Ok(response) if is_out_of_order(response.status()) => false,
                Ok(response) if media_type(response.headers()) == "text/event-stream" => {
                    drop(read_events(connection, response, &mut place).await);
                    true
                }
                // Most often it does not offer one. Or it has forgotten us; once we are known again, we listen again.
                Ok(_) | Err(Trouble::Unauthorized { .. } | Trouble::RedirectedAway(_)) => return,
                Err(_) => false,
            };
            pause = if is_in_order { Duration::ZERO } else { (pause * 2).clamp(FIRST_RETRY, LONGEST_RETRY) };
            sleep(place.pause().max(pause)).await;
        }
    }

    /// Introduces us anew, unless somebody has just done so.
    async fn renew(&self, connection: &Connection, forgotten: Option<&HeaderValue>) -> Result<(), Trouble> {
        let _alone = self.renewing.lock().await;
        if self.lock().id.as_ref() != forgotten {
            return Ok(());
        }
        timeout(RENEWAL_PATIENCE, self.introduce()).await.unwrap_or(Err(Trouble::NoAnswer))?;
        tracing::debug!(server = %connection.server(), "the server had forgotten us; introduced us anew");
        self.start_listening();
        let previously = self.lock().renewed_at.replace(Instant::now());
        if previously.is_none_or(|previously| previously.elapsed() > RENEWALS_APART) {
            // It was most likely started anew, and may offer other tools now.
            connection.take(reply::notification("notifications/tools/list_changed", None).into()).await;
        }
        Ok(())
    }

    async fn introduce(&self) -> Result<(), Trouble> {
        let request = reply::request(0, "initialize", Some(&self.introduction));
        let response = self.http.send(Method::POST, &self.http.url, &HeaderMap::new(), request.into()).await?;
        if !response.status().is_success() {
            return Err(status_trouble(response.status(), &read_all(response).await?));
        }
        // The old id stays until there is a new one, for it is how we learn that we are still forgotten.
        let id = response.headers().get(SESSION_ID).cloned();
        drop(read_all(response).await?);
        self.lock().id = id;
        let notice = reply::notification("notifications/initialized", None);
        self.http.send(Method::POST, &self.http.url, &self.headers(), notice.into()).await.map(drop)
    }

    fn remember(&self, response: &Response<Incoming>) {
        if let Some(id) = response.headers().get(SESSION_ID) {
            self.lock().id.get_or_insert_with(|| id.clone());
        }
    }

    fn headers(&self) -> HeaderMap {
        let state = self.lock();
        let mut headers = HeaderMap::new();
        headers.extend(state.id.clone().map(|id| (SESSION_ID, id)));
        headers.extend(state.version.clone().map(|version| (PROTOCOL_VERSION, version)));
        headers
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that is no success.
struct Refusal {
    status: StatusCode,
    is_json: bool,
    body: Bytes,
}

impl Refusal {
    async fn read(response: Response<Incoming>) -> Result<Self, Trouble> {
        let (status, is_json) = (response.status(), media_type(response.headers()) == "application/json");
        Ok(Self { status, is_json, body: read_all(response).await? })
    }

    /// Whether a request in a session was refused because the server does not know the session. It should say 404, but
    /// many say 400 and tell the rest in words.
    fn means_forgotten(&self) -> bool {
        let speaks_of_session = || self.body.windows(7).take(1000).any(|word| word.eq_ignore_ascii_case(b"session"));
        self.status == StatusCode::NOT_FOUND || self.status == StatusCode::BAD_REQUEST && speaks_of_session()
    }

    /// A refusal may still carry an answer in JSON-RPC, which is then the answer.
    async fn hand_over(self, connection: &Connection, number: Option<u64>) -> Result<(), Trouble> {
        if self.is_json
            && let Some(number) = number
            && answers(&self.body, number)
        {
            connection.take(one_line(self.body)).await;
            return Ok(());
        }
        Err(status_trouble(self.status, &self.body))
    }
}

/// Where a stream stands.
#[derive(Default)]
struct Place {
    id: Option<HeaderValue>,
    retry: Option<Duration>,
}

impl Place {
    /// How long to wait before the stream is opened again.
    fn pause(&self) -> Duration {
        self.retry.unwrap_or(FIRST_RETRY).clamp(SHORTEST_RETRY, LONGEST_RETRY)
    }
}

async fn read_events(connection: &Connection, response: Response<Incoming>, place: &mut Place) -> Result<(), Trouble> {
    let mut body = response.into_body();
    let mut events = Events::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Trouble::BrokeOff(error.to_string()))?;
        let Some(data) = frame.data_ref() else { continue };
        events.push(data);
        while let Some(event) = events.next_event() {
            if let Some(id) = event.id.and_then(|id| HeaderValue::from_str(&id).ok()) {
                place.id = Some(id);
            }
            place.retry = event.retry.map(Duration::from_millis).or(place.retry);
            if !event.data.is_empty() && matches!(event.kind.as_str(), "" | "message") {
                connection.take(one_line(event.data)).await;
            }
        }
        if events.pending() > LONGEST_LINE {
            return Err(Trouble::BrokeOff("an event without end".to_owned()));
        }
    }
    Ok(())
}

pub(crate) fn fail(connection: &Connection, number: u64, trouble: &Trouble) {
    let error = CallError::Remote {
        server: connection.server().clone(),
        problem: trouble.to_string(),
        is_untouched: trouble.left_untouched(),
    };
    connection.fail(number, &error);
}

/// A message without raw newlines, as pipes need it. In JSON they can stand only between tokens, where a blank is as good.
pub(crate) fn one_line(message: Bytes) -> Bytes {
    if !message.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return message;
    }
    message.iter().map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }).collect()
}

/// Whether a server answers so that is only for the moment not what it should be.
fn is_out_of_order(status: StatusCode) -> bool {
    status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
}

fn answers(body: &[u8], number: u64) -> bool {
    use protocol::{Envelope, Kind};
    match Envelope::scan(body) {
        Ok(Envelope { kind: Kind::Response { id, .. }, .. }) => id.of(body) == number.to_string().as_bytes(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forgotten_session_is_told_from_other_refusals() {
        let refusal = |status, body: &'static str| Refusal {
            status: StatusCode::from_u16(status).unwrap(),
            is_json: true,
            body: Bytes::from_static(body.as_bytes()),
        };
        assert!(refusal(404, "").means_forgotten());
        assert!(refusal(400, r#"{"error":{"message":"Bad Request: No valid Session ID provided"}}"#).means_forgotten());
        assert!(!refusal(400, r#"{"error":{"message":"Bad Request"}}"#).means_forgotten());
        assert!(!refusal(400, "").means_forgotten());
        assert!(!refusal(500, "session lost").means_forgotten());
    }

    #[test]
    fn a_server_cannot_make_us_hurry_or_wait_for_ever() {
        let pause = |retry| Place { id: None, retry }.pause();
        assert_eq!(pause(None), FIRST_RETRY);
        assert_eq!(pause(Some(Duration::ZERO)), SHORTEST_RETRY);
        assert_eq!(pause(Some(Duration::from_millis(50))), Duration::from_millis(50));
        assert_eq!(pause(Some(Duration::MAX)), LONGEST_RETRY);
    }

    #[test]
    fn a_message_over_many_lines_becomes_one_with_the_same_tokens() {
        assert_eq!(one_line(Bytes::from_static(b"{\r\n\"a\": 1\n}")), "{  \"a\": 1 }");
        assert_eq!(one_line(Bytes::from_static(b"{}")), "{}");
    }
}
