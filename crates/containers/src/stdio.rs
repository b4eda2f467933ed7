//! A server talked to over its container's stdin and stdout. Where it stands in its life is where the code stands in
//! [`running`].
//!
//! The engine sends stdout and stderr in frames on one stream. They are taken apart here and put into pipes, at whose
//! other ends everything is as it is for a program of ours: the same bytes, the same back-pressure.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use bollard::container::{AttachContainerResults, LogOutput};
use catalog::{Container, Kind};
use futures_util::StreamExt;
use protocol::Lifecycle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use upstream::failure::Cause;
use upstream::stderr::Tail;
use upstream::stream::{Sink, Source};
use upstream::transport::UpstreamTransport;
use upstream::{
    Connection, Ending, Outbox, Phase, ProcessInfo, Stop, Upstream, UpstreamObserver, tell_changed, tell_running,
};

use crate::container::RunningContainer;
use crate::engine::Engine;
use crate::error::ContainerError;
use crate::{Containers, failed, not_started, unless_stuck};

/// How long we read on after a server's end.
const DRAIN_GRACE: Duration = Duration::from_millis(500);
/// How long the engine may take to tell of the end of a container whose output has ended. While it starts one again, it
/// answers nothing.
const ENGINE_EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How much is carried to the engine at once.
const SHARE: usize = 64 << 10;

/// A container with everything we hold on it.
struct RunningServer {
    container: RunningContainer,
    connection: Arc<Connection>,
    outbox: Arc<Outbox>,
    reader_task: JoinHandle<()>,
    others: Vec<JoinHandle<()>>,
    tail: Tail,
}

/// Lives the server's life; returns when nothing of it is left.
pub(crate) async fn run(
    containers: &Containers,
    engine: &Engine,
    upstream: &Upstream,
    wanted: &Container,
    observer: &Arc<dyn UpstreamObserver>,
    mut stop: watch::Receiver<Stop>,
) {
    let mut lifecycle = upstream.spec.lifecycle;
    let mut earlier: Option<(Arc<Ending>, Vec<String>)> = None;
    loop {
        let started = unless_stuck(start(containers, engine, upstream, wanted, observer), &stop).await;
        let mut running = match started {
            Some(Ok(running)) => running,
            Some(Err(error)) => return upstream.ended(&**observer, &Arc::new(not_started(upstream, error))),
            None => return upstream.ended(&**observer, &Arc::new(Ending::Stopped)),
        };
        let mut ending = Arc::new(serve(upstream, &mut running, observer, lifecycle, &mut stop).await);
        // As with programs: some that know only one lifecycle end when they hear the other first.
        if lifecycle.is_none() && !upstream.handshake.tools_only && ended_over_greeting(&running, &ending) {
            running.connection.end(&ending);
            let stderr_lines = clean_up(containers, running, &ending, &mut stop).await;
            earlier = Some((ending, stderr_lines));
            lifecycle = Some(upstream.handshake.first_lifecycle_now().other());
            continue;
        }
        let mut first_words = None;
        if let Some((first, words)) = earlier.take()
            && matches!(&*ending, Ending::Failed { phase: Phase::Initialization, .. })
        {
            ending = first;
            first_words = Some(words);
        }
        observer.on_ended(upstream.index, &ending);
        running.connection.end(&ending);
        let stderr_lines = clean_up(containers, running, &ending, &mut stop).await;
        return upstream.report(&**observer, &ending, first_words.unwrap_or(stderr_lines));
    }
}

async fn start(
    containers: &Containers,
    engine: &Engine,
    upstream: &Upstream,
    wanted: &Container,
    observer: &Arc<dyn UpstreamObserver>,
) -> Result<RunningServer, ContainerError> {
    let pipes = Pipes::new().map_err(|error| no_pipes(&error))?;
    let tail = Tail::hiding(upstream.spec.secrets.clone()).keeping_more();
    let (container, attached) = RunningContainer::open(containers, engine, upstream, wanted, &tail).await?;
    observer.on_container(upstream.index, Arc::clone(&container.stats) as _);
    observer.on_process(upstream.index, ProcessInfo { process: None, tail: tail.clone() });
    let Pipes { sink, stdout, stderr, carried } = pipes;
    let outbox = Arc::new(Outbox::new(sink));
    let connection =
        Arc::new(Connection::new(upstream.connection_context(observer), UpstreamTransport::Pipe(Arc::clone(&outbox))));
    let reader_task = tokio::spawn(Arc::clone(&connection).listen(stdout));
    let draining = tokio::spawn({
        let outbox = Arc::clone(&outbox);
        async move { outbox.drain().await }
    });
    let stderr_tasks = tokio::spawn(tail.clone().follow(upstream.spec.name.clone(), stderr));
    let AttachContainerResults { output, input } = attached;
    let mut others = vec![draining, stderr_tasks];
    others.push(tokio::spawn(carry_in(carried.stdin, input)));
    others.push(tokio::spawn(carry_out(output, carried.stdout, carried.stderr)));
    Ok(RunningServer { container, connection, outbox, reader_task, others, tail })
}

/// Three pipes: our ends of them, and those that lead to the engine.
struct Pipes {
    sink: Sink,
    stdout: Source,
    stderr: Source,
    carried: Carried,
}

struct Carried {
    stdin: pipe::Receiver,
    stdout: pipe::Sender,
    stderr: pipe::Sender,
}

impl Pipes {
    fn new() -> io::Result<Self> {
        let (stdin_theirs, stdin) = io::pipe()?;
        let (stdout, stdout_theirs) = io::pipe()?;
        let (stderr, stderr_theirs) = io::pipe()?;
        Ok(Self {
            sink: Sink::adopt(OwnedFd::from(stdin))?.0,
            stdout: Source::adopt(OwnedFd::from(stdout))?,
            stderr: Source::adopt(OwnedFd::from(stderr))?.with_small_share(),
            carried: Carried {
                stdin: pipe::Receiver::from_owned_fd(stdin_theirs.into())?,
                stdout: pipe::Sender::from_owned_fd(stdout_theirs.into())?,
                stderr: pipe::Sender::from_owned_fd(stderr_theirs.into())?,
            },
        })
    }
}

fn no_pipes(error: &io::Error) -> ContainerError {
    ContainerError::Refused { operation: "be talked to, for want of pipes", words: error.to_string() }
}

/// What we say, to the container's stdin; when we are done, so is that.
async fn carry_in(mut from: pipe::Receiver, mut to: std::pin::Pin<Box<dyn tokio::io::AsyncWrite + Send>>) {
    let mut buffer = vec![0; SHARE];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => {
                let sent = async {
                    to.write_all(&buffer[..count]).await?;
                    to.flush().await
                };
                // Whoever waits for an answer hears of it from the end of the container.
                if sent.await.is_err() {
                    return;
                }
            }
        }
    }
    to.shutdown().await.ok();
}

/// What the container says, each stream to its own pipe.
async fn carry_out(
    mut from: std::pin::Pin<Box<dyn futures_util::Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>,
    mut stdout: pipe::Sender,
    mut stderr: pipe::Sender,
) {
    while let Some(Ok(said)) = from.next().await {
        let written = match said {
            LogOutput::StdOut { message } => stdout.write_all(&message).await,
            // Nobody may be left to read it, and the rest matters all the same.
            LogOutput::StdErr { message } => stderr.write_all(&message).await.or(Ok(())),
            LogOutput::StdIn { .. } => Ok(()),
            // What is in no frame is half a frame: the engine has gone.
            LogOutput::Console { .. } => return,
        };
        if written.is_err() {
            return;
        }
    }
}

/// Whether it went away over the first thing it was told. The end of its container says that it closed its output.
fn ended_over_greeting(running: &RunningServer, ending: &Ending) -> bool {
    match ending {
        Ending::Failed { phase, cause: Cause::Container { .. } } if running.container.has_left => {
            running.connection.ended_over_greeting(&failed(*phase, Cause::ClosedOutput))
        }
        other => running.connection.ended_over_greeting(other),
    }
}

/// From the first question to the last answer.
async fn serve(
    upstream: &Upstream,
    running: &mut RunningServer,
    observer: &Arc<dyn UpstreamObserver>,
    lifecycle: Option<Lifecycle>,
    stop: &mut watch::Receiver<Stop>,
) -> Ending {
    let RunningServer { container, connection, outbox, reader_task, .. } = running;
    let mut await_unexpected_end = std::pin::pin!(await_unexpected_end(container, connection, outbox, reader_task));
    let offer = tokio::select! {
        // Stopping wins, so that an orderly end is never reported as a failure.
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => return Ending::Stopped,
        cause = &mut await_unexpected_end => return failed(Phase::Initialization, cause.hiding(&upstream.spec.secrets)),
        met = upstream.handshake.perform(connection, lifecycle, |_| {}) => match met {
            Ok(offer) => offer,
            Err(cause) => return failed(Phase::Initialization, cause.hiding(&upstream.spec.secrets)),
        },
    };
    tracing::debug!(server = %upstream.spec.name, lifecycle = ?offer.lifecycle, tools = offer.items(Kind::Tool).len(), "server is running");
    tell_running(observer, upstream.index, connection, offer.clone()).await;
    tokio::select! {
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => Ending::Stopped,
        cause = &mut await_unexpected_end => failed(Phase::Runtime, cause.hiding(&upstream.spec.secrets)),
        () = upstream.handshake.follow_changes(connection, offer, |offer| tell_changed(observer, connection, offer)) => {
            Ending::Stopped
        }
    }
}

/// Waits for the end of a server that was not asked to end.
async fn await_unexpected_end(
    container: &mut RunningContainer,
    connection: &Connection,
    outbox: &Outbox,
    reader_task: &mut JoinHandle<()>,
) -> Cause {
    let (sign, mut ended) = tokio::select! {
        ended = &mut container.ending => (Cause::ClosedOutput, Some(ended)),
        _ = &mut *reader_task => (Cause::ClosedOutput, None),
        () = outbox.closed() => (Cause::ClosedInput, None),
    };
    if ended.is_none() {
        // How the container ended says best what happened.
        ended = timeout(ENGINE_EXIT_TIMEOUT, &mut container.ending).await.ok();
    }
    connection.read_on();
    if !reader_task.is_finished() {
        drop(timeout(DRAIN_GRACE, reader_task).await);
    }
    match ended {
        Some(Ok(error)) => {
            container.has_left = matches!(error, ContainerError::Exited { .. });
            error.into()
        }
        Some(Err(_)) => Cause::Broken,
        None => sign,
    }
}

/// Ends the container if it has not ended, and removes it; returns its last words.
async fn clean_up(
    containers: &Containers,
    running: RunningServer,
    ending: &Ending,
    stop: &mut watch::Receiver<Stop>,
) -> Vec<String> {
    let RunningServer { container, outbox, reader_task, others, tail, .. } = running;
    outbox.close();
    container.close(containers, ending, stop).await;
    outbox.abort();
    for task in others.into_iter().chain([reader_task]) {
        // One that has ended may have been waited for already, and must not be again.
        let handle = task.abort_handle();
        if !task.is_finished() && timeout(DRAIN_GRACE, task).await.is_err() {
            handle.abort();
        }
    }
    tail.lines()
}
