//! The life of a server: what all have in common, however they are reached.

use std::ffi::OsString;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catalog::{Kind, Offer, ServerSpec, Transport};
use protocol::Envelope;
use tokio::sync::watch;

use crate::child;
use crate::connection::{Connection, ConnectionContext};
use crate::container::ContainerHandle;
use crate::failure::{Cause, Ending, Phase, Report};
use crate::handshake::Handshake;
use crate::limits::ServerLimits;
use crate::loop_detection::LoopDetector;
use crate::process_info::ProcessInfo;
use crate::process_mark::InstanceMark;
use crate::response_handler::ServerRequest;
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
pub trait UpstreamObserver: Send + Sync + std::fmt::Debug {
    /// The server is ready.
    fn on_running(&self, index: usize, connection: &Arc<Connection>, offer: Offer);
    /// What a running server offers has changed. May come after `ended` of that connection, and means nothing then.
    fn on_offer_changed(&self, connection: &Arc<Connection>, offer: Arc<Offer>);
    /// A running server had forgotten us and knows us again, but nothing of what it was told before.
    fn on_reinitialized(self: Arc<Self>, server: &Arc<Connection>);
    /// A running server says something that is about no open request.
    fn on_notification(&self, server: &Arc<Connection>, method: &str, line: &Bytes, envelope: &Envelope);
    /// A running server wants to know something that is about no open request.
    fn on_server_request(&self, index: usize, request: ServerRequest);
    /// The server is no more, or never was.
    fn on_ended(&self, index: usize, ending: &Arc<Ending>);
    /// Before a server can start something has to be done that takes a while: says how far it is, for people.
    fn on_preparing(&self, _index: usize, _progress: &str) {}
    /// The server lives in this container.
    fn on_container(&self, _index: usize, _housing: Arc<dyn ContainerHandle>) {}
    /// The server is being started as a process or container of ours, and this can be seen of it.
    fn on_process(&self, _index: usize, _signs: ProcessInfo) {}
    /// How long it may take to know what became of a server that broke off a conversation, where that will be known.
    fn ending_timeout(&self) -> Duration {
        Duration::ZERO
    }
    /// The server failed, and this is all there is to know. Comes after `ended`, when its last words are in.
    fn on_report(&self, index: usize, report: Report);
}

/// With more items than these, everybody is told of an offer on a thread of its own: names are made of all of them.
const TOLD_IN_PLACE: usize = 500;

/// Tells that the server is ready. Waits until everybody knows.
pub async fn tell_running(
    observer: &Arc<dyn UpstreamObserver>,
    index: usize,
    connection: &Arc<Connection>,
    offer: Offer,
) {
    let (is_large, observer, connection) = (is_large(&offer), Arc::clone(observer), Arc::clone(connection));
    beside_calls(is_large, move || observer.on_running(index, &connection, offer)).await;
}

/// Tells that what a running server offers has changed. Waits until everybody knows.
pub async fn tell_changed(observer: &Arc<dyn UpstreamObserver>, connection: &Arc<Connection>, offer: Arc<Offer>) {
    let (is_large, observer, connection) = (is_large(&offer), Arc::clone(observer), Arc::clone(connection));
    beside_calls(is_large, move || observer.on_offer_changed(&connection, offer)).await;
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
pub type Connector =
    Arc<dyn Fn(Upstream, Arc<dyn UpstreamObserver>, watch::Receiver<Stop>) -> ConnectorTask + Send + Sync>;

/// A life that is being lived.
pub type ConnectorTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a look at an address showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeResult {
    /// All is well there.
    Healthy,
    /// Somebody answers, but there is no such address: says what it answered. That is no proof of health, and says nothing
    /// against the server either.
    Missing(String),
    /// Nobody answers, or whoever does is not well: says how.
    Unhealthy(String),
}

/// Looks at an address, for no longer than that.
pub type Probe = fn(String, Duration) -> Pin<Box<dyn Future<Output = ProbeResult> + Send>>;

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
    pub handshake: Handshake,
    /// Whose it is.
    pub instance_mark: Arc<InstanceMark>,
    /// Who uses us, for those who must not be among them.
    pub loop_detector: Arc<LoopDetector>,
    /// Who ends it if we cannot.
    pub watchdog: Arc<Watchdog>,
    /// What it may make us hold.
    pub limits: Arc<ServerLimits>,
    /// Processes it leaves behind are looked for when it stops, not when everything does.
    pub cleans_up_leftovers: bool,
}

impl Upstream {
    /// Lives the server's life; returns when nothing of it is left. `connector` is the life of a server that runs elsewhere
    /// or in a container, for programs that know one.
    pub async fn run(
        self,
        observer: Arc<dyn UpstreamObserver>,
        stop: watch::Receiver<Stop>,
        connector: Option<Connector>,
    ) {
        match (&self.spec.transport, connector) {
            (Transport::Stdio(program), _) => child::run(&self, program, &observer, stop).await,
            (Transport::Remote(_) | Transport::Container(_), Some(life)) => life(self, observer, stop).await,
            (Transport::Remote(_) | Transport::Container(_), None) => {
                self.ended(&*observer, &Arc::new(Ending::Failed { phase: Phase::Startup, cause: Cause::NoRemotes }));
            }
        }
    }

    /// What a connection to it needs to know.
    pub fn connection_context(&self, observer: &Arc<dyn UpstreamObserver>) -> ConnectionContext {
        ConnectionContext {
            server: self.spec.name.clone(),
            index: self.index,
            observer: Arc::downgrade(observer),
            client_meta: self.handshake.modern_client_meta(),
            limit: self.spec.timeout,
            limits: Arc::clone(&self.limits),
            secrets: self.spec.secrets.clone(),
            liveness: Arc::default(),
        }
    }

    /// The server is no more and left no words behind.
    pub fn ended(&self, observer: &dyn UpstreamObserver, ending: &Arc<Ending>) {
        observer.on_ended(self.index, ending);
        self.report(observer, ending, Vec::new());
    }

    /// Tells what is to be known of a failure.
    pub fn report(&self, observer: &dyn UpstreamObserver, ending: &Ending, stderr_lines: Vec<String>) {
        if let Some(report) = Report::new(ending, stderr_lines) {
            observer.on_report(self.index, report);
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
