//! The command line of the MCP Inspector, over HTTP and with both lifecycles.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use testkit::run::run_command;

use super::comparison::{self, assert_same_items};
use super::fixture::World;
use crate::real::inspector::result;

/// Runs the Inspector with an endpoint of ours, and returns the result.
#[track_caller]
fn inspect_endpoint(world: &World, endpoint: &Value, lifecycle: &str, arguments: &[&str]) -> Value {
    let word = |member: &str| endpoint[member].as_str().expect("an endpoint has a type and a url");
    let mut inspector = Command::new(world.parts.node());
    inspector.arg(world.parts.npm_file(".bin/mcp-inspector")).args(["--cli", "--server-url", word("url")]);
    inspector.args(["--transport", word("type"), "--protocol-era", lifecycle, "--format", "json", "--quiet"]);
    inspector.args(arguments).env("HOME", world.sandbox.home()).stdin(Stdio::null());
    result(&run_command(&mut inspector))
}

/// The revision for the Inspector, and an endpoint that supports it.
fn ways_in(world: &World) -> [(&'static str, Value, &'static str); 3] {
    let service = &world.service;
    [("legacy", service.mcp(), "/mcp"), ("modern", service.mcp(), "/mcp"), ("legacy", service.sse(), "/sse")]
}

#[test]
fn the_inspector_lists_all_that_a_server_has() {
    let Some(world) = World::enter() else { return };
    let notes = world.tour.stops.iter().find(|stop| stop.key == "notes").expect("it is on the tour");
    let lists = [
        ("tools/list", "tools"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("prompts/list", "prompts"),
    ];
    for ((method, items), expected) in lists.into_iter().zip(world.expected_at(notes)) {
        let seen = inspect_endpoint(&world, &world.service.mcp_of("notes"), "modern", &["--method", method]);
        assert_same_items(&seen[items], comparison::items(expected), method);
    }
}

#[test]
fn the_inspector_calls_reads_and_prompts_in_both_lifecycles_and_over_sse() {
    let Some(world) = World::enter() else { return };
    for (lifecycle, endpoint, path) in ways_in(&world) {
        let ask = |arguments: &[&str]| inspect_endpoint(&world, &endpoint, lifecycle, arguments);
        let sum = ask(&["--method", "tools/call", "--tool-name", "fm.add", "--tool-args-json", r#"{"a":2,"b":3}"#]);
        assert_eq!(sum["structuredContent"], json!({"result": 5}), "{lifecycle} {path}: {sum}");
        let greeting = ask(&["--method", "resources/read", "--uri", "fm://greeting/Ada"]);
        assert_eq!(greeting["contents"][0]["text"], "hello, Ada", "{lifecycle} {path}: {greeting}");
        let name = ["--prompt-name", "everything.args-prompt", "--prompt-args", "city=Berlin"];
        let prompt = ask(&[&["--method", "prompts/get"], &name[..]].concat());
        assert_eq!(
            prompt["messages"][0]["content"]["text"], "What's weather in Berlin?",
            "{lifecycle} {path}: {prompt}"
        );
    }
}
