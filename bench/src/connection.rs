//! The client's end of one contestant: its process, two pipes, and lines with as little around them as possible.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::Pid;

use crate::call::is_answer;
use crate::client_connection::ClientConnection;
use crate::inbox::Inbox;
use crate::processes::{descendants, end_orphans, make_end};
use crate::stall;

/// How long a contestant may take to end by itself after its input was closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(3);

/// A running process that speaks JSON lines. Dropping it ends the process and everything it started.
pub(crate) struct Connection {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    inbox: Inbox,
    /// How many of the unread bytes are known to hold no newline.
    searched: usize,
    last_id: u64,
}

impl Connection {
    pub(crate) fn open(command: &mut Command, stderr: Stdio) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .with_context(|| format!("could not start `{}`", command.get_program().display()))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the child has a stdout")?;
        if let Some(mut stderr) = child.stderr.take() {
            // Drained as any client has to: a full pipe would block the server. Ends with the process.
            std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        }
        Ok(Self { child, stdin, stdout, inbox: Inbox::default(), searched: 0, last_id: 0 })
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Whether a line was there; it then is what the inbox has taken.
    fn take_line(&mut self) -> bool {
        let unread = self.inbox.unread();
        let Some(newline) = memchr::memchr(b'\n', &unread[self.searched..]) else {
            self.searched = unread.len();
            return false;
        };
        let end = self.searched + newline;
        self.inbox.take(end + 1, 0..end);
        self.searched = 0;
        true
    }
}

impl ClientConnection for Connection {
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn send(&mut self, request: &[u8]) -> Result<()> {
        stall::waiting_for(Pid::from_child(&self.child));
        let stdin = self.stdin.as_mut().context("the connection is open")?;
        let outcome = stdin.write_all(request).context("could not write to it: it has ended");
        stall::not_waiting();
        outcome
    }

    fn fill(&mut self) -> Result<()> {
        self.inbox.fill(&mut self.stdout, Pid::from_child(&self.child))
    }

    fn take(&mut self) -> Result<bool> {
        while self.take_line() {
            if is_answer(self.taken()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn taken(&self) -> &[u8] {
        self.inbox.taken()
    }
}

impl AsFd for Connection {
    /// For waiting until there is something to read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stdout.as_fd()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let below = descendants(self.pid());
        drop(self.stdin.take());
        let deadline = Instant::now() + EXIT_TIMEOUT;
        // Whatever it still says is read, or it might never come to its end.
        let mut rest = vec![0; 64 * 1024];
        while Instant::now() < deadline && !matches!(self.child.try_wait(), Ok(Some(_))) {
            let readable = rustix::event::PollFlags::IN;
            let mut polled = [rustix::event::PollFd::new(&self.stdout, readable)];
            let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
            let ready = rustix::event::poll(&mut polled, Some(&moment)).is_ok_and(|count| count > 0);
            if ready && !matches!(self.stdout.read(&mut rest), Ok(1..)) {
                std::thread::sleep(Duration::from_micros(500));
            }
        }
        make_end(&mut self.child);
        end_orphans(&below);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_whole_whatever_their_size() {
        let mut cat = Connection::open(&mut Command::new("cat"), Stdio::null()).unwrap();
        for size in [0, 10, 60_000, 3] {
            let line = vec![b'x'; size];
            cat.send(&[&line, b"\n".as_slice()].concat()).unwrap();
            assert_eq!(cat.answer().unwrap(), line);
        }
        cat.send(b"one\n{\"method\":\"notifications/x\"}\ntwo\n").unwrap();
        assert_eq!(cat.answer().unwrap(), b"one");
        assert_eq!(cat.answer().unwrap(), b"two");
    }

    #[test]
    fn dropping_a_connection_ends_what_it_started() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000 & echo started; wait"]);
        let mut connection = Connection::open(&mut shell, Stdio::null()).unwrap();
        assert_eq!(connection.answer().unwrap(), b"started");
        let pid = connection.pid();
        let below = descendants(pid);
        assert!(!below.is_empty());
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
        drop(connection);
        let alive = |pid: &Pid| std::fs::exists(format!("/proc/{pid}")).unwrap();
        assert!(!alive(&pid) && !below.iter().any(alive));
    }
}
