//! The process that outlives us by a moment to clear up if we are killed.
//!
//! `kill -9` leaves us no time to stop our servers, and they may not notice: some ignore the end of their input, and
//! their own children never hear of it. So at start we run ourselves a second time in this role, with one end of a
//! pipe as its input. We tell it which process groups live; when the pipe ends, by our will or not, it ends what is
//! left and goes too. On an orderly stop nothing is left, and it is gone before we are. If somebody kills the watchdog
//! instead, another takes its place.
//!
//! The kernel's parent-death signal would be a second way. It reaches only direct children, fires when the *thread*
//! that started them ends, and rules out the fast way to start a process (50 servers: 1.5 times the time of starting
//! them directly, instead of 1.2), so it is not used.

use std::io::{self, BufRead, PipeReader, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::lineage::{self, Mark};

/// The first argument of a watchdog. Checked by the programs before anything else.
const ROLE: &str = "__watchdog";

/// How long what is left may take to end by itself before it is killed.
const GRACE: Duration = Duration::from_secs(1);

/// How long to look for leftovers that do not show yet.
const SECOND_LOOKS: Duration = Duration::from_millis(300);

/// What we tell it when we need it no more.
const DISMISSED: &str = "dismissed";

/// A watchdog that is killed more often than this is not wanted here.
const MOST_STARTS: usize = 10;

/// Our end of the watchdog.
#[derive(Debug)]
pub struct Watchdog {
    told: Arc<Mutex<Told>>,
    /// The thread that starts it and waits for its end: nobody else should have to wait for either.
    keeper: Mutex<Option<JoinHandle<()>>>,
}

/// What the watchdog knows, and how to tell it more.
#[derive(Debug, Default)]
struct Told {
    groups: Groups,
    /// Gone when we need no watchdog any more.
    input: Option<PipeWriter>,
}

/// The process groups that live. A few dozen at most: to look through them costs the watchdog, of which only its memory
/// is ever noticed, less than a table would.
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

impl Watchdog {
    /// Starts a watchdog over everything that carries `mark`.
    pub fn start(mark: &Mark) -> io::Result<Self> {
        let (output, input) = io::pipe()?;
        // Here and now, so that it watches before there is anything to watch over.
        let first = spawn(mark, output)?;
        let told = Arc::new(Mutex::new(Told { groups: Groups::default(), input: Some(input) }));
        let keeper = std::thread::Builder::new().name("watchdog".into()).spawn({
            let (mark, told) = (mark.clone(), Arc::clone(&told));
            move || keep(&mark, &told, first)
        })?;
        Ok(Self { told, keeper: Mutex::new(Some(keeper)) })
    }

    /// A watchdog that does nothing, for where none can be started.
    pub fn absent() -> Self {
        Self { told: Arc::default(), keeper: Mutex::new(None) }
    }

    /// From now on the group ends with us.
    pub fn guard(&self, group: Pid) {
        let mut told = lock(&self.told);
        told.groups.insert(group);
        told.tell('+', group);
    }

    /// The group has ended; its number may be somebody else's next.
    pub fn release(&self, group: Pid) {
        let mut told = lock(&self.told);
        told.groups.remove(group);
        told.tell('-', group);
    }

    /// Lets it look for leftovers one last time and waits until it is gone.
    pub fn dismiss(&self) {
        let input = lock(&self.told).input.take();
        if let Some(mut input) = input {
            writeln!(input, "{DISMISSED}").ok();
        }
        let keeper = lock(&self.keeper).take();
        if keeper.is_some_and(|keeper| keeper.join().is_err()) {
            tracing::debug!("the thread of the watchdog broke");
        }
    }
}

impl Told {
    /// A pipe without a reader means that the watchdog was killed; its successor is told everything.
    fn tell(&mut self, verb: char, group: Pid) {
        if let Some(input) = &mut self.input {
            writeln!(input, "{verb}{}", group.as_raw_nonzero()).ok();
        }
    }
}

/// Keeps a watchdog running until it is dismissed.
fn keep(mark: &Mark, told: &Mutex<Told>, mut watchdog: Child) {
    for _ in 0..MOST_STARTS {
        let next = watchdog.wait().and_then(|_| succeed(mark, told));
        match next {
            Ok(Some(next)) => watchdog = next,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "could not keep a watchdog; servers may survive if this process is killed");
                return;
            }
        }
    }
    tracing::warn!("the watchdog is killed again and again; servers may survive if this process is killed");
}

/// A successor for a watchdog that was killed, told everything it knew; `None` if it was dismissed.
fn succeed(mark: &Mark, told: &Mutex<Told>) -> io::Result<Option<Child>> {
    let mut told = lock(told);
    if told.input.is_none() {
        return Ok(None);
    }
    let (output, input) = io::pipe()?;
    told.input = Some(input);
    for group in told.groups.0.clone() {
        told.tell('+', group);
    }
    spawn(mark, output).map(Some)
}

fn spawn(mark: &Mark, output: PipeReader) -> io::Result<Child> {
    let program = if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe()? };
    let mut command = Command::new(program);
    command
        .arg0("mcp-aggregator-watchdog")
        .arg(ROLE)
        .arg(mark.to_string())
        .stdin(output)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        // What is sent to our group, such as Ctrl-C, must not reach it.
        .process_group(0);
    // With the command goes our copy of the pipe's other end.
    command.spawn()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Becomes the watchdog if that is what this process was started as. Call it first thing in `main`.
pub fn run_if_asked() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(ROLE) {
        // Without a mark it would look after everybody's processes.
        let Some(mark) = arguments.next().and_then(Mark::from_text) else { std::process::exit(2) };
        watch(&mark);
        std::process::exit(0);
    }
}

fn watch(mark: &Mark) {
    let (mut groups, mut is_dismissed) = (Groups::default(), false);
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        is_dismissed |= line == DISMISSED;
        let Some(group) = line.get(1..).and_then(|number| number.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        if line.starts_with('+') {
            groups.insert(group);
        } else {
            groups.remove(group);
        }
    }
    let deadline = Instant::now() + GRACE;
    // A server that was being started when we were killed carries no mark yet, and nobody told of it: look for a while.
    let patience = Instant::now() + if is_dismissed { Duration::ZERO } else { SECOND_LOOKS };
    end(mark, &groups, Signal::TERM);
    while is_anything_left(mark, &groups) || Instant::now() < patience {
        if Instant::now() >= deadline {
            end(mark, &groups, Signal::KILL);
        }
        // Killed processes may take a moment, and one may have forked while we looked: look again until none is left.
        if Instant::now() >= deadline + GRACE {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn end(mark: &Mark, groups: &Groups, signal: Signal) {
    for group in &groups.0 {
        // An error means that the group is gone, which is what we want.
        kill_process_group(*group, signal).ok();
    }
    lineage::signal_all(mark, signal);
}

fn is_anything_left(mark: &Mark, groups: &Groups) -> bool {
    groups.0.iter().any(|group| test_kill_process_group(*group).is_ok()) || lineage::is_anyone_left(mark)
}
