//! The run of a server: what all have in common, whatever their transport.

use std::ffi::OsString;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catalog::{Kind, Offer, ServerSpec, Transport};
use protocol::Envelope;
use tokio::sync::watch;

use crate::audience::Audience;
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

/// Is notified of the events of servers.
pub trait UpstreamObserver: Send + Sync + std::fmt::Debug {
    /// The server is ready.
    fn on_running(&self, index: usize, connection: &Arc<Connection>, offer: Offer);
    /// The offer of a running server has changed. May be called after `on_ended` of that connection, and has no effect
    /// then.
    fn on_offer_changed(&self, connection: &Arc<Connection>, offer: Arc<Offer>);
    /// A running server lost our session and got a new handshake; its subscriptions and log level are lost.
    fn on_reinitialized(self: Arc<Self>, server: &Arc<Connection>);
    /// A running server sends a notification that belongs to no pending request.
    fn on_notification(&self, server: &Arc<Connection>, method: &str, line: &Bytes, envelope: &Envelope);
    /// A running server sends a request that belongs to no pending request.
    fn on_server_request(&self, index: usize, request: ServerRequest);
    /// Whether so much is listed for the server that its end or a change of its list is costly.
    fn has_large_offer(&self, _index: usize) -> bool {
        false
    }
    /// The server has ended, or failed to start. Call [`report_ended`] instead.
    fn on_ended(&self, index: usize, ending: &Arc<Ending>);
    /// A server needs a lengthy preparation before it can start: its progress, for people.
    fn on_preparing(&self, _index: usize, _progress: &str) {}
    /// The server runs in this container.
    fn on_container(&self, _index: usize, _container: Arc<dyn ContainerHandle>) {}
    /// The server is being started as a process or container of ours, with this process information.
    fn on_process(&self, _index: usize, _process: ProcessInfo) {}
    /// How long to wait for the cause when a server has disconnected, where the cause will be known.
    fn ending_timeout(&self) -> Duration {
        Duration::ZERO
    }
    /// The server failed, with this report. Called after `on_ended`, when its stderr is read.
    fn on_report(&self, index: usize, report: Report);
}

/// An offer with more items than this is added and removed on a separate thread: each item has a name in the merged list.
pub(crate) const MAX_REPORTED_IN_PLACE: usize = 500;

/// Reports that the server is ready. Returns when the observer is done.
pub async fn report_running(
    observer: &Arc<dyn UpstreamObserver>,
    index: usize,
    connection: &Arc<Connection>,
    offer: Offer,
) {
    let is_large = is_large(&offer) || observer.has_large_offer(index);
    let (observer, connection) = (Arc::clone(observer), Arc::clone(connection));
    beside_calls(is_large, move || observer.on_running(index, &connection, offer)).await;
}

/// Reports that the offer of a running server has changed. Returns when the observer is done.
pub async fn report_offer_changed(
    observer: &Arc<dyn UpstreamObserver>,
    connection: &Arc<Connection>,
    offer: Arc<Offer>,
) {
    let is_large = is_large(&offer) || observer.has_large_offer(connection.index());
    let (observer, connection) = (Arc::clone(observer), Arc::clone(connection));
    beside_calls(is_large, move || observer.on_offer_changed(&connection, offer)).await;
}

/// Reports that the server has ended. Returns when the observer is done.
pub async fn report_ended(observer: &Arc<dyn UpstreamObserver>, index: usize, ending: &Arc<Ending>) {
    let (is_large, observer, ending) = (observer.has_large_offer(index), Arc::clone(observer), Arc::clone(ending));
    beside_calls(is_large, move || observer.on_ended(index, &ending)).await;
}

/// Whether an offer has so many items that adding or removing them is costly.
pub fn is_large(offer: &Offer) -> bool {
    are_many(Kind::ALL.into_iter().map(|kind| offer.items(kind).len()).sum())
}

/// Whether adding or removing the names of so many items is costly.
pub fn are_many(items: usize) -> bool {
    items > MAX_REPORTED_IN_PLACE
}

/// Runs `work` here, or on a thread that serves no calls.
pub async fn beside_calls(is_large: bool, work: impl FnOnce() + Send + 'static) {
    // Without a result the program is stopping.
    let _done = compute_beside_calls(is_large, work).await;
}

/// The same for work with a result; `None` if the program is stopping.
pub async fn compute_beside_calls<T: Send + 'static>(
    is_large: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if !is_large {
        return Some(work());
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Some(done),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => None,
    }
}

/// Connects to a server that is no process of ours, and serves it to its end.
pub type Connector =
    Arc<dyn Fn(Upstream, Arc<dyn UpstreamObserver>, watch::Receiver<Stop>) -> ConnectorTask + Send + Sync>;

/// A running connector.
pub type ConnectorTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The result of a health check of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeResult {
    /// The address is healthy.
    Healthy,
    /// The host responds, but the path does not exist; contains the response. That neither proves health nor disproves
    /// it.
    Missing(String),
    /// There is no response, or it reports a problem; contains the problem.
    Unhealthy(String),
}

/// Checks an address, within a time limit.
pub type Probe = fn(String, Duration) -> Pin<Box<dyn Future<Output = ProbeResult> + Send>>;

/// One configured server, about to run.
pub struct Upstream {
    /// Its slot index.
    pub index: usize,
    /// Whom it serves.
    pub audience: Audience,
    /// The number that its processes are marked with. No other run has it at the same time.
    pub mark_number: usize,
    /// How it is reached.
    pub spec: ServerSpec,
    /// Variables it gets besides its own, if we start it.
    pub environment: Vec<(OsString, OsString)>,
    /// Variables of ours that it does not inherit, unless it configures them as well.
    pub withheld: &'static [&'static str],
    /// The parameters of its handshake.
    pub handshake: Handshake,
    /// The mark of the aggregator that starts it.
    pub instance_mark: Arc<InstanceMark>,
    /// Detects loops: an aggregator that uses us must not be our server.
    pub loop_detector: Arc<LoopDetector>,
    /// Ends it if we cannot.
    pub watchdog: Arc<Watchdog>,
    /// Limits on what it may make us store.
    pub limits: Arc<ServerLimits>,
    /// Leftover processes are searched for when this server stops, not only when everything does.
    pub cleans_up_leftovers: bool,
}

impl Upstream {
    /// Runs the server; returns when all of it has ended. `connector` runs remote servers and containers, in programs
    /// that support them.
    pub async fn run(
        self,
        observer: Arc<dyn UpstreamObserver>,
        stop: watch::Receiver<Stop>,
        connector: Option<Connector>,
    ) {
        match (&self.spec.transport, connector) {
            (Transport::Stdio(program), _) => child::run(&self, program, &observer, stop).await,
            (Transport::Remote(_) | Transport::Container(_), Some(connector)) => connector(self, observer, stop).await,
            (Transport::Remote(_) | Transport::Container(_), None) => {
                let ending = Arc::new(Ending::Failed { phase: Phase::Startup, cause: Cause::NoRemotes });
                self.ended(&observer, &ending).await;
            }
        }
    }

    /// The context for a connection to it.
    pub fn connection_context(&self, observer: &Arc<dyn UpstreamObserver>) -> ConnectionContext {
        ConnectionContext {
            server: self.spec.name.clone(),
            index: self.index,
            audience: self.audience.clone(),
            observer: Arc::downgrade(observer),
            client_meta: self.handshake.modern_client_meta(),
            limit: self.spec.timeout,
            limits: Arc::clone(&self.limits),
            secrets: self.spec.secrets.clone(),
            liveness: Arc::default(),
        }
    }

    /// Reports the end of a server without stderr output.
    pub async fn ended(&self, observer: &Arc<dyn UpstreamObserver>, ending: &Arc<Ending>) {
        report_ended(observer, self.index, ending).await;
        self.report(&**observer, ending, Vec::new());
    }

    /// Reports a failure.
    pub fn report(&self, observer: &dyn UpstreamObserver, ending: &Ending, stderr_lines: Vec<String>) {
        if let Some(report) = Report::new(ending, stderr_lines) {
            observer.on_report(self.index, report);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::task::Poll;
    use std::thread::ThreadId;

    use catalog::{Accepted, Config};

    use super::*;

    #[test]
    fn a_large_offer_leaves_the_thread_to_others_until_everybody_knows_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            for is_large in [false, true] {
                // The only other thread is blocked until it is released, so nothing can run there yet.
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

    /// Records the threads on which it is notified.
    #[derive(Debug)]
    struct Recorder {
        is_large: bool,
        ended_on: Mutex<Vec<ThreadId>>,
    }

    impl UpstreamObserver for Recorder {
        fn on_running(&self, _: usize, _: &Arc<Connection>, _: Offer) {}
        fn on_offer_changed(&self, _: &Arc<Connection>, _: Arc<Offer>) {}
        fn on_reinitialized(self: Arc<Self>, _: &Arc<Connection>) {}
        fn on_notification(&self, _: &Arc<Connection>, _: &str, _: &Bytes, _: &Envelope) {}
        fn on_server_request(&self, _: usize, _: ServerRequest) {}
        fn has_large_offer(&self, _: usize) -> bool {
            self.is_large
        }
        fn on_ended(&self, _: usize, _: &Arc<Ending>) {
            self.ended_on.lock().unwrap().push(std::thread::current().id());
        }
        fn on_report(&self, _: usize, _: Report) {}
    }

    fn upstream(server: &str) -> Upstream {
        let config = format!(r#"{{"mcpServers":{{"s":{server}}}}}"#);
        let config = Config::parse(config.as_bytes(), Accepted::All, |_| None).unwrap();
        let instance_mark = Arc::new(InstanceMark::new(std::process::id(), 7, None));
        Upstream {
            index: 0,
            audience: Audience::Everybody,
            mark_number: 0,
            spec: config.servers.into_iter().next().unwrap(),
            environment: Vec::new(),
            withheld: &[],
            handshake: Handshake {
                client_info: Bytes::from_static(br#"{"name":"test","version":"1"}"#),
                capabilities: Bytes::from_static(b"{}"),
                start_timeout: Duration::from_secs(60),
                tools_only: true,
                skips_lists: false,
                client_lifecycle: None,
            },
            loop_detector: Arc::new(LoopDetector::new(&instance_mark)),
            instance_mark,
            watchdog: Arc::new(Watchdog::absent()),
            limits: ServerLimits::from_settings(),
            cleans_up_leftovers: false,
        }
    }

    #[test]
    fn the_end_of_a_server_with_a_large_offer_is_handled_on_another_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let here = std::thread::current().id();
        // It exits, it does not exist, and no connector supports it.
        for server in [r#"{"command":"true"}"#, r#"{"command":"/does/not/exist"}"#, r#"{"url":"http://127.0.0.1:1/"}"#]
        {
            for is_large in [false, true] {
                let recorder = Arc::new(Recorder { is_large, ended_on: Mutex::default() });
                let observer = Arc::clone(&recorder) as Arc<dyn UpstreamObserver>;
                let (_stop, stopping) = watch::channel(Stop::Never);
                runtime.block_on(upstream(server).run(observer, stopping, None));
                let ended_on = recorder.ended_on.lock().unwrap();
                assert_eq!(ended_on.iter().map(|&thread| thread != here).collect::<Vec<_>>(), [is_large], "{server}");
            }
        }
    }
}
