//! How each real server is started, directly or by us.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::{Config, Launch, ServerEntry, program};

use super::parts::Parts;
use super::sandbox::{Repository, Sandbox};

/// The variable with the file in which our own servers record the labels of cancelled calls.
const JOURNAL: &str = "JOURNAL";

/// A command line of an MCP server over stdio, and its key in our config.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) key: &'static str,
    pub(super) command: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(&'static str, String)>,
}

/// A bit of everything that MCP has. Without capabilities of the client it lists 13 tools.
pub(super) fn everything(parts: &Parts) -> Server {
    from_npm(parts, "everything", &["stdio"])
}

pub(super) fn filesystem(parts: &Parts, files: &Path) -> Server {
    from_npm(parts, "filesystem", &[&text(files)])
}

pub(super) fn memory(parts: &Parts, file: &Path) -> Server {
    let server = from_npm(parts, "memory", &[]);
    Server { env: vec![("MEMORY_FILE_PATH", text(file))], ..server }
}

pub(super) fn git(parts: &Parts, repository: &Repository) -> Server {
    from_pypi(parts, "git", &["-m", "mcp_server_git", "--repository", &text(repository.folder())])
}

pub(super) fn time(parts: &Parts) -> Server {
    from_pypi(parts, "time", &["-m", "mcp_server_time", "--local-timezone", "UTC"])
}

/// Keeps all thoughts of all clients as long as it runs.
pub(super) fn thinking(parts: &Parts) -> Server {
    let package = "@modelcontextprotocol/server-sequential-thinking/dist/index.js";
    Server { key: "thinking", command: parts.node(), args: vec![text(&parts.npm_file(package))], env: Vec::new() }
}

/// It refuses to fetch anything from this machine.
pub(super) fn fetch(parts: &Parts) -> Server {
    from_pypi(parts, "fetch", &["-m", "mcp_server_fetch"])
}

/// A server of our own on FastMCP 4; see `fm.py`. It writes down which calls were cancelled.
pub(super) fn fastmcp(parts: &Parts, sandbox: &Sandbox) -> Server {
    let script = sandbox.script("fm.py", include_str!("fm.py"));
    let server = from_pypi(parts, "fm", &[&text(&script)]);
    Server { env: vec![(JOURNAL, text(&sandbox.journal()))], ..server }
}

/// A server of our own on the TypeScript SDK v2; see `server.mjs`. It writes down which calls were cancelled.
pub(super) fn notes(parts: &Parts, sandbox: &Sandbox) -> Server {
    let script = sandbox.node_script(parts, "server.mjs", include_str!("server.mjs"));
    let env = vec![(JOURNAL, text(&sandbox.journal()))];
    Server { key: "notes", command: parts.node(), args: vec![text(&script)], env }
}

/// All of them that have tools only, each with its own part of the sandbox.
pub(super) fn all(parts: &Parts, sandbox: &Sandbox) -> [Server; 5] {
    [
        everything(parts),
        filesystem(parts, &sandbox.files()),
        memory(parts, &sandbox.path("memory.jsonl")),
        git(parts, &sandbox.repository()),
        time(parts),
    ]
}

/// The server `everything` as most configs start it. npm, a shell and Node become three processes.
pub(super) fn everything_by_npx(parts: &Parts) -> Server {
    let path = std::env::var("PATH").unwrap_or_default();
    let node_folder = parts.npm_folder().join("bin");
    let args = ["--offline", "--prefix", &text(&parts.npm_folder()), "mcp-server-everything"].map(str::to_owned);
    Server {
        key: "npx",
        command: "npx".into(),
        args: args.into(),
        env: vec![
            ("PATH", format!("{}:{path}", node_folder.display())),
            // Otherwise npm checks the network for a newer version of itself.
            ("npm_config_update_notifier", "false".to_owned()),
        ],
    }
}

fn from_npm(parts: &Parts, key: &'static str, args: &[&str]) -> Server {
    let script = parts.npm_file(format!("@modelcontextprotocol/server-{key}/dist/index.js"));
    let args = std::iter::once(text(&script)).chain(args.iter().map(|arg| (*arg).to_owned())).collect();
    Server { key, command: parts.node(), args, env: Vec::new() }
}

fn from_pypi(parts: &Parts, key: &'static str, args: &[&str]) -> Server {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    Server { key, command: parts.python(), args, env: Vec::new() }
}

fn text(path: &Path) -> String {
    path.to_str().expect("test folders have plain names").to_owned()
}

impl Server {
    /// Started by the test itself.
    pub(super) fn launch(&self) -> Launch {
        let launch = Launch::program(&self.command).args(&self.args);
        self.env.iter().fold(launch, |launch, (name, value)| launch.env(name, value))
    }

    /// As MCP clients write it in their configs.
    pub(super) fn to_value(&self) -> Value {
        let env: serde_json::Map<_, _> =
            self.env.iter().map(|(name, value)| ((*name).to_owned(), value.as_str().into())).collect();
        json!({"command": self.command.to_string_lossy(), "args": self.args, "env": env})
    }

    /// The name of its tool through us.
    pub(super) fn name_of(&self, tool: &str) -> String {
        format!("{}:{tool}", self.key)
    }
}

/// Our config of these servers, in this order.
pub(super) fn config_of(servers: &[&Server]) -> Config {
    servers.iter().fold(Config::new(), |config, server| {
        let entry = ServerEntry::new(&server.command).args(server.args.clone());
        let entry = server.env.iter().fold(entry, |entry, (name, value)| entry.env(name, value));
        config.server(server.key, entry)
    })
}

/// The program under test as an MCP server for others, with this config.
#[track_caller]
pub(super) fn aggregator(config: &Path) -> Server {
    let args = vec!["--config".to_owned(), text(config)];
    Server { key: "us", command: program("mcp-simple-aggregator"), args, env: Vec::new() }
}
