//! A server from start to end. Where it stands in its life is where the code stands in [`Upstream::run`].

use std::collections::HashSet;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use catalog::ServerSpec;
use catalog::tools::{Page, Tool};
use protocol::{Revision, reply};
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::connection::{Answer, Connection};
use crate::failure::{Cause, Ending, Phase, Report};
use crate::lineage::{self, Lineage};
use crate::outbox::Outbox;
use crate::process::{Process, Streams};
use crate::stderr::Tail;
use crate::stream::{Sink, Source};
use crate::watchdog::Watchdog;

/// How long a server may take to end by itself once its input has ended.
const CLOSE_GRACE: Duration = Duration::from_secs(1);
/// How long it may take once it was asked to terminate.
const TERM_GRACE: Duration = Duration::from_secs(1);
/// How long we read on after a server's end, or wait for its end after its last word.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// A list in more pages than this is not a list.
const MOST_PAGES: usize = 10_000;

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
pub trait Watcher: Send + Sync {
    /// The server is ready.
    fn running(&self, index: usize, connection: &Arc<Connection>, tools: Vec<Tool>);
    /// A running server's tools have changed.
    fn tools_changed(&self, index: usize, tools: Vec<Tool>);
    /// The server is no more, or never was.
    fn ended(&self, index: usize, ending: &Arc<Ending>);
    /// The server failed, and this is all there is to know. Comes after `ended`, when its last words are in.
    fn reported(&self, index: usize, report: Report);
}

/// One server of the configuration, about to live.
pub struct Upstream {
    /// Its place in the configuration.
    pub index: usize,
    /// How to start it.
    pub spec: ServerSpec,
    /// Variables it gets besides its own.
    pub environment: Vec<(OsString, OsString)>,
    /// What to be introduced as: the JSON of `clientInfo`.
    pub introduction: Bytes,
    /// How long it may take to become ready.
    pub patience: Duration,
    /// Whose it is.
    pub lineage: Arc<Lineage>,
    /// Who ends it if we cannot.
    pub watchdog: Arc<Watchdog>,
}

/// A process with everything we hold on it.
struct Live {
    process: Process,
    connection: Arc<Connection>,
    listening: JoinHandle<()>,
    draining: JoinHandle<()>,
    muttering: JoinHandle<()>,
    tail: Tail,
}

impl Upstream {
    /// Lives the server's life; returns when nothing of it is left.
    pub async fn run(self, watcher: Arc<dyn Watcher>, mut stop: watch::Receiver<Stop>) {
        let mut live = match self.start() {
            Ok(live) => live,
            Err(cause) => {
                let ending = Arc::new(Ending::Failed { phase: Phase::Startup, cause });
                watcher.ended(self.index, &ending);
                self.report(&*watcher, &ending, Vec::new());
                return;
            }
        };
        let ending = Arc::new(self.serve(&mut live, &*watcher, &mut stop).await);
        watcher.ended(self.index, &ending);
        live.connection.end(&ending);
        self.clear_up(live, &*watcher, &ending, stop).await;
    }

    fn start(&self) -> Result<Live, Cause> {
        let (process, Streams { stdin, stdout, stderr }) = Process::start(&self.spec, &self.environment)?;
        self.watchdog.guard(process.group());
        let adopted = |source| {
            Cause::Start(crate::process::StartError::System { path: self.spec.command.clone().into(), source })
        };
        let (sink, _) = Sink::adopt(stdin).map_err(adopted)?;
        let connection = Arc::new(Connection::new(self.spec.name.clone(), Outbox::new(sink)));
        let listening = tokio::spawn(Arc::clone(&connection).listen(Source::adopt(stdout).map_err(adopted)?));
        let draining = tokio::spawn({
            let connection = Arc::clone(&connection);
            async move { connection.outbox().drain().await }
        });
        let tail = Tail::default();
        let source = Source::adopt(stderr).map_err(adopted)?.with_small_share();
        let muttering = tokio::spawn(tail.clone().follow(self.spec.name.clone(), source));
        Ok(Live { process, connection, listening, draining, muttering, tail })
    }

    /// From the first question to the last answer.
    async fn serve(&self, live: &mut Live, watcher: &dyn Watcher, stop: &mut watch::Receiver<Stop>) -> Ending {
        let Live { process, connection, listening, .. } = live;
        let failed = |phase, cause| Ending::Failed { phase, cause };

        let tools = tokio::select! {
            // Stopping wins, so that an orderly end is never reported as a failure.
            biased;
            _ = stop.wait_for(|&stop| stop > Stop::Never) => return Ending::Stopped,
            cause = last_breath(process, connection, listening) => return failed(Phase::Initialization, cause),
            ready = self.get_ready(connection) => match ready {
                Ok(tools) => tools,
                Err(cause) => return failed(Phase::Initialization, cause),
            },
        };
        tracing::debug!(server = %self.spec.name, tools = tools.len(), "server is running");
        watcher.running(self.index, connection, tools);

        tokio::select! {
            biased;
            _ = stop.wait_for(|&stop| stop > Stop::Never) => Ending::Stopped,
            cause = last_breath(process, connection, listening) => failed(Phase::Runtime, cause),
            () = self.follow_changes(connection, watcher) => Ending::Stopped,
        }
    }

    /// Gets to know the server: who it is, then what it offers.
    async fn get_ready(&self, connection: &Connection) -> Result<Vec<Tool>, Cause> {
        let deadline = Instant::now() + self.patience;
        let too_slow = |method| Cause::TooSlow { method, waited: self.patience };
        let initializing = tokio::time::timeout_at(deadline, self.initialize(connection));
        initializing.await.map_err(|_| too_slow("initialize"))??;
        let listing = tokio::time::timeout_at(deadline, list_tools(connection));
        listing.await.map_err(|_| too_slow("tools/list"))?
    }

    async fn initialize(&self, connection: &Connection) -> Result<(), Cause> {
        let params = reply::object([
            ("protocolVersion", reply::string(Revision::NEWEST.as_str())),
            ("capabilities", b"{}".to_vec()),
            ("clientInfo", self.introduction.to_vec()),
        ]);
        let answer = answered(connection, "initialize", Some(&params)).await?;
        let result = answer.outcome.map_err(|error| refused("initialize", &answer.line[error.start..error.end]))?;
        if answer.line[result.start] != b'{' {
            let problem = "something that is no object".to_owned();
            return Err(Cause::Nonsense { method: "initialize", problem });
        }
        connection.tell("notifications/initialized", None);
        Ok(())
    }

    /// Lists the tools anew whenever the server says they have changed.
    async fn follow_changes(&self, connection: &Connection, watcher: &dyn Watcher) {
        loop {
            connection.tools_changed().await;
            match timeout(self.patience, list_tools(connection)).await {
                Ok(Ok(tools)) => watcher.tools_changed(self.index, tools),
                Ok(Err(cause)) => tracing::warn!(server = %self.spec.name, %cause, "could not list its changed tools"),
                Err(_) => tracing::warn!(server = %self.spec.name, "did not list its changed tools in time"),
            }
        }
    }

    /// Ends the process if it has not ended, then whatever it left behind; reports a failure with its last words.
    async fn clear_up(&self, live: Live, watcher: &dyn Watcher, ending: &Ending, mut stop: watch::Receiver<Stop>) {
        let Live { mut process, connection, listening, draining, muttering, tail } = live;
        end_process(&mut process, &connection, ending, &mut stop).await;
        let group = process.group();
        process.clear_up().await;
        self.watchdog.release(group);
        connection.outbox().abort();

        // The pipes are read until here, so that nothing blocks on them; a leftover that holds one open is not waited for.
        for task in [draining, listening, muttering] {
            // One that has ended may have been waited for already, and must not be again.
            let handle = task.abort_handle();
            if !task.is_finished() && timeout(LAST_WORDS, task).await.is_err() {
                handle.abort();
            }
        }
        if matches!(ending, Ending::Failed { .. }) {
            self.report(watcher, ending, tail.lines());
            // On an orderly stop the watchdog looks once for all servers; here only this one is gone.
            let mark = self.lineage.mark_of(self.index);
            let swept = tokio::task::spawn_blocking(move || lineage::signal_all(&mark, Signal::KILL));
            drop(swept.await);
        }
    }

    fn report(&self, watcher: &dyn Watcher, ending: &Ending, last_words: Vec<String>) {
        if let Some(report) = Report::new(ending, last_words) {
            watcher.reported(self.index, report);
        }
    }
}

/// Waits for the end of a server that was not asked to end.
async fn last_breath(process: &mut Process, connection: &Connection, listening: &mut JoinHandle<()>) -> Cause {
    let sign = tokio::select! {
        _ = process.ended() => None,
        _ = &mut *listening => Some(Cause::ClosedOutput),
        () = connection.outbox().closed() => Some(Cause::ClosedInput),
    };
    // A server that dies closes everything; its exit status says best what happened.
    let status = timeout(LAST_WORDS, process.ended()).await;
    // What it said before it ended still counts, however slowly it is taken from us.
    connection.read_on();
    if !listening.is_finished() {
        drop(timeout(LAST_WORDS, listening).await);
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
    ending: &Ending,
    stop: &mut watch::Receiver<Stop>,
) {
    connection.outbox().close();
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

/// Asks for every page of the server's tools.
async fn list_tools(connection: &Connection) -> Result<Vec<Tool>, Cause> {
    const METHOD: &str = "tools/list";
    let nonsense = |problem: &str| Cause::Nonsense { method: METHOD, problem: problem.to_owned() };
    let (mut tools, mut names, mut params) = (Vec::new(), HashSet::new(), None);
    for _ in 0..MOST_PAGES {
        let answer = answered(connection, METHOD, params.as_deref()).await?;
        let result = match answer.outcome {
            Ok(result) => result,
            // Servers that offer only resources or prompts need not know the method at all.
            Err(error) if tools.is_empty() && is_unknown_method(error.of(&answer.line)) => return Ok(tools),
            Err(error) => return Err(refused(METHOD, error.of(&answer.line))),
        };
        let page = Page::read(&answer.line, result).ok_or_else(|| nonsense("no array `tools`"))?;
        if page.unusable > 0 {
            tracing::warn!(server = %connection.server(), count = page.unusable, "left out tools that have no usable name");
        }
        for tool in page.tools {
            if names.insert(tool.name.clone()) {
                tools.push(tool);
            } else {
                tracing::warn!(server = %connection.server(), tool = %tool.name, "left out a second tool of the same name");
            }
        }
        let Some(cursor) = page.next_cursor else { return Ok(tools) };
        let next = reply::object([("cursor", cursor.to_vec())]);
        if params.as_ref() == Some(&next) {
            return Err(nonsense("the same cursor again and again"));
        }
        params = Some(next);
    }
    Err(nonsense("a list without end"))
}

async fn answered(connection: &Connection, method: &'static str, params: Option<&[u8]>) -> Result<Answer, Cause> {
    // No answer means that the connection was ended, and whoever ended it knows why.
    connection.ask(method, params).await.ok_or(Cause::ClosedOutput)
}

fn refused(method: &'static str, error: &[u8]) -> Cause {
    let error = String::from_utf8_lossy(error).chars().take(400).collect();
    Cause::Refused { method, error }
}

fn is_unknown_method(error: &[u8]) -> bool {
    let whole = protocol::Span { start: 0, end: error.len() };
    protocol::scan::member(error, whole, "code").is_some_and(|code| code.of(error) == b"-32601")
}
