//! The command line of the MCP Inspector.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::Output;
use testkit::run::run_command;

use super::parts::{Part, Parts};
use super::sandbox::Sandbox;
use super::servers::{self, Server, aggregator, config_of};

/// Runs the Inspector with a server.
#[track_caller]
fn inspect(parts: &Parts, sandbox: &Sandbox, server: &Server, arguments: &[&str]) -> Output {
    // The Inspector has its own `--config`, so ours is in a config for it.
    let config = sandbox.path("inspector.json");
    let text = json!({"mcpServers": {server.key: server.to_value()}}).to_string();
    fs::write(&config, text).expect("a temporary folder can be written");
    let mut inspector = Command::new(parts.node());
    inspector.arg(parts.npm_file(".bin/mcp-inspector")).arg("--cli").arg("--config").arg(&config);
    inspector.args(["--server", server.key, "--format", "json", "--quiet"]).args(arguments);
    inspector.env("HOME", sandbox.home()).stdin(Stdio::null());
    run_command(&mut inspector)
}

/// The result that the Inspector prints.
#[track_caller]
pub(super) fn result(output: &Output) -> Value {
    assert!(output.status.success(), "the Inspector failed: {}\n{}", output.stdout, output.stderr);
    let mut printed: Value = serde_json::from_str(&output.stdout).expect("the Inspector prints JSON");
    printed["result"].take()
}

#[test]
fn the_inspector_lists_the_tools_of_a_server_under_its_key() {
    let Some(parts) = Parts::with(&[Part::Npm]) else { return };
    let sandbox = Sandbox::new();
    let server = servers::filesystem(&parts, &sandbox.files());
    let config = config_of(&[&server]).write();
    let arguments = ["--method", "tools/list"];
    let mut expected = result(&inspect(&parts, &sandbox, &server, &arguments));
    for tool in expected["tools"].as_array_mut().unwrap() {
        tool["name"] = server.name_of(tool["name"].as_str().unwrap()).into();
    }
    assert_eq!(expected["tools"].as_array().unwrap().len(), 14);
    assert_eq!(result(&inspect(&parts, &sandbox, &aggregator(config.path()), &arguments)), expected);
}

#[test]
fn the_inspector_calls_tools_through_us() {
    let Some(parts) = Parts::with(&[Part::Npm]) else { return };
    let sandbox = Sandbox::new();
    let everything = servers::everything(&parts);
    let config = config_of(&[&everything]).write();
    let us = aggregator(config.path());
    let call = |server: &Server, tool: &str, arguments: &Value| {
        let arguments = arguments.to_string();
        let words = ["--method", "tools/call", "--tool-name", tool, "--tool-args-json", &arguments];
        result(&inspect(&parts, &sandbox, server, &words))
    };
    let sum = call(&us, "everything:get-sum", &json!({"a": 2, "b": 3}));
    assert_eq!(sum, json!({"content": [{"type": "text", "text": "The sum of 2 and 3 is 5."}]}));
    let place = json!({"location": "New York"});
    let weather = call(&us, "everything:get-structured-content", &place);
    assert_eq!(weather, call(&everything, "get-structured-content", &place));
}

#[test]
fn the_inspector_reports_a_tool_that_is_not_there() {
    let Some(parts) = Parts::with(&[Part::Npm]) else { return };
    let sandbox = Sandbox::new();
    let config = config_of(&[&servers::everything(&parts)]).write();
    let words = ["--method", "tools/call", "--tool-name", "everything:nothing", "--tool-args-json", "{}"];
    let output = inspect(&parts, &sandbox, &aggregator(config.path()), &words);
    assert!(!output.status.success());
    assert!(output.stderr.contains("everything:nothing"), "{}", output.stderr);
}
