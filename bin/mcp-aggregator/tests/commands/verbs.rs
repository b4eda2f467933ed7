//! What is true of every verb there is. Which there are, the program says itself: it has a manual page for each.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use testkit::run::run_command;
use testkit::{Launch, Output, Signal};

use crate::{PROGRAM, expect, json};

/// Who has no `--json`, and why.
const WITHOUT_JSON: [(&str, &str); 1] = [("stdio", "its stdout belongs to the client, and is JSON already")];

/// These do something with and without another word.
const BOTH: [&str; 4] = ["limits", "tools", "prompts", "resources"];

/// Every verb, as it is typed: `list`, `doc map`.
pub(crate) fn verbs() -> Vec<String> {
    let folder = TempDir::with_prefix("man-").unwrap();
    let output =
        testkit::run(PROGRAM, ["man".as_ref(), "--json".as_ref(), "--dir".as_ref(), folder.path().as_os_str()]);
    expect(&output, 0);
    let report = json(&output);
    let pages: Vec<String> = report["pages"].as_array().unwrap().iter().map(page_of).collect();
    let is_leaf = |verb: &&String| {
        BOTH.contains(&verb.as_str()) || !pages.iter().any(|other| other.starts_with(&format!("{verb} ")))
    };
    let verbs: Vec<String> = pages.iter().filter(|page| !page.is_empty()).filter(is_leaf).cloned().collect();
    assert!(verbs.len() > 25, "{verbs:?}");
    verbs
}

/// `mcp-aggregator-doc-map.1` as `doc map`.
fn page_of(file: &Value) -> String {
    let name = file.as_str().unwrap().strip_prefix("mcp-aggregator").unwrap().strip_suffix(".1").unwrap();
    name.trim_start_matches('-').replace('-', " ")
}

/// Something to type behind a verb, so that it does what it can without a service, a model or a network.
fn typical(verb: &str) -> &'static [&'static str] {
    match verb {
        "serve" => &["--config", "missing.json"],
        "demo" => &["--listen", "nowhere"],
        "check" | "tools" | "prompts" | "resources" => &["--config", "mcp.json"],
        "prompts get" => &["nobody.nothing", "--config", "mcp.json"],
        "resources read" => &["nowhere://", "--config", "mcp.json"],
        "client add" | "client remove" => &["cursor"],
        "call" => &["one.echo"],
        "run" | "doc map" => &["missing.md"],
        "doc bind" => &["notes.md", "one", "--heading", "Notes"],
        "doc unbind" => &["1"],
        "ask" => &["What time is it?"],
        "add" => &["one", "http://127.0.0.1:9/mcp"],
        "remove" | "show" | "enable" | "disable" | "connect" | "disconnect" | "restart" | "logs" | "test"
        | "history" | "login" | "logout" => &["nobody"],
        "search" => &["numbers"],
        "import" => &["missing.json"],
        "tools on" | "tools off" => &["nobody.nothing"],
        "limits set" => &["server", "one", "--per-day", "1"],
        "limits remove" => &["server", "one"],
        "doctor" => &["--listen", "0"],
        "completions" => &["bash"],
        "calls" | "client list" | "clients" | "context" | "doc bindings" | "export" | "limits" | "list" | "man"
        | "settings" | "skills" | "status" | "top" | "licenses" => &[],
        new => panic!("`{new}` is new: say here what is typed behind it"),
    }
}

fn run(home: &Path, verb: &str, more: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(verb.split(' ')).args(more).current_dir(home).env("HOME", home).stdin(Stdio::null());
    for variable in ["XDG_DATA_HOME", "MCP_AGGREGATOR_TOKEN", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "MCP_MODEL"] {
        command.env_remove(variable);
    }
    run_command(&mut command)
}

fn home() -> TempDir {
    let home = TempDir::with_prefix("home-").unwrap();
    fs::write(home.path().join("mcp.json"), r#"{"mcpServers": {}}"#).unwrap();
    home
}

#[test]
fn every_command_prints_json_on_request_in_success_and_failure() {
    let home = home();
    for verb in verbs() {
        if WITHOUT_JSON.iter().any(|(without, _)| *without == verb) {
            continue;
        }
        let output = run(home.path(), &verb, &[typical(&verb), &["--json"]].concat());
        let printed: Value = serde_json::from_str(&output.stdout)
            .unwrap_or_else(|error| panic!("{verb}: {error}\n{}\n{}", output.stdout, output.stderr));
        let has_failed = output.status.code() != Some(0);
        if has_failed && printed.get("error").is_some() {
            assert!(printed["error"]["message"].is_string(), "{verb}: {printed:#}");
            assert_eq!(printed["error"]["exit_status"].as_i64(), output.status.code().map(Into::into), "{verb}");
        }
        assert!(!has_failed || output.stderr.contains("error: "), "{verb}: people are told, too: {}", output.stderr);
    }
}

#[test]
fn an_invalid_command_line_is_reported_as_json_on_request() {
    let home = home();
    for verb in verbs() {
        let output = run(home.path(), &verb, &["--no-such-option", "--json"]);
        expect(&output, 2);
        let message = json(&output)["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains("--no-such-option"), "{verb}: {message}");
    }
}

#[test]
fn every_verb_has_examples() {
    let home = home();
    for verb in verbs() {
        let help = run(home.path(), &verb, &["--help"]).stdout;
        assert!(help.contains("Examples:\n") && help.contains(&format!("mcp-aggregator {verb}")), "{verb}:\n{help}");
    }
}

#[test]
fn a_service_prints_its_address_as_one_line_of_json() {
    let home = home();
    for verb in ["serve", "demo"] {
        let launch = Launch::program(PROGRAM).args([verb, "--listen", "0", "--json"]);
        let mut driver = launch.env("HOME", home.path()).env_remove("MCP_AGGREGATOR_TOKEN").start();
        let reply: Value = serde_json::from_slice(&driver.next_line()).unwrap();
        assert!(reply["url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{reply}");
        assert_eq!((&reply["has_tokens"], reply["pid"].is_u64()), (&Value::Bool(false), true));
        driver.signal(Signal::TERM);
        assert_eq!(driver.wait_exit().code(), Some(0));
    }
}

#[test]
fn licenses_credit_the_sources_of_the_built_in_model() {
    let printed = run(home().path(), "licenses", &[]);
    expect(&printed, 0);
    for named in ["CLINC150", "tldr", "Apache-2.0"] {
        assert!(printed.stdout.contains(named), "{named} is not in\n{}", printed.stdout);
    }
}
