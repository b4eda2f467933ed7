//! A contestant that listens: its process, and the address it said on stderr.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bench::listener::ANNOUNCEMENT;
use rustix::process::{Pid, Signal, kill_process};

use crate::processes::{descendants, end_orphans, make_end};

const TIME_TO_LISTEN: Duration = Duration::from_secs(60);
/// How long it may take to end by itself after it was asked to.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);

/// A running process that serves HTTP. Dropping it ends the process and everything it started.
pub(crate) struct Service {
    child: Child,
    /// Our own programs end with it, even if we are killed.
    stdin: Option<ChildStdin>,
    pub(crate) address: SocketAddr,
}

impl Service {
    /// Starts the command and waits until it listens. What it writes to stderr goes to a file.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let log = File::create(log).context("could not write a log file")?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("could not start `{}`", command.get_program().display()))?;
        let stdin = child.stdin.take();
        let stderr = child.stderr.take().context("the child has a stderr")?;
        let (announce, announced) = sync_channel(1);
        // Ends with the process.
        std::thread::spawn(move || keep_log(stderr, log, announce));
        let Ok(address) = announced.recv_timeout(TIME_TO_LISTEN) else {
            make_end(&mut child);
            anyhow::bail!("it did not say where it listens");
        };
        Ok(Self { child, stdin, address })
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let below = descendants(self.pid());
        drop(self.stdin.take());
        if let Err(error) = kill_process(self.pid(), Signal::TERM) {
            eprintln!("warning: could not ask process {} to end: {error}", self.pid());
        }
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(1));
        }
        make_end(&mut self.child);
        end_orphans(&below);
    }
}

/// Drains stderr to the end, because a full pipe would block the service, and announces the first address in it.
fn keep_log(stderr: ChildStderr, mut log: File, announce: SyncSender<SocketAddr>) {
    let mut announce = Some(announce);
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        if let Err(error) = writeln!(log, "{line}") {
            eprintln!("warning: could not write a log file: {error}");
        }
        let Some(address) = address_in(&line) else {
            continue;
        };
        // Only the first is waited for.
        if announce.take().is_some_and(|announce| announce.send(address).is_err()) {
            eprintln!("warning: too late: {line}");
        }
    }
}

fn address_in(line: &str) -> Option<SocketAddr> {
    let (_, behind) = line.split_once(ANNOUNCEMENT)?;
    let end = behind.find(|letter: char| letter == '/' || letter.is_whitespace()).unwrap_or(behind.len());
    behind[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_any_line() {
        let address = Some(SocketAddr::from(([127, 0, 0, 1], 8808)));
        assert_eq!(address_in("listening on http://127.0.0.1:8808"), address);
        assert_eq!(address_in("info: listening on http://127.0.0.1:8808/mcp with 2 servers"), address);
        assert_eq!(address_in("listening on http://127.0.0.1:8808 (Ctrl-C ends it)"), address);
        assert_eq!(address_in("listening soon"), None);
    }

    #[test]
    fn a_program_that_ends_without_listening_is_reported_at_once() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo no room >&2"]);
        assert!(Service::start(&mut shell, log.path()).is_err());
        assert_eq!(std::fs::read_to_string(log.path()).unwrap(), "no room\n");
    }
}
