//! Ignores SIGTERM.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;

const SIGTERM_BIT: u64 = 1 << (15 - 1);

/// Makes this process, and every process it starts, ignore SIGTERM.
///
/// Safe Rust cannot change a signal's disposition, but an ignored signal stays ignored across `exec`: so a shell
/// ignores it and becomes this program again, with the same pid.
pub(crate) fn ignore() -> anyhow::Result<()> {
    if is_ignored().context("could not read the signal dispositions")? {
        return Ok(());
    }
    let error = deaf_command()?.args(std::env::args_os().skip(1)).exec();
    Err(error).context("could not start over through `sh`")
}

/// A command for this very program that starts with SIGTERM ignored; the caller adds the arguments.
pub(crate) fn deaf_command() -> io::Result<Command> {
    let mut command = Command::new("sh");
    command.args(["-c", r#"trap "" TERM; exec "$0" "$@""#]).arg(std::env::current_exe()?);
    Ok(command)
}

fn is_ignored() -> io::Result<bool> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    Ok(ignored & SIGTERM_BIT != 0)
}
