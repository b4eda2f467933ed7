//! The older HTTP+SSE: the server opens a stream, names an address for requests on it, and answers there.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::HeaderMap;
use hyper::{Method, Uri};
use protocol::events::{Event, Events};
use protocol::lines::LONGEST_LINE;
use upstream::Connection;
use upstream::failure::Cause;

use crate::body::Body;
use crate::http::{Errand, Http, Media};
use crate::news::one_line;
use crate::refusal::Refusal;
use crate::trouble::Trouble;

/// Where requests go.
pub(crate) struct Endpoint {
    pub(crate) http: Http,
    url: Uri,
    headers: HeaderMap,
}

/// An open stream.
pub(crate) struct Stream {
    body: Body,
    events: Events,
}

/// Opens the stream and waits for the address.
pub(crate) async fn open(http: Http) -> Result<(Stream, Endpoint), Trouble> {
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
        let event = stream.next_event().await?;
        if event.kind == "endpoint" {
            let url = http.relative(String::from_utf8_lossy(&event.data).trim())?;
            let headers = http.post_headers();
            return Ok((stream, Endpoint { http, url, headers }));
        }
    }
}

impl Endpoint {
    /// Posts one message. The answer comes on the stream, so only a refusal says anything.
    pub(crate) async fn post(&self, body: Bytes) -> Result<(), Trouble> {
        let errand = Errand { method: Method::POST, url: &self.url, headers: &self.headers, own_headers: &[], body };
        let response = self.http.send(errand).await?;
        if !response.status().is_success() {
            return Err(Refusal::read(response).await?.into_trouble());
        }
        response.into_body().discard().await;
        Ok(())
    }
}

impl Stream {
    /// Hands over every message, until the stream ends; with it the server is lost.
    pub(crate) async fn hear_all(mut self, connection: &Arc<Connection>) -> Cause {
        loop {
            match self.next_event().await {
                Ok(event) if event.data.is_empty() => {}
                Ok(event) => connection.take(one_line(event.data), None).await,
                Err(trouble) => return Cause::Remote(format!("its event stream ended: {trouble}")),
            }
        }
    }

    async fn next_event(&mut self) -> Result<Event, Trouble> {
        loop {
            if let Some(event) = self.events.next_event() {
                return Ok(event);
            }
            if self.events.pending() > LONGEST_LINE {
                return Err(Trouble::BrokeOff("an event without end".to_owned()));
            }
            match self.body.next().await {
                Some(data) => self.events.push(&data?),
                None => return Err(Trouble::BrokeOff("the server closed it".to_owned())),
            }
        }
    }
}
