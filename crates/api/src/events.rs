//! Events of the service as server-sent events, with ids and keep-alive comments.

use std::fmt::Write;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use registry::Timestamp;
use serde_json::json;
use service::Listener;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::response::BodyStream;

/// The interval of keep-alive comments.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
pub(crate) const KEEP_ALIVE_COMMENT: &[u8] = b": still here\n\n";

/// The future of the next piece; created when it is polled.
type Next = Pin<Box<dyn Future<Output = (Sources, Option<Bytes>)> + Send>>;

/// The event stream of one client.
pub(crate) struct Stream {
    opening: Option<Bytes>,
    next: Option<Next>,
}

/// The sources of the events.
struct Sources {
    events: Listener,
    closing: watch::Receiver<bool>,
    /// The id of the last event.
    last: i64,
}

impl Stream {
    /// All events from now on, until `closing` becomes true. A client that reconnects sends its last event id in
    /// `resumed`, and is notified that it may have missed events: they are not stored.
    pub(crate) fn new(events: Listener, closing: watch::Receiver<bool>, resumed: Option<&str>) -> Self {
        let mut sources = Sources { events, closing, last: 0 };
        let mut opening = String::from(": hello\nretry: 1000\n\n");
        if resumed.is_some() {
            opening.push_str(&sources.frame("events.missed", &json!({ "missed": null })));
        }
        Self { opening: Some(opening.into()), next: Some(Box::pin(sources.next())) }
    }
}

impl BodyStream for Stream {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(opening) = self.opening.take() {
            return Poll::Ready(Some(opening));
        }
        let Some(next) = &mut self.next else { return Poll::Ready(None) };
        let (sources, bytes) = std::task::ready!(next.as_mut().poll(context));
        self.next = bytes.is_some().then(|| Box::pin(sources.next()) as Next);
        Poll::Ready(bytes)
    }
}

impl Sources {
    /// The next event or keep-alive comment; None at the end.
    async fn next(mut self) -> (Self, Option<Bytes>) {
        let received = tokio::select! {
            biased;
            // The sender is dropped only when the program ends.
            _ = self.closing.wait_for(|is_closing| *is_closing) => None,
            received = timeout(KEEP_ALIVE, self.events.recv()) => Some(received),
        };
        let bytes = match received {
            Some(Err(_)) => Bytes::from_static(KEEP_ALIVE_COMMENT),
            Some(Ok(Ok(event))) => self.frame(&event.name(), &event).into(),
            Some(Ok(Err(RecvError::Lagged(missed)))) => {
                self.frame("events.missed", &json!({ "missed": missed })).into()
            }
            Some(Ok(Err(RecvError::Closed))) | None => return (self, None),
        };
        (self, Some(bytes))
    }

    /// An event as text. Ids are times, so that they increase across streams and restarts.
    fn frame(&mut self, name: &str, data: &impl serde::Serialize) -> String {
        self.last = Timestamp::now().as_micros().max(self.last + 1);
        let data = serde_json::to_string(data).expect("what we show has texts as its keys");
        let mut frame = String::with_capacity(data.len() + name.len() + 48);
        write!(frame, "id: {}\nevent: {name}\ndata: {data}\n\n", self.last).expect("a string takes everything");
        frame
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use service::{Event, Events};

    async fn next(stream: &mut Stream) -> Option<String> {
        let bytes = std::future::poll_fn(|context| stream.poll_next(context)).await;
        bytes.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }

    fn registered(number: usize) -> Event {
        Event::ServerRegistered { server_id: number.to_string(), name: "a".to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_named_and_numbered_and_silence_is_broken() {
        let (events, closing) = (Events::default(), watch::Sender::new(false));
        let mut stream = Stream::new(events.listen(), closing.subscribe(), None);
        assert!(next(&mut stream).await.unwrap().starts_with(": hello\n"));
        events.emit(registered(1));
        let received = next(&mut stream).await.unwrap();
        assert!(received.starts_with("id: "), "{received}");
        let rest = "event: server.registered\ndata: {\"server_id\":\"1\",\"name\":\"a\"}\n\n";
        assert!(received.ends_with(rest), "{received}");
        assert_eq!(next(&mut stream).await.unwrap(), ": still here\n\n");
        closing.send_replace(true);
        assert_eq!(next(&mut stream).await, None);
        assert_eq!(next(&mut stream).await, None);
    }

    #[tokio::test]
    async fn slow_and_reconnecting_readers_learn_that_events_are_missing() {
        let (events, closing) = (Events::default(), watch::Sender::new(false));
        let mut stream = Stream::new(events.listen(), closing.subscribe(), Some("1"));
        assert!(next(&mut stream).await.unwrap().contains("event: events.missed\n"));
        for number in 0..2000 {
            events.emit(registered(number));
        }
        let received = next(&mut stream).await.unwrap();
        assert!(received.contains("event: events.missed\ndata: {\"missed\":976}\n"), "{received}");
        assert!(next(&mut stream).await.unwrap().contains("server.registered"));
    }
}
