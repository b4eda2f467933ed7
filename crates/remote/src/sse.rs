//! The older HTTP+SSE: the server opens a stream, names an address for requests on it, and answers there.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{HeaderMap, Method, Uri};
use protocol::events::{Event, Events};
use protocol::lines::LONGEST_LINE;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use upstream::Connection;
use upstream::failure::Cause;
use upstream::wire::Letter;

use crate::http::{Trouble, media_type, read_all, status_trouble};
use crate::session::{NOTICE_PATIENCE, Session, fail, one_line};

/// An open stream, and where requests go.
pub(crate) struct Stream {
    body: Incoming,
    events: Events,
    endpoint: Uri,
}

/// Opens the stream and waits for the address.
pub(crate) async fn open(session: &Session, connection: &Connection) -> Result<Stream, Trouble> {
    let http = &session.http;
    let response = http.send(Method::GET, &http.url, &HeaderMap::new(), Bytes::new()).await?;
    if !response.status().is_success() {
        let status = response.status();
        return Err(status_trouble(status, &read_all(response).await?));
    }
    let media_type = media_type(response.headers());
    if media_type != "text/event-stream" {
        return Err(Trouble::ForeignAnswer(media_type));
    }
    let (mut body, mut events) = (response.into_body(), Events::default());
    loop {
        let event = next_event(&mut body, &mut events).await?;
        if event.kind == "endpoint" {
            let endpoint = http.relative(String::from_utf8_lossy(&event.data).trim())?;
            tracing::debug!(server = %connection.server(), endpoint = endpoint.path(), "event stream is open");
            return Ok(Stream { body, events, endpoint });
        }
    }
}

/// Posts every letter and hands over every message of the stream, until the stream ends; with it the server is lost.
pub(crate) async fn carry(
    session: Arc<Session>,
    connection: Arc<Connection>,
    letters: mpsc::UnboundedReceiver<Letter>,
    stream: Stream,
) -> Cause {
    let Stream { body, events, endpoint } = stream;
    tokio::select! {
        cause = post_all(&session, &connection, letters, &endpoint) => cause,
        cause = hear_all(&connection, body, events) => cause,
    }
}

/// Requests travel side by side. A notification is delivered before what follows it, because it may announce that.
async fn post_all(
    session: &Arc<Session>,
    connection: &Arc<Connection>,
    mut letters: mpsc::UnboundedReceiver<Letter>,
    endpoint: &Uri,
) -> Cause {
    let mut on_their_way = JoinSet::new();
    loop {
        tokio::select! {
            letter = letters.recv() => {
                let Some(letter) = letter else { return Cause::ClosedOutput };
                if letter.number.is_none() {
                    drop(timeout(NOTICE_PATIENCE, post(session, connection, &letter, endpoint)).await);
                    continue;
                }
                let (session, connection, endpoint) = (Arc::clone(session), Arc::clone(connection), endpoint.clone());
                on_their_way.spawn(async move { post(&session, &connection, &letter, &endpoint).await });
            }
            Some(_) = on_their_way.join_next() => {}
        }
    }
}

async fn hear_all(connection: &Connection, mut body: Incoming, mut events: Events) -> Cause {
    loop {
        match next_event(&mut body, &mut events).await {
            Ok(event) if event.data.is_empty() => {}
            Ok(event) => connection.take(one_line(event.data)).await,
            Err(trouble) => return Cause::Remote(format!("its event stream ended: {trouble}")),
        }
    }
}

/// Posts one letter. The answer comes on the stream, so only a refusal says anything.
async fn post(session: &Session, connection: &Connection, letter: &Letter, endpoint: &Uri) {
    let sent = session.http.send(Method::POST, endpoint, &HeaderMap::new(), letter.body.clone()).await;
    let trouble = match sent {
        Ok(response) if response.status().is_success() => return,
        Ok(response) => {
            let status = response.status();
            status_trouble(status, &read_all(response).await.unwrap_or_default())
        }
        Err(trouble) => trouble,
    };
    match letter.number {
        Some(number) => fail(connection, number, &trouble),
        None => tracing::debug!(server = %connection.server(), %trouble, "a notification did not get through"),
    }
}

async fn next_event(body: &mut Incoming, events: &mut Events) -> Result<Event, Trouble> {
    loop {
        if let Some(event) = events.next_event() {
            return Ok(event);
        }
        if events.pending() > LONGEST_LINE {
            return Err(Trouble::BrokeOff("an event without end".to_owned()));
        }
        match body.frame().await {
            Some(Ok(frame)) => frame.data_ref().into_iter().for_each(|data| events.push(data)),
            Some(Err(error)) => return Err(Trouble::BrokeOff(error.to_string())),
            None => return Err(Trouble::BrokeOff("the server closed it".to_owned())),
        }
    }
}
