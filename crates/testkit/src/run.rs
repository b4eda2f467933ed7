//! Starts a program and waits for its end.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use crate::capture::Capture;
use crate::wait::{DEADLINE, wait_at_most};

/// How a program ended, and what it wrote.
#[derive(Clone, Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

/// Runs a program with an empty stdin to its end.
#[track_caller]
pub fn run<A: AsRef<OsStr>>(program: impl AsRef<Path>, arguments: impl IntoIterator<Item = A>) -> Output {
    let mut command = Command::new(program.as_ref());
    command.args(arguments).stdin(Stdio::null());
    run_command(&mut command)
}

/// Runs a command to its end; its stdin, environment and folder are the caller's choice.
#[track_caller]
pub fn run_command(command: &mut Command) -> Output {
    let spawned = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.unwrap_or_else(|error| panic!("could not start {command:?}: {error}"));
    let stdout = Capture::of(child.stdout.take().expect("stdout was asked for"));
    let stderr = Capture::of(child.stderr.take().expect("stderr was asked for"));

    let status = wait_at_most(DEADLINE, || child.try_wait().expect("our own child can be waited for"));
    if status.is_none() {
        child.kill().expect("our own child can be killed");
        child.wait().expect("our own child can be reaped");
    }
    let complete = status.is_some() && stdout.wait_for_end(DEADLINE) && stderr.wait_for_end(DEADLINE);
    let (stdout, stderr) = (stdout.text(), stderr.text());
    match status {
        Some(status) if complete => Output { status, stdout, stderr },
        Some(_) => panic!("{command:?} ended, but another process holds its output open\n{stdout}\n{stderr}"),
        None => panic!("{command:?} did not end within {DEADLINE:?}\n{stdout}\n{stderr}"),
    }
}
