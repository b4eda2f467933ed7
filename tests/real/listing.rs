//! Through us, the tools of real servers are listed as each server lists them, under its key.

use serde_json::{Value, json};

use super::parts::{Part, Parts};
use super::python_client::{Mode, Session, list, session, session_through_us};
use super::sandbox::Sandbox;
use super::servers::{self, Server, config_of};

fn prefixes(servers: &[Server]) -> impl Iterator<Item = String> {
    servers.iter().map(|server| server.name_of(""))
}

fn names(tools: &Value) -> Vec<&str> {
    let tools = tools.as_array().expect("a list of tools");
    tools.iter().map(|tool| tool["name"].as_str().expect("a tool has a name")).collect()
}

#[test]
fn the_python_client_sees_every_tool_of_every_server_under_its_key() {
    let Some(parts) = Parts::with(&[Part::Npm, Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let servers = servers::all(&parts, &sandbox);
    let behind_us: Vec<&Server> = servers.iter().collect();
    let ours = session_through_us(&parts, &sandbox, &behind_us, Mode::Legacy, &[list(prefixes(&servers))]);

    let mut expected = Vec::new();
    for server in &servers {
        let direct = session(&parts, &sandbox, server, Mode::Legacy, &[list([""])]);
        for tool in direct.answers[0].as_array().unwrap() {
            let mut tool = tool.clone();
            tool["name"] = server.name_of(tool["name"].as_str().unwrap()).into();
            expected.push(tool);
        }
    }
    let expected = Value::from(expected);
    assert_eq!(names(&ours.answers[0]), names(&expected));
    assert_eq!(ours.answers[0], expected);
    let count = |key: &str| names(&ours.answers[0]).iter().filter(|name| name.starts_with(key)).count();
    let counts = ["everything:", "filesystem:", "memory:", "git:", "time:"].map(count);
    assert_eq!(counts, [13, 14, 9, 12, 2], "the pinned releases have these many tools");
}

#[test]
fn every_tool_definition_is_the_bytes_of_its_server_but_for_the_name() {
    let Some(parts) = Parts::with(&[Part::Npm, Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let servers = servers::all(&parts, &sandbox);
    let mut expected = Vec::new();
    for server in &servers {
        let mut direct = server.launch().start();
        direct.initialize();
        for definition in direct.list_raw_tools() {
            let name = testkit::raw::at(definition.as_bytes(), &["name"]).and_then(testkit::raw::text).unwrap();
            let own_name = format!("\"name\":{}", testkit::raw::quote(&name));
            assert_eq!(definition.matches(&own_name).count(), 1, "nothing else in it looks like its name");
            let our_name = format!("\"name\":{}", testkit::raw::quote(&server.name_of(&name)));
            expected.push(definition.replacen(&own_name, &our_name, 1));
        }
    }
    let mut ours = testkit::Driver::start(&config_of(&servers.iter().collect::<Vec<_>>()));
    ours.initialize();
    let mut listed = ours.list_raw_tools();
    while !prefixes(&servers).all(|prefix| listed.iter().any(|tool| tool.contains(&prefix))) {
        // Python may need longer on a busy machine than a list waits; then it is announced.
        ours.notification("notifications/tools/list_changed");
        listed = ours.list_raw_tools();
    }
    assert_eq!(listed, expected);
}

#[test]
fn the_python_client_agrees_with_us_on_a_revision_with_or_without_asking_for_a_newer_one_first() {
    let Some(parts) = Parts::with(&[Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let time = servers::time(&parts);
    for mode in [Mode::Legacy, Mode::Auto] {
        let Session { revision, server_name, capabilities, answers } =
            session_through_us(&parts, &sandbox, &[&time], mode, &[list(["time:"])]);
        assert_eq!(revision, "2025-11-25", "{mode:?}");
        assert_eq!(server_name, "mcp-simple-aggregator");
        assert_eq!(capabilities, json!({"tools": {"listChanged": true}}));
        assert_eq!(names(&answers[0]), ["time:get_current_time", "time:convert_time"]);
    }
}
