//! `doctor`: what it finds wrong, and what it says to do.

use std::net::TcpListener;

use serde_json::{Value, json};
use testkit::config::ConfigFile;
use testkit::{Config, ServerEntry, fake};

use crate::{Run, expect, failing, json, one};

fn doctor(config: &ConfigFile, more: &[&str]) -> Run {
    let data = config.path().with_file_name("data");
    Run::new("doctor", config.path()).args(&["--data-dir", data.to_str().unwrap()]).args(more)
}

fn found<'f>(report: &'f Value, topic: &str) -> Vec<&'f Value> {
    report["findings"].as_array().unwrap().iter().filter(|finding| finding["topic"] == topic).collect()
}

#[test]
fn a_config_whose_servers_start_is_well() {
    let config = one();
    let output = doctor(&config, &["--listen", "0", "--json"]).output();
    expect(&output, 0);
    let report = json(&output);
    assert_eq!(report["ok"], true);
    for topic in ["config", "program", "server", "names", "tools", "cost", "service", "port", "registry"] {
        let findings = found(&report, topic);
        assert!(!findings.is_empty() && findings.iter().all(|finding| finding["level"] == "ok"), "{topic}: {report:#}");
    }
    assert!(!config.path().with_file_name("data").exists(), "looking makes no registry");
    let output = doctor(&config, &["--listen", "0"]).output();
    assert!(output.stdout.contains("ok  server    one starts in "), "{}", output.stdout);
    assert_eq!(output.stderr, "no problems\n");
}

#[test]
fn each_problem_has_advice_and_the_exit_status_is_1() {
    let config =
        Config::new().server("bad", failing()).server("gone", ServerEntry::new("no-such-program-anywhere")).write();
    let output = doctor(&config, &["--listen", "0"]).output();
    expect(&output, 1);
    for needed in [
        "problem  server    gone does not start: startup: program `no-such-program-anywhere` was not found; looked in ",
        "  do: install it, or set `command` to its full path",
        "problem  server    bad does not start: ",
        "  | no database here",
    ] {
        assert!(output.stdout.contains(needed), "{needed:?} in\n{}", output.stdout);
    }
    assert!(output.stderr.starts_with("error: 2 problems"), "one cause is told once: {}", output.stderr);
    let output = doctor(&config, &["--listen", "0", "--no-start"]).output();
    assert!(output.stdout.contains("problem  program   gone: program "), "{}", output.stdout);
}

#[test]
fn variables_that_are_not_set_and_ports_that_are_taken_are_reported() {
    let config = Config::new().raw(r#"{"mcpServers": {"a": {"command": "${NOT_SET_ANYWHERE}"}}}"#).write();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = doctor(&config, &["--listen", &address, "--json"]).output();
    expect(&output, 1);
    let report = json(&output);
    let environment = found(&report, "environment");
    assert!(environment[0]["message"].as_str().unwrap().contains("NOT_SET_ANYWHERE"), "{report:#}");
    let port = found(&report, "port");
    assert_eq!((&port[0]["level"], port[0]["advice"].is_string()), (&json!("problem"), true), "{report:#}");
}

#[test]
fn one_bad_entry_does_not_hide_the_others() {
    let text = json!({"mcpServers": {
        "bad": {"command": "${NOT_SET_ANYWHERE}"},
        "gone": {"command": "no-such-program-anywhere"},
    }});
    let config = Config::new().raw(text.to_string()).write();
    let output = doctor(&config, &["--listen", "0", "--json"]).output();
    expect(&output, 1);
    let report = json(&output);
    assert!(found(&report, "environment")[0]["message"].as_str().unwrap().contains("NOT_SET_ANYWHERE"), "{report:#}");
    let servers = found(&report, "server");
    assert!(servers[0]["message"].as_str().unwrap().starts_with("gone does not start: "), "{report:#}");
    assert_eq!((servers.len(), found(&report, "program").len()), (1, 0), "{report:#}");
}

#[test]
fn nothing_is_started_where_nothing_should_be() {
    let config = Config::new().server("bad", failing()).server("one", fake()).write();
    let output = doctor(&config, &["--listen", "0", "--no-start", "--json"]).output();
    expect(&output, 0);
    assert!(found(&json(&output), "server").is_empty());
}

#[test]
fn an_address_of_an_engine_that_is_no_text_is_not_taken_for_none() {
    use std::os::unix::ffi::OsStrExt;
    let config = Config::new().raw(r#"{"mcpServers": {"box": {"docker": {"image": "mcp/time"}}}}"#).write();
    for name in ["DOCKER_HOST", "MCP_VECTORS"] {
        let mut run = doctor(&config, &["--listen", "0"]);
        run.command.env(name, std::ffi::OsStr::from_bytes(b"unix:///\xff"));
        let output = run.output();
        expect(&output, 1);
        assert!(output.stdout.contains(&format!("{name} is not valid UTF-8")), "{}", output.stdout);
    }
}
