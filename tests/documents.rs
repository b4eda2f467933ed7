//! Markdown documents that run tools: `mcp-aggregator run` and `mcp-aggregator doc`.
//!
//! - [`run`]: with a running service, its limits and its records of calls
//! - [`config_servers`]: with the servers of a config, started for the run
//! - [`bindings`]: bindings of the registry
//! - [`watch`]: again whenever the document is saved
//! - [`map`]: the sections of a document and their servers

mod bindings;
mod config_servers;
mod map;
mod run;
mod watch;

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use testkit::program;

use crate::service_cli::Home;

/// A block that calls a tool of a server.
pub(crate) fn block(server: &str, tool: &str, parameters: &str) -> String {
    format!("```{server}\ntool: {tool}\n{parameters}```\n")
}

/// A document without its results.
pub(crate) fn without_results(text: &str) -> String {
    let mut is_inside = false;
    let mut kept = String::new();
    for line in text.split_inclusive('\n') {
        is_inside |= line.starts_with("<!-- mcp-result ");
        if !is_inside {
            kept.push_str(line);
        }
        is_inside &= !line.starts_with("<!-- /mcp-result ");
    }
    kept
}

/// A document without the durations and times of calls.
fn without_times(text: &str) -> String {
    let word = |word: &str| {
        let is_time = word.starts_with("ms=") || word.starts_with("at=") || word.starts_with("2026-");
        if is_time || word.chars().all(|character| character.is_ascii_digit()) {
            "_".to_owned()
        } else {
            word.to_owned()
        }
    };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(path).expect("the document is there")
}

/// Starts a command, and waits until it has printed this.
pub(crate) fn begin(home: &Home, arguments: &[&str], said: &str) -> Child {
    let mut command = Command::new(program("mcp-aggregator"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).env("HOME", home.path());
    command.env_remove("XDG_DATA_HOME").env_remove("MCP_AGGREGATOR_TOKEN");
    let mut child = command.spawn().expect("the program can be started");
    let mut lines = BufReader::new(child.stderr.take().expect("it was asked for")).lines();
    let found = lines.by_ref().map_while(Result::ok).any(|line| line.contains(said));
    assert!(found, "{arguments:?} never said `{said}`");
    // Read to the end, because a full pipe would block it.
    std::thread::spawn(move || lines.for_each(drop));
    child
}
