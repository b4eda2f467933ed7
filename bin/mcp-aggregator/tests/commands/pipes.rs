//! A config that is a pipe, such as `--config <(sops -d mcp.json)`: it can be read only once.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::json;
use testkit::{Config, Output, fake};

use crate::connect::User;
use crate::{PROGRAM, expect};

/// Runs a command whose config is what it can read from a pipe.
fn piped(user: &User, config: &str, arguments: &[&str]) -> Output {
    let (reader, mut writer) = std::io::pipe().unwrap();
    // It fits into the buffer of the pipe.
    writer.write_all(config.as_bytes()).unwrap();
    drop(writer);
    let mut command = Command::new(PROGRAM);
    command.args(arguments).args(["--config", "/dev/stdin"]).env("HOME", user.file("")).stdin(Stdio::from(reader));
    command.env_remove("COLUMNS").env_remove("XDG_DATA_HOME").current_dir(user.file(""));
    testkit::run::run_command(&mut command)
}

#[test]
fn every_command_reads_its_config_once() {
    let user = User::new();
    let config = Config::new().server("one", fake()).text();
    let document = user.write("doc.md", "# A\n\n```one\ntool: echo\ntext: hi\n```\n");
    let document = document.to_str().unwrap();
    for arguments in [
        &["check"][..],
        &["check", "--start"],
        &["doctor", "--listen", "0"],
        &["tools"],
        &["call", "one.echo"],
        &["context"],
        &["prompts"],
        &["resources"],
        &["doc", "map", document],
        &["run", document, "--output", "-"],
        &["stdio"],
    ] {
        let output = piped(&user, &config, arguments);
        assert!(output.status.success(), "{arguments:?}: {}{}", output.stdout, output.stderr);
    }
}

#[test]
fn the_model_in_a_config_is_read_together_with_its_servers() {
    let user = User::new();
    let mut config: serde_json::Value =
        serde_json::from_str(&Config::new().server("one", fake()).text()).expect("it is JSON");
    let nowhere = format!("http://127.0.0.1:{}/v1", testkit::free_port());
    config["assistant"] = json!({"model": "named", "baseUrl": nowhere});
    let config = config.to_string();
    let document = user.write("doc.md", "# A\n\n```assistant\nWell?\n```\n");
    let document = document.to_str().unwrap();
    for arguments in [&["check"][..], &["run", document, "--dry-run"]] {
        let output = piped(&user, &config, arguments);
        assert!(output.status.success(), "{arguments:?}: {}{}", output.stdout, output.stderr);
    }
    let output = piped(&user, &config, &["ask", "Well?"]);
    expect(&output, 1);
    assert!(output.stderr.contains(&nowhere), "it comes as far as the model: {}", output.stderr);
}

#[test]
fn a_client_cannot_be_given_a_pipe_as_its_config() {
    let user = User::new();
    let output = piped(&user, &Config::new().server("one", fake()).text(), &["client", "add", "cursor", "--stdio"]);
    expect(&output, 2);
    assert!(output.stderr.contains("is not a regular file"), "{}", output.stderr);
    assert!(!user.file(".cursor/mcp.json").exists());
}
