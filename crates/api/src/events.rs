//! What happens, as server-sent events: named, numbered, and alive also when nothing happens.

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

/// How often a silent stream says that it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
pub(crate) const KEEP_ALIVE_COMMENT: &[u8] = b": still here\n\n";

/// What follows next; made when it is asked for.
type Next = Pin<Box<dyn Future<Output = (Sources, Option<Bytes>)> + Send>>;

/// Events on their way to one reader.
pub(crate) struct Stream {
    opening: Option<Bytes>,
    next: Option<Next>,
}

/// Where they come from.
struct Sources {
    events: Listener,
    closing: watch::Receiver<bool>,
    /// The id of the last one.
    last: i64,
}

impl Stream {
    /// Everything from now on, until `closing` says that it is over. A reader that comes back says by `resumed` which
    /// event it saw last, and is told that it may have missed others: they are not kept.
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
    /// The next event, or a sign of life; nothing at the end.
    async fn next(mut self) -> (Self, Option<Bytes>) {
        let told = tokio::select! {
            biased;
            // The sender goes away only when everything does.
            _ = self.closing.wait_for(|is_closing| *is_closing) => None,
            told = timeout(KEEP_ALIVE, self.events.recv()) => Some(told),
        };
        let bytes = match told {
            Some(Err(_)) => Bytes::from_static(KEEP_ALIVE_COMMENT),
            Some(Ok(Ok(event))) => self.frame(&event.name(), &event).into(),
            Some(Ok(Err(RecvError::Lagged(missed)))) => {
                self.frame("events.missed", &json!({ "missed": missed })).into()
            }
            Some(Ok(Err(RecvError::Closed))) | None => return (self, None),
        };
        (self, Some(bytes))
    }

    /// An event in its frame. Ids are times, so that they grow across streams and restarts.
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
        let told = next(&mut stream).await.unwrap();
        assert!(told.starts_with("id: "), "{told}");
        let rest = "event: server.registered\ndata: {\"server_id\":\"1\",\"name\":\"a\"}\n\n";
        assert!(told.ends_with(rest), "{told}");
        assert_eq!(next(&mut stream).await.unwrap(), ": still here\n\n");
        closing.send_replace(true);
        assert_eq!(next(&mut stream).await, None);
        assert_eq!(next(&mut stream).await, None);
    }

    #[tokio::test]
    async fn who_reads_too_slowly_or_comes_back_is_told_that_something_is_missing() {
        let (events, closing) = (Events::default(), watch::Sender::new(false));
        let mut stream = Stream::new(events.listen(), closing.subscribe(), Some("1"));
        assert!(next(&mut stream).await.unwrap().contains("event: events.missed\n"));
        for number in 0..2000 {
            events.emit(registered(number));
        }
        let told = next(&mut stream).await.unwrap();
        assert!(told.contains("event: events.missed\ndata: {\"missed\":976}\n"), "{told}");
        assert!(next(&mut stream).await.unwrap().contains("server.registered"));
    }
}
