//! What the test server answers, whatever the request came by: both transports hand in the message and write the rest.
//!
//! Bodies are built once; a call costs a scan for id and name.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use lexopt::ValueExt;

use crate::payload::{BUILT_IN, Tool, definitions};
use crate::scan::{self, Request};

/// Knows the tools and keeps their answers ready.
pub struct Answers {
    list: Vec<u8>,
    bodies: HashMap<Tool, Vec<u8>>,
}

/// One answer in two parts, so that large ones can be written from where they are.
pub struct Answer<'a> {
    id: &'a [u8],
    /// What follows the id, up to and including a newline.
    pub rest: Cow<'a, [u8]>,
}

impl Answer<'_> {
    /// Appends what stands before `rest`.
    pub fn write_start(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        to.extend_from_slice(self.id);
    }
}

impl Answers {
    /// Of a server with as many tools as `--tools` says.
    pub fn from_command_line() -> Result<Self> {
        let mut parser = lexopt::Parser::from_env();
        let mut tools = BUILT_IN.len();
        while let Some(argument) = parser.next()? {
            match argument {
                lexopt::Arg::Long("tools") => {
                    tools = parser.value()?.string()?.parse().context("--tools takes a number")?;
                }
                other => bail!("{}", other.unexpected()),
            }
        }
        let list = completed(&format!(r#"{{"tools":{}}}"#, definitions(tools)));
        Ok(Self { list, bodies: HashMap::new() })
    }

    /// `None` for what wants no answer: notifications, and what is no object.
    pub fn to<'a>(&'a mut self, message: &'a [u8]) -> Option<Answer<'a>> {
        let request = scan::request(message)?;
        let id = request.id?;
        let rest = match request.method {
            b"tools/call" => self.call(&request),
            b"tools/list" => Cow::Borrowed(self.list.as_slice()),
            b"initialize" => Cow::Owned(initialized(message)),
            b"ping" => Cow::Owned(completed("{}")),
            _ => Cow::Owned(refused(-32601, "method not found")),
        };
        Some(Answer { id, rest })
    }

    fn call(&mut self, request: &Request<'_>) -> Cow<'_, [u8]> {
        let name = request.tool.and_then(|name| std::str::from_utf8(name).ok());
        let Some(tool) = name.and_then(Tool::from_name) else {
            return Cow::Owned(refused(-32602, "unknown tool"));
        };
        match tool {
            Tool::Hang => hang(),
            Tool::FloodStderr => {
                std::thread::spawn(flood_stderr);
            }
            Tool::Text(_) | Tool::Json(_) => {}
        }
        Cow::Borrowed(self.bodies.entry(tool).or_insert_with(|| completed(&tool.result())))
    }
}

/// What follows the id in a successful answer.
fn completed(result: &str) -> Vec<u8> {
    format!(",\"result\":{result}}}\n").into_bytes()
}

fn refused(code: i32, message: &str) -> Vec<u8> {
    format!(",\"error\":{{\"code\":{code},\"message\":\"{message}\"}}}}\n").into_bytes()
}

/// Agrees to whatever revision was asked for.
fn initialized(message: &[u8]) -> Vec<u8> {
    const KEY: &[u8] = br#""protocolVersion":""#;
    let revision = memchr::memmem::find(message, KEY)
        .and_then(|at| message[at + KEY.len()..].split(|byte| *byte == b'"').next())
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
