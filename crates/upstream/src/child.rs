//! A server that we start ourselves. Where it stands in its life is where the code stands in [`run`].

use std::sync::Arc;
use std::time::Duration;

use catalog::{Kind, Program};
use protocol::Lifecycle;
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::connection::Connection;
use crate::failure::{Cause, Ending, Phase};
use crate::outbox::Outbox;
use crate::process::{Process, StartError, Streams};
use crate::process_info::ProcessInfo;
use crate::process_mark;
use crate::server::{Stop, Upstream, UpstreamObserver, tell_changed, tell_running};
use crate::stderr::{Tail, cause_lines};
use crate::stream::{Sink, Source};
use crate::transport::UpstreamTransport;

/// How long a server may take to end by itself once its input has ended.
const CLOSE_GRACE: Duration = Duration::from_secs(1);
/// How long it may take once it was asked to terminate.
const TERM_GRACE: Duration = Duration::from_secs(1);
/// How long we read on after a server's end, or wait for its end after its last word.
const DRAIN_GRACE: Duration = Duration::from_millis(500);

/// How long those who wait for an answer wait for a server's last words.
const STDERR_GRACE: Duration = Duration::from_millis(100);

/// A process with everything we hold on it.
struct RunningServer {
    process: Process,
    connection: Arc<Connection>,
    outbox: Arc<Outbox>,
    reader_task: JoinHandle<()>,
    writer_task: JoinHandle<()>,
    stderr_task: JoinHandle<()>,
    tail: Tail,
}

impl RunningServer {
    /// Takes in what the process said last, for those who wait for its answer. What it said is in the pipe already, unless
    /// somebody it started goes on talking.
    async fn drain_stderr(&mut self) {
        if !self.stderr_task.is_finished() {
            drop(timeout(STDERR_GRACE, &mut self.stderr_task).await);
        }
        self.connection.set_last_stderr_line(&cause_lines(self.tail.lines().iter().map(String::as_str)).join("; "));
    }
}

/// Lives the server's life; returns when nothing of it is left.
pub(crate) async fn run(
    upstream: &Upstream,
    program: &Program,
    observer: &Arc<dyn UpstreamObserver>,
    mut stop: watch::Receiver<Stop>,
) {
    let mut lifecycle = upstream.spec.lifecycle;
    // How the first attempt ended, if there was a second.
    let mut earlier: Option<(Arc<Ending>, Vec<String>)> = None;
    loop {
        let mut running = match start(upstream, program, observer) {
            Ok(running) => running,
            Err(cause) => {
                return upstream.ended(&**observer, &Arc::new(Ending::Failed { phase: Phase::Startup, cause }));
            }
        };
        let mut ending = Arc::new(serve(upstream, &mut running, observer, lifecycle, &mut stop).await);
        // Some servers that know only one lifecycle end when they hear the other first: a second one is met in the other.
        if lifecycle.is_none() && !upstream.handshake.tools_only && running.connection.ended_over_greeting(&ending) {
            let other = upstream.handshake.first_lifecycle_now().other();
            tracing::debug!(server = %upstream.spec.name, ?other, "it ended over the first request; starting it again for the other era");
            running.connection.end(&ending);
            let stderr_lines = clean_up(upstream, running, &ending, stop.clone()).await;
            earlier = Some((ending, stderr_lines));
            lifecycle = Some(other);
            continue;
        }
        let mut first_words = None;
        if let Some((first, words)) = earlier.take()
            && matches!(&*ending, Ending::Failed { phase: Phase::Initialization, .. })
        {
            // It does not speak the other lifecycle either, so what happened first explains best what is wrong.
            ending = first;
            first_words = Some(words);
        }
        if matches!(&*ending, Ending::Failed { cause: Cause::Exited(_), .. }) && running.connection.open_calls() > 0 {
            running.drain_stderr().await;
        }
        observer.on_ended(upstream.index, &ending);
        running.connection.end(&ending);
        let stderr_lines = clean_up(upstream, running, &ending, stop).await;
        return upstream.report(&**observer, &ending, first_words.unwrap_or(stderr_lines));
    }
}

fn start(upstream: &Upstream, program: &Program, observer: &Arc<dyn UpstreamObserver>) -> Result<RunningServer, Cause> {
    let (tag, watchdog) = (upstream.instance_mark.tag_of(upstream.index), &*upstream.watchdog);
    let (process, Streams { stdin, stdout, stderr }) =
        Process::start(program, upstream.withheld, &upstream.environment, tag, watchdog)?;
    let group = process.group();
    watchdog.guard(group);
    let adopted = |source| {
        // The process is killed when it is dropped, and its number may be somebody else's next.
        watchdog.release(group);
        Cause::Start(StartError::System { path: program.command.shown().into(), source })
    };
    let (sink, _) = Sink::adopt(stdin).map_err(adopted)?;
    let outbox = Arc::new(Outbox::new(sink));
    let name = &upstream.spec.name;
    let connection =
        Arc::new(Connection::new(upstream.connection_context(observer), UpstreamTransport::Pipe(Arc::clone(&outbox))));
    let reader_task = tokio::spawn(Arc::clone(&connection).listen(Source::adopt(stdout).map_err(adopted)?));
    let writer_task = tokio::spawn({
        let outbox = Arc::clone(&outbox);
        async move { outbox.drain().await }
    });
    let tail = Tail::hiding(upstream.spec.secrets.clone());
    // The tiny program has nobody who would read more.
    let tail = if upstream.handshake.tools_only { tail } else { tail.keeping_more() };
    let process_id = u32::try_from(group.as_raw_nonzero().get()).ok();
    observer.on_process(upstream.index, ProcessInfo { process: process_id, tail: tail.clone() });
    let source = Source::adopt(stderr).map_err(adopted)?.with_small_share();
    let stderr_task = tokio::spawn(tail.clone().follow(name.clone(), source));
    Ok(RunningServer { process, connection, outbox, reader_task, writer_task, stderr_task, tail })
}

/// From the first question to the last answer.
async fn serve(
    upstream: &Upstream,
    running: &mut RunningServer,
    observer: &Arc<dyn UpstreamObserver>,
    lifecycle: Option<Lifecycle>,
    stop: &mut watch::Receiver<Stop>,
) -> Ending {
    let RunningServer { process, connection, outbox, reader_task, .. } = running;
    let failed = |phase, cause: Cause| Ending::Failed { phase, cause: cause.hiding(&upstream.spec.secrets) };
    // One for the whole life: what it has seen of the end must not be forgotten between the phases.
    let mut await_unexpected_end = std::pin::pin!(await_unexpected_end(process, connection, outbox, reader_task));

    let offer = tokio::select! {
        // Stopping wins, so that an orderly end is never reported as a failure.
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => return Ending::Stopped,
        cause = &mut await_unexpected_end => return failed(Phase::Initialization, cause),
        met = upstream.handshake.perform(connection, lifecycle, |_| {}) => match met {
            Ok(offer) => offer,
            Err(cause) => return failed(Phase::Initialization, cause),
        },
    };
    tracing::debug!(server = %upstream.spec.name, lifecycle = ?offer.lifecycle, tools = offer.items(Kind::Tool).len(), "server is running");
    tell_running(observer, upstream.index, connection, offer.clone()).await;

    tokio::select! {
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => Ending::Stopped,
        cause = &mut await_unexpected_end => failed(Phase::Runtime, cause),
        () = upstream.handshake.follow_changes(connection, offer, |offer| tell_changed(observer, connection, offer)) => {
            Ending::Stopped
        }
    }
}

/// Ends the process if it has not ended, then whatever it left behind; returns its last words.
async fn clean_up(
    upstream: &Upstream,
    running: RunningServer,
    ending: &Ending,
    mut stop: watch::Receiver<Stop>,
) -> Vec<String> {
    let RunningServer { mut process, connection, outbox, reader_task, writer_task, stderr_task, tail } = running;
    end_process(&mut process, &connection, &outbox, ending, &mut stop).await;
    let group = process.group();
    process.clean_up().await;
    upstream.watchdog.release(group);
    outbox.abort();

    // The pipes are read until here, so that nothing blocks on them; a leftover that holds one open is not waited for.
    for task in [writer_task, reader_task, stderr_task] {
        // One that has ended may have been waited for already, and must not be again.
        let handle = task.abort_handle();
        if !task.is_finished() && timeout(DRAIN_GRACE, task).await.is_err() {
            handle.abort();
        }
    }
    if upstream.cleans_up_leftovers || matches!(ending, Ending::Failed { .. }) {
        // When everything stops the watchdog looks once for all servers; here only this one is gone.
        let mark = upstream.instance_mark.mark_of(upstream.index);
        let swept = tokio::task::spawn_blocking(move || process_mark::signal_all(&mark, Signal::KILL));
        drop(swept.await);
    }
    tail.lines()
}

/// Waits for the end of a server that was not asked to end.
async fn await_unexpected_end(
    process: &mut Process,
    connection: &Connection,
    outbox: &Outbox,
    reader_task: &mut JoinHandle<()>,
) -> Cause {
    let sign = tokio::select! {
        _ = process.ended() => None,
        _ = &mut *reader_task => Some(Cause::ClosedOutput),
        () = outbox.closed() => Some(Cause::ClosedInput),
    };
    // A server that dies closes everything; its exit status says best what happened.
    let status = timeout(DRAIN_GRACE, process.ended()).await;
    // What it said before it ended still counts, however slowly it is taken from us.
    connection.read_on();
    if !reader_task.is_finished() {
        drop(timeout(DRAIN_GRACE, reader_task).await);
    }
    match (status, sign) {
        (Ok(Ok(status)), _) => Cause::Exited(status),
        (_, Some(sign)) => sign,
        (_, None) => Cause::ClosedOutput,
    }
}

/// The ladder: end its input, ask it to terminate, kill it; each step only if the one before was not enough.
async fn end_process(
    process: &mut Process,
    connection: &Connection,
    outbox: &Outbox,
    ending: &Ending,
    stop: &mut watch::Receiver<Stop>,
) {
    outbox.close();
    let patient = matches!(ending, Ending::Stopped);
    if patient && (ends_within(process, CLOSE_GRACE, Stop::Promptly, stop).await) {
        return;
    }
    process.signal(Signal::TERM);
    if ends_within(process, TERM_GRACE, Stop::Now, stop).await {
        return;
    }
    process.signal(Signal::KILL);
    if let Err(error) = process.ended().await {
        tracing::warn!(server = %connection.server(), %error, "could not wait for the end of a server");
    }
}

/// Whether the process ended within its grace; the grace ends early when stopping becomes more urgent.
async fn ends_within(process: &mut Process, grace: Duration, urgent: Stop, stop: &mut watch::Receiver<Stop>) -> bool {
    let deadline = Instant::now() + grace;
    tokio::select! {
        ended = process.ends_before(deadline) => ended,
        _ = stop.wait_for(|&stop| stop >= urgent) => false,
    }
}
