//! Work that takes its time, told as events to who asked for it while it goes on. Who stops reading stops it.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::answer::Pieces;
use crate::events::STILL_HERE;

/// How often a silent stream says that it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Who tells what happens. What is told is no more than a few events for every block and call, and the words of a model,
/// so a reader that is slow is waited for without a bound.
#[derive(Debug, Clone)]
pub(crate) struct Telling(mpsc::UnboundedSender<Bytes>);

impl Telling {
    /// Tells one thing.
    pub(crate) fn event(&self, name: &str, data: &Value) {
        self.send(format!("event: {name}\ndata: {data}\n\n").into());
    }

    fn send(&self, bytes: Bytes) {
        // Nobody listens any more: then this work is about to end.
        self.0.send(bytes).unwrap_or_default();
    }
}

/// Events of some work on their way to who asked for it.
#[derive(Debug)]
pub(crate) struct WorkStream {
    opening: Option<Bytes>,
    told: mpsc::UnboundedReceiver<Bytes>,
    task: AbortHandle,
}

impl WorkStream {
    /// Begins the work; it is over when the future is, and so is the stream.
    pub(crate) fn of<W: Future<Output = ()> + Send + 'static>(work: impl FnOnce(Telling) -> W) -> Self {
        let (sender, told) = mpsc::unbounded_channel();
        let telling = Telling(sender);
        let task = tokio::spawn(alive(telling.clone(), work(telling)));
        Self { opening: Some(Bytes::from_static(b": hello\n\n")), told, task: task.abort_handle() }
    }
}

/// Waits for `work`, saying now and then that it goes on.
async fn alive(telling: Telling, work: impl Future<Output = ()>) {
    let mut work = pin!(work);
    let mut signs = interval(KEEP_ALIVE);
    signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
    signs.reset();
    loop {
        tokio::select! {
            () = &mut work => return,
            _ = signs.tick() => telling.send(Bytes::from_static(STILL_HERE)),
        }
    }
}

impl Pieces for WorkStream {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(opening) = self.opening.take() {
            return Poll::Ready(Some(opening));
        }
        Pin::new(&mut self.told).get_mut().poll_recv(context)
    }
}

impl Drop for WorkStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}
