//! The commands of `mcp-aggregator` for registered servers, with a running service and on the registry itself.
//!
//! - [`with_service`]: commands to a running service; [`without_service`]: commands while none runs
//! - [`verbs`]: further commands: logs, settings, clients, prompts, resources
//! - [`import`]: the servers of other programs; [`backup`]: export and import of the registry

mod backup;
mod import;
mod verbs;
mod with_service;
mod without_service;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use testkit::run::run_command;
use testkit::{Launch, Output, Serve, program};

/// A user's home with an empty registry.
pub(crate) struct Home {
    folder: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::with_prefix("home-").expect("a temporary folder can be made") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.path().join(".local/share/mcp-aggregator")
    }

    /// A file in the home.
    pub(crate) fn write(&self, path: &str, text: &str) -> String {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder can be made");
        fs::write(&path, text).expect("a file can be written");
        path.to_str().expect("our folders are UTF-8").to_owned()
    }

    #[track_caller]
    pub(crate) fn serve(&self) -> Serve {
        self.serve_as(|launch| launch)
    }

    #[track_caller]
    pub(crate) fn serve_as(&self, adjust: impl FnOnce(Launch) -> Launch) -> Serve {
        Serve::in_folder(&self.data(), |launch| adjust(launch.env_remove("MCP_AGGREGATOR_TOKEN")))
    }

    /// Runs a command as this user, in an empty folder.
    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(arguments, &[])
    }

    #[track_caller]
    pub(crate) fn run_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        run_command(self.command(arguments).envs(environment.iter().copied()))
    }

    /// The same, to be started by the caller.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let here = self.path().join("project");
        fs::create_dir_all(&here).expect("a folder can be made");
        let mut command = Command::new(program("mcp-aggregator"));
        command.args(arguments).current_dir(here).stdin(Stdio::null()).env("HOME", self.path());
        for variable in ["XDG_DATA_HOME", "XDG_CONFIG_HOME", "MCP_AGGREGATOR_TOKEN", "MCP_CREDENTIAL_KEY", "COLUMNS"] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs a command that must succeed; returns its stdout.
    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}\n{}\n{}", output.stdout, output.stderr);
        output.stdout
    }

    #[track_caller]
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(arguments);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }

    /// Runs a command that must fail with this status; returns the error, which with `--json` is also on stdout and
    /// otherwise nothing is.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{}\n{}", output.stdout, output.stderr);
        if arguments.contains(&"--json") {
            let printed: Value = serde_json::from_str(&output.stdout).expect("what fails is JSON, too");
            assert_eq!(printed["error"]["exit_status"], code, "{arguments:?}: {printed}");
        } else {
            assert_eq!(output.stdout, "", "{arguments:?}");
        }
        output.stderr
    }

    /// Adds a fake server.
    #[track_caller]
    pub(crate) fn add(&self, name: &str) {
        self.ok(&["add", name, "--", &fake()]);
    }
}

pub(crate) fn fake() -> String {
    program("fake-server").to_str().expect("our folders are UTF-8").to_owned()
}

/// The row of a table that starts with this word.
#[track_caller]
pub(crate) fn row<'t>(table: &'t str, name: &str) -> Vec<&'t str> {
    let words = |line: &'t str| line.split_whitespace().collect::<Vec<_>>();
    let found = table.lines().map(words).find(|words| words.first() == Some(&name));
    found.unwrap_or_else(|| panic!("there is no `{name}` in\n{table}"))
}
