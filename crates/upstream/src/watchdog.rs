//! The watchdog: a process that outlives us briefly to clean up if we are killed.
//!
//! `kill -9` leaves us no time to stop our servers, and they may not notice: some ignore the end of their input, and
//! their own children are not notified. So at start we run ourselves a second time in this role, with one end of a
//! pipe as its input. We send it the process groups that run; when the pipe ends, for whatever reason, it ends what is
//! left and exits. On an orderly stop nothing is left, and it exits before we do. If the watchdog is killed instead,
//! another one is started, however often; if it is stopped by a signal, it is continued.
//!
//! It may be killed together with us, or stopped. What happens then is up to the kernel: see
//! [`exit_pipe`](crate::exit_pipe).

use std::io::{self, BufRead, PipeReader, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, test_kill_process_group, waitid,
};

use crate::exit_pipe::{self, ExitPipe, ReadEnd};
use crate::inherited::{self, Inherited};
use crate::process_mark::{self, Mark};

/// The first argument of a watchdog. Checked by the programs before anything else.
const ROLE: &str = "__watchdog";

/// How long what is left may take to end by itself before it is killed.
const LEFTOVER_KILL_DELAY: Duration = Duration::from_secs(1);

/// How long to scan for leftovers that are not visible yet.
const LEFTOVER_SCAN_TIME: Duration = Duration::from_millis(300);

/// The command that ends it when we no longer need it.
const DISMISS_MESSAGE: &str = "dismissed";

/// How many watchdogs may end in succession before the next start is delayed.
const MAX_QUICK_RESTARTS: u32 = 10;

/// The first delay of a restart. Each delay is twice as long as the one before.
const MIN_RESTART_DELAY: Duration = Duration::from_millis(10);

/// The longest delay of a restart.
const MAX_RESTART_DELAY: Duration = Duration::from_secs(1);

/// A watchdog that ran this long was stable: its successor is started at once.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// Our handle of the watchdog.
#[derive(Debug)]
pub struct Watchdog {
    shared: Arc<Shared>,
    /// The thread that starts it and waits for its end, so that no other thread has to wait.
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the handle and the thread share.
#[derive(Debug, Default)]
struct Shared {
    registered: Mutex<Registered>,
    /// Notified when the watchdog is dismissed.
    dismissed: Condvar,
    /// Held by us and by every watchdog. `None` where the system has no such pipe.
    exit_pipe: Option<ExitPipe>,
}

/// What the watchdog knows, and the pipe to send it more.
#[derive(Debug, Default)]
struct Registered {
    groups: Groups,
    /// `None` when no watchdog is needed any more.
    input: Option<PipeWriter>,
}

/// The running process groups. A few dozen at most: a linear search costs the watchdog, of which only the memory use
/// matters, less than a table would.
#[derive(Debug, Default)]
struct Groups(Vec<Pid>);

impl Groups {
    fn insert(&mut self, group: Pid) {
        if !self.0.contains(&group) {
            self.0.push(group);
        }
    }

    fn remove(&mut self, group: Pid) {
        self.0.retain(|&known| known != group);
    }
}

/// Whether `main` called [`run_if_asked`]. Another program would do something else when it is started as a watchdog,
/// and its output would go into the exit pipe and kill the servers.
static CAN_BE_WATCHDOG: AtomicBool = AtomicBool::new(false);

impl Watchdog {
    /// Starts a watchdog over everything that carries `mark`. A program that cannot become one, such as a test, has none.
    pub fn start(mark: &Mark) -> io::Result<Self> {
        if !CAN_BE_WATCHDOG.load(Ordering::Relaxed) {
            return Ok(Self::absent());
        }
        let exit_pipe = ExitPipe::new()
            .inspect_err(|error| tracing::debug!(%error, "failed to create the exit pipe of the watchdog"))
            .ok();
        let (output, input) = io::pipe()?;
        // Synchronously, so that it watches before there is anything to watch.
        let first = spawn(mark, output, exit_pipe.as_ref())?;
        let registered = Mutex::new(Registered { groups: Groups::default(), input: Some(input) });
        let shared = Arc::new(Shared { registered, dismissed: Condvar::new(), exit_pipe });
        let thread = std::thread::Builder::new().name("watchdog".into()).spawn({
            let (mark, shared) = (mark.clone(), Arc::clone(&shared));
            move || shared.keep_one_running(&mark, first)
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// A watchdog that does nothing, for systems where none can be started.
    pub fn absent() -> Self {
        let shared = Shared { exit_pipe: ExitPipe::new().ok(), ..Shared::default() };
        Self { shared: Arc::new(shared), thread: Mutex::new(None) }
    }

    /// Registers a group, which then ends with us.
    pub fn guard(&self, group: Pid) {
        let mut registered = lock(&self.shared.registered);
        registered.groups.insert(group);
        registered.write_command('+', group);
    }

    /// Unregisters a group that has ended; its id may be reused.
    pub fn release(&self, group: Pid) {
        let mut registered = lock(&self.shared.registered);
        registered.groups.remove(group);
        registered.write_command('-', group);
    }

    /// The pipe end that a server inherits so that the kernel kills it when we and the watchdog have ended.
    pub(crate) fn read_end(&self) -> Option<ReadEnd> {
        let read_end = self.shared.exit_pipe.as_ref()?.read_end();
        read_end.inspect_err(|error| tracing::debug!(%error, "failed to open the exit pipe for a server")).ok()
    }

    /// Lets it scan for leftovers one last time and waits until it has exited.
    pub fn dismiss(&self) {
        let input = lock(&self.shared.registered).input.take();
        if let Some(mut input) = input {
            writeln!(input, "{DISMISS_MESSAGE}").ok();
        }
        self.shared.dismissed.notify_all();
        let thread = lock(&self.thread).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::debug!("the watchdog thread panicked");
        }
    }
}

impl Registered {
    /// A pipe without a reader means that the watchdog was killed; its successor receives everything again.
    fn write_command(&mut self, verb: char, group: Pid) {
        if let Some(input) = &mut self.input {
            writeln!(input, "{verb}{}", group.as_raw_nonzero()).ok();
        }
    }
}

impl Shared {
    /// Keeps a watchdog running until it is dismissed.
    fn keep_one_running(&self, mark: &Mark, first: Pid) {
        let (mut watchdog, mut starts) = (Some(first), 0_u32);
        loop {
            let begun = Instant::now();
            if let Some(process) = watchdog {
                wait_for_end(process);
            }
            starts = if begun.elapsed() >= STABLE_AFTER { 0 } else { starts.saturating_add(1) };
            if starts == MAX_QUICK_RESTARTS {
                tracing::warn!("the watchdog keeps being killed; starting it more slowly");
            }
            if !self.wait_before_start(starts) {
                return;
            }
            watchdog = match self.start_successor(mark) {
                Ok(Some(process)) => Some(process),
                Ok(None) => return,
                Err(error) => {
                    // A process that a server starts in its own session may survive a kill of ours until the next
                    // start succeeds.
                    tracing::warn!(%error, "failed to start a watchdog; retrying");
                    starts = starts.max(MAX_QUICK_RESTARTS);
                    None
                }
            };
        }
    }

    /// Waits as long as the number of `starts` requires; `false` if the watchdog is dismissed.
    fn wait_before_start(&self, starts: u32) -> bool {
        let doublings = starts.saturating_sub(MAX_QUICK_RESTARTS).min(16);
        let wait = if starts < MAX_QUICK_RESTARTS {
            Duration::ZERO
        } else {
            MAX_RESTART_DELAY.min(MIN_RESTART_DELAY * (1 << doublings))
        };
        let registered =
            self.dismissed.wait_timeout_while(lock(&self.registered), wait, |registered| registered.input.is_some());
        registered.unwrap_or_else(PoisonError::into_inner).0.input.is_some()
    }

    /// A successor for a watchdog that was killed, with the same groups; `None` if it was dismissed.
    fn start_successor(&self, mark: &Mark) -> io::Result<Option<Pid>> {
        let mut registered = lock(&self.registered);
        if registered.input.is_none() {
            return Ok(None);
        }
        let (output, input) = io::pipe()?;
        registered.input = Some(input);
        let watchdog = spawn(mark, output, self.exit_pipe.as_ref())?;
        for group in registered.groups.0.clone() {
            registered.write_command('+', group);
        }
        Ok(Some(watchdog))
    }
}

/// Waits for the end of a watchdog. A stopped one is continued; replacing it would leave a moment without any.
fn wait_for_end(watchdog: Pid) {
    loop {
        match waitid(WaitId::Pid(watchdog), WaitIdOptions::EXITED | WaitIdOptions::STOPPED) {
            // It is our child and was not reaped yet, so the process id is its own.
            Ok(Some(status)) if status.stopped() => {
                kill_process(watchdog, Signal::CONT).ok();
            }
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => return,
        }
    }
}

fn spawn(mark: &Mark, output: PipeReader, exit_pipe: Option<&ExitPipe>) -> io::Result<Pid> {
    let program = if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe()? };
    let mut command = Command::new(program);
    command
        .arg0("mcp-aggregator-watchdog")
        .arg(ROLE)
        .arg(mark.to_string())
        .stdin(output)
        // It never writes, but holds the pipe open as long as it runs.
        .stdout(exit_pipe.map_or_else(|| Ok(Stdio::null()), ExitPipe::for_watchdog)?)
        .stderr(Stdio::null())
        .current_dir("/")
        // Signals to our group, such as Ctrl-C, must not reach it.
        .process_group(0);
    // Dropping the command drops our copy of the pipe's other end.
    inherited::spawn_with(&Inherited::default(), || command.spawn(), |_| None).map(|child| Pid::from_child(&child))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Becomes the watchdog if this process was started as one. Call it first in `main`.
pub fn run_if_asked() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(ROLE) {
        // Without a mark it would match every process.
        let Some(mark) = arguments.next().and_then(Mark::from_text) else { std::process::exit(2) };
        watch(&mark);
        std::process::exit(0);
    }
    CAN_BE_WATCHDOG.store(true, Ordering::Relaxed);
}

fn watch(mark: &Mark) {
    exit_pipe::ignore_terminating_signals();
    // If we are stopped, the kernel continues us when our parent ends.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::CONT)).ok();
    let (mut groups, mut is_dismissed) = (Groups::default(), false);
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        is_dismissed |= line == DISMISS_MESSAGE;
        let Some(group) = line.get(1..).and_then(|number| number.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        if line.starts_with('+') {
            groups.insert(group);
        } else {
            groups.remove(group);
        }
    }
    let deadline = Instant::now() + LEFTOVER_KILL_DELAY;
    // A server that was being started when its parent was killed carries no mark yet and is not registered: scan for a
    // while.
    let patience = Instant::now() + if is_dismissed { Duration::ZERO } else { LEFTOVER_SCAN_TIME };
    end(mark, &groups, Signal::TERM);
    while is_anything_left(mark, &groups) || Instant::now() < patience {
        if Instant::now() >= deadline {
            end(mark, &groups, Signal::KILL);
        }
        // Killed processes may take a moment, and one may have forked during the scan: repeat until none is left.
        if Instant::now() >= deadline + LEFTOVER_KILL_DELAY {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn end(mark: &Mark, groups: &Groups, signal: Signal) {
    for group in &groups.0 {
        // An error means that the group has ended, which is the goal.
        kill_process_group(*group, signal).ok();
    }
    process_mark::signal_all(mark, signal);
}

fn is_anything_left(mark: &Mark, groups: &Groups) -> bool {
    groups.0.iter().any(|group| test_kill_process_group(*group).is_ok()) || process_mark::is_anyone_left(mark)
}
