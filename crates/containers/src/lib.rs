//! Servers in containers of ours, made and removed through the engine that is there: Docker or Podman.
//!
//! # Layout
//! - [`Containers`] (here): all containers of this program, and the life of a server in one
//! - [`engine`]: where the engine is; `trouble`: what can go wrong with it, in words
//! - [`owner`]: the labels by which we know our own, and what is left of a program that was killed
//! - `image`: having the image there
//! - `recipe`: what the engine is asked for, with defaults that are safe
//! - `claims`: who has which port of the machine
//! - `house`: one container from creation to removal; `gauge`: what it uses
//! - `lookout`: what the engine says has happened to containers
//! - `attached`: a server talked to over the container's stdin and stdout
//! - `published`: a server talked to over HTTP at a port of the container

mod attached;
mod claims;
pub mod engine;
mod gauge;
mod house;
mod image;
mod lookout;
pub mod owner;
mod published;
mod recipe;
mod trouble;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use catalog::{Contact, Transport};
use tokio::sync::{OnceCell, watch};
use tokio::time::{sleep, timeout};
use upstream::failure::Cause;
use upstream::{Ending, Life, Living, Phase, Stop, Upstream, Watcher};

use crate::claims::Claims;
use crate::engine::Engine;
use crate::lookout::Lookout;
use crate::owner::Owner;
use crate::trouble::Trouble;

/// Between looks at whether what is owed can be removed: so long at first, and never longer than that.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long an engine may take to finish what it began, once nobody wants it any more; and at the end of the program.
const STUCK: Duration = Duration::from_secs(10);
const FAREWELL: Duration = Duration::from_secs(5);

/// All containers of this program.
#[derive(Debug)]
pub struct Containers {
    me: Weak<Self>,
    owner: Owner,
    /// What somebody who was us has left behind is gone.
    cleared: OnceCell<()>,
    /// Containers that could not be removed when they should have been.
    owed: Mutex<Owed>,
    claims: Arc<Claims>,
    lookout: Arc<Lookout>,
}

#[derive(Debug, Default)]
struct Owed {
    containers: Vec<String>,
    /// Somebody tries again and again.
    is_looked_after: bool,
}

impl Containers {
    /// Those of `owner`. No engine is looked for until one is needed.
    pub fn new(owner: Owner) -> Arc<Self> {
        let lookout = Lookout::new(&owner.instance);
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            owner,
            cleared: OnceCell::new(),
            owed: Mutex::default(),
            claims: Arc::default(),
            lookout,
        })
    }

    /// The life of a server that is no program of ours: in a container, or else as `remote` has it.
    pub fn life_or(self: &Arc<Self>, remote: Life) -> Life {
        let containers = Arc::clone(self);
        Arc::new(move |upstream: Upstream, watcher, stop| -> Living {
            if !matches!(upstream.spec.transport, Transport::Container(_)) {
                return remote(upstream, watcher, stop);
            }
            Box::pin(live(Arc::clone(&containers), upstream, watcher, stop, Arc::clone(&remote)))
        })
    }

    /// Removes what a program of the same owner left behind when it was killed. Without an engine there is nothing to do.
    pub async fn clear_up(&self) {
        let cleared = match Engine::find().await {
            Ok(engine) => self.cleared(&engine).await,
            Err(Trouble::NoEngine { .. }) => return,
            Err(trouble) => Err(trouble),
        };
        if let Err(error) = cleared {
            tracing::debug!(%error, "could not look for containers that were left behind");
        }
    }

    /// Tries once more to remove what could not be removed. For the end of the program.
    pub async fn settle(&self) {
        if self.owed().containers.is_empty() {
            return;
        }
        let paid = async {
            let engine = Engine::find().await?;
            self.pay(&engine).await;
            Ok::<(), Trouble>(())
        };
        match timeout(FAREWELL, paid).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "containers are left behind; the next start removes them"),
            Err(_) => {
                tracing::warn!("containers are left behind: the engine does not answer; the next start removes them");
            }
        }
    }

    /// Everything that is to be removed is, so that names and ports are free.
    async fn cleared(&self, engine: &Engine) -> Result<(), Trouble> {
        self.cleared.get_or_try_init(|| self.remove_leftovers(engine)).await?;
        self.pay(engine).await;
        Ok(())
    }

    /// Removes what somebody who was us has left behind; what cannot be removed is owed.
    async fn remove_leftovers(&self, engine: &Engine) -> Result<(), Trouble> {
        let stuck = owner::remove_leftovers(&self.owner, engine).await?;
        stuck.iter().for_each(|id| self.owe(id));
        Ok(())
    }

    async fn pay(&self, engine: &Engine) {
        let owed = std::mem::take(&mut self.owed().containers);
        for id in owed {
            self.remove(engine, &id).await;
        }
    }

    /// Removes a container, now or as soon as the engine can be reached again.
    async fn remove(&self, engine: &Engine, id: &str) {
        if let Err(error) = engine.remove(id).await {
            tracing::warn!(container = id, %error, "could not remove a container; will try again");
            self.owe(id);
        }
    }

    /// Has a container removed by and by.
    fn owe(&self, id: &str) {
        let mut owed = self.owed();
        owed.containers.push(id.to_owned());
        if !owed.is_looked_after {
            owed.is_looked_after = true;
            tokio::spawn(look_after_owed(Weak::clone(&self.me)));
        }
    }

    /// Whether nothing is owed any more. Then nobody looks after it any longer.
    fn is_settled(&self) -> bool {
        let mut owed = self.owed();
        owed.is_looked_after = !owed.containers.is_empty();
        !owed.is_looked_after
    }

    fn owed(&self) -> std::sync::MutexGuard<'_, Owed> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes what could not be removed as soon as the engine is back, whether or not anybody wants anything else of it.
///
/// Boxed, for it calls who called it.
fn look_after_owed(containers: Weak<Containers>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let mut pause = FIRST_PAUSE;
        loop {
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            let Some(containers) = containers.upgrade() else { return };
            if let Ok(engine) = Engine::find().await {
                containers.pay(&engine).await;
            }
            if containers.is_settled() {
                return;
            }
        }
    })
}

async fn live(
    containers: Arc<Containers>,
    upstream: Upstream,
    watcher: Arc<dyn Watcher>,
    mut stop: watch::Receiver<Stop>,
    remote: Life,
) {
    let Transport::Container(wanted) = upstream.spec.transport.clone() else { return };
    let prepared = tokio::select! {
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => {
            return upstream.ended(&*watcher, &Arc::new(Ending::Stopped));
        }
        prepared = prepare(&containers, &upstream, &wanted, &*watcher) => prepared,
    };
    let engine = match prepared {
        Ok(engine) => engine,
        Err(trouble) => return upstream.ended(&*watcher, &Arc::new(not_started(&upstream, trouble))),
    };
    match &wanted.contact {
        Contact::Stdio => attached::live(&containers, &engine, &upstream, &wanted, &watcher, stop).await,
        Contact::Http { .. } => {
            published::live(&containers, &engine, upstream, &wanted, watcher, stop, remote).await;
        }
    }
}

/// Everything up to the container itself. May be given up at any moment.
async fn prepare(
    containers: &Containers,
    upstream: &Upstream,
    wanted: &catalog::Container,
    watcher: &dyn Watcher,
) -> Result<Engine, Trouble> {
    let engine = Engine::find().await?;
    containers.cleared(&engine).await?;
    image::provide(&engine, wanted, |progress| watcher.preparing(upstream.index, progress)).await?;
    Ok(engine)
}

/// Why there is no container. An engine repeats what it was told, secrets included.
fn not_started(upstream: &Upstream, trouble: Trouble) -> Ending {
    failed(Phase::Startup, Cause::from(trouble).hiding(&upstream.spec.secrets))
}

/// What an engine does that must not be given up half-way; unless nobody wants it any more and the engine does not come to an
/// end. What it may have made then is removed by the next start.
async fn unless_stuck<T>(deed: impl Future<Output = T>, stop: &watch::Receiver<Stop>) -> Option<T> {
    let mut stop = stop.clone();
    let stuck = async {
        // Nobody can ask for it any more, either.
        stop.wait_for(|&stop| stop > Stop::Never).await.ok();
        sleep(STUCK).await;
    };
    tokio::select! {
        done = deed => Some(done),
        () = stuck => None,
    }
}

fn failed(phase: Phase, cause: Cause) -> Ending {
    Ending::Failed { phase, cause }
}
