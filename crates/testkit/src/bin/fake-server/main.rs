//! A small MCP server over stdio that misbehaves on purpose.
//!
//! It writes raw bytes and returns what it received unchanged, so that a test can compare bytes through any relay.
//! Flags define how it starts and which phase goes wrong ([`options`]); tools define what a single call does
//! ([`behaviours`]); [`hostile`] is about excessive output.

mod behaviours;
mod definitions;
mod grandchild;
mod hostile;
mod options;
mod output;
mod session;
mod termination;

use std::io::{self, BufRead, BufReader, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use crate::options::{Options, Phase};
use crate::session::Session;

/// How long "forever" is here: longer than any test, but a failed run leaves nothing permanently.
const FOREVER: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fake-server: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == grandchild::FLAG) {
        return grandchild::run(&arguments[1..]);
    }
    let options = Options::parse(arguments)?;
    if options.ignore_term {
        termination::ignore()?;
    }
    misbehave_before_the_first_line(&options)?;

    let ignore_eof = options.ignore_eof;
    let session = Arc::new(Session::new(options)?);
    let mut input = BufReader::with_capacity(1 << 16, io::stdin());
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line).context("could not read stdin")? > 0 {
        session.receive(&line);
        line.clear();
    }
    if ignore_eof {
        std::thread::sleep(FOREVER);
    }
    // Threads that still sleep for a call end with the process.
    Ok(())
}

fn misbehave_before_the_first_line(options: &Options) -> anyhow::Result<()> {
    std::thread::sleep(options.start_delay);
    if let Some(line) = &options.stderr_line {
        eprintln!("{line}");
    }
    flood_stderr(options.flood_stderr);
    if options.fail_at == Some(Phase::Start) {
        session::fail(Phase::Start);
    }
    Ok(())
}

/// Writes `bytes` bytes of lines to stderr. Errors are ignored, because the reader may be gone.
fn flood_stderr(bytes: usize) {
    const LINE: &[u8] = b"fake-server floods its stderr with lines that nobody asked for, one like the other\n";
    let mut stderr = io::stderr().lock();
    let mut left = bytes;
    while left > 0 {
        let part = left.min(LINE.len());
        if stderr.write_all(&LINE[LINE.len() - part..]).is_err() {
            return;
        }
        left -= part;
    }
}
