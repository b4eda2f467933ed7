//! `bench-server [--tools N]`: the fastest honest MCP server over stdio, so that the benchmark measures the relay.
//!
//! Bodies are built once; a call costs a scan for id and name, and a write. It serves requests in order, one thread.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench::payload::{BUILT_IN, Tool, definitions};
use bench::scan::{self, Request};
use lexopt::ValueExt;

/// Larger bodies are written from where they are; smaller ones are gathered into one write.
const GATHERED: usize = 64 * 1024;

fn main() -> Result<()> {
    let mut server = Server {
        out: File::from(io::stdout().as_fd().try_clone_to_owned()?),
        pending: Vec::with_capacity(2 * GATHERED),
        list: completed(&format!(r#"{{"tools":{}}}"#, definitions(tool_count()?))),
        bodies: HashMap::new(),
    };
    let mut input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut buffer = vec![0; GATHERED];
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

fn tool_count() -> Result<usize> {
    let mut parser = lexopt::Parser::from_env();
    let mut count = BUILT_IN.len();
    while let Some(argument) = parser.next()? {
        match argument {
            lexopt::Arg::Long("tools") => {
                count = parser.value()?.string()?.parse().context("--tools takes a number")?;
            }
            other => bail!("{}", other.unexpected()),
        }
    }
    Ok(count)
}

struct Server {
    out: File,
    /// Answers not yet written.
    pending: Vec<u8>,
    /// What follows the id in each answer, ready to be written.
    list: Vec<u8>,
    bodies: HashMap<Tool, Vec<u8>>,
}

impl Server {
    fn answer(&mut self, line: &[u8]) -> io::Result<()> {
        let Some(request) = scan::request(line) else {
            return Ok(());
        };
        let Some(id) = request.id else {
            return Ok(());
        };
        self.pending.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        self.pending.extend_from_slice(id);
        match request.method {
            b"tools/call" => self.call(&request),
            b"tools/list" => append(&mut self.out, &mut self.pending, &self.list),
            b"initialize" => {
                self.pending.extend_from_slice(&initialized(line));
                Ok(())
            }
            b"ping" => {
                self.pending.extend_from_slice(&completed("{}"));
                Ok(())
            }
            _ => self.refuse(-32601, "method not found"),
        }
    }

    fn call(&mut self, request: &Request<'_>) -> io::Result<()> {
        let name = request.tool.and_then(|name| std::str::from_utf8(name).ok());
        let Some(tool) = name.and_then(Tool::from_name) else {
            return self.refuse(-32602, "unknown tool");
        };
        match tool {
            Tool::Hang => hang(),
            Tool::FloodStderr => {
                std::thread::spawn(flood_stderr);
            }
            Tool::Text(_) | Tool::Json(_) => {}
        }
        let body = self.bodies.entry(tool).or_insert_with(|| completed(&tool.result()));
        append(&mut self.out, &mut self.pending, body)
    }

    fn refuse(&mut self, code: i32, message: &str) -> io::Result<()> {
        write!(self.pending, r#","error":{{"code":{code},"message":"{message}"}}}}"#)?;
        self.pending.push(b'\n');
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.pending)?;
        self.pending.clear();
        Ok(())
    }
}

fn append(out: &mut File, pending: &mut Vec<u8>, body: &[u8]) -> io::Result<()> {
    if pending.len() + body.len() <= GATHERED {
        pending.extend_from_slice(body);
        return Ok(());
    }
    out.write_all(pending)?;
    pending.clear();
    out.write_all(body)
}

/// What follows the id in a successful answer.
fn completed(result: &str) -> Vec<u8> {
    format!(",\"result\":{result}}}\n").into_bytes()
}

/// Agrees to whatever revision was asked for.
fn initialized(line: &[u8]) -> Vec<u8> {
    const KEY: &[u8] = br#""protocolVersion":""#;
    let revision = memchr::memmem::find(line, KEY)
        .and_then(|at| line[at + KEY.len()..].split(|byte| *byte == b'"').next())
        .and_then(|revision| std::str::from_utf8(revision).ok())
        .unwrap_or("2025-11-25");
    completed(&format!(
        r#"{{"protocolVersion":"{revision}","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"bench-server","version":"1.0.0"}}}}"#
    ))
}

/// Reads and answers nothing any more, but does not outlive whoever started us.
fn hang() {
    let parent = rustix::process::getppid();
    while rustix::process::getppid() == parent {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::process::exit(1);
}

/// Ends when nobody holds the other end of stderr.
fn flood_stderr() {
    let noise = [b"bench-server: there is nothing wrong, but I say so at length\n".as_slice(); 64].concat();
    while io::stderr().write_all(&noise).is_ok() {}
}
