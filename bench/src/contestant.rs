//! Who is measured: the servers without anything between (direct), the floor, us, and any other aggregator.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Pid;

use crate::call::{Call, Check};
use crate::connection::Connection;
use crate::listing::{Listing, list_tools};
use crate::processes::relay_processes;

/// How long an aggregator that lists before its servers are ready may take until the list is complete.
const COMPLETE_LIST: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Direct,
    Floor,
    Us,
    /// A command line with `{config}` in it.
    Other(String),
}

#[derive(Debug, Clone)]
pub(crate) struct Contestant {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// The servers behind a contestant: `count` times the test server, each with `tools` tools.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Servers {
    pub(crate) count: usize,
    pub(crate) tools: usize,
}

impl Servers {
    /// With just the built-in tools.
    pub(crate) fn plain(count: usize) -> Self {
        let tools = bench::payload::BUILT_IN.len();
        Self { count, tools }
    }

    pub(crate) fn tools_in_all(self) -> usize {
        self.count * self.tools
    }
}

/// The key of a server in a config. All have the same length, so that none is the start of another.
fn server_key(index: usize) -> String {
    format!("s{index:02}")
}

/// Where the programs are, and room for config files.
pub(crate) struct Programs {
    pub(crate) server: PathBuf,
    pub(crate) floor: PathBuf,
    pub(crate) us: PathBuf,
    pub(crate) scratch: tempfile::TempDir,
}

impl Programs {
    pub(crate) fn server_command(&self, servers: Servers) -> Command {
        let mut command = Command::new(&self.server);
        command.args(["--tools", &servers.tools.to_string()]);
        command
    }

    fn write_config(&self, servers: Servers) -> Result<PathBuf> {
        let entry = serde_json::json!({
            "command": self.server,
            "args": ["--tools", servers.tools.to_string()],
        });
        let entries: serde_json::Map<_, _> =
            (0..servers.count).map(|index| (server_key(index), entry.clone())).collect();
        let name = format!("{}-servers-{}-tools.json", servers.count, servers.tools);
        let path = self.scratch.path().join(name);
        let config = serde_json::json!({ "mcpServers": entries });
        std::fs::write(&path, config.to_string()).context("could not write a config file")?;
        Ok(path)
    }

    /// What a contestant wrote to stderr, for error messages.
    fn log_path(&self, contestant: &Contestant) -> PathBuf {
        self.scratch.path().join(format!("{}.stderr", contestant.name.replace('/', "_")))
    }
}

impl Contestant {
    pub(crate) fn is_other(&self) -> bool {
        matches!(self.kind, Kind::Other(_))
    }

    /// Whether one connection of it can reach several servers.
    pub(crate) fn aggregates(&self) -> bool {
        matches!(self.kind, Kind::Us | Kind::Other(_))
    }

    pub(crate) fn check(&self) -> Check {
        if self.is_other() { Check::Size } else { Check::Exact }
    }

    /// Starts it and waits until it lists all tools.
    pub(crate) fn start(&self, programs: &Programs, servers: Servers) -> Result<Session> {
        self.try_start(programs, servers).with_context(|| {
            let log = std::fs::read_to_string(programs.log_path(self)).unwrap_or_default();
            let last: Vec<&str> = log.lines().rev().take(5).collect();
            let tail: String = last.iter().rev().map(|line| format!("\n  | {line}")).collect();
            format!("could not start {}{tail}", self.name)
        })
    }

    fn try_start(&self, programs: &Programs, servers: Servers) -> Result<Session> {
        let log = std::fs::File::create(programs.log_path(self)).context("could not write a log file")?;
        let mut command = self.command(programs, servers)?;
        let start = Instant::now();
        let mut connection = Connection::open(&mut command, Stdio::from(log))?;
        handshake(&mut connection)?;
        let listing = self.complete_list(&mut connection, servers)?;
        let ready_after = start.elapsed();
        let relay = relay_processes(connection.pid());
        Ok(Session { connection, names: listing.names()?, ready_after, relay, check: self.check() })
    }

    fn complete_list(&self, connection: &mut Connection, servers: Servers) -> Result<Listing> {
        let patience = Instant::now() + COMPLETE_LIST;
        loop {
            let listing = list_tools(connection)?;
            let count = listing.tool_count();
            if count >= servers.tools_in_all() {
                return Ok(listing);
            }
            let expected = servers.tools_in_all();
            // Ours waits for its servers, as it promises. Others may list what they have and announce the rest.
            ensure!(
                self.is_other() && Instant::now() < patience,
                "wrong answer: {count} tools listed instead of {expected}"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn command(&self, programs: &Programs, servers: Servers) -> Result<Command> {
        let command = match &self.kind {
            Kind::Direct => programs.server_command(servers),
            Kind::Floor => {
                let server = programs.server_command(servers);
                let mut command = Command::new(&programs.floor);
                command.arg(server.get_program()).args(server.get_args());
                command
            }
            Kind::Us => {
                let mut command = Command::new(&programs.us);
                command.arg("--config").arg(programs.write_config(servers)?);
                command
            }
            Kind::Other(line) => {
                let config = programs.write_config(servers)?;
                // `exec`: the process we measure is then the aggregator, not the shell.
                let mut command = Command::new("sh");
                command.args(["-c", &format!("exec {}", fill_in(line, &config))]);
                command
            }
        };
        Ok(command)
    }
}

fn fill_in(line: &str, config: &Path) -> String {
    line.replace("{config}", &config.display().to_string())
}

/// `initialize` and its answer, then `initialized`.
pub(crate) fn handshake(connection: &mut Connection) -> Result<()> {
    let id = connection.next_id();
    connection.send(initialize_request(id).as_bytes())?;
    finish_handshake(connection)
}

pub(crate) fn initialize_request(id: u64) -> String {
    format!(
        concat!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"initialize","params":{{"protocolVersion":"2025-11-25","#,
            r#""capabilities":{{}},"clientInfo":{{"name":"bench","version":"1.0.0"}}}}}}"#,
            "\n"
        ),
        id
    )
}

pub(crate) fn finish_handshake(connection: &mut Connection) -> Result<()> {
    let answer = connection.answer().context("no answer to initialize")?;
    ensure!(
        memchr::memmem::find(answer, br#""protocolVersion""#).is_some(),
        "wrong answer to initialize: {}",
        String::from_utf8_lossy(answer)
    );
    connection.send(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")
}

/// A started contestant, ready for calls.
pub(crate) struct Session {
    pub(crate) connection: Connection,
    names: Vec<String>,
    /// From the start of the process to the complete list.
    pub(crate) ready_after: Duration,
    /// Its own processes, without the servers.
    pub(crate) relay: Vec<Pid>,
    check: Check,
}

impl Session {
    /// A call of `tool` at the server with this index, under the name this contestant lists.
    pub(crate) fn call(&self, server: usize, tool: &str) -> Result<Call> {
        let key = server_key(server);
        let mut candidates = self.names.iter().filter(|name| name.ends_with(tool));
        let listed = candidates
            .clone()
            .find(|name| name.starts_with(&key))
            .or_else(|| candidates.next())
            .with_context(|| format!("no listed tool ends with `{tool}`"))?;
        Call::new(listed, tool, self.check)
    }

    /// One call, timed from before the write to the last byte of the answer; checked after that.
    pub(crate) fn timed_call(&mut self, call: &Call, request: &mut Vec<u8>) -> Result<Duration> {
        let id = self.connection.next_id();
        request.clear();
        call.write(id, request);
        let start = Instant::now();
        self.connection.send(request)?;
        let line = self.connection.answer()?;
        let elapsed = start.elapsed();
        call.verify(line, id)?;
        Ok(elapsed)
    }

    pub(crate) fn calls(&mut self, call: &Call, count: usize) -> Result<()> {
        let mut request = Vec::new();
        for _ in 0..count {
            self.timed_call(call, &mut request)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_path_goes_where_the_command_line_wants_it() {
        let line = fill_in("npx some-proxy --config {config} --stdio", Path::new("/x/c.json"));
        assert_eq!(line, "npx some-proxy --config /x/c.json --stdio");
    }

    #[test]
    fn no_server_key_is_the_start_of_another() {
        assert!(!server_key(10).starts_with(&server_key(1)));
    }
}
