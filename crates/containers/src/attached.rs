//! A server talked to over its container's stdin and stdout. Where it stands in its life is where the code stands in
//! [`live`].
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
use protocol::Era;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use upstream::failure::Cause;
use upstream::stderr::Tail;
use upstream::stream::{Sink, Source};
use upstream::wire::Wire;
use upstream::{Connection, Ending, Outbox, Phase, Signs, Stop, Upstream, Watcher, tell_changed, tell_running};

use crate::engine::Engine;
use crate::house::House;
use crate::trouble::Trouble;
use crate::{Containers, failed, not_started, unless_stuck};

/// How long we read on after a server's end.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long the engine may take to tell of the end of a container whose output has ended. While it starts one again, it
/// answers nothing.
const VERDICT: Duration = Duration::from_secs(5);
/// How much is carried to the engine at once.
const SHARE: usize = 64 << 10;

/// A container with everything we hold on it.
struct Live {
    house: House,
    connection: Arc<Connection>,
    outbox: Arc<Outbox>,
    listening: JoinHandle<()>,
    others: Vec<JoinHandle<()>>,
    tail: Tail,
}

/// Lives the server's life; returns when nothing of it is left.
pub(crate) async fn live(
    containers: &Containers,
    engine: &Engine,
    upstream: &Upstream,
    wanted: &Container,
    watcher: &Arc<dyn Watcher>,
    mut stop: watch::Receiver<Stop>,
) {
    let mut era = upstream.spec.era;
    let mut earlier: Option<(Arc<Ending>, Vec<String>)> = None;
    loop {
        let started = unless_stuck(start(containers, engine, upstream, wanted, watcher), &stop).await;
        let mut live = match started {
            Some(Ok(live)) => live,
            Some(Err(trouble)) => return upstream.ended(&**watcher, &Arc::new(not_started(upstream, trouble))),
            None => return upstream.ended(&**watcher, &Arc::new(Ending::Stopped)),
        };
        let mut ending = Arc::new(serve(upstream, &mut live, watcher, era, &mut stop).await);
        // As with programs: some that know only one era end when they hear the other first.
        if era.is_none() && !upstream.manners.tools_only && ended_over_greeting(&live, &ending) {
            live.connection.end(&ending);
            let last_words = clear_up(containers, live, &ending, &mut stop).await;
            earlier = Some((ending, last_words));
            era = Some(upstream.manners.first_era_now().other());
            continue;
        }
        let mut first_words = None;
        if let Some((first, words)) = earlier.take()
            && matches!(&*ending, Ending::Failed { phase: Phase::Initialization, .. })
        {
            ending = first;
            first_words = Some(words);
        }
        watcher.ended(upstream.index, &ending);
        live.connection.end(&ending);
        let last_words = clear_up(containers, live, &ending, &mut stop).await;
        return upstream.report(&**watcher, &ending, first_words.unwrap_or(last_words));
    }
}

async fn start(
    containers: &Containers,
    engine: &Engine,
    upstream: &Upstream,
    wanted: &Container,
    watcher: &Arc<dyn Watcher>,
) -> Result<Live, Trouble> {
    let pipes = Pipes::new().map_err(|error| no_pipes(&error))?;
    let tail = Tail::hiding(upstream.spec.secrets.clone()).keeping_more();
    let (house, attached) = House::open(containers, engine, upstream, wanted, &tail).await?;
    watcher.housed(upstream.index, Arc::clone(&house.gauge) as _);
    watcher.signs_of_life(upstream.index, Signs { process: None, tail: tail.clone() });
    let Pipes { sink, stdout, stderr, carried } = pipes;
    let outbox = Arc::new(Outbox::new(sink));
    let connection = Arc::new(Connection::new(upstream.surroundings(watcher), Wire::Pipe(Arc::clone(&outbox))));
    let listening = tokio::spawn(Arc::clone(&connection).listen(stdout));
    let draining = tokio::spawn({
        let outbox = Arc::clone(&outbox);
        async move { outbox.drain().await }
    });
    let muttering = tokio::spawn(tail.clone().follow(upstream.spec.name.clone(), stderr));
    let AttachContainerResults { output, input } = attached;
    let mut others = vec![draining, muttering];
    others.push(tokio::spawn(carry_in(carried.stdin, input)));
    others.push(tokio::spawn(carry_out(output, carried.stdout, carried.stderr)));
    Ok(Live { house, connection, outbox, listening, others, tail })
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

fn no_pipes(error: &io::Error) -> Trouble {
    Trouble::Refused { deed: "be talked to, for want of pipes", words: error.to_string() }
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
fn ended_over_greeting(live: &Live, ending: &Ending) -> bool {
    match ending {
        Ending::Failed { phase, cause: Cause::Container { .. } } if live.house.has_left => {
            live.connection.ended_over_greeting(&failed(*phase, Cause::ClosedOutput))
        }
        other => live.connection.ended_over_greeting(other),
    }
}

/// From the first question to the last answer.
async fn serve(
    upstream: &Upstream,
    live: &mut Live,
    watcher: &Arc<dyn Watcher>,
    era: Option<Era>,
    stop: &mut watch::Receiver<Stop>,
) -> Ending {
    let Live { house, connection, outbox, listening, .. } = live;
    let mut last_breath = std::pin::pin!(last_breath(house, connection, outbox, listening));
    let offer = tokio::select! {
        // Stopping wins, so that an orderly end is never reported as a failure.
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => return Ending::Stopped,
        cause = &mut last_breath => return failed(Phase::Initialization, cause.hiding(&upstream.spec.secrets)),
        met = upstream.manners.meet(connection, era, |_| {}) => match met {
            Ok(offer) => offer,
            Err(cause) => return failed(Phase::Initialization, cause.hiding(&upstream.spec.secrets)),
        },
    };
    tracing::debug!(server = %upstream.spec.name, era = ?offer.era, tools = offer.items(Kind::Tool).len(), "server is running");
    tell_running(watcher, upstream.index, connection, offer.clone()).await;
    tokio::select! {
        biased;
        _ = stop.wait_for(|&stop| stop > Stop::Never) => Ending::Stopped,
        cause = &mut last_breath => failed(Phase::Runtime, cause.hiding(&upstream.spec.secrets)),
        () = upstream.manners.follow_changes(connection, offer, |offer| tell_changed(watcher, connection, offer)) => {
            Ending::Stopped
        }
    }
}

/// Waits for the end of a server that was not asked to end.
async fn last_breath(
    house: &mut House,
    connection: &Connection,
    outbox: &Outbox,
    listening: &mut JoinHandle<()>,
) -> Cause {
    let (sign, mut ended) = tokio::select! {
        ended = &mut house.ending => (Cause::ClosedOutput, Some(ended)),
        _ = &mut *listening => (Cause::ClosedOutput, None),
        () = outbox.closed() => (Cause::ClosedInput, None),
    };
    if ended.is_none() {
        // How the container ended says best what happened.
        ended = timeout(VERDICT, &mut house.ending).await.ok();
    }
    connection.read_on();
    if !listening.is_finished() {
        drop(timeout(LAST_WORDS, listening).await);
    }
    match ended {
        Some(Ok(trouble)) => {
            house.has_left = matches!(trouble, Trouble::Exited { .. });
            trouble.into()
        }
        Some(Err(_)) => Cause::Broken,
        None => sign,
    }
}

/// Ends the container if it has not ended, and removes it; returns its last words.
async fn clear_up(
    containers: &Containers,
    live: Live,
    ending: &Ending,
    stop: &mut watch::Receiver<Stop>,
) -> Vec<String> {
    let Live { house, outbox, listening, others, tail, .. } = live;
    outbox.close();
    house.close(containers, ending, stop).await;
    outbox.abort();
    for task in others.into_iter().chain([listening]) {
        // One that has ended may have been waited for already, and must not be again.
        let handle = task.abort_handle();
        if !task.is_finished() && timeout(LAST_WORDS, task).await.is_err() {
            handle.abort();
        }
    }
    tail.lines()
}
