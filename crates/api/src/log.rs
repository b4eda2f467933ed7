//! What a server writes to stderr, as server-sent events: first what is kept of it, then what follows.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use service::usage::{LogReader, NewLines};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::events::KEEP_ALIVE_COMMENT;
use crate::response::BodyStream;

/// How often a silent stream says that it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A server that writes without end is heard in pieces of so long.
const PAUSE: Duration = Duration::from_millis(100);

/// What was said, as it is told.
pub(crate) fn told(heard: &NewLines) -> Value {
    json!({ "lines": heard.lines, "missed": heard.missed })
}

/// What follows next; made when it is asked for.
type Next = Pin<Box<dyn Future<Output = (Source, Option<Bytes>)> + Send>>;

/// Lines on their way to one reader.
pub(crate) struct LogStream {
    opening: Option<Bytes>,
    next: Option<Next>,
}

struct Source {
    reader: LogReader,
    closing: watch::Receiver<bool>,
}

impl LogStream {
    /// Everything that is kept and everything from now on, until the server is removed or `closing` says that it is over.
    pub(crate) fn new(mut reader: LogReader, closing: watch::Receiver<bool>) -> Self {
        let opening = format!(": hello\nretry: 1000\n\n{}", frame("log.tail", &told(&reader.now())));
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
    /// The next lines, or a sign of life; nothing at the end.
    async fn next(mut self) -> (Self, Option<Bytes>) {
        let Self { reader, closing } = &mut self;
        let lines = async {
            sleep(PAUSE).await;
            reader.next().await
        };
        let heard = tokio::select! {
            biased;
            // The sender goes away only when everything does.
            _ = closing.wait_for(|is_closing| *is_closing) => None,
            heard = timeout(KEEP_ALIVE, lines) => Some(heard),
        };
        let bytes = match heard {
            Some(Err(_)) => Some(Bytes::from_static(KEEP_ALIVE_COMMENT)),
            Some(Ok(heard)) => heard.map(|heard| frame("log.lines", &told(&heard)).into()),
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
