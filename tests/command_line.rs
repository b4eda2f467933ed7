//! The command line of `mcp-simple-aggregator`.

use std::fs;

use serde_json::json;
use testkit::{Config, Driver, Launch, fake};

use crate::fixture::{Journal, START_TIMEOUT, connected, initialized, run_arguments, text_of};

const USAGE: i32 = 2;

#[track_caller]
fn usage_error(arguments: &[&str]) -> String {
    let output = run_arguments(arguments, &[]);
    assert_eq!(output.status.code(), Some(USAGE), "{arguments:?}: {}", output.stderr);
    assert_eq!(output.stdout, "", "stdout is for JSON-RPC and for what was asked for");
    assert!(output.stderr.starts_with("error: "), "{}", output.stderr);
    output.stderr
}

#[test]
fn without_a_config_the_usage_is_shown() {
    let stderr = usage_error(&[]);
    assert!(stderr.contains("--config <FILE> is required"), "{stderr}");
    assert!(stderr.contains("usage: mcp-simple-aggregator --config <FILE>"), "{stderr}");
    assert!(stderr.contains("--help"), "{stderr}");
}

#[test]
fn every_mistake_is_named() {
    for (arguments, named) in [
        (&["--config"][..], "--config"),
        (&["--config", ""], "--config"),
        (&["config.json"], "config.json"),
        (&["--config", "c.json", "--bogus"], "--bogus"),
        (&["--config", "c.json", "--separator", ""], "--separator"),
        (&["--config", "c.json", "--separator", " "], "white space"),
        (&["--config", "c.json", "--separator", "a b"], "white space"),
        (&["--config", "c.json", "--separator", "\t"], "white space"),
        (&["--config", "c.json", "--separator", "\u{2003}"], "white space"),
        (&["--config", "c.json", "--separator"], "--separator"),
        (&["--config", "c.json", "--names", "pretty"], "pretty"),
        (&["--config", "c.json", "--names"], "--names"),
        (&["--config", "c.json", "--name", ""], "--name"),
        (&["--config", "c.json", "--log-file"], "--log-file"),
    ] {
        let stderr = usage_error(arguments);
        assert!(stderr.contains(named), "{arguments:?}: {stderr}");
    }
}

#[test]
fn help_explains_every_option() {
    for flag in ["--help", "-h"] {
        let output = run_arguments([flag], &[]);
        assert_eq!((output.status.code(), output.stderr.as_str()), (Some(0), ""));
        for option in
            ["--config", "--separator", "--names", "--name ", "--version", "--debug", "--log-file", "--help", "usage:"]
        {
            assert!(output.stdout.contains(option), "{option} in {}", output.stdout);
        }
    }
}

#[test]
fn version_without_a_value_prints_the_version_of_the_program() {
    for arguments in [&["--version"][..], &["--version", "--debug"], &["--config", "c.json", "--version"]] {
        let output = run_arguments(arguments, &[]);
        assert_eq!((output.status.code(), output.stderr.as_str()), (Some(0), ""));
        assert_eq!(output.stdout, format!("mcp-simple-aggregator {}\n", env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn name_and_version_are_sent_to_client_and_servers() {
    let answer = Driver::start(&Config::new()).initialize();
    assert_eq!(answer["result"]["serverInfo"], json!({"name": "mcp-simple-aggregator", "version": "1.0.0"}));

    let journal = Journal::new();
    let launch = Launch::aggregator(&Config::new().server("one", journal.fake()));
    let mut client = launch.args(["--name", "my \"hub\" é", "--version", "7.8-beta"]).start();
    let expected = json!({"name": "my \"hub\" é", "version": "7.8-beta"});
    assert_eq!(client.initialize()["result"]["serverInfo"], expected);
    let introduction: serde_json::Value = serde_json::from_slice(&journal.wait_for("initialize")).unwrap();
    assert_eq!(introduction["params"]["clientInfo"], expected);
}

#[test]
fn a_separator_of_ones_own_is_used_in_lists_and_calls() {
    for separator in [".", "::", "__", "→", "/"] {
        let config = Config::new().server("one", fake().args(["--tools", "1", "--only-generated"]));
        let mut client = initialized(Launch::aggregator(&config).arg(format!("--separator={separator}")));
        let name = format!("one{separator}tool_0");
        assert_eq!(client.tool_names(), [name.as_str()]);
        assert_eq!(text_of(&client.call(&name, json!({"text": "hi"}))), "hi");
    }
}

#[test]
fn a_log_file_gets_the_log_and_stderr_stays_quiet() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    fs::write(&log, "what was there before\n").unwrap();
    let config = Config::new().server("broken", fake().args(["--fail-at", "start"])).server("one", fake());
    let mut client = initialized(Launch::aggregator(&config).arg("--log-file").arg(&log));
    client.tool_names();
    client.close_stdin();
    assert_eq!(client.wait_exit().code(), Some(0));
    assert_eq!(client.stderr_text(), "");
    let logged = fs::read_to_string(&log).unwrap();
    assert!(logged.starts_with("what was there before\n"), "{logged}");
    assert!(logged.contains("server `broken` failed during initialization"), "{logged}");
}

#[test]
fn an_unwritable_log_file_is_reported_before_anything_starts() {
    let journal = Journal::new();
    let file = Config::new().server("one", journal.fake()).write();
    let log = file.folder().join("no/such/folder/log");
    let arguments = ["--config".as_ref(), file.path().as_os_str(), "--log-file".as_ref(), log.as_os_str()];
    let output = run_arguments(arguments, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.contains(&*log.to_string_lossy()), "{}", output.stderr);
    assert!(!journal.exists());
}

#[test]
fn a_healthy_run_logs_nothing_and_debug_logs_more() {
    let config = Config::new().server("one", fake().args(["--stderr-line", "a word from the server"]));
    let mut quiet = connected(&config);
    quiet.tool_names();
    quiet.close_stdin();
    assert_eq!(quiet.wait_exit().code(), Some(0));
    assert_eq!(quiet.stderr_text(), "");

    let mut verbose = initialized(Launch::aggregator(&config).arg("--debug"));
    verbose.tool_names();
    verbose.wait_for_stderr("server is running");
    verbose.wait_for_stderr("a word from the server");
    assert_eq!(verbose.drain().len(), 0, "the log never goes to stdout");
}

#[test]
fn debug_prints_no_value_of_a_variable() {
    let entry = fake().args(["--name", "${SECRET_ONE}"]).env("TOKEN", "${SECRET_TWO}");
    let launch = Launch::aggregator(&Config::new().server("one", entry));
    let mut client =
        initialized(launch.arg("--debug").env("SECRET_ONE", "hunter2hunter").env("SECRET_TWO", "swordfish9"));
    let value = client.call("one:env", json!({"name": "TOKEN"}));
    assert_eq!(value["result"]["structuredContent"]["value"], "swordfish9", "the server gets it");
    client.call("one:crash", json!({}));
    client.wait_for_stderr("failed during runtime");
    let stderr = client.stderr_text();
    assert!(!stderr.contains("hunter2") && !stderr.contains("swordfish"), "{stderr}");
}

#[test]
fn help_is_printed_whatever_the_environment() {
    for (flag, word) in [("--help", "usage:"), ("--version", "mcp-simple-aggregator")] {
        let output = run_arguments([flag], &[(START_TIMEOUT, "nonsense")]);
        assert_eq!((output.status.code(), output.stderr.as_str()), (Some(0), ""));
        assert!(output.stdout.contains(word), "{}", output.stdout);
    }
}
