//! News from the engine: one stream of events for each engine, about containers of ours only.
//!
//! That a container has ended is also waited for at the engine (see `house`), which tells its exit code. The stream hears
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
use crate::owner::INSTANCE_LABEL;
use crate::trouble::in_words;

/// Between attempts to open a stream that broke off: so long at first, and never longer than that.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A stream that was open for so long did not break off at once.
const LONG_ENOUGH: Duration = Duration::from_secs(10);
/// How long an engine may take to say that it is there.
const PATIENCE: Duration = Duration::from_secs(5);
/// A new stream begins so far back. Opening it takes a moment, and clocks differ.
const HINDSIGHT: Duration = Duration::from_secs(10);
/// What can end a container, or keep it from answering, in the words of Docker and of Podman.
const WORTH_A_LOOK: [&str; 8] = ["die", "died", "destroy", "remove", "stop", "oom", "pause", "paused"];

/// Listens to engines for as long as there are containers to hear of.
#[derive(Debug)]
pub(crate) struct Lookout {
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
pub(crate) struct Post {
    lookout: Arc<Lookout>,
    address: Arc<str>,
    container: String,
    news: Arc<Notify>,
}

impl Lookout {
    /// For containers of this instance.
    pub(crate) fn new(instance: &str) -> Arc<Self> {
        Arc::new(Self { label: format!("{INSTANCE_LABEL}={instance}"), engines: Mutex::default() })
    }

    /// Has news of that container told.
    pub(crate) fn post(self: &Arc<Self>, engine: &Engine, container: &str) -> Post {
        let news = Arc::new(Notify::new());
        let mut engines = self.lock();
        let watched = engines.entry(Arc::clone(&engine.address)).or_insert_with(|| {
            let listening = tokio::spawn(listen(Arc::downgrade(self), engine.clone(), self.label.clone()));
            Watched { containers: HashMap::new(), listening: listening.abort_handle() }
        });
        watched.containers.insert(container.to_owned(), Arc::clone(&news));
        drop(engines);
        Post { lookout: Arc::clone(self), address: Arc::clone(&engine.address), container: container.to_owned(), news }
    }

    fn tell(&self, address: &str, event: &EventMessage) {
        if !event.action.as_deref().is_some_and(|action| WORTH_A_LOOK.contains(&action)) {
            return;
        }
        let id = event.actor.as_ref().and_then(|actor| actor.id.as_deref()).unwrap_or_default();
        tracing::debug!(container = id, event = ?event.action, "news of a container");
        if let Some(news) = self.lock().get(address).and_then(|watched| watched.containers.get(id)) {
            news.notify_one();
        }
    }

    fn tell_all(&self, address: &str) {
        if let Some(watched) = self.lock().get(address) {
            watched.containers.values().for_each(|news| news.notify_one());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Watched>> {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Post {
    /// Waits until there may be something to see.
    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        let mut engines = self.lookout.lock();
        let Some(watched) = engines.get_mut(&self.address) else { return };
        watched.containers.remove(&self.container);
        if watched.containers.is_empty() {
            watched.listening.abort();
            engines.remove(&self.address);
        }
    }
}

/// Listens to one engine, on one stream after the other, until it is aborted.
async fn listen(lookout: Weak<Lookout>, engine: Engine, label: String) {
    let mut pause = FIRST_PAUSE;
    loop {
        let opened_at = Instant::now();
        hear(&lookout, &engine, &label).await;
        // Whatever the stream would have told is to be seen.
        tell_all(&lookout, &engine);
        if opened_at.elapsed() > LONG_ENOUGH {
            pause = FIRST_PAUSE;
        }
        loop {
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            if timeout(PATIENCE, engine.docker.ping()).await.is_ok_and(|answer| answer.is_ok()) {
                break;
            }
        }
        tracing::debug!(engine = %engine.address, "the container engine is listened to again");
        tell_all(&lookout, &engine);
    }
}

fn tell_all(lookout: &Weak<Lookout>, engine: &Engine) {
    lookout.upgrade().into_iter().for_each(|lookout| lookout.tell_all(&engine.address));
}

/// Passes on what one stream tells, until it breaks off.
async fn hear(lookout: &Weak<Lookout>, engine: &Engine, label: &str) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_sub(HINDSIGHT);
    let filters = HashMap::from([("type", vec!["container"]), ("label", vec![label])]);
    let options = EventsOptionsBuilder::new().since(&since.as_secs().to_string()).filters(&filters).build();
    let mut events = engine.docker.events(Some(options));
    loop {
        match events.next().await {
            Some(Ok(event)) => {
                let Some(lookout) = lookout.upgrade() else { return };
                lookout.tell(&engine.address, &event);
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
