//! Event streams: read to their end, and resumed where they broke.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::header::HeaderValue;
use protocol::events::Events;
use protocol::{Envelope, Kind, replace_line_breaks};
use upstream::Connection;

use crate::body::Body;
use crate::error::RequestError;
use crate::http::Media;

/// The delay before a stream is opened again, if the server sends none; and the bounds of what it sends.
pub(crate) const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(1);
const MIN_RETRY_DELAY: Duration = Duration::from_millis(20);
pub(crate) const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// Bytes of an event's id. It is sent back to the server in a header.
const MAX_EVENT_ID_BYTES: usize = 8 << 10;

/// The position in a stream.
#[derive(Debug, Default)]
pub(crate) struct StreamPosition {
    pub(crate) id: Option<HeaderValue>,
    retry: Option<Duration>,
    /// How many messages have arrived.
    pub(crate) messages: usize,
}

impl StreamPosition {
    /// The delay before the stream is opened again, after `in_vain` unsuccessful attempts.
    pub(crate) fn pause(&self, in_vain: u32) -> Duration {
        let unless_told = (DEFAULT_RETRY_DELAY * 2_u32.saturating_pow(in_vain.min(4))).min(MAX_RETRY_DELAY);
        self.retry.unwrap_or(unless_told).clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY)
    }
}

/// Delivers every message of a stream, as belonging to the request of that number, and records the position.
pub(crate) async fn read(
    connection: &Arc<Connection>,
    mut body: Body,
    about: Option<u64>,
    position: &mut StreamPosition,
) -> Result<(), RequestError> {
    let mut events = Events::default();
    let mut incoming = connection.incoming(about);
    while let Some(data) = body.next().await.transpose()? {
        events.push(&data);
        while let Some(event) = events.next_event() {
            let id = event.id.filter(|id| id.len() <= MAX_EVENT_ID_BYTES);
            if let Some(id) = id.and_then(|id| HeaderValue::from_str(&id).ok()) {
                position.id = Some(id);
            }
            position.retry = event.retry.map(Duration::from_millis).or(position.retry);
            if !event.data.is_empty() && matches!(event.kind.as_str(), "" | "message") {
                position.messages += 1;
                let message = incoming.whole(one_line(event.data)).map_err(RequestError::TooLarge)?;
                connection.take(message, about).await;
            }
        }
        incoming.grow(events.pending()).map_err(RequestError::TooLarge)?;
    }
    Ok(())
}

/// The first message of a stream that is a response; earlier messages are ignored.
pub(crate) async fn first_answer(
    connection: &Arc<Connection>,
    response: Response<Body>,
) -> Result<Bytes, RequestError> {
    let media = Media::of(response.headers());
    let mut body = response.into_body();
    // No client waits for it.
    let mut incoming = connection.incoming(Some(0));
    if media != Media::Events {
        return body.message(&mut incoming).await;
    }
    let mut events = Events::default();
    while let Some(data) = body.next().await.transpose()? {
        events.push(&data);
        while let Some(event) = events.next_event() {
            if let Ok(Envelope { kind: Kind::Response { .. }, .. }) = Envelope::scan(&event.data) {
                return Ok(event.data);
            }
        }
        incoming.grow(events.pending()).map_err(RequestError::TooLarge)?;
    }
    Err(RequestError::NoAnswer)
}

/// A message without line breaks between its tokens, as pipes need it. One inside a string stays and is rejected.
pub(crate) fn one_line(message: Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', &message).is_none() {
        return message;
    }
    let mut line = message.to_vec();
    replace_line_breaks(&mut line);
    line.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_cannot_make_us_hurry_or_wait_for_ever() {
        let pause = |retry| StreamPosition { retry, ..StreamPosition::default() }.pause(0);
        assert_eq!(pause(None), DEFAULT_RETRY_DELAY);
        assert_eq!(pause(Some(Duration::ZERO)), MIN_RETRY_DELAY);
        assert_eq!(pause(Some(Duration::from_millis(50))), Duration::from_millis(50));
        assert_eq!(pause(Some(Duration::MAX)), MAX_RETRY_DELAY);
    }

    #[test]
    fn a_stream_without_events_is_reopened_less_and_less_often() {
        let pauses: Vec<u64> = [0, 1, 2, 9].map(|in_vain| StreamPosition::default().pause(in_vain).as_secs()).into();
        assert_eq!(pauses, [1, 2, 4, 16]);
    }

    #[test]
    fn a_message_over_many_lines_becomes_one_with_the_same_tokens() {
        assert_eq!(one_line(Bytes::from_static(b"{\r\n\"a\": 1\n}")), "{  \"a\": 1 }");
        assert_eq!(one_line(Bytes::from_static(b"{}")), "{}");
        assert_eq!(one_line(Bytes::from_static(b"{\"a\":\"x\ny\"}")), "{\"a\":\"x\ny\"}", "that is not JSON");
    }
}
