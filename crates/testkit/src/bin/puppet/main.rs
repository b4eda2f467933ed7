//! The process of a puppet: passes stdin to a Unix socket, and what arrives there to stdout.
//!
//! A test holds the other end and plays the server; see `testkit::Puppet`. The first line on the socket contains the
//! pid, arguments and environment. When the test closes the socket, this program ends.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::{Map, Value, json};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("puppet: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> anyhow::Result<()> {
    let path = std::env::args().nth(1).context("the path of a socket is missing")?;
    let mut strings = UnixStream::connect(&path).with_context(|| format!("could not connect to {path}"))?;
    writeln!(strings, "{}", introduction()).context("could not introduce myself")?;
    let mut upwards = strings.try_clone().context("could not share the socket")?;
    std::thread::spawn(move || {
        // The test sees the end of stdin, and decides whether this process ends then.
        pump(io::stdin().lock(), &mut upwards).and_then(|()| upwards.shutdown(Shutdown::Write)).ok();
    });
    // If the reader is gone, this process ends like any server.
    pump(strings, &mut io::stdout().lock()).ok();
    Ok(())
}

fn introduction() -> Value {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let environment: Map<String, Value> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned().into()))
        .collect();
    json!({"pid": std::process::id(), "args": arguments, "env": environment})
}

fn pump(mut from: impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut bytes = vec![0; 1 << 16];
    loop {
        let count = from.read(&mut bytes)?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&bytes[..count])?;
        to.flush()?;
    }
}
