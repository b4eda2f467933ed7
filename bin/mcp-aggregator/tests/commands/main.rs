//! Every verb of `mcp-aggregator`, driven from outside against the fake server.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod call;
mod check;
mod client;
mod connect;
mod demo;
mod doctor;
mod help;
mod manual;
mod pipes;
mod remote;
mod serve;
mod snapshots;
mod stdio;
mod tools;
mod verbs;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use testkit::config::ConfigFile;
use testkit::{Config, Output, ServerEntry, fake};

const PROGRAM: &str = env!("CARGO_BIN_EXE_mcp-aggregator");

/// A run of the program that can be recognised among all processes.
struct Run {
    command: Command,
    mark: String,
}

impl Run {
    fn new(verb: &str, config: &Path) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mark = format!("TESTKIT_RUN={}-{number}-", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        let mut command = Command::new(PROGRAM);
        command.arg(verb).arg("--config").arg(config).env(name, value).env_remove("COLUMNS").stdin(Stdio::null());
        if verb == "serve" {
            command.arg("--data-dir").arg(config.with_file_name("data"));
        }
        Self { command, mark }
    }

    fn args(mut self, arguments: &[&str]) -> Self {
        self.command.args(arguments);
        self
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it to its end, after which nothing of it may be left.
    #[track_caller]
    fn output(mut self) -> Output {
        let output = testkit::run::run_command(&mut self.command);
        self.nothing_is_left();
        output
    }

    #[track_caller]
    fn nothing_is_left(&self) {
        testkit::wait_until("nothing of the run is left", || {
            testkit::processes_with_env(&self.mark).is_empty().then_some(())
        });
    }
}

#[track_caller]
fn run(verb: &str, config: &ConfigFile, arguments: &[&str]) -> Output {
    Run::new(verb, config.path()).args(arguments).output()
}

#[track_caller]
fn expect(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "stdout:\n{}\nstderr:\n{}", output.stdout, output.stderr);
}

#[track_caller]
fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error} in {}", output.stdout))
}

/// A config with one server `one` that does everything right.
fn one() -> ConfigFile {
    Config::new().server("one", fake()).write()
}

fn failing() -> ServerEntry {
    fake().args(["--fail-at", "initialize", "--stderr-line", "no database here"])
}

/// One that writes what it hears to the file `name` in `folder`.
fn noted(folder: &Path, name: &str) -> ServerEntry {
    fake().args(["--journal", folder.join(name).to_str().unwrap()])
}
