//! Servers in containers of ours, made and removed through the engine that is there: Docker or Podman.
//!
//! # Layout
//! - [`Containers`] (here): all containers of this program, and the life of a server in one
//! - [`engine`]: where the engine is; `error`: what can go wrong with it, in words
//! - [`labels`]: the labels by which we know our own, and what is left of a program that was killed
//! - `image`: having the image there
//! - `spec`: what the engine is asked for, with defaults that are safe
//! - `ports`: who has which port of the machine
//! - `container`: one container from creation to removal; `stats`: what it uses
//! - `events`: what the engine says has happened to containers
//! - `stdio`: a server talked to over the container's stdin and stdout
//! - `http`: a server talked to over HTTP at a port of the container

mod container;
pub mod engine;
mod error;
mod events;
mod http;
mod image;
pub mod labels;
mod ports;
mod spec;
mod stats;
mod stdio;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use catalog::{Contact, Transport};
use tokio::sync::{OnceCell, watch};
use tokio::time::{sleep, timeout};
use upstream::failure::Cause;
use upstream::{Connector, ConnectorTask, Ending, Phase, Stop, Upstream, UpstreamObserver};

use crate::engine::Engine;
use crate::error::ContainerError;
use crate::events::EventListener;
use crate::labels::Owner;
use crate::ports::PortClaims;

/// Between looks at whether what is owed can be removed: so long at first, and never longer than that.
const MIN_REMOVAL_DELAY: Duration = Duration::from_millis(500);
const MAX_REMOVAL_DELAY: Duration = Duration::from_secs(10);
/// How long an engine may take to finish what it began, once nobody wants it any more; and at the end of the program.
const ENGINE_STUCK_TIMEOUT: Duration = Duration::from_secs(10);
const FINAL_REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);

/// All containers of this program.
#[derive(Debug)]
pub struct Containers {
    me: Weak<Self>,
    owner: Owner,
    /// What somebody who was us has left behind is gone.
    cleared: OnceCell<()>,
    /// Containers that could not be removed when they should have been.
    pending_removals: Mutex<PendingRemovals>,
    claims: Arc<PortClaims>,
    listener: Arc<EventListener>,
}

#[derive(Debug, Default)]
struct PendingRemovals {
    containers: Vec<String>,
    /// Somebody tries again and again.
    is_looked_after: bool,
}

impl Containers {
    /// Those of `owner`. No engine is looked for until one is needed.
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

    /// The life of a server that is no program of ours: in a container, or else as `remote` has it.
    pub fn connector_or(self: &Arc<Self>, remote: Connector) -> Connector {
        let containers = Arc::clone(self);
        Arc::new(move |upstream: Upstream, observer, stop| -> ConnectorTask {
            if !matches!(upstream.spec.transport, Transport::Container(_)) {
                return remote(upstream, observer, stop);
            }
            Box::pin(run(Arc::clone(&containers), upstream, observer, stop, Arc::clone(&remote)))
        })
    }

    /// Removes what a program of the same owner left behind when it was killed. Without an engine there is nothing to do.
    pub async fn clear_up(&self) {
        let cleared = match Engine::find().await {
            Ok(engine) => self.cleared(&engine).await,
            Err(ContainerError::NoEngine { .. }) => return,
            Err(failure) => Err(failure),
        };
        if let Err(error) = cleared {
            tracing::debug!(%error, "could not look for containers that were left behind");
        }
    }

    /// Tries once more to remove what could not be removed. For the end of the program.
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
                tracing::warn!("containers are left behind: the engine does not answer; the next start removes them");
            }
        }
    }

    /// Everything that is to be removed is, so that names and ports are free.
    async fn cleared(&self, engine: &Engine) -> Result<(), ContainerError> {
        self.cleared.get_or_try_init(|| self.remove_leftovers(engine)).await?;
        self.remove_pending(engine).await;
        Ok(())
    }

    /// Removes what somebody who was us has left behind; what cannot be removed is owed.
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

    /// Removes a container, now or as soon as the engine can be reached again.
    async fn remove(&self, engine: &Engine, id: &str) {
        if let Err(error) = engine.remove(id).await {
            tracing::warn!(container = id, %error, "could not remove a container; will try again");
            self.remove_later(id);
        }
    }

    /// Has a container removed by and by.
    fn remove_later(&self, id: &str) {
        let mut pending_removals = self.pending_removals();
        pending_removals.containers.push(id.to_owned());
        if !pending_removals.is_looked_after {
            pending_removals.is_looked_after = true;
            tokio::spawn(retry_removals(Weak::clone(&self.me)));
        }
    }

    /// Whether nothing is owed any more. Then nobody looks after it any longer.
    fn is_settled(&self) -> bool {
        let mut pending_removals = self.pending_removals();
        pending_removals.is_looked_after = !pending_removals.containers.is_empty();
        !pending_removals.is_looked_after
    }

    fn pending_removals(&self) -> std::sync::MutexGuard<'_, PendingRemovals> {
        self.pending_removals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes what could not be removed as soon as the engine is back, whether or not anybody wants anything else of it.
///
/// Boxed, for it calls who called it.
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
        _ = stop.wait_for(|&stop| stop > Stop::Never) => {
            return upstream.ended(&*observer, &Arc::new(Ending::Stopped));
        }
        prepared = prepare(&containers, &upstream, &wanted, &*observer) => prepared,
    };
    let engine = match prepared {
        Ok(engine) => engine,
        Err(failure) => return upstream.ended(&*observer, &Arc::new(not_started(&upstream, failure))),
    };
    match &wanted.contact {
        Contact::Stdio => stdio::run(&containers, &engine, &upstream, &wanted, &observer, stop).await,
        Contact::Http { .. } => {
            http::run(&containers, &engine, upstream, &wanted, observer, stop, remote).await;
        }
    }
}

/// Everything up to the container itself. May be given up at any moment.
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

/// Why there is no container. An engine repeats what it was told, secrets included.
fn not_started(upstream: &Upstream, failure: ContainerError) -> Ending {
    failed(Phase::Startup, Cause::from(failure).hiding(&upstream.spec.secrets))
}

/// What an engine does that must not be given up half-way; unless nobody wants it any more and the engine does not come to an
/// end. What it may have made then is removed by the next start.
async fn unless_stuck<T>(operation: impl Future<Output = T>, stop: &watch::Receiver<Stop>) -> Option<T> {
    let mut stop = stop.clone();
    let stuck = async {
        // Nobody can ask for it any more, either.
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
