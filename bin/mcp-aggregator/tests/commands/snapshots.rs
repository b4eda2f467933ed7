//! What the program says, word for word: help, tables and errors, compared with files in `tests/snapshots`.
//!
//! `UPDATE_SNAPSHOTS=1 cargo test -p mcp-aggregator snapshots` writes them anew; look at the difference before you commit.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use testkit::run::run_command;
use testkit::wait_until;

use crate::PROGRAM;
use crate::demo::Demo;
use crate::verbs::verbs;

/// What is told of how long a service runs.
const UPTIME: &str = "up for";
/// How many tools the two servers of `demo` have.
const TOOLS_OF_DEMO: u64 = 11;
const UPDATE_VARIABLE: &str = "UPDATE_SNAPSHOTS";
/// What a user's environment could say, and must not.
const VARIABLES: [&str; 7] = [
    "XDG_DATA_HOME",
    "XDG_CONFIG_HOME",
    "MCP_AGGREGATOR_TOKEN",
    "MCP_CREDENTIAL_KEY",
    "MCP_VECTORS",
    "DOCKER_HOST",
    "NO_COLOR",
];

/// An empty home, but for two configs.
fn home() -> TempDir {
    let home = TempDir::with_prefix("home-").unwrap();
    let config = r#"{"mcpServers": {
        "echo": {"command": "/bin/sh", "args": ["-c", "exit 3"]},
        "docs": {"url": "https://example.org/mcp"},
        "off": {"command": "x", "disabled": true}
    }}"#;
    fs::write(home.path().join("mcp.json"), config).unwrap();
    fs::write(home.path().join("broken.json"), r#"{"mcpServers": {"a": {"args": "x"}}}"#).unwrap();
    home
}

/// Runs a command there, and writes down all it says.
fn said(home: &Path, arguments: &[&str]) -> String {
    said_on(100, home, arguments)
}

/// The same on a terminal so wide.
fn said_on(width: usize, home: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).current_dir(home).env("HOME", home).env("COLUMNS", width.to_string()).stdin(Stdio::null());
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    let output = run_command(&mut command);
    let text = format!(
        "$ mcp-aggregator {}\n{}--- stderr\n{}--- exit status {}\n",
        arguments.join(" "),
        output.stdout,
        output.stderr,
        output.status.code().unwrap()
    );
    text.replace(home.to_str().unwrap(), "HOME").replace(PROGRAM, "PROGRAM")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots")
}

#[track_caller]
fn compare(name: &str, now: &str) {
    let file = folder().join(format!("{name}.txt"));
    if is_to_update() {
        fs::create_dir_all(folder()).unwrap();
        fs::write(&file, now).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    let differs = now.lines().zip(kept.lines()).find(|(now, kept)| now != kept);
    assert!(
        now == kept,
        "{} is no longer what is said, first here: {differs:?}; {UPDATE_VARIABLE}=1 writes it anew\n{now}",
        file.display()
    );
}

fn is_to_update() -> bool {
    std::env::var_os(UPDATE_VARIABLE).is_some_and(|value| !value.is_empty())
}

/// What differs from run to run has a word instead, and columns are as wide as they are.
fn lasting(text: &str, url: &str) -> String {
    let mut lines = Vec::new();
    for line in text.replace(url, "URL").lines() {
        let words: Vec<String> = line.split(' ').map(lasting_word).collect();
        let mut line = words.join(" ");
        if let Some(at) = line.find(UPTIME) {
            line.replace_range(at + UPTIME.len().., "  SPAN");
        }
        while line.contains("   ") {
            line = line.replace("   ", "  ");
        }
        lines.push(line.trim_end().to_owned() + "\n");
    }
    lines.concat()
}

fn lasting_word(word: &str) -> String {
    let bare = word.trim_matches(|letter: char| "(),;:".contains(letter));
    let digits = bare.chars().filter(char::is_ascii_digit).count();
    let all = |fits: &dyn Fn(char) -> bool| !bare.is_empty() && bare.chars().all(fits);
    let name = if bare.contains("/mcp-aggregator-demo-") {
        "FOLDER"
    } else if bare.len() == 36 && all(&|letter| letter.is_ascii_hexdigit() || letter == '-') {
        "ID"
    } else if digits >= 6 && all(&|letter| letter.is_ascii_digit() || "-:.TZ".contains(letter)) {
        "TIME"
    } else if digits > 0 && bare.contains('.') && all(&|letter| letter.is_ascii_digit() || letter == '.') {
        "N.N"
    } else {
        return word.to_owned();
    };
    word.replace(bare, name)
}

#[test]
fn help_matches_its_snapshot() {
    let home = home();
    let mut files = BTreeSet::from(["overview".to_owned(), "help".to_owned()]);
    compare("overview", &said(home.path(), &[]));
    compare("help", &said(home.path(), &["--help"]));
    for verb in verbs() {
        let words: Vec<&str> = verb.split(' ').chain(["--help"]).collect();
        let name = format!("help-{}", verb.replace(' ', "-"));
        compare(&name, &said(home.path(), &words));
        files.insert(name);
    }
    let kept = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let stale: Vec<String> = kept
        .filter_map(|file| file.strip_suffix(".txt").map(str::to_owned))
        .filter(|name| name.starts_with("help-") && !files.contains(name))
        .collect();
    assert_eq!(stale, Vec::<String>::new(), "there is no such verb any more");
}

#[test]
fn tables_without_a_service_read_as_they_did() {
    let home = home();
    let reported = |commands: &[&[&str]]| {
        commands.iter().map(|arguments| said(home.path(), arguments)).collect::<Vec<_>>().join("\n")
    };
    compare(
        "tables",
        &reported(&[&["check", "--config", "mcp.json"], &["list"], &["import", "mcp.json", "--dry-run"]]),
    );
    compare("doctor", &reported(&[&["doctor", "--config", "mcp.json", "--no-start", "--listen", "0"]]));
}

#[test]
fn tables_of_a_service_read_as_they_did() {
    let mut demo = Demo::start();
    demo.ready();
    wait_until("all tools are known, classified and have vectors", || {
        let health: Value = serde_json::from_str(&demo.run(&["status", "--json"]).stdout).ok()?;
        let states = health["tool_states"].as_object()?;
        let number = |state: &str| states.get(state).and_then(Value::as_u64).unwrap_or_default();
        // A tool that was only just discovered is in none of the states.
        let known: u64 = states.values().filter_map(Value::as_u64).sum();
        let is_settled = number("discovered") == 0 && number("classifying") == 0;
        (known == TOOLS_OF_DEMO && is_settled && health["checks"]["vectors"]["in_use"] == "embedded").then_some(())
    });
    wait_until("it is known what the servers use", || {
        let servers: Value = serde_json::from_str(&demo.run(&["list", "--json"]).stdout).ok()?;
        servers.as_array()?.iter().all(|server| server["usage"]["cpu_percent"].is_number()).then_some(())
    });
    let home = home();
    let mut reported = Vec::new();
    for arguments in [
        &["list"][..],
        &["show", "calc"],
        &["tools"],
        &["search", "median", "of", "numbers", "--limit", "1"],
        &["status"],
        &["doctor"],
        &["history", "calc"],
        &["top", "--once"],
        &["call", "calc.evaluate", "expression=6*7"],
        &["call", "calc.evaluate"],
        &["call", "calc.evalute"],
        &["show", "nobody"],
        &["doc", "bindings"],
    ] {
        let arguments = [arguments, &["--url", &demo.url]].concat();
        // Nothing is cut: how long paths are is the machine's affair.
        reported.push(lasting(&said_on(1000, home.path(), &arguments), &demo.url));
    }
    compare("service", &reported.join("\n"));
    demo.stop();
}

#[test]
fn errors_read_as_they_did() {
    let home = home();
    let commands: [&[&str]; 15] = [
        &["frobnicate"],
        &["call"],
        &["check", "--config", "missing.json"],
        &["check", "--config", "broken.json"],
        &["doctor", "--config", "broken.json", "--listen", "0"],
        &["status"],
        &["top", "--once"],
        &["connect", "cursor"],
        &["man", "frobnicate"],
        &["list", "--url", "http://127.0.0.1:1"],
        &["show", "nobody", "--data-dir", "data"],
        &["add", "docs", "https://example.org/mcp", "--header", "hunter2"],
        &["add", "web", "--docker", "a", "--port", "80", "--transport", "stdio"],
        &["show", "nobody", "--json"],
        &["show", "--json"],
    ];
    let reported: Vec<String> = commands.iter().map(|arguments| said(home.path(), arguments)).collect();
    assert!(!reported.concat().contains("'hunter2'"), "a secret is not repeated");
    compare("errors", &reported.join("\n"));
}

#[test]
fn values_that_vary_between_runs_have_placeholders() {
    let text = "a  0f8fad5b-d9cb-469f-a165-70867728950e   2026-07-28 12:00:00Z (1.25 ms)\nURL: http://x/";
    assert_eq!(lasting(text, "http://x"), "a  ID  TIME TIME (N.N ms)\nURL: URL/\n");
    assert_eq!(lasting("at X, up for 3 min 2 s", "Y"), "at X, up for  SPAN\n");
    assert_eq!(lasting_word("3"), "3");
    assert_eq!(lasting_word("v1"), "v1");
}
