//! A server over HTTP at a port of its container: the container is ours, the connection is that of any remote server.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bollard::container::{AttachContainerResults, LogOutput};
use bytes::Bytes;
use catalog::{Contact, Container, Filled, Offer, Remote, ServerSpec, Transport};
use futures_util::StreamExt;
use protocol::Envelope;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use upstream::stderr::Tail;
use upstream::stream::Source;
use upstream::{
    Cause, Connection, Connector, ContainerHandle, Ending, Phase, ProcessInfo, Report, ServerRequest, Stop, Upstream,
    UpstreamObserver, report_ended,
};

use crate::container::RunningContainer;
use crate::engine::Engine;
use crate::error::ContainerError;
use crate::spec::LOOPBACK;
use crate::{Containers, failed, not_started, unless_stuck};

/// How often the port is tried.
const CONNECT_RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// How long a connection must last to reach a listener. An engine's proxy accepts it, and drops it if there is none.
const CONNECTION_STABLE_AFTER: Duration = Duration::from_millis(100);
/// How long the engine may take to report the end of a container, once the connection is lost.
const ENGINE_EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long we continue reading after its end.
const DRAIN_GRACE: Duration = Duration::from_millis(500);

/// Runs the server; returns when all of it has ended.
pub(crate) async fn run(
    containers: &Containers,
    engine: &Engine,
    upstream: Upstream,
    wanted: &Container,
    observer: Arc<dyn UpstreamObserver>,
    mut stop: watch::Receiver<Stop>,
    remote: Connector,
) {
    let tail = Tail::hiding(upstream.spec.secrets.clone()).keeping_more();
    let opened = unless_stuck(RunningContainer::open(containers, engine, &upstream, wanted, &tail), &stop).await;
    let (mut container, attached) = match opened {
        Some(Ok(opened)) => opened,
        Some(Err(error)) => return upstream.ended(&observer, &Arc::new(not_started(&upstream, error))).await,
        None => return upstream.ended(&observer, &Arc::new(Ending::Stopped)).await,
    };
    observer.on_container(upstream.index, Arc::clone(&container.stats) as _);
    observer.on_process(upstream.index, ProcessInfo { process: None, tail: tail.clone() });
    let stderr_tasks = read_output(&upstream, &tail, attached);
    let ending = serve(&upstream, &mut container, wanted, &observer, &mut stop, &remote).await;
    container.close(containers, &ending, &mut stop).await;
    for task in stderr_tasks {
        let handle = task.abort_handle();
        if timeout(DRAIN_GRACE, task).await.is_err() {
            handle.abort();
        }
    }
    upstream.report(&*observer, &ending, tail.lines());
}

/// From a started container to one that is to be closed. The end has been reported by then.
async fn serve(
    upstream: &Upstream,
    container: &mut RunningContainer,
    wanted: &Container,
    observer: &Arc<dyn UpstreamObserver>,
    stop: &mut watch::Receiver<Stop>,
    remote: &Connector,
) -> Arc<Ending> {
    let report = async |ending: Ending| {
        let ending = Arc::new(ending);
        report_ended(observer, upstream.index, &ending).await;
        ending
    };
    let inside = wanted.ports.first().map_or(0, |port| port.inside);
    let Some(&here) = container.ports.get(&inside) else {
        return report(failed(Phase::Startup, ContainerError::NotPublished { port: inside }.into())).await;
    };
    let failure = tokio::select! {
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => Some(Ending::Stopped),
        ended = &mut container.ending => Some(failed(Phase::Initialization, cause_of(ended))),
        heard = listens(here, upstream.handshake.start_timeout) => {
            (!heard).then(|| failed(Phase::Initialization, ContainerError::Deaf { port: inside }.into()))
        }
    };
    if let Some(ending) = failure {
        return report(ending).await;
    }

    let container_observer = Arc::new(ContainerObserver {
        outer: Arc::clone(observer),
        connection: Mutex::default(),
        ended: Mutex::default(),
    });
    let (inner_stop, stopping) = watch::channel(Stop::Never);
    let mut connection_task = remote(over_http(upstream, wanted, here), Arc::clone(&container_observer) as _, stopping);
    let mut has_ended = false;
    loop {
        tokio::select! {
            biased;
            () = &mut connection_task => break,
            // It only ever becomes more urgent, so what was forwarded need not be again.
            how = raised(stop, *inner_stop.borrow()) => {
                inner_stop.send_replace(how);
            }
            ended = &mut container.ending, if !has_ended => {
                has_ended = true;
                let is_asked = *inner_stop.borrow() > Stop::Never;
                if !is_asked {
                    container_observer.container_ended(upstream.index, cause_of(ended).hiding(&upstream.spec.secrets)).await;
                }
                inner_stop.send_replace(Stop::Now);
            }
        }
    }
    let Some(ending) = container_observer.ended().take() else {
        return report(failed(Phase::Runtime, Cause::Broken)).await;
    };
    if !is_first_failure(&ending) || has_ended {
        return ending;
    }
    // How the container ended, if it did, explains best what happened.
    match timeout(DRAIN_GRACE, &mut container.ending).await {
        Ok(ended) => report(failed(Phase::Initialization, cause_of(ended).hiding(&upstream.spec.secrets))).await,
        Err(_) => {
            report_ended(observer, upstream.index, &ending).await;
            ending
        }
    }
}

/// Whether the server never became ready. Then no request is pending that would have to wait for the cause.
fn is_first_failure(ending: &Ending) -> bool {
    matches!(ending, Ending::Failed { phase: Phase::Initialization, .. })
}

/// Waits until the stop is more urgent than that.
async fn raised(stop: &mut watch::Receiver<Stop>, than: Stop) -> Stop {
    let raised = stop.wait_for(|&stop| stop > than).await.ok().map(|stop| *stop);
    match raised {
        Some(stop) => stop,
        // The sender was dropped.
        None => std::future::pending().await,
    }
}

fn cause_of(ended: Result<ContainerError, tokio::task::JoinError>) -> Cause {
    ended.map_or(Cause::Broken, Cause::from)
}

/// The same server as a remote one.
fn over_http(upstream: &Upstream, wanted: &Container, here: u16) -> Upstream {
    let (dialect, path, headers) = match &wanted.contact {
        Contact::Http { dialect, path, headers } => (*dialect, path.as_str(), headers.clone()),
        Contact::Stdio => (catalog::Dialect::Unknown, "/", Vec::new()),
    };
    let url = Filled::from(format!("http://{LOOPBACK}:{here}{path}").as_str());
    Upstream {
        index: upstream.index,
        audience: upstream.audience.clone(),
        mark_number: upstream.mark_number,
        spec: ServerSpec {
            transport: Transport::Remote(Remote { url, headers, dialect, oauth: None }),
            ..upstream.spec.clone()
        },
        environment: Vec::new(),
        withheld: upstream.withheld,
        handshake: upstream.handshake.clone(),
        instance_mark: Arc::clone(&upstream.instance_mark),
        loop_detector: Arc::clone(&upstream.loop_detector),
        watchdog: Arc::clone(&upstream.watchdog),
        limits: Arc::clone(&upstream.limits),
        cleans_up_leftovers: false,
    }
}

/// Whether the port accepts connections before the timeout.
async fn listens(port: u16, timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    while Instant::now() < deadline {
        if try_connect((Ipv4Addr::LOCALHOST, port).into()).await {
            return true;
        }
        sleep(CONNECT_RETRY_INTERVAL).await;
    }
    false
}

async fn try_connect(address: SocketAddr) -> bool {
    let Ok(Ok(mut stream)) = timeout(CONNECTION_STABLE_AFTER * 10, TcpStream::connect(address)).await else {
        return false;
    };
    // Nothing is sent, so nothing comes back: unless there is no listener, and the connection is dropped.
    timeout(CONNECTION_STABLE_AFTER, stream.read(&mut [0])).await.is_err()
}

/// Reads all output of the container: messages use HTTP, so both streams are logs.
fn read_output(upstream: &Upstream, tail: &Tail, attached: AttachContainerResults) -> Vec<JoinHandle<()>> {
    let pipes = std::io::pipe().and_then(|(reader, writer)| {
        Ok((Source::adopt(reader.into())?.with_small_share(), pipe::Sender::from_owned_fd(writer.into())?))
    });
    let (source, mut sender) = match pipes {
        Ok(pipes) => pipes,
        Err(error) => {
            tracing::warn!(server = %upstream.spec.name, %error, "failed to open a pipe for the output of the container; its log is not kept");
            return Vec::new();
        }
    };
    let following = tokio::spawn(tail.clone().follow(upstream.spec.name.clone(), source));
    let mut output = attached.output;
    let carrying = tokio::spawn(async move {
        while let Some(Ok(LogOutput::StdOut { message } | LogOutput::StdErr { message })) = output.next().await {
            if sender.write_all(&message).await.is_err() {
                return;
            }
        }
    });
    vec![carrying, following]
}

/// Wraps the observer of the connection: if the container ends, that is the cause, not that the connection was lost or
/// that we then closed it.
#[derive(Debug)]
struct ContainerObserver {
    outer: Arc<dyn UpstreamObserver>,
    /// Once it is running.
    connection: Mutex<Option<Arc<Connection>>>,
    /// The end that was reported.
    ended: Mutex<Option<Arc<Ending>>>,
}

impl ContainerObserver {
    /// The container has ended. That is reported before the lost connection can be.
    async fn container_ended(&self, index: usize, cause: Cause) {
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner).take();
        let phase = if connection.is_some() { Phase::Runtime } else { Phase::Initialization };
        let ending = Arc::new(failed(phase, cause));
        *self.ended() = Some(Arc::clone(&ending));
        report_ended(&self.outer, index, &ending).await;
        connection.into_iter().for_each(|connection| connection.end(&ending));
    }

    fn ended(&self) -> MutexGuard<'_, Option<Arc<Ending>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UpstreamObserver for ContainerObserver {
    fn on_running(&self, index: usize, connection: &Arc<Connection>, offer: Offer) {
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(connection));
        self.outer.on_running(index, connection, offer);
    }

    fn on_offer_changed(&self, connection: &Arc<Connection>, offer: Arc<Offer>) {
        self.outer.on_offer_changed(connection, offer);
    }

    fn on_reinitialized(self: Arc<Self>, server: &Arc<Connection>) {
        Arc::clone(&self.outer).on_reinitialized(server);
    }

    fn on_notification(&self, server: &Arc<Connection>, method: &str, line: &Bytes, envelope: &Envelope) {
        self.outer.on_notification(server, method, line, envelope);
    }

    fn on_server_request(&self, index: usize, request: ServerRequest) {
        self.outer.on_server_request(index, request);
    }

    fn has_large_offer(&self, index: usize) -> bool {
        self.outer.has_large_offer(index)
    }

    fn on_ended(&self, index: usize, ending: &Arc<Ending>) {
        {
            let mut ended = self.ended();
            if ended.is_some() {
                return;
            }
            *ended = Some(Arc::clone(ending));
        }
        // That may be because the container has ended: reported when that is known.
        if !is_first_failure(ending) {
            self.outer.on_ended(index, ending);
        }
    }

    fn ending_timeout(&self) -> Duration {
        ENGINE_EXIT_TIMEOUT
    }

    fn on_preparing(&self, index: usize, progress: &str) {
        self.outer.on_preparing(index, progress);
    }

    fn on_container(&self, index: usize, container: Arc<dyn ContainerHandle>) {
        self.outer.on_container(index, container);
    }

    // Reported when the container has ended, with its last output.
    fn on_report(&self, _: usize, _: Report) {}
}
