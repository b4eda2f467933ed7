//! The stderr of a server as server-sent events: first the stored lines, then new ones.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use service::{LogReader, NewLines};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::events::KEEP_ALIVE_COMMENT;
use crate::response::BodyStream;

/// The interval of keep-alive comments.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long lines are collected before they are sent together.
const BATCH_DELAY: Duration = Duration::from_millis(100);

/// Lines as JSON.
pub(crate) fn lines_to_json(received: &NewLines) -> Value {
    json!({ "lines": received.lines, "missed": received.missed })
}

/// The future of the next piece; created when it is polled.
type Next = Pin<Box<dyn Future<Output = (Source, Option<Bytes>)> + Send>>;

/// The log stream of one client.
pub(crate) struct LogStream {
    opening: Option<Bytes>,
    next: Option<Next>,
}

struct Source {
    reader: LogReader,
    closing: watch::Receiver<bool>,
}

impl LogStream {
    /// All stored lines and all new ones, until the server is removed or `closing` becomes true.
    pub(crate) fn new(mut reader: LogReader, closing: watch::Receiver<bool>) -> Self {
        let opening = format!(": hello\nretry: 1000\n\n{}", frame("log.tail", &lines_to_json(&reader.now())));
        let source = Source { reader, closing };
        Self { opening: Some(opening.into()), next: Some(Box::pin(source.next())) }
    }
}

impl BodyStream for LogStream {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(opening) = self.opening.take() {
            return Poll::Ready(Some(opening));
        }
        let Some(next) = &mut self.next else { return Poll::Ready(None) };
        let (source, bytes) = std::task::ready!(next.as_mut().poll(context));
        self.next = bytes.is_some().then(|| Box::pin(source.next()) as Next);
        Poll::Ready(bytes)
    }
}

impl Source {
    /// The next lines or keep-alive comment; None at the end.
    async fn next(mut self) -> (Self, Option<Bytes>) {
        let Self { reader, closing } = &mut self;
        let lines = async {
            sleep(BATCH_DELAY).await;
            reader.next().await
        };
        let received = tokio::select! {
            biased;
            // The sender is dropped only when the program ends.
            _ = closing.wait_for(|is_closing| *is_closing) => None,
            received = timeout(KEEP_ALIVE, lines) => Some(received),
        };
        let bytes = match received {
            Some(Err(_)) => Some(Bytes::from_static(KEEP_ALIVE_COMMENT)),
            Some(Ok(received)) => received.map(|received| frame("log.lines", &lines_to_json(&received)).into()),
            None => None,
        };
        (self, bytes)
    }
}

fn frame(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

impl std::fmt::Debug for LogStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogStream").finish_non_exhaustive()
    }
}
