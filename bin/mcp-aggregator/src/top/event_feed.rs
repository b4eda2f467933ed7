//! What happens at the service, as it happens: the reason to look again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::client::Client;

/// However much happens, the service is not asked sooner than this after the last time.
const MIN_PAUSE: Duration = Duration::from_millis(250);
/// Numbers of the last minute change also while nothing happens.
const POLL_INTERVAL_WITH_EVENTS: Duration = Duration::from_secs(5);
/// Without news there is only the clock.
const POLL_INTERVAL_WITHOUT_EVENTS: Duration = Duration::from_secs(1);
/// Before a stream that broke off is opened again.
const PAUSE: Duration = Duration::from_secs(1);

/// Listens to a service until it is dropped.
pub(crate) struct EventFeed {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
    looked_at: Instant,
}

#[derive(Default)]
struct Shared {
    news: Notify,
    is_open: AtomicBool,
}

impl EventFeed {
    pub(crate) fn to(service: &Client) -> Self {
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(listen(service.clone(), Arc::clone(&shared)));
        Self { shared, task, looked_at: Instant::now() }
    }

    /// Waits until there is something to look at, or it is time again. May be given up at any moment.
    pub(crate) async fn reason(&self) {
        sleep_until(self.looked_at + MIN_PAUSE).await;
        let is_open = self.shared.is_open.load(Ordering::Relaxed);
        let period = if is_open { POLL_INTERVAL_WITH_EVENTS } else { POLL_INTERVAL_WITHOUT_EVENTS };
        // Either is a reason.
        timeout_at(self.looked_at + period, self.shared.news.notified()).await.ok();
    }

    /// It has been looked.
    pub(crate) fn looked(&mut self) {
        self.looked_at = Instant::now();
    }
}

impl Drop for EventFeed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Listens to one stream after the other. One that cannot be opened, as at an older service, costs a request a second.
async fn listen(service: Client, shared: Arc<Shared>) {
    loop {
        if let Ok(mut events) = service.events().await {
            shared.is_open.store(true, Ordering::Relaxed);
            while let Some(Ok(_)) = events.next().await {
                shared.news.notify_one();
            }
            shared.is_open.store(false, Ordering::Relaxed);
            // Its end is news, too.
            shared.news.notify_one();
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    #[tokio::test]
    async fn news_are_a_reason_to_look_once_and_not_at_once_again() {
        let task = tokio::spawn(std::future::pending());
        let mut listening = EventFeed { shared: Arc::default(), task, looked_at: Instant::now() };
        listening.shared.is_open.store(true, Ordering::Relaxed);
        listening.shared.news.notify_one();
        timeout(POLL_INTERVAL_WITH_EVENTS / 2, listening.reason()).await.expect("there are news");
        listening.looked();
        listening.shared.news.notify_one();
        let too_soon = timeout(MIN_PAUSE / 2, listening.reason()).await;
        assert!(too_soon.is_err(), "the service is asked four times a second at most");
        timeout(POLL_INTERVAL_WITH_EVENTS / 2, listening.reason()).await.expect("who waited hears of it");
    }
}
