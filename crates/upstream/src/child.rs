//! A server that we start as a child process.

use std::sync::Arc;
use std::time::Duration;

use catalog::Program;
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::failure::{Cause, Ending, Phase};
use crate::process::{Process, StartError, Streams};
use crate::process_mark;
use crate::server::{Stop, Upstream, UpstreamObserver};
use crate::stderr::Tail;
use crate::stdio_server::{self, Started, StdioHost, StdioPipes};

/// How long a server may take to exit by itself once its input has ended.
const CLOSE_GRACE: Duration = Duration::from_secs(1);
/// How long it may take after SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(1);

/// Runs the server; returns when all of it has ended.
pub(crate) async fn run(
    upstream: &Upstream,
    program: &Program,
    observer: &Arc<dyn UpstreamObserver>,
    stop: watch::Receiver<Stop>,
) {
    stdio_server::run(&ChildHost { upstream, program }, upstream, observer, stop).await;
}

struct ChildHost<'h> {
    upstream: &'h Upstream,
    program: &'h Program,
}

impl ChildHost<'_> {
    fn start_process(&self) -> Result<Started<Process>, Cause> {
        let Self { upstream, program } = self;
        let (tag, watchdog) = (upstream.instance_mark.tag_of(upstream.mark_number), &*upstream.watchdog);
        let (process, Streams { stdin, stdout, stderr }) =
            Process::start(program, upstream.withheld, &upstream.environment, tag, watchdog)?;
        let group = process.group();
        watchdog.guard(group);
        let pipes = StdioPipes::adopt(stdin, stdout, stderr).map_err(|source| {
            // The process is killed when it is dropped, and its process id may then be reused.
            watchdog.release(group);
            Cause::Start(StartError::System { path: program.command.shown().into(), source })
        })?;
        let number = u32::try_from(group.as_raw_nonzero().get()).ok();
        Ok(Started { instance: process, pipes, process: number, carriers: Vec::new() })
    }

    /// The shutdown ladder: its input has ended; terminate it, kill it. Each step only if the one before was not
    /// enough.
    async fn end_process(&self, process: &mut Process, ending: &Ending, stop: &mut watch::Receiver<Stop>) {
        let is_patient = matches!(ending, Ending::Stopped);
        if is_patient && ends_within(process, CLOSE_GRACE, Stop::Promptly, stop).await {
            return;
        }
        process.signal(Signal::TERM);
        if ends_within(process, TERM_GRACE, Stop::Now, stop).await {
            return;
        }
        process.signal(Signal::KILL);
        if let Err(error) = process.ended().await {
            tracing::warn!(server = %self.upstream.spec.name, %error, "failed to wait for the exit of a server");
        }
    }
}

impl StdioHost for ChildHost<'_> {
    type Instance = Process;
    const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

    async fn start(&self, _: &Tail, _: &watch::Receiver<Stop>) -> Result<Started<Process>, Ending> {
        self.start_process().map_err(|cause| Ending::Failed { phase: Phase::Startup, cause })
    }

    async fn ended(&self, process: &mut Process) -> Option<Cause> {
        process.ended().await.ok().map(Cause::Exited)
    }

    async fn close(&self, mut process: Process, ending: &Ending, stop: &mut watch::Receiver<Stop>) {
        self.end_process(&mut process, ending, stop).await;
        let group = process.group();
        process.clean_up().await;
        self.upstream.watchdog.release(group);
    }

    async fn remove_leftovers(&self, ending: &Ending) {
        if self.upstream.cleans_up_leftovers || matches!(ending, Ending::Failed { .. }) {
            // When everything stops, the watchdog scans once for all servers; here only this server has ended.
            let mark = self.upstream.instance_mark.mark_of(self.upstream.mark_number);
            let swept = tokio::task::spawn_blocking(move || process_mark::signal_all(&mark, Signal::KILL));
            drop(swept.await);
        }
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
