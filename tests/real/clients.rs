//! Real clients, which execute steps in sessions and report what they received. See `client.py` and `client.mjs`.

use std::fs::File;
use std::io::Write;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use testkit::run::run_command;

use super::parts::Parts;
use super::sandbox::Sandbox;
use super::servers::{Server, aggregator, config_of};

const PYTHON_SCRIPT: &str = include_str!("client.py");
const NODE_SCRIPT: &str = include_str!("client.mjs");

/// A library for MCP clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Client {
    /// `mcp` of PyPI.
    Python,
    /// `@modelcontextprotocol/sdk` of npm.
    TypeScriptV1,
    /// `@modelcontextprotocol/client` of npm.
    TypeScriptV2,
}

/// How a client negotiates the revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mode {
    /// By `initialize`, as until 2025-11-25.
    Legacy,
    /// By `server/discover`, then by `initialize`.
    Auto,
    /// It supports only 2026-07-28.
    Modern,
}

/// The kinds of revisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifecycle {
    /// Until 2025-11-25.
    Legacy,
    /// From 2026-07-28.
    Modern,
}

/// What a client does in one session.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// A command line or an address, as MCP clients write it in their configs.
    pub(super) server: Value,
    pub(super) mode: Mode,
    /// The capabilities that the client has, such as `elicitation`.
    pub(super) offers: &'static [&'static str],
    pub(super) steps: Vec<Value>,
}

/// All that a client may have.
pub(super) const EVERYTHING_A_CLIENT_HAS: &[&str] = &["elicitation", "sampling", "roots"];

/// The report of a client.
#[derive(Clone, Debug)]
pub(super) struct Session {
    /// The negotiated revision.
    pub(super) revision: String,
    /// A modern client that did not probe does not know.
    pub(super) server_name: Option<String>,
    pub(super) capabilities: Value,
    pub(super) instructions: Option<String>,
    /// One per step.
    pub(super) answers: Vec<Value>,
}

impl Mode {
    fn word(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Auto => "auto",
            Self::Modern => "2026-07-28",
        }
    }

    /// The kind of revision that it uses with us, who support both.
    pub(super) fn lifecycle(self) -> Lifecycle {
        match self {
            Self::Legacy => Lifecycle::Legacy,
            Self::Auto | Self::Modern => Lifecycle::Modern,
        }
    }
}

impl Client {
    /// Runs these plans concurrently.
    #[track_caller]
    pub(super) fn run(self, parts: &Parts, sandbox: &Sandbox, plans: &[Plan]) -> Vec<Session> {
        let plans: Vec<Value> = plans.iter().map(Plan::to_value).collect();
        self.carry_out(parts, sandbox, &json!({"inTurn": false, "sessions": plans}))
    }

    /// Runs one plan as a client with this name.
    #[track_caller]
    pub(super) fn run_as(self, name: &str, parts: &Parts, sandbox: &Sandbox, plan: &Plan) -> Session {
        let mut plan = plan.to_value();
        plan["name"] = name.into();
        let sessions = self.carry_out(parts, sandbox, &json!({"inTurn": true, "sessions": [plan]}));
        sessions.into_iter().next().expect("there is a session per plan")
    }

    /// Runs one plan after the other.
    #[track_caller]
    pub(super) fn run_in_turn(self, parts: &Parts, sandbox: &Sandbox, plans: &[Plan]) -> Vec<Session> {
        let plans: Vec<Value> = plans.iter().map(Plan::to_value).collect();
        self.carry_out(parts, sandbox, &json!({"inTurn": true, "sessions": plans}))
    }

    #[track_caller]
    fn carry_out(self, parts: &Parts, sandbox: &Sandbox, plans: &Value) -> Vec<Session> {
        let mut stdin = NamedTempFile::new_in(sandbox.path("")).expect("a temporary folder can be written");
        stdin.write_all(plans.to_string().as_bytes()).expect("a temporary file can be written");

        let mut command = self.command(parts, sandbox);
        command.env("HOME", sandbox.home()).stdin(File::open(stdin.path()).expect("the plan was just written"));
        let output = run_command(&mut command);
        assert!(output.status.success(), "{self:?} failed in {plans}:\n{}", output.stderr);
        let seen: Vec<Value> = serde_json::from_str(&output.stdout)
            .unwrap_or_else(|error| panic!("{self:?} printed no JSON ({error}): {}", output.stdout));
        seen.into_iter().map(Session::from_value).collect()
    }

    fn command(self, parts: &Parts, sandbox: &Sandbox) -> Command {
        let version = match self {
            Self::Python => {
                let mut python = Command::new(parts.python());
                python.arg(sandbox.script("client.py", PYTHON_SCRIPT));
                return python;
            }
            Self::TypeScriptV1 => "v1",
            Self::TypeScriptV2 => "v2",
        };
        let mut node = Command::new(parts.node());
        node.arg(sandbox.node_script(parts, "client.mjs", NODE_SCRIPT)).arg(version);
        node
    }
}

impl Plan {
    fn to_value(&self) -> Value {
        let Self { server, mode, offers, steps } = self;
        json!({"server": server, "mode": mode.word(), "offers": offers, "logLevel": "debug", "steps": steps})
    }
}

impl Session {
    #[track_caller]
    fn from_value(mut seen: Value) -> Self {
        let word = |key: &str| seen[key].as_str().map(str::to_owned);
        Self {
            revision: word("revision").expect("every client knows the revision"),
            server_name: word("serverName"),
            instructions: word("instructions"),
            capabilities: seen["capabilities"].take(),
            answers: serde_json::from_value(seen["answers"].take()).expect("the client prints what it promises"),
        }
    }
}

/// A plan of a legacy client without capabilities, with a server that it starts.
pub(super) fn plain_plan(server: &Server, steps: Vec<Value>) -> Plan {
    Plan { server: server.to_value(), mode: Mode::Legacy, offers: &[], steps }
}

/// Runs the steps in one session of the Python client with `mcp-simple-aggregator`, in front of these servers.
#[track_caller]
pub(super) fn session_through_us(parts: &Parts, sandbox: &Sandbox, servers: &[&Server], steps: Vec<Value>) -> Session {
    let config = config_of(servers).write();
    let plan = plain_plan(&aggregator(config.path()), steps);
    Client::Python.run(parts, sandbox, &[plan]).pop().expect("there is a session per plan")
}

/// Runs steps in a session of the Python client with a server, then others in one with `mcp-simple-aggregator` in front
/// of another.
#[track_caller]
pub(super) fn session_and_session_through_us(
    parts: &Parts,
    sandbox: &Sandbox,
    (direct, steps): (&Server, Vec<Value>),
    (behind_us, steps_through_us): (&Server, Vec<Value>),
) -> [Session; 2] {
    let config = config_of(&[behind_us]).write();
    let plans = [plain_plan(direct, steps), plain_plan(&aggregator(config.path()), steps_through_us)];
    let sessions = Client::Python.run_in_turn(parts, sandbox, &plans);
    sessions.try_into().expect("there is a session per plan")
}
