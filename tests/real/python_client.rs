//! The `mcp` client of PyPI, which carries out a list of steps. See `client.py`.

use std::fs::{self, File};
use std::process::Command;

use serde_json::{Value, json};
use testkit::run::run_command;

use super::parts::Parts;
use super::sandbox::Sandbox;
use super::servers::{Server, aggregator, config_of};

const SCRIPT: &str = include_str!("client.py");

/// What the client saw.
#[derive(Debug)]
pub(super) struct Session {
    /// The revision that was agreed on.
    pub(super) revision: String,
    pub(super) server_name: String,
    pub(super) capabilities: Value,
    /// One per step.
    pub(super) answers: Vec<Value>,
}

/// How the client finds out which revision to speak.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mode {
    /// By `initialize`, as until 2025-11-25.
    Legacy,
    /// By `server/discover`, then by `initialize`.
    Auto,
}

/// Runs the steps in one session with this server.
#[track_caller]
pub(super) fn session(parts: &Parts, sandbox: &Sandbox, server: &Server, mode: Mode, steps: &[Value]) -> Session {
    let mode = match mode {
        Mode::Legacy => "legacy",
        Mode::Auto => "auto",
    };
    let plan = json!({"server": server.to_value(), "mode": mode, "steps": steps});
    let plan_file = sandbox.path("plan.json");
    fs::write(&plan_file, plan.to_string()).expect("a temporary folder can be written");

    let mut python = Command::new(parts.python());
    python.args(["-c", SCRIPT]).env("HOME", sandbox.home());
    python.stdin(File::open(&plan_file).expect("the plan was just written"));
    let output = run_command(&mut python);
    assert!(output.status.success(), "the client failed in {plan}:\n{}", output.stderr);

    let seen: Value = serde_json::from_str(&output.stdout).expect("the client prints JSON");
    let word = |key: &str| seen[key].as_str().expect("the client prints what it promises").to_owned();
    Session {
        revision: word("revision"),
        server_name: word("serverName"),
        capabilities: seen["capabilities"].clone(),
        answers: seen["answers"].as_array().expect("the client prints what it promises").clone(),
    }
}

/// Runs the steps in one session with us, in front of these servers.
#[track_caller]
pub(super) fn session_through_us(
    parts: &Parts,
    sandbox: &Sandbox,
    servers: &[&Server],
    mode: Mode,
    steps: &[Value],
) -> Session {
    let config = config_of(servers).write();
    session(parts, sandbox, &aggregator(config.path()), mode, steps)
}

/// A step that lists the tools, and waits for at least one of each of these prefixes.
pub(super) fn list<P: AsRef<str>>(prefixes: impl IntoIterator<Item = P>) -> Value {
    let prefixes: Vec<String> = prefixes.into_iter().map(|prefix| prefix.as_ref().to_owned()).collect();
    json!({"list": prefixes})
}

/// A step that calls a tool.
pub(super) fn call(name: &str, arguments: &Value) -> Value {
    json!({"call": name, "arguments": arguments})
}
