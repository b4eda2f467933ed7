//! Runs a server over its stdin and stdout, wherever it runs. The phases of its run are the steps of [`run`].
//!
//! A [`StdioHost`] is what differs between a process and a container: how the server is started, how its end is
//! detected, and how it is stopped.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use catalog::Kind;
use protocol::Lifecycle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::connection::Connection;
use crate::failure::{Cause, Ending, Phase};
use crate::outbox::Outbox;
use crate::process_info::ProcessInfo;
use crate::server::{Stop, Upstream, UpstreamObserver, report_ended, report_offer_changed, report_running};
use crate::stderr::{Tail, cause_lines};
use crate::stream::{Sink, Source};
use crate::transport::UpstreamTransport;

/// How long we continue reading after a server's end.
const DRAIN_GRACE: Duration = Duration::from_millis(500);
/// How long pending calls wait for a server's last stderr line.
const STDERR_GRACE: Duration = Duration::from_millis(100);

/// Where a server runs: as a process of ours, or in a container.
pub trait StdioHost: Sync {
    /// A started server.
    type Instance: Send;
    /// How long it may take to learn how the server ended once its pipes have closed.
    const EXIT_TIMEOUT: Duration;

    /// Starts the server, or returns why it failed. Its stderr is collected in `tail`.
    fn start(
        &self,
        tail: &Tail,
        stop: &watch::Receiver<Stop>,
    ) -> impl Future<Output = Result<Started<Self::Instance>, Ending>> + Send;

    /// Waits for the end of the server. `None` if the cause cannot be determined. May be dropped and called again, but
    /// not after it has returned.
    fn ended(&self, instance: &mut Self::Instance) -> impl Future<Output = Option<Cause>> + Send;

    /// Whether the server ended because of the first message it received.
    fn ended_on_first_message(&self, _instance: &Self::Instance, connection: &Connection, ending: &Ending) -> bool {
        connection.ended_on_first_message(ending)
    }

    /// Stops the server, whose input has ended, if it has not ended by itself.
    fn close(
        &self,
        instance: Self::Instance,
        ending: &Ending,
        stop: &mut watch::Receiver<Stop>,
    ) -> impl Future<Output = ()> + Send;

    /// Ends what the server left behind, after its pipes were drained.
    fn remove_leftovers(&self, _ending: &Ending) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// A server that was started.
pub struct Started<I> {
    /// The server.
    pub instance: I,
    /// Our ends of its pipes.
    pub pipes: StdioPipes,
    /// Its process, if it is a visible one.
    pub process: Option<u32>,
    /// Tasks that copy bytes to and from the pipes, where that is needed.
    pub carriers: Vec<JoinHandle<()>>,
}

/// Our ends of a server's stdin, stdout and stderr.
pub struct StdioPipes {
    stdin: Sink,
    stdout: Source,
    stderr: Source,
}

impl StdioPipes {
    /// Adopts our ends.
    pub fn adopt(stdin: OwnedFd, stdout: OwnedFd, stderr: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            stdin: Sink::adopt(stdin)?.0,
            stdout: Source::adopt(stdout)?,
            stderr: Source::adopt(stderr)?.with_small_share(),
        })
    }
}

/// A running server with all its resources.
struct RunningServer<I> {
    instance: I,
    connection: Arc<Connection>,
    outbox: Arc<Outbox>,
    reader_task: JoinHandle<()>,
    writer_task: JoinHandle<()>,
    stderr_task: JoinHandle<()>,
    carriers: Vec<JoinHandle<()>>,
    tail: Tail,
}

impl<I> RunningServer<I> {
    fn new(upstream: &Upstream, observer: &Arc<dyn UpstreamObserver>, started: Started<I>, tail: Tail) -> Self {
        let Started { instance, pipes: StdioPipes { stdin, stdout, stderr }, process, carriers } = started;
        let outbox = Arc::new(Outbox::new(stdin));
        let transport = UpstreamTransport::Pipe(Arc::clone(&outbox));
        let connection = Arc::new(Connection::new(upstream.connection_context(observer), transport));
        let reader_task = tokio::spawn(Arc::clone(&connection).listen(stdout));
        let writer_task = tokio::spawn({
            let outbox = Arc::clone(&outbox);
            async move { outbox.drain().await }
        });
        observer.on_process(upstream.index, ProcessInfo { process, tail: tail.clone() });
        let stderr_task = tokio::spawn(tail.clone().follow(upstream.spec.name.clone(), stderr));
        Self { instance, connection, outbox, reader_task, writer_task, stderr_task, carriers, tail }
    }

    /// Reads the last stderr output for the errors of pending calls. It is in the pipe already, unless a process that
    /// the server started continues writing.
    async fn drain_stderr(&mut self) {
        if !self.stderr_task.is_finished() {
            drop(timeout(STDERR_GRACE, &mut self.stderr_task).await);
        }
        self.connection.set_last_stderr_line(&cause_lines(self.tail.lines().iter().map(String::as_str)).join("; "));
    }
}

/// Runs the server; returns when all of it has ended.
pub async fn run(
    host: &impl StdioHost,
    upstream: &Upstream,
    observer: &Arc<dyn UpstreamObserver>,
    mut stop: watch::Receiver<Stop>,
) {
    let mut lifecycle = upstream.spec.lifecycle;
    // How the first attempt ended, if there was a second.
    let mut earlier: Option<(Arc<Ending>, Vec<String>)> = None;
    loop {
        let tail = Tail::hiding(upstream.spec.secrets.clone());
        // The tools-only program has no use for more.
        let tail = if upstream.handshake.tools_only { tail } else { tail.keeping_more() };
        let mut running = match host.start(&tail, &stop).await {
            Ok(started) => RunningServer::new(upstream, observer, started, tail),
            Err(ending) => return upstream.ended(observer, &Arc::new(ending)).await,
        };
        let mut ending = Arc::new(serve(host, upstream, &mut running, observer, lifecycle, &mut stop).await);
        // Some servers that know only one lifecycle exit when they receive the other first: a second one is started
        // for the other.
        if lifecycle.is_none()
            && !upstream.handshake.tools_only
            && host.ended_on_first_message(&running.instance, &running.connection, &ending)
        {
            let other = upstream.handshake.first_lifecycle_now().other();
            tracing::debug!(server = %upstream.spec.name, ?other, "the server exited on the first request; starting it again for the other kind of revision");
            running.connection.end(&ending);
            let stderr_lines = clean_up(host, running, &ending, &mut stop).await;
            earlier = Some((ending, stderr_lines));
            lifecycle = Some(other);
            continue;
        }
        let mut first_words = None;
        if let Some((first, words)) = earlier.take()
            && matches!(&*ending, Ending::Failed { phase: Phase::Initialization, .. })
        {
            // It does not support the other lifecycle either, so the first ending explains best what is wrong.
            ending = first;
            first_words = Some(words);
        }
        if matches!(&*ending, Ending::Failed { cause: Cause::Exited(_), .. }) && running.connection.open_calls() > 0 {
            running.drain_stderr().await;
        }
        report_ended(observer, upstream.index, &ending).await;
        running.connection.end(&ending);
        let stderr_lines = clean_up(host, running, &ending, &mut stop).await;
        return upstream.report(&**observer, &ending, first_words.unwrap_or(stderr_lines));
    }
}

/// From the first request to the last response.
async fn serve<H: StdioHost>(
    host: &H,
    upstream: &Upstream,
    running: &mut RunningServer<H::Instance>,
    observer: &Arc<dyn UpstreamObserver>,
    lifecycle: Option<Lifecycle>,
    stop: &mut watch::Receiver<Stop>,
) -> Ending {
    let RunningServer { instance, connection, outbox, reader_task, .. } = running;
    let failed = |phase, cause: Cause| Ending::Failed { phase, cause: cause.hiding(&upstream.spec.secrets) };
    // One for the whole run: what it knows of the end must not be lost between the phases.
    let mut await_unexpected_end =
        std::pin::pin!(await_unexpected_end(host, instance, connection, outbox, reader_task));

    let offer = tokio::select! {
        // A stop takes precedence, so that an orderly end is never reported as a failure.
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => return Ending::Stopped,
        cause = &mut await_unexpected_end => return failed(Phase::Initialization, cause),
        met = upstream.handshake.perform(connection, lifecycle, |_| {}) => match met {
            Ok(offer) => offer,
            Err(cause) => return failed(Phase::Initialization, cause),
        },
    };
    tracing::debug!(server = %upstream.spec.name, lifecycle = ?offer.lifecycle, tools = offer.items(Kind::Tool).len(), "server is running");
    report_running(observer, upstream.index, connection, offer.clone()).await;

    tokio::select! {
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => Ending::Stopped,
        cause = &mut await_unexpected_end => failed(Phase::Runtime, cause),
        () = upstream.handshake.follow_changes(connection, offer, |offer| report_offer_changed(observer, connection, offer)) => {
            Ending::Stopped
        }
    }
}

/// Waits for the end of a server that was not stopped.
async fn await_unexpected_end<H: StdioHost>(
    host: &H,
    instance: &mut H::Instance,
    connection: &Connection,
    outbox: &Outbox,
    reader_task: &mut JoinHandle<()>,
) -> Cause {
    let (sign, ended) = tokio::select! {
        ended = host.ended(instance) => (Cause::ClosedOutput, Some(ended)),
        _ = &mut *reader_task => (Cause::ClosedOutput, None),
        () = outbox.closed() => (Cause::ClosedInput, None),
    };
    // A server that exits closes everything; its exit status explains best what happened.
    let ended = match ended {
        Some(ended) => ended,
        None => timeout(H::EXIT_TIMEOUT, host.ended(instance)).await.ok().flatten(),
    };
    // What it sent before it ended still counts, however slowly it is read.
    connection.read_on();
    if !reader_task.is_finished() {
        drop(timeout(DRAIN_GRACE, reader_task).await);
    }
    ended.unwrap_or(sign)
}

/// Stops the server if it has not ended, then what it left behind; returns its last stderr lines.
async fn clean_up<H: StdioHost>(
    host: &H,
    running: RunningServer<H::Instance>,
    ending: &Ending,
    stop: &mut watch::Receiver<Stop>,
) -> Vec<String> {
    let RunningServer { instance, outbox, reader_task, writer_task, stderr_task, carriers, tail, .. } = running;
    outbox.close();
    host.close(instance, ending, stop).await;
    outbox.abort();

    // The pipes are read until here, so that nothing blocks on them; a leftover that holds one open is not waited for.
    for task in [writer_task].into_iter().chain(carriers).chain([reader_task, stderr_task]) {
        // A finished task may have been awaited already, and must not be awaited again.
        let handle = task.abort_handle();
        if !task.is_finished() && timeout(DRAIN_GRACE, task).await.is_err() {
            handle.abort();
        }
    }
    host.remove_leftovers(ending).await;
    tail.lines()
}
