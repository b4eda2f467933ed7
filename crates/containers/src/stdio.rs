//! A server over its container's stdin and stdout.
//!
//! The engine sends stdout and stderr in frames on one stream. They are separated here and written to pipes, at whose
//! other ends everything is as for a child process: the same bytes, the same back-pressure.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bollard::container::{AttachContainerResults, LogOutput};
use catalog::Container;
use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::watch;
use upstream::stderr::Tail;
use upstream::stdio_server::{Started, StdioHost, StdioPipes};
use upstream::{Cause, Connection, Ending, Stop, Upstream, UpstreamObserver};

use crate::container::RunningContainer;
use crate::engine::Engine;
use crate::error::ContainerError;
use crate::{Containers, failed, not_started, unless_stuck};

/// How long the engine may take to report the end of a container whose output has ended. While it restarts one, it
/// does not respond.
const ENGINE_EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// How much is copied to the engine at once.
const SHARE: usize = 64 << 10;

/// A container of ours that runs the server.
pub(crate) struct ContainerHost<'h> {
    pub(crate) containers: &'h Containers,
    pub(crate) engine: &'h Engine,
    pub(crate) upstream: &'h Upstream,
    pub(crate) wanted: &'h Container,
    pub(crate) observer: &'h Arc<dyn UpstreamObserver>,
}

impl ContainerHost<'_> {
    async fn start_container(&self, tail: &Tail) -> Result<Started<RunningContainer>, ContainerError> {
        let Self { containers, engine, upstream, wanted, observer } = self;
        let Pipes { ours, theirs } = Pipes::new().map_err(|error| no_pipes(&error))?;
        let (container, attached) = RunningContainer::open(containers, engine, upstream, wanted, tail).await?;
        observer.on_container(upstream.index, Arc::clone(&container.stats) as _);
        let AttachContainerResults { output, input } = attached;
        let carriers = vec![
            tokio::spawn(copy_stdin(theirs.stdin, input)),
            tokio::spawn(carry_out(output, theirs.stdout, theirs.stderr)),
        ];
        Ok(Started { instance: container, pipes: ours, process: None, carriers })
    }
}

impl StdioHost for ContainerHost<'_> {
    type Instance = RunningContainer;
    const EXIT_TIMEOUT: Duration = ENGINE_EXIT_TIMEOUT;

    async fn start(&self, tail: &Tail, stop: &watch::Receiver<Stop>) -> Result<Started<RunningContainer>, Ending> {
        match unless_stuck(self.start_container(tail), stop).await {
            Some(started) => started.map_err(|error| not_started(self.upstream, error)),
            None => Err(Ending::Stopped),
        }
    }

    async fn ended(&self, container: &mut RunningContainer) -> Option<Cause> {
        let Ok(error) = (&mut container.ending).await else { return Some(Cause::Broken) };
        container.has_left = matches!(error, ContainerError::Exited { .. });
        Some(error.into())
    }

    /// The end of its container shows that it closed its output.
    fn ended_on_first_message(&self, container: &RunningContainer, connection: &Connection, ending: &Ending) -> bool {
        match ending {
            Ending::Failed { phase, cause: Cause::Container { .. } } if container.has_left => {
                connection.ended_on_first_message(&failed(*phase, Cause::ClosedOutput))
            }
            other => connection.ended_on_first_message(other),
        }
    }

    async fn close(&self, container: RunningContainer, ending: &Ending, stop: &mut watch::Receiver<Stop>) {
        container.close(self.containers, ending, stop).await;
    }
}

/// Three pipes: our ends of them, and the ends towards the engine.
struct Pipes {
    ours: StdioPipes,
    theirs: EnginePipes,
}

struct EnginePipes {
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
            ours: StdioPipes::adopt(stdin.into(), stdout.into(), stderr.into())?,
            theirs: EnginePipes {
                stdin: pipe::Receiver::from_owned_fd(stdin_theirs.into())?,
                stdout: pipe::Sender::from_owned_fd(stdout_theirs.into())?,
                stderr: pipe::Sender::from_owned_fd(stderr_theirs.into())?,
            },
        })
    }
}

fn no_pipes(error: &io::Error) -> ContainerError {
    ContainerError::Refused { operation: "connect its pipes", words: error.to_string() }
}

/// Copies our messages to the container's stdin; closes it at the end.
async fn copy_stdin(mut from: pipe::Receiver, mut to: std::pin::Pin<Box<dyn tokio::io::AsyncWrite + Send>>) {
    let mut buffer = vec![0; SHARE];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(count) => {
                let sent = async {
                    to.write_all(&buffer[..count]).await?;
                    to.flush().await
                };
                // Pending requests fail with the end of the container.
                if sent.await.is_err() {
                    return;
                }
            }
        }
    }
    to.shutdown().await.ok();
}

/// Copies the container's output, each stream to its own pipe.
async fn carry_out(
    mut from: std::pin::Pin<Box<dyn futures_util::Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>,
    mut stdout: pipe::Sender,
    mut stderr: pipe::Sender,
) {
    while let Some(Ok(said)) = from.next().await {
        let written = match said {
            LogOutput::StdOut { message } => stdout.write_all(&message).await,
            // The reader may be closed, and the rest matters nevertheless.
            LogOutput::StdErr { message } => stderr.write_all(&message).await.or(Ok(())),
            LogOutput::StdIn { .. } => Ok(()),
            // Output outside of frames is half a frame: the engine has disconnected.
            LogOutput::Console { .. } => return,
        };
        if written.is_err() {
            return;
        }
    }
}
