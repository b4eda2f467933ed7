//! The kernel kills the servers' process groups when this process and its watchdog have both ended.
//!
//! The watchdog ends what we leave behind, but not if it is killed together with us. So both hold the
//! write end of one pipe, and each server inherits a read end of its own, which is set up to send `SIGKILL` to the
//! server's process group when the last write end closes (`O_ASYNC` with `F_SETSIG` and `F_SETOWN`). Nothing is ever
//! written to the pipe. The kernel remembers the group itself, not its number, so a reused number is never hit.
//!
//! `PR_SET_PDEATHSIG` would reach the server alone and not its children, fires when the *thread* that started it ends, and
//! can only be set between `fork` and `exec`, which rules out `posix_spawn`.

use std::fs::File;
use std::io::{self, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::process::Stdio;

use rustix::process::{Pid, Signal};

/// Our copy of the write end.
#[derive(Debug)]
pub(crate) struct ExitPipe(PipeWriter);

/// The read end that one server is to inherit.
#[derive(Debug)]
pub(crate) struct ReadEnd(File);

impl ExitPipe {
    /// A new pipe, not yet shared with any process.
    pub(crate) fn new() -> io::Result<Self> {
        io::pipe().map(|(_, write_end)| Self(write_end))
    }

    /// The write end as a stream of the watchdog.
    pub(crate) fn for_watchdog(&self) -> io::Result<Stdio> {
        self.0.try_clone().map(Stdio::from)
    }

    /// A read end that shares nothing with those of other servers. The pipe is opened again for it, because a
    /// duplicate would share the group that is signalled.
    pub(crate) fn read_end(&self) -> io::Result<ReadEnd> {
        File::open(format!("/proc/self/fd/{}", self.0.as_raw_fd())).map(ReadEnd)
    }
}

impl ReadEnd {
    /// From now on, closing the pipe kills `group`, as long as a process in it holds this read end.
    pub(crate) fn kill_at_end(self, group: Pid) -> io::Result<()> {
        kernel::signal_group_when_ready(self.0.as_fd(), group, Signal::KILL)
    }
}

impl AsFd for ReadEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Keeps signals that are meant for interactive programs from ending this process: it ends when its input does.
pub(crate) fn ignore_terminating_signals() {
    kernel::ignore(&[Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM]);
}

/// System calls that neither the standard library nor rustix provides.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no safe interface sets the owner of a descriptor's signal or ignores a signal")]
mod kernel {
    use std::io;
    use std::os::fd::{AsRawFd, BorrowedFd};

    use rustix::process::{Pid, Signal};

    /// From `asm-generic/fcntl.h`; libc does not have it.
    const F_SETSIG: i32 = 10;

    pub(super) fn signal_group_when_ready(pipe: BorrowedFd<'_>, group: Pid, signal: Signal) -> io::Result<()> {
        set(pipe, libc::F_SETOWN, -group.as_raw_nonzero().get())?;
        set(pipe, F_SETSIG, signal.as_raw())?;
        set(pipe, libc::F_SETFL, libc::O_ASYNC)
    }

    fn set(pipe: BorrowedFd<'_>, command: i32, value: i32) -> io::Result<()> {
        // SAFETY: the descriptor is open while it is borrowed, and these commands take a number and touch no memory.
        match unsafe { libc::fcntl(pipe.as_raw_fd(), command, value) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    pub(super) fn ignore(signals: &[Signal]) {
        for signal in signals {
            // SAFETY: no handler is installed, so no code of ours runs in a signal's context.
            unsafe { libc::signal(signal.as_raw(), libc::SIG_IGN) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    use std::io;
    use std::os::fd::BorrowedFd;

    use rustix::process::{Pid, Signal};

    pub(super) fn signal_group_when_ready(_: BorrowedFd<'_>, _: Pid, _: Signal) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn ignore(_: &[Signal]) {}
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command};

    use super::*;
    use crate::inherited::{self, Inherited};

    /// A process in its own group that ignores every signal that can be ignored.
    fn stubborn(pipe: &ExitPipe) -> Child {
        let read_end = pipe.read_end().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' HUP TERM; sleep 600; sleep 600"]).process_group(0);
        let inherited = Inherited { read_end: Some(&read_end), tag: None };
        let child =
            inherited::spawn_with(&inherited, || command.spawn(), |child| Some(Pid::from_child(child))).unwrap();
        read_end.kill_at_end(Pid::from_child(&child)).unwrap();
        child
    }

    #[test]
    fn the_last_write_end_takes_every_group_with_it_and_an_earlier_one_none() {
        let pipe = ExitPipe::new().unwrap();
        let of_watchdog = pipe.0.try_clone().unwrap();
        let mut children = [stubborn(&pipe), stubborn(&pipe)];
        drop(pipe);
        assert!(children.iter_mut().all(|child| child.try_wait().unwrap().is_none()), "one write end is left");
        drop(of_watchdog);
        for mut child in children {
            assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
        }
    }
}
