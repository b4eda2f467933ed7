//! The process that outlives us by a moment to clear up if we are killed.
//!
//! `kill -9` leaves us no time to stop our servers, and they may not notice: some ignore the end of their input, and
//! their own children never hear of it. So at start we run ourselves a second time in this role, with one end of a
//! pipe as its input. We tell it which process groups live; when the pipe ends, by our will or not, it ends what is
//! left and goes too. On an orderly stop nothing is left, and it is gone before we are.

use std::collections::HashSet;
use std::io::{self, BufRead, PipeWriter, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::lineage::{self, Mark};

/// The first argument of a watchdog. Checked by the programs before anything else.
const ROLE: &str = "__watchdog";

/// How long what is left may take to end by itself before it is killed.
const GRACE: Duration = Duration::from_secs(1);

/// Our end of the watchdog.
#[derive(Debug)]
pub struct Watchdog {
    /// Nobody is at the other end if it could not be started.
    input: Mutex<Option<PipeWriter>>,
    /// The thread that starts it and then waits for its end: nobody else should have to wait for either.
    process: Mutex<Option<JoinHandle<()>>>,
}

impl Watchdog {
    /// Starts a watchdog over everything that carries `mark`.
    pub fn start(mark: &Mark) -> io::Result<Self> {
        let (output, input) = io::pipe()?;
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
        let process = std::thread::Builder::new().name("watchdog".into()).spawn(move || {
            let ended = command.spawn().and_then(|mut child| {
                // It holds our copy of the pipe's other end; without that, a dead watchdog would go unnoticed.
                drop(command);
                child.wait()
            });
            if let Err(error) = ended {
                tracing::warn!(%error, "could not run the watchdog; servers may survive if this process is killed");
            }
        })?;
        Ok(Self { input: Mutex::new(Some(input)), process: Mutex::new(Some(process)) })
    }

    /// A watchdog that does nothing, for where none can be started.
    pub fn absent() -> Self {
        Self { input: Mutex::new(None), process: Mutex::new(None) }
    }

    /// From now on the group ends with us.
    pub fn guard(&self, group: Pid) {
        self.tell('+', group);
    }

    /// The group has ended; its number may be somebody else's next.
    pub fn release(&self, group: Pid) {
        self.tell('-', group);
    }

    fn tell(&self, verb: char, group: Pid) {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = input.as_mut()
            && let Err(error) = writeln!(pipe, "{verb}{}", group.as_raw_nonzero())
        {
            tracing::warn!(%error, "the watchdog is gone; servers may survive if this process is killed");
            *input = None;
        }
    }

    /// Lets it look for leftovers one last time and waits until it is gone.
    pub fn dismiss(&self) {
        drop(self.input.lock().unwrap_or_else(PoisonError::into_inner).take());
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner).take();
        if process.is_some_and(|process| process.join().is_err()) {
            tracing::debug!("the thread of the watchdog broke");
        }
    }
}

/// Becomes the watchdog if that is what this process was started as. Call it first thing in `main`.
pub fn run_if_asked() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(ROLE) {
        watch(&Mark::from_text(arguments.next().unwrap_or_default()));
        std::process::exit(0);
    }
}

fn watch(mark: &Mark) {
    let mut groups = HashSet::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let Some(group) = line.get(1..).and_then(|number| number.parse().ok()).and_then(Pid::from_raw) else {
            continue;
        };
        if line.starts_with('+') {
            groups.insert(group)
        } else {
            groups.remove(&group)
        };
    }
    let deadline = Instant::now() + GRACE;
    end(mark, &groups, Signal::TERM);
    while is_anything_left(mark, &groups) {
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

fn end(mark: &Mark, groups: &HashSet<Pid>, signal: Signal) {
    for group in groups {
        // An error means that the group is gone, which is what we want.
        kill_process_group(*group, signal).ok();
    }
    lineage::signal_all(mark, signal);
}

fn is_anything_left(mark: &Mark, groups: &HashSet<Pid>) -> bool {
    groups.iter().any(|group| test_kill_process_group(*group).is_ok()) || lineage::is_anyone_left(mark)
}
