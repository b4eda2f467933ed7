//! Who is measured: the servers without anything between (direct), the floor, us, and any other aggregator.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::protected::{ACCESS_TOKEN, PROTECTED_PATH};

use crate::call::Check;
use crate::client_connection::ClientConnection;
use crate::connection::Connection;
use crate::listing::{Listing, list_tools};
use crate::processes::relay_processes;
use crate::session::{Session, handshake, server_key};

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

/// How we get to the token that a protected server wants.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Credentials {
    /// It stands in the config, as a header.
    Header,
    /// We get it from the token endpoint, by `client_credentials`: nobody is needed for that.
    SignIn,
}

/// Where the programs are, and room for config files.
pub(crate) struct Programs {
    pub(crate) server: PathBuf,
    pub(crate) http_server: PathBuf,
    pub(crate) floor: PathBuf,
    pub(crate) floor_proxy: PathBuf,
    /// Over stdio.
    pub(crate) us: PathBuf,
    /// Over HTTP: it has a verb `serve`.
    pub(crate) service: PathBuf,
    pub(crate) scratch: tempfile::TempDir,
}

impl Programs {
    pub(crate) fn server_command(&self, servers: Servers) -> Command {
        let mut command = Command::new(&self.server);
        command.args(["--tools", &servers.tools.to_string()]);
        command
    }

    /// A config of servers that are started.
    pub(crate) fn write_config(&self, servers: Servers) -> Result<PathBuf> {
        let entry = serde_json::json!({
            "command": self.server,
            "args": ["--tools", servers.tools.to_string()],
        });
        let entries = (0..servers.count).map(|index| (server_key(index), entry.clone())).collect();
        self.write_entries(&format!("{}-servers-{}-tools.json", servers.count, servers.tools), &entries)
    }

    /// A config of one server that is started, and of a profile that hides some of what it might have.
    pub(crate) fn write_profile_config(&self) -> Result<PathBuf> {
        let entry =
            serde_json::json!({ "command": self.server, "args": ["--tools", Servers::plain(1).tools.to_string()] });
        let config = serde_json::json!({
            "mcpServers": { server_key(0): entry },
            "profiles": { "bench": { "tools": ["*", "!*.hidden"], "prompts": [], "resources": ["x://*"] } },
        });
        let path = self.scratch.path().join("profile.json");
        std::fs::write(&path, config.to_string()).context("could not write a config file")?;
        Ok(path)
    }

    /// A config of one server that is reached at an address.
    pub(crate) fn write_remote_config(&self, address: SocketAddr) -> Result<PathBuf> {
        let entry = serde_json::json!({ "type": "http", "url": format!("http://{address}/mcp") });
        self.write_entries("remote.json", &[(server_key(0), entry)].into_iter().collect())
    }

    /// A config of one server that wants a token, and gets it in this way.
    pub(crate) fn write_protected_config(&self, address: SocketAddr, credentials: Credentials) -> Result<PathBuf> {
        let mut entry = serde_json::json!({ "type": "http", "url": format!("http://{address}{PROTECTED_PATH}") });
        match credentials {
            Credentials::Header => {
                entry["headers"] = serde_json::json!({ "Authorization": format!("Bearer {ACCESS_TOKEN}") });
            }
            Credentials::SignIn => {
                let grant = "client_credentials";
                entry["oauth"] = serde_json::json!({ "grant": grant, "client_id": "bench", "client_secret": "bench" });
            }
        }
        let name = format!("protected-{credentials:?}.json");
        self.write_entries(&name, &[(server_key(0), entry)].into_iter().collect())
    }

    fn write_entries(&self, name: &str, entries: &serde_json::Map<String, serde_json::Value>) -> Result<PathBuf> {
        let path = self.scratch.path().join(name);
        let config = serde_json::json!({ "mcpServers": entries });
        std::fs::write(&path, config.to_string()).context("could not write a config file")?;
        Ok(path)
    }

    /// Why a contestant may have failed to start: the end of what it wrote to stderr.
    pub(crate) fn failed_start(&self, contestant: &Contestant) -> String {
        let log = std::fs::read_to_string(self.log_path(contestant)).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(5).collect();
        let tail: String = last.iter().rev().map(|line| format!("\n  | {line}")).collect();
        format!("could not start {}{tail}", contestant.name)
    }

    /// What a contestant wrote to stderr, for error messages.
    pub(crate) fn log_path(&self, contestant: &Contestant) -> PathBuf {
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
        self.try_start(programs, servers).with_context(|| programs.failed_start(self))
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

    pub(crate) fn complete_list(&self, connection: &mut impl ClientConnection, servers: Servers) -> Result<Listing> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_path_replaces_its_placeholder() {
        let line = fill_in("npx some-proxy --config {config} --stdio", Path::new("/x/c.json"));
        assert_eq!(line, "npx some-proxy --config /x/c.json --stdio");
    }
}
