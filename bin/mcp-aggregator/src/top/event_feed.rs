//! Listens to events of the service, to refresh the view.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::client::Client;

/// The minimum interval between refreshes, however many events there are.
const MIN_PAUSE: Duration = Duration::from_millis(250);
/// The refresh interval: the numbers of the last minute change without events, too.
const POLL_INTERVAL_WITH_EVENTS: Duration = Duration::from_secs(5);
/// The refresh interval without an event stream.
const POLL_INTERVAL_WITHOUT_EVENTS: Duration = Duration::from_secs(1);
/// The pause before an event stream is opened again.
const RECONNECT_DELAY: Duration = Duration::from_secs(1);

/// Listens to a service until it is dropped.
pub(crate) struct EventFeed {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
    looked_at: Instant,
}

#[derive(Default)]
struct Shared {
    event_arrived: Notify,
    is_open: AtomicBool,
}

impl EventFeed {
    pub(crate) fn to(service: &Client) -> Self {
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(listen(service.clone(), Arc::clone(&shared)));
        Self { shared, task, looked_at: Instant::now() }
    }

    /// Waits for an event, or for the refresh interval. Can be dropped at any time.
    pub(crate) async fn reason(&self) {
        sleep_until(self.looked_at + MIN_PAUSE).await;
        let is_open = self.shared.is_open.load(Ordering::Relaxed);
        let period = if is_open { POLL_INTERVAL_WITH_EVENTS } else { POLL_INTERVAL_WITHOUT_EVENTS };
        // Both mean a refresh.
        timeout_at(self.looked_at + period, self.shared.event_arrived.notified()).await.ok();
    }

    /// Records that the view was refreshed.
    pub(crate) fn looked(&mut self) {
        self.looked_at = Instant::now();
    }
}

impl Drop for EventFeed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Opens one stream after the other. If that fails, as with an older service, it tries once per second.
async fn listen(service: Client, shared: Arc<Shared>) {
    loop {
        if let Ok(mut events) = service.events().await {
            shared.is_open.store(true, Ordering::Relaxed);
            while let Some(Ok(_)) = events.next().await {
                shared.event_arrived.notify_one();
            }
            shared.is_open.store(false, Ordering::Relaxed);
            // The end of a stream is a reason to refresh, too.
            shared.event_arrived.notify_one();
        }
        sleep(RECONNECT_DELAY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn events_cause_one_refresh_after_a_minimum_interval() {
        let task = tokio::spawn(std::future::pending());
        let mut listening = EventFeed { shared: Arc::default(), task, looked_at: Instant::now() };
        listening.shared.is_open.store(true, Ordering::Relaxed);
        listening.shared.event_arrived.notify_one();
        timeout(POLL_INTERVAL_WITH_EVENTS / 2, listening.reason()).await.expect("there are news");
        listening.looked();
        listening.shared.event_arrived.notify_one();
        let too_soon = timeout(MIN_PAUSE / 2, listening.reason()).await;
        assert!(too_soon.is_err(), "the service is asked four times a second at most");
        timeout(POLL_INTERVAL_WITH_EVENTS / 2, listening.reason()).await.expect("who waited hears of it");
    }
}
