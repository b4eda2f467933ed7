//! Events of the engine: one stream for each engine, about containers of ours only.
//!
//! The end of a container is also awaited at the engine (see `container`), which returns its exit code. The stream
//! reports what such a wait does not: a paused container. And when it breaks, and when it is open again after that,
//! every subscriber inspects its container, so that nothing that happened meanwhile is missed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bollard::models::EventMessage;
use bollard::query_parameters::EventsOptionsBuilder;
use futures_util::StreamExt;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::engine::Engine;
use crate::error::in_words;
use crate::labels::INSTANCE_LABEL;

/// The delay between attempts to open a broken stream, at first and at most.
const MIN_REOPEN_DELAY: Duration = Duration::from_millis(100);
const MAX_REOPEN_DELAY: Duration = Duration::from_secs(5);
/// A stream that was open for this long did not break at once.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// How long an engine may take to respond to a ping.
const ENGINE_PING_TIMEOUT: Duration = Duration::from_secs(15);
/// How far back a new stream begins. Opening it takes a moment, and clocks differ.
const REPLAY_WINDOW: Duration = Duration::from_secs(10);
/// Events that can end a container, or keep it from responding, by Docker's and Podman's names.
const ENDING_EVENTS: [&str; 8] = ["die", "died", "destroy", "remove", "stop", "oom", "pause", "paused"];

/// Listens to engines as long as there are subscribed containers.
#[derive(Debug)]
pub(crate) struct EventListener {
    label: String,
    /// By the engine's address.
    engines: Mutex<HashMap<Arc<str>, Watched>>,
}

/// An engine that is listened to.
#[derive(Debug)]
struct Watched {
    /// The subscribers, by container.
    containers: HashMap<String, Arc<Notify>>,
    listening: AbortHandle,
}

/// A subscription to one container. Listening ends with the last of them.
#[derive(Debug)]
pub(crate) struct Subscription {
    listener: Arc<EventListener>,
    address: Arc<str>,
    container: String,
    changed: Arc<Notify>,
}

impl EventListener {
    /// For containers of this instance.
    pub(crate) fn new(instance: &str) -> Arc<Self> {
        Arc::new(Self { label: format!("{INSTANCE_LABEL}={instance}"), engines: Mutex::default() })
    }

    /// Subscribes to that container.
    pub(crate) fn subscribe(self: &Arc<Self>, engine: &Engine, container: &str) -> Subscription {
        let changed = Arc::new(Notify::new());
        let mut engines = self.lock();
        let watched = engines.entry(Arc::clone(&engine.address)).or_insert_with(|| {
            let listening = tokio::spawn(listen(Arc::downgrade(self), engine.clone(), self.label.clone()));
            Watched { containers: HashMap::new(), listening: listening.abort_handle() }
        });
        watched.containers.insert(container.to_owned(), Arc::clone(&changed));
        drop(engines);
        Subscription {
            listener: Arc::clone(self),
            address: Arc::clone(&engine.address),
            container: container.to_owned(),
            changed,
        }
    }

    fn notify(&self, address: &str, event: &EventMessage) {
        if !event.action.as_deref().is_some_and(|action| ENDING_EVENTS.contains(&action)) {
            return;
        }
        let id = event.actor.as_ref().and_then(|actor| actor.id.as_deref()).unwrap_or_default();
        tracing::debug!(container = id, event = ?event.action, "container event");
        if let Some(changed) = self.lock().get(address).and_then(|watched| watched.containers.get(id)) {
            changed.notify_one();
        }
    }

    fn notify_all(&self, address: &str) {
        if let Some(watched) = self.lock().get(address) {
            watched.containers.values().for_each(|changed| changed.notify_one());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Watched>> {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    /// Waits until the container should be inspected.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut engines = self.listener.lock();
        let Some(watched) = engines.get_mut(&self.address) else { return };
        watched.containers.remove(&self.container);
        if watched.containers.is_empty() {
            watched.listening.abort();
            engines.remove(&self.address);
        }
    }
}

/// Listens to one engine, on one stream after the other, until it is aborted.
async fn listen(listener: Weak<EventListener>, engine: Engine, label: String) {
    let mut pause = MIN_REOPEN_DELAY;
    loop {
        let opened_at = Instant::now();
        read_stream(&listener, &engine, &label).await;
        // Whatever the stream would have reported can be seen by an inspection.
        notify_all(&listener, &engine);
        if opened_at.elapsed() > STABLE_AFTER {
            pause = MIN_REOPEN_DELAY;
        }
        loop {
            sleep(pause).await;
            pause = (pause * 2).min(MAX_REOPEN_DELAY);
            if timeout(ENGINE_PING_TIMEOUT, engine.docker.ping()).await.is_ok_and(|answer| answer.is_ok()) {
                break;
            }
        }
        tracing::debug!(engine = %engine.address, "listening to events of the container engine again");
        notify_all(&listener, &engine);
    }
}

fn notify_all(listener: &Weak<EventListener>, engine: &Engine) {
    listener.upgrade().into_iter().for_each(|listener| listener.notify_all(&engine.address));
}

/// Forwards the events of one stream, until it breaks.
async fn read_stream(listener: &Weak<EventListener>, engine: &Engine, label: &str) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(REPLAY_WINDOW);
    let filters = HashMap::from([("type", vec!["container"]), ("label", vec![label])]);
    let options = EventsOptionsBuilder::new().since(&since.as_secs().to_string()).filters(&filters).build();
    let mut events = engine.docker.events(Some(options));
    loop {
        match events.next().await {
            Some(Ok(event)) => {
                let Some(listener) = listener.upgrade() else { return };
                listener.notify(&engine.address, &event);
            }
            Some(Err(error)) => {
                let error = in_words(&error);
                tracing::debug!(engine = %engine.address, error, "the event stream ended");
                return;
            }
            None => return,
        }
    }
}
