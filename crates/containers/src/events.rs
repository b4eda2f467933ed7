//! News from the engine: one stream of events for each engine, about containers of ours only.
//!
//! That a container has ended is also waited for at the engine (see `container`), which tells its exit code. The stream hears
//! what such a wait does not: a container that was paused. And when it breaks off, and when it is open again after that,
//! everybody looks at their container: whatever happened meanwhile is found out.

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

/// Between attempts to open a stream that broke off: so long at first, and never longer than that.
const MIN_REOPEN_DELAY: Duration = Duration::from_millis(100);
const MAX_REOPEN_DELAY: Duration = Duration::from_secs(5);
/// A stream that was open for so long did not break off at once.
const STABLE_AFTER: Duration = Duration::from_secs(10);
/// How long an engine may take to say that it is there.
const ENGINE_PING_TIMEOUT: Duration = Duration::from_secs(5);
/// A new stream begins so far back. Opening it takes a moment, and clocks differ.
const REPLAY_WINDOW: Duration = Duration::from_secs(10);
/// What can end a container, or keep it from answering, in the words of Docker and of Podman.
const ENDING_EVENTS: [&str; 8] = ["die", "died", "destroy", "remove", "stop", "oom", "pause", "paused"];

/// Listens to engines for as long as there are containers to hear of.
#[derive(Debug)]
pub(crate) struct EventListener {
    label: String,
    /// By the engine's address.
    engines: Mutex<HashMap<Arc<str>, Watched>>,
}

/// An engine that is listened to.
#[derive(Debug)]
struct Watched {
    /// Who is to look at which container.
    containers: HashMap<String, Arc<Notify>>,
    listening: AbortHandle,
}

/// Somebody who waits for news of one container. Listening ends with the last of them.
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

    /// Has news of that container told.
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
        tracing::debug!(container = id, event = ?event.action, "news of a container");
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
    /// Waits until there may be something to see.
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
        // Whatever the stream would have told is to be seen.
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
        tracing::debug!(engine = %engine.address, "the container engine is listened to again");
        notify_all(&listener, &engine);
    }
}

fn notify_all(listener: &Weak<EventListener>, engine: &Engine) {
    listener.upgrade().into_iter().for_each(|listener| listener.notify_all(&engine.address));
}

/// Passes on what one stream tells, until it breaks off.
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
                tracing::debug!(engine = %engine.address, error, "the stream of events broke off");
                return;
            }
            None => return,
        }
    }
}
