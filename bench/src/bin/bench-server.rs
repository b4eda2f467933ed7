//! `bench-server [--tools N]`: the fastest honest MCP server over stdio, so that the benchmark measures the relay.
//!
//! It serves requests in order, one thread; what it answers is in `bench::answers`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;

use anyhow::Result;
use bench::answers::Answers;

/// Larger bodies are written from where they are; smaller ones are gathered into one write.
const MAX_GATHERED_BYTES: usize = 64 * 1024;

fn main() -> Result<()> {
    let mut server = Server {
        out: File::from(io::stdout().as_fd().try_clone_to_owned()?),
        pending: Vec::with_capacity(2 * MAX_GATHERED_BYTES),
        answers: Answers::from_command_line()?,
    };
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut buffer = vec![0; MAX_GATHERED_BYTES];
    let mut filled = 0;
    loop {
        let count = input.read(&mut buffer[filled..])?;
        if count == 0 {
            return Ok(());
        }
        let searched = filled;
        filled += count;
        let mut start = 0;
        for newline in memchr::memchr_iter(b'\n', &buffer[searched..filled]) {
            let end = searched + newline;
            server.answer(&buffer[start..end])?;
            start = end + 1;
        }
        server.flush()?;
        buffer.copy_within(start..filled, 0);
        filled -= start;
        if filled == buffer.len() {
            buffer.resize(2 * filled, 0);
        }
    }
}

struct Server {
    out: File,
    /// Answers not yet written.
    pending: Vec<u8>,
    answers: Answers,
}

impl Server {
    fn answer(&mut self, line: &[u8]) -> io::Result<()> {
        let Some(answer) = self.answers.to(line) else {
            return Ok(());
        };
        answer.write_start(&mut self.pending);
        if self.pending.len() + answer.rest.len() <= MAX_GATHERED_BYTES {
            self.pending.extend_from_slice(&answer.rest);
            return Ok(());
        }
        self.out.write_all(&self.pending)?;
        self.pending.clear();
        self.out.write_all(&answer.rest)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.pending)?;
        self.pending.clear();
        Ok(())
    }
}
