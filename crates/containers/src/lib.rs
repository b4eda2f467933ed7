//! Servers in containers of ours, created and removed through the installed engine: Docker or Podman.
//!
//! # Layout
//! - [`Containers`] (here): all containers of this program, and the connector that runs a server in one
//! - `engine`: finds the engine; `error`: the errors, as text
//! - `labels`: the labels that identify our containers, and the removal of leftovers
//! - `image`: provides the image
//! - `spec`: the container's definition, with safe defaults
//! - `ports`: which server has which host port
//! - `container`: one container from creation to removal; `stats`: its resource usage
//! - `events`: the engine's events about containers
//! - `stdio`: a server over the container's stdin and stdout
//! - `http`: a server over HTTP at a port of the container

mod container;
mod engine;
mod error;
mod events;
mod http;
mod image;
mod labels;
mod ports;
mod spec;
mod stats;
mod stdio;

pub use engine::Engine;
pub use labels::Owner;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use catalog::{Contact, Transport};
use tokio::sync::{OnceCell, watch};
use tokio::time::{sleep, timeout};
use upstream::{Cause, Connector, ConnectorTask, Ending, Phase, Stop, Upstream, UpstreamObserver, stdio_server};

use crate::error::ContainerError;
use crate::events::EventListener;
use crate::ports::PortClaims;
use crate::stdio::ContainerHost;

/// The delay between attempts to remove pending containers, at first and at most.
const MIN_REMOVAL_DELAY: Duration = Duration::from_millis(500);
const MAX_REMOVAL_DELAY: Duration = Duration::from_secs(10);
/// How long an engine may take to finish an operation that is no longer wanted; and at the end of the program.
const ENGINE_STUCK_TIMEOUT: Duration = Duration::from_secs(10);
const FINAL_REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);

/// All containers of this program.
#[derive(Debug)]
pub struct Containers {
    me: Weak<Self>,
    owner: Owner,
    /// The leftovers of an earlier process are removed.
    cleared: OnceCell<()>,
    /// Containers that could not be removed when they should have been.
    pending_removals: Mutex<PendingRemovals>,
    claims: Arc<PortClaims>,
    listener: Arc<EventListener>,
}

#[derive(Debug, Default)]
struct PendingRemovals {
    containers: Vec<String>,
    /// A task is retrying.
    is_looked_after: bool,
}

impl Containers {
    /// The containers of `owner`. No engine is searched for until one is needed.
    pub fn new(owner: Owner) -> Arc<Self> {
        let listener = EventListener::new(&owner.instance);
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            owner,
            cleared: OnceCell::new(),
            pending_removals: Mutex::default(),
            claims: Arc::default(),
            listener,
        })
    }

    /// The connector of servers that are no processes of ours: in a container, or else through `remote`.
    pub fn connector_or(self: &Arc<Self>, remote: Connector) -> Connector {
        let containers = Arc::clone(self);
        Arc::new(move |upstream: Upstream, observer, stop| -> ConnectorTask {
            if !matches!(upstream.spec.transport, Transport::Container(_)) {
                return remote(upstream, observer, stop);
            }
            Box::pin(run(Arc::clone(&containers), upstream, observer, stop, Arc::clone(&remote)))
        })
    }

    /// Removes the leftovers of a killed program of the same owner. Without an engine there is nothing to do.
    pub async fn clear_up(&self) {
        let cleared = match Engine::find().await {
            Ok(engine) => self.cleared(&engine).await,
            Err(ContainerError::NoEngine { .. }) => return,
            Err(failure) => Err(failure),
        };
        if let Err(error) = cleared {
            tracing::debug!(%error, "failed to look for leftover containers");
        }
    }

    /// Tries once more to remove pending containers. For the end of the program.
    pub async fn settle(&self) {
        if self.pending_removals().containers.is_empty() {
            return;
        }
        let paid = async {
            let engine = Engine::find().await?;
            self.remove_pending(&engine).await;
            Ok::<(), ContainerError>(())
        };
        match timeout(FINAL_REMOVAL_TIMEOUT, paid).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "containers are left behind; the next start removes them"),
            Err(_) => {
                tracing::warn!(
                    "containers are left behind because the engine does not respond; the next start removes them"
                );
            }
        }
    }

    /// Ensures that everything pending is removed, so that names and ports are free.
    async fn cleared(&self, engine: &Engine) -> Result<(), ContainerError> {
        self.cleared.get_or_try_init(|| self.remove_leftovers(engine)).await?;
        self.remove_pending(engine).await;
        Ok(())
    }

    /// Removes the leftovers of an earlier process; those that cannot be removed become pending.
    async fn remove_leftovers(&self, engine: &Engine) -> Result<(), ContainerError> {
        let stuck = labels::remove_leftovers(&self.owner, engine).await?;
        stuck.iter().for_each(|id| self.remove_later(id));
        Ok(())
    }

    async fn remove_pending(&self, engine: &Engine) {
        let pending_removals = std::mem::take(&mut self.pending_removals().containers);
        for id in pending_removals {
            self.remove(engine, &id).await;
        }
    }

    /// Removes a container, now or as soon as the engine is reachable again.
    async fn remove(&self, engine: &Engine, id: &str) {
        if let Err(error) = engine.remove(id).await {
            tracing::warn!(container = id, %error, "failed to remove a container; will retry");
            self.remove_later(id);
        }
    }

    /// Adds a container to the pending removals.
    fn remove_later(&self, id: &str) {
        let mut pending_removals = self.pending_removals();
        pending_removals.containers.push(id.to_owned());
        if !pending_removals.is_looked_after {
            pending_removals.is_looked_after = true;
            tokio::spawn(retry_removals(Weak::clone(&self.me)));
        }
    }

    /// Whether nothing is pending any more. Then the retry task ends.
    fn is_settled(&self) -> bool {
        let mut pending_removals = self.pending_removals();
        pending_removals.is_looked_after = !pending_removals.containers.is_empty();
        !pending_removals.is_looked_after
    }

    fn pending_removals(&self) -> std::sync::MutexGuard<'_, PendingRemovals> {
        self.pending_removals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes pending containers as soon as the engine is reachable again, whether or not it is needed otherwise.
///
/// Boxed, because it is recursive.
fn retry_removals(containers: Weak<Containers>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let mut pause = MIN_REMOVAL_DELAY;
        loop {
            sleep(pause).await;
            pause = (pause * 2).min(MAX_REMOVAL_DELAY);
            let Some(containers) = containers.upgrade() else { return };
            if let Ok(engine) = Engine::find().await {
                containers.remove_pending(&engine).await;
            }
            if containers.is_settled() {
                return;
            }
        }
    })
}

async fn run(
    containers: Arc<Containers>,
    upstream: Upstream,
    observer: Arc<dyn UpstreamObserver>,
    mut stop: watch::Receiver<Stop>,
    remote: Connector,
) {
    let Transport::Container(wanted) = upstream.spec.transport.clone() else { return };
    let prepared = tokio::select! {
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => Err(Ending::Stopped),
        prepared = prepare(&containers, &upstream, &wanted, &*observer) => {
            prepared.map_err(|failure| not_started(&upstream, failure))
        }
    };
    let engine = match prepared {
        Ok(engine) => engine,
        Err(ending) => return upstream.ended(&observer, &Arc::new(ending)).await,
    };
    match &wanted.contact {
        Contact::Stdio => {
            let host = ContainerHost {
                containers: &containers,
                engine: &engine,
                upstream: &upstream,
                wanted: &wanted,
                observer: &observer,
            };
            stdio_server::run(&host, &upstream, &observer, stop).await;
        }
        Contact::Http { .. } => {
            http::run(&containers, &engine, upstream, &wanted, observer, stop, remote).await;
        }
    }
}

/// Everything before the container itself. Cancel safe.
async fn prepare(
    containers: &Containers,
    upstream: &Upstream,
    wanted: &catalog::Container,
    observer: &dyn UpstreamObserver,
) -> Result<Engine, ContainerError> {
    let engine = Engine::find().await?;
    containers.cleared(&engine).await?;
    image::provide(&engine, wanted, |progress| observer.on_preparing(upstream.index, progress)).await?;
    Ok(engine)
}

/// Why there is no container. An engine repeats its input, secrets included.
fn not_started(upstream: &Upstream, failure: ContainerError) -> Ending {
    failed(Phase::Startup, Cause::from(failure).hiding(&upstream.spec.secrets))
}

/// Runs an engine operation that must not be cancelled half-way; unless it is no longer wanted and the engine does not
/// finish. What it may have created then is removed by the next start.
async fn unless_stuck<T>(operation: impl Future<Output = T>, stop: &watch::Receiver<Stop>) -> Option<T> {
    let mut stop = stop.clone();
    let stuck = async {
        // The sender was dropped, so a stop cannot be requested any more either.
        stop.wait_for(|&stop| stop > Stop::Never).await.ok();
        sleep(ENGINE_STUCK_TIMEOUT).await;
    };
    tokio::select! {
        done = operation => Some(done),
        () = stuck => None,
    }
}

fn failed(phase: Phase, cause: Cause) -> Ending {
    Ending::Failed { phase, cause }
}
