//! The life of a server: what all have in common, however they are reached.

use std::ffi::OsString;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catalog::{Kind, Offer, ServerSpec, Transport};
use protocol::Envelope;
use tokio::sync::watch;

use crate::acquaintance::Manners;
use crate::ancestry::Ancestry;
use crate::caller::Question;
use crate::child;
use crate::connection::{Connection, Surroundings};
use crate::failure::{Cause, Ending, Phase, Report};
use crate::housing::Housing;
use crate::limits::ServerLimits;
use crate::lineage::Lineage;
use crate::signs::Signs;
use crate::watchdog::Watchdog;

/// How urgently servers are to stop. Only ever becomes more urgent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// Not at all.
    Never,
    /// End their input and let them finish; terminate and then kill those that do not.
    Gently,
    /// Terminate them right away; kill those that do not end.
    Promptly,
    /// Kill them.
    Now,
}

/// Who is told what becomes of servers.
pub trait Watcher: Send + Sync + std::fmt::Debug {
    /// The server is ready.
    fn running(&self, index: usize, connection: &Arc<Connection>, offer: Offer);
    /// What a running server offers has changed. May come after `ended` of that connection, and means nothing then.
    fn changed(&self, connection: &Arc<Connection>, offer: Arc<Offer>);
    /// A running server had forgotten us and knows us again, but nothing of what it was told before.
    fn introduced_anew(self: Arc<Self>, server: &Arc<Connection>);
    /// A running server says something that is about no open request.
    fn heard(&self, server: &Arc<Connection>, method: &str, line: &Bytes, envelope: &Envelope);
    /// A running server wants to know something that is about no open request.
    fn asked(&self, index: usize, question: Question);
    /// The server is no more, or never was.
    fn ended(&self, index: usize, ending: &Arc<Ending>);
    /// Before a server can start something has to be done that takes a while: says how far it is, for people.
    fn preparing(&self, _index: usize, _progress: &str) {}
    /// The server lives in this container.
    fn housed(&self, _index: usize, _housing: Arc<dyn Housing>) {}
    /// The server is being started in a house of ours, and this can be seen of it.
    fn signs_of_life(&self, _index: usize, _signs: Signs) {}
    /// How long it may take to know what became of a server that broke off a conversation, where that will be known.
    fn verdict_within(&self) -> Duration {
        Duration::ZERO
    }
    /// The server failed, and this is all there is to know. Comes after `ended`, when its last words are in.
    fn reported(&self, index: usize, report: Report);
}

/// With more items than these, everybody is told of an offer on a thread of its own: names are made of all of them.
const TOLD_IN_PLACE: usize = 500;

/// Tells that the server is ready. Waits until everybody knows.
pub async fn tell_running(watcher: &Arc<dyn Watcher>, index: usize, connection: &Arc<Connection>, offer: Offer) {
    let (is_large, watcher, connection) = (is_large(&offer), Arc::clone(watcher), Arc::clone(connection));
    beside_calls(is_large, move || watcher.running(index, &connection, offer)).await;
}

/// Tells that what a running server offers has changed. Waits until everybody knows.
pub async fn tell_changed(watcher: &Arc<dyn Watcher>, connection: &Arc<Connection>, offer: Arc<Offer>) {
    let (is_large, watcher, connection) = (is_large(&offer), Arc::clone(watcher), Arc::clone(connection));
    beside_calls(is_large, move || watcher.changed(&connection, offer)).await;
}

fn is_large(offer: &Offer) -> bool {
    Kind::ALL.into_iter().map(|kind| offer.items(kind).len()).sum::<usize>() > TOLD_IN_PLACE
}

/// Does something here, or on a thread that serves no calls.
async fn beside_calls(is_large: bool, work: impl FnOnce() + Send + 'static) {
    if !is_large {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // Else it is done, or the program is stopping.
        _ => {}
    }
}

/// The life of a server that is no program of ours, from start to end.
pub type Life = Arc<dyn Fn(Upstream, Arc<dyn Watcher>, watch::Receiver<Stop>) -> Living + Send + Sync>;

/// A life that is being lived.
pub type Living = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a look at an address showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// All is well there.
    Well,
    /// Somebody answers, but there is no such address: says what it answered. That is no proof of health, and says nothing
    /// against the server either.
    Missing(String),
    /// Nobody answers, or whoever does is not well: says how.
    Ill(String),
}

/// Looks at an address, for no longer than that.
pub type Probe = fn(String, Duration) -> Pin<Box<dyn Future<Output = Finding> + Send>>;

/// One server of the configuration, about to live.
pub struct Upstream {
    /// Its place in the configuration.
    pub index: usize,
    /// How it is reached.
    pub spec: ServerSpec,
    /// Variables it gets besides its own, if we start it.
    pub environment: Vec<(OsString, OsString)>,
    /// Variables of ours that it does not get, unless they are its own as well.
    pub withheld: &'static [&'static str],
    /// How it is approached.
    pub manners: Manners,
    /// Whose it is.
    pub lineage: Arc<Lineage>,
    /// Who uses us, for those who must not be among them.
    pub ancestry: Arc<Ancestry>,
    /// Who ends it if we cannot.
    pub watchdog: Arc<Watchdog>,
    /// What it may make us hold.
    pub limits: Arc<ServerLimits>,
    /// Processes it leaves behind are looked for when it stops, not when everything does.
    pub sweeps: bool,
}

impl Upstream {
    /// Lives the server's life; returns when nothing of it is left. `elsewhere` is the life of a server that runs elsewhere
    /// or in a container, for programs that know one.
    pub async fn run(self, watcher: Arc<dyn Watcher>, stop: watch::Receiver<Stop>, elsewhere: Option<Life>) {
        match (&self.spec.transport, elsewhere) {
            (Transport::Stdio(program), _) => child::live(&self, program, &watcher, stop).await,
            (Transport::Remote(_) | Transport::Container(_), Some(life)) => life(self, watcher, stop).await,
            (Transport::Remote(_) | Transport::Container(_), None) => {
                self.ended(&*watcher, &Arc::new(Ending::Failed { phase: Phase::Startup, cause: Cause::NoRemotes }));
            }
        }
    }

    /// What a connection to it needs to know.
    pub fn surroundings(&self, watcher: &Arc<dyn Watcher>) -> Surroundings {
        Surroundings {
            server: self.spec.name.clone(),
            index: self.index,
            watcher: Arc::downgrade(watcher),
            introduction: self.manners.modern_introduction(),
            limit: self.spec.timeout,
            limits: Arc::clone(&self.limits),
            secrets: self.spec.secrets.clone(),
            doubts: Arc::default(),
        }
    }

    /// The server is no more and left no words behind.
    pub fn ended(&self, watcher: &dyn Watcher, ending: &Arc<Ending>) {
        watcher.ended(self.index, ending);
        self.report(watcher, ending, Vec::new());
    }

    /// Tells what is to be known of a failure.
    pub fn report(&self, watcher: &dyn Watcher, ending: &Ending, last_words: Vec<String>) {
        if let Some(report) = Report::new(ending, last_words) {
            watcher.reported(self.index, report);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    #[test]
    fn a_large_offer_leaves_the_thread_to_others_until_everybody_knows_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            for is_large in [false, true] {
                // The only other thread has something else to do until it is told, so nothing can be done there yet.
                let (go_on, wait) = std::sync::mpsc::channel::<()>();
                let occupied = tokio::task::spawn_blocking(move || wait.recv());
                let (done, is_done) = std::sync::mpsc::channel();
                let mut telling = std::pin::pin!(beside_calls(is_large, move || done.send(()).unwrap()));
                let first = std::future::poll_fn(|context| Poll::Ready(telling.as_mut().poll(context))).await;
                assert_eq!(first.is_pending(), is_large);
                go_on.send(()).unwrap();
                if first.is_pending() {
                    telling.await;
                }
                is_done.try_recv().expect("whoever waits for it knows that it is done");
                occupied.await.unwrap().unwrap();
            }
        });
    }
}
