//! The client's end of one contestant: its process, two pipes, and lines with as little around them as possible.

use std::io::{ErrorKind, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;

use crate::processes::{descendants, end_orphans};
use crate::stall;

/// How long a contestant may take to end by itself after its input was closed.
const GRACE: Duration = Duration::from_secs(3);

/// A running process that speaks JSON lines. Dropping it ends the process and everything it started.
pub(crate) struct Connection {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    buffer: Vec<u8>,
    /// The bytes received and not yet taken; no newline before `searched`.
    unread: Range<usize>,
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
        Ok(Self { child, stdin, stdout, buffer: vec![0; 256 * 1024], unread: 0..0, searched: 0, last_id: 0 })
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        stall::waiting_for(Pid::from_child(&self.child));
        let stdin = self.stdin.as_mut().context("the connection is open")?;
        let outcome = stdin.write_all(bytes).context("could not write to it: it has ended");
        stall::not_waiting();
        outcome
    }

    /// The next line that answers something, without its newline; notifications are passed over.
    pub(crate) fn answer(&mut self) -> Result<&[u8]> {
        loop {
            if let Some(found) = self.take_answer() {
                return Ok(&self.buffer[found]);
            }
            self.fill()?;
        }
    }

    /// An answer that has already been read from the pipe.
    pub(crate) fn buffered_answer(&mut self) -> Option<&[u8]> {
        let found = self.take_answer()?;
        Some(&self.buffer[found])
    }

    fn take_answer(&mut self) -> Option<Range<usize>> {
        loop {
            let found = self.take_line()?;
            if is_answer(&self.buffer[found.clone()]) {
                return Some(found);
            }
        }
    }

    fn take_line(&mut self) -> Option<Range<usize>> {
        let Some(newline) = memchr::memchr(b'\n', &self.buffer[self.searched..self.unread.end]) else {
            self.searched = self.unread.end;
            return None;
        };
        let end = self.searched + newline;
        let found = self.unread.start..end;
        self.unread.start = end + 1;
        self.searched = end + 1;
        Some(found)
    }

    /// One read from the pipe; blocks when it is empty.
    pub(crate) fn fill(&mut self) -> Result<()> {
        if self.unread.is_empty() {
            self.unread = 0..0;
            self.searched = 0;
        } else if self.unread.start > 0 && self.unread.end == self.buffer.len() {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.searched -= self.unread.start;
            self.unread = 0..self.unread.len();
        }
        if self.unread.end == self.buffer.len() {
            self.buffer.resize(2 * self.unread.end, 0);
        }
        stall::waiting_for(Pid::from_child(&self.child));
        let outcome = self.stdout.read(&mut self.buffer[self.unread.end..]);
        stall::not_waiting();
        match outcome {
            Ok(0) => bail!("it closed its output"),
            Ok(count) => self.unread.end += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("could not read from it"),
        }
        Ok(())
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
        let patience = Instant::now() + GRACE;
        // Whatever it still says is read, or it might never come to its end.
        while Instant::now() < patience && !matches!(self.child.try_wait(), Ok(Some(_))) {
            let readable = rustix::event::PollFlags::IN;
            let mut polled = [rustix::event::PollFd::new(&self.stdout, readable)];
            let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
            let ready = rustix::event::poll(&mut polled, Some(&moment)).is_ok_and(|count| count > 0);
            if ready && !matches!(self.stdout.read(&mut self.buffer), Ok(1..)) {
                std::thread::sleep(Duration::from_micros(500));
            }
        }
        if let Ok(None) = self.child.try_wait()
            && let Err(error) = self.child.kill()
        {
            eprintln!("warning: could not kill process {}: {error}", self.pid());
        }
        if let Err(error) = self.child.wait() {
            eprintln!("warning: could not wait for process {}: {error}", self.pid());
        }
        end_orphans(&below);
    }
}

/// Requests and notifications name a method; no payload of ours has that word so near the start.
fn is_answer(line: &[u8]) -> bool {
    let head = &line[..line.len().min(64)];
    memchr::memmem::find(head, br#""method""#).is_none()
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
