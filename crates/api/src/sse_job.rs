//! Long work that reports its progress as events to the client that requested it. The work is cancelled when the client
//! disconnects or reads too slowly.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::events::KEEP_ALIVE_COMMENT;
use crate::response::BodyStream;

/// The interval of keep-alive comments.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The limit of unread bytes where nobody sets one. One more event may be as long as a result.
pub(crate) const MAX_UNREAD: usize = 16 << 20;

/// Sends the events of a job.
#[derive(Debug, Clone)]
pub(crate) struct EventSender {
    events: mpsc::UnboundedSender<Bytes>,
    unread: Arc<UnreadBytes>,
    most_unread: usize,
}

/// The number of bytes that the client has not read yet.
#[derive(Debug, Default)]
struct UnreadBytes {
    count: AtomicUsize,
    /// Notified when the limit is exceeded.
    overflow: Notify,
}

impl EventSender {
    /// Sends an event.
    pub(crate) fn event(&self, name: &str, data: &Value) {
        self.send(format!("event: {name}\ndata: {data}\n\n").into());
    }

    fn send(&self, bytes: Bytes) {
        if self.unread.count.fetch_add(bytes.len(), Ordering::Relaxed) > self.most_unread {
            self.unread.overflow.notify_one();
            return;
        }
        // If nobody receives, the job is about to be cancelled.
        self.events.send(bytes).unwrap_or_default();
    }
}

/// A job and its event stream.
#[derive(Debug)]
pub(crate) struct SseJob {
    opening: Option<Bytes>,
    pieces: mpsc::UnboundedReceiver<Bytes>,
    unread: Arc<UnreadBytes>,
    task: AbortHandle,
}

impl SseJob {
    /// Starts the work. The stream ends when the future does, and when more than so many bytes are unread.
    pub(crate) fn of<W: Future<Output = ()> + Send + 'static>(
        most_unread: usize,
        work: impl FnOnce(EventSender) -> W,
    ) -> Self {
        let (events, pieces) = mpsc::unbounded_channel();
        let event_sender = EventSender { events, unread: Arc::default(), most_unread };
        let unread = Arc::clone(&event_sender.unread);
        let task = tokio::spawn(alive(event_sender.clone(), work(event_sender)));
        Self { opening: Some(Bytes::from_static(b": hello\n\n")), pieces, unread, task: task.abort_handle() }
    }
}

/// Runs `work` and sends keep-alive comments. Cancels it if the client reads too slowly; its stream then ends early.
async fn alive(event_sender: EventSender, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    let mut signs = interval(KEEP_ALIVE);
    signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
    signs.reset();
    loop {
        tokio::select! {
            () = &mut work => return,
            () = event_sender.unread.overflow.notified() => {
                tracing::warn!(most = event_sender.most_unread, "cancelled a job because its client does not read the events");
                return;
            }
            _ = signs.tick() => event_sender.send(Bytes::from_static(KEEP_ALIVE_COMMENT)),
        }
    }
}

impl BodyStream for SseJob {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(opening) = self.opening.take() {
            return Poll::Ready(Some(opening));
        }
        let piece = std::task::ready!(self.pieces.poll_recv(context));
        let length = piece.as_ref().map_or(0, Bytes::len);
        self.unread.count.fetch_sub(length, Ordering::Relaxed);
        Poll::Ready(piece)
    }
}

impl Drop for SseJob {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::future::poll_fn;

    #[tokio::test]
    async fn a_job_ends_when_its_event_stream_is_closed() {
        let text = "x".repeat(1 << 20);
        let (ended, end) = tokio::sync::oneshot::channel::<()>();
        let mut stream = SseJob::of(MAX_UNREAD, |event_sender| async move {
            let _ended = ended;
            loop {
                event_sender.event("said", &json!(text));
                tokio::task::yield_now().await;
            }
        });
        // The job is dropped, so its end is never sent.
        end.await.unwrap_err();
        let mut read = 0;
        while let Some(piece) = poll_fn(|context| stream.poll_next(context)).await {
            read += piece.len();
        }
        assert!((MAX_UNREAD..MAX_UNREAD + (3 << 20)).contains(&read), "{read}");
    }
}
