//! A running program and its streams, as raw bytes.

use std::collections::VecDeque;
use std::fmt;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::capture::{self, Capture};
use crate::config::{Config, ConfigFile};
use crate::launch::Launch;
use crate::wait::{DEADLINE, wait_at_most};

/// A program that is being driven. It is killed and reaped when this is dropped.
pub struct Driver {
    child: Child,
    /// Once reaped, its pid may belong to another process.
    reaped: bool,
    /// Feeds the thread that writes, so that a program that does not read never blocks the test.
    stdin: Option<Sender<Vec<u8>>>,
    stdout: Receiver<Vec<u8>>,
    stderr: Capture,
    /// Lines that were read while waiting for another one.
    aside: VecDeque<Vec<u8>>,
    pub(crate) next_id: u64,
    config: Option<ConfigFile>,
}

/// The parts of a launch.
pub(crate) struct Parts {
    pub(crate) child: Child,
    pub(crate) stdin: Box<dyn Write + Send>,
    pub(crate) stdout: Box<dyn Read + Send>,
    pub(crate) config: Option<ConfigFile>,
    pub(crate) read_ahead: usize,
}

impl Driver {
    /// Starts `mcp-simple-aggregator` with this config. See [`Launch`] for everything else.
    #[track_caller]
    pub fn start(config: &Config) -> Self {
        Launch::aggregator(config).start()
    }

    pub(crate) fn new(mut parts: Parts) -> Self {
        let stderr = parts.child.stderr.take().expect("stderr was asked for");
        Self {
            stderr: Capture::of(stderr),
            stdin: Some(writer(parts.stdin)),
            stdout: capture::lines(parts.stdout, parts.read_ahead),
            child: parts.child,
            reaped: false,
            aside: VecDeque::new(),
            next_id: 1,
            config: parts.config,
        }
    }

    /// The folder of the config file, if the program was started with one.
    pub fn config_folder(&self) -> Option<&Path> {
        self.config.as_ref().map(ConfigFile::folder)
    }

    /// Writes these bytes and nothing else; a line needs its own newline. Returns before they are read.
    #[track_caller]
    pub fn send_raw(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_ref().expect("stdin was closed by this test");
        // The thread ends when the program closes its stdin, which the test will notice.
        stdin.send(bytes.to_vec()).ok();
    }

    /// The next line without its newline, those kept aside first.
    #[track_caller]
    pub fn next_line(&mut self) -> Vec<u8> {
        match self.aside.pop_front() {
            Some(line) => line,
            None => self.next_new_line(Instant::now() + DEADLINE, "a line"),
        }
    }

    /// The next line that `wanted` accepts; the others are kept in order.
    #[track_caller]
    pub fn line_where(&mut self, what: &str, mut wanted: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
        if let Some(position) = self.aside.iter().position(|line| wanted(line)) {
            return self.aside.remove(position).expect("the position was just found");
        }
        let deadline = Instant::now() + DEADLINE;
        loop {
            let line = self.next_new_line(deadline, what);
            if wanted(&line) {
                return line;
            }
            self.aside.push_back(line);
        }
    }

    #[track_caller]
    fn next_new_line(&mut self, deadline: Instant, what: &str) -> Vec<u8> {
        match self.stdout.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => self.fail(&format!("waited {DEADLINE:?} in vain for {what}")),
            Err(RecvTimeoutError::Disconnected) => self.fail(&format!("stdout ended while waiting for {what}")),
        }
    }

    /// Returns every kept or received line.
    pub fn drain(&mut self) -> Vec<Vec<u8>> {
        self.aside.drain(..).chain(self.stdout.try_iter()).collect()
    }

    /// Fails if a line was kept or arrives within `time`. The end of stdout is silence too.
    ///
    /// Only to show that something does *not* happen; for everything else there is a line to wait for.
    #[track_caller]
    pub fn expect_silence(&mut self, time: Duration) {
        if let Some(line) = self.aside.front() {
            self.fail(&format!("expected silence, but had kept aside {}", shown(line)));
        }
        if let Ok(line) = self.stdout.recv_timeout(time) {
            self.fail(&format!("expected silence, but got {}", shown(&line)));
        }
    }

    /// Waits for the end of stdout and returns the lines that came before it.
    #[track_caller]
    pub fn wait_stdout_end(&mut self) -> Vec<Vec<u8>> {
        let deadline = Instant::now() + DEADLINE;
        let mut lines: Vec<Vec<u8>> = self.aside.drain(..).collect();
        loop {
            match self.stdout.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => return lines,
                Err(RecvTimeoutError::Timeout) => self.fail("stdout did not end"),
            }
        }
    }

    /// Everything the program wrote to stderr so far; all of it once [`Self::wait_exit`] has returned.
    pub fn stderr_text(&self) -> String {
        self.stderr.text()
    }

    /// Waits until the program has written this to stderr.
    #[track_caller]
    pub fn wait_for_stderr(&self, needle: &str) {
        if !self.stderr.wait_for(needle, DEADLINE) {
            self.fail(&format!("never saw `{needle}` on stderr"));
        }
    }

    /// Ends the program's stdin, after everything that was sent.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// The pid of the program.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the program alone.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        assert!(!self.reaped, "the program has ended and was reaped; there is nothing to signal");
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a child has a positive pid");
        kill_process(pid, signal).unwrap_or_else(|error| self.fail(&format!("could not send {signal:?}: {error}")));
    }

    /// Kills the program with SIGKILL, without waiting for its end.
    #[track_caller]
    pub fn kill_hard(&self) {
        self.signal(Signal::KILL);
    }

    /// Waits for the program to end, and for the end of its stderr: what it wrote last may still be in the pipe when
    /// the process is gone.
    #[track_caller]
    pub fn wait_exit(&mut self) -> ExitStatus {
        match self.exit_within(DEADLINE) {
            Some(status) => status,
            None => self.fail("the program did not end"),
        }
    }

    /// The exit status, if the program has ended or ends within `limit`. Its stderr has ended too then.
    #[track_caller]
    pub fn exit_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let status = wait_at_most(limit, || self.child.try_wait().expect("our own child can be waited for"));
        self.reaped |= status.is_some();
        if status.is_some() && !self.stderr.wait_for_end(DEADLINE) {
            self.fail("the program ended, but another process holds its stderr open");
        }
        status
    }

    #[track_caller]
    pub(crate) fn fail(&self, what: &str) -> ! {
        let aside: Vec<String> = self.aside.iter().map(|line| shown(line)).collect();
        panic!(
            "{what}\n--- pid {}, lines kept aside ---\n{}\n--- stderr ---\n{}",
            self.pid(),
            aside.join("\n"),
            self.stderr_text()
        );
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Both fail only if it has already ended and been reaped, which is fine.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Driver").field("pid", &self.pid()).finish_non_exhaustive()
    }
}

/// A thread that writes what it is sent, and closes the stream when the sender is dropped.
fn writer(mut stream: Box<dyn Write + Send>) -> Sender<Vec<u8>> {
    let (sender, receiver) = channel::<Vec<u8>>();
    std::thread::spawn(move || {
        for bytes in receiver {
            if stream.write_all(&bytes).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    });
    sender
}

/// A line truncated for a message.
pub(crate) fn shown(line: &[u8]) -> String {
    const ENOUGH: usize = 2000;
    let start = String::from_utf8_lossy(&line[..line.len().min(ENOUGH)]);
    if line.len() > ENOUGH { format!("{start}... ({} bytes)", line.len()) } else { start.into_owned() }
}
