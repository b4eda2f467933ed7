//! `floor COMMAND [ARGS..]`: the least a relay can do. Starts the command and copies bytes both ways, parsing nothing.
//!
//! Two blocking threads, 64 KiB buffers, four system calls per small call. Whatever a real relay adds on top of this
//! is the price of understanding the messages.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};

const BUFFER: usize = 64 * 1024;

fn main() -> Result<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    let program = words.next().context("usage: floor COMMAND [ARGS..]")?;
    let mut child = Command::new(&program)
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("could not start `{}`", program.display()))?;
    let child_in = child.stdin.take().context("the child has a stdin")?;
    let child_out = child.stdout.take().context("the child has a stdout")?;

    // Not the buffered handles of std: they would copy once more.
    let client_in = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let client_out = File::from(io::stdout().as_fd().try_clone_to_owned()?);

    // Ends with the process if the child goes first. When the client closes, dropping `child_in` ends the child.
    std::thread::spawn(move || copy(client_in, child_in));
    let outcome = copy(child_out, client_out);
    if outcome.is_err() {
        child.kill()?;
    }
    let status = child.wait()?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `io::copy` would let the kernel splice; a relay that must see the bytes cannot do that, so the floor does not either.
fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..count])?;
    }
}
