//! Through us, the tools of real servers are listed as each server lists them, under its key.

use serde_json::{Value, json};

use super::clients::{Client, Mode, Plan, Session, plain_plan};
use super::parts::{Part, Parts};
use super::sandbox::Sandbox;
use super::servers::{self, Server, aggregator, config_of};
use super::steps::list;

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
    let config = config_of(&servers.iter().collect::<Vec<_>>()).write();
    let with_us = plain_plan(&aggregator(config.path()), vec![list(prefixes(&servers))]);
    let direct = servers.iter().map(|server| plain_plan(server, vec![list([""])]));
    let plans: Vec<Plan> = std::iter::once(with_us).chain(direct).collect();
    let mut sessions = Client::Python.run(&parts, &sandbox, &plans).into_iter();
    let ours = sessions.next().expect("the first is with us");

    let mut expected = Vec::new();
    for (server, direct) in servers.iter().zip(sessions) {
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
        // On a busy machine, Python may need longer than a list waits; then it is announced.
        ours.notification("notifications/tools/list_changed");
        listed = ours.list_raw_tools();
    }
    assert_eq!(listed, expected);
}

#[test]
fn the_python_client_agrees_with_us_on_a_revision_with_or_without_asking_for_a_newer_one_first() {
    let Some(parts) = Parts::with(&[Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let config = config_of(&[&servers::time(&parts)]).write();
    let modes = [(Mode::Legacy, "2025-11-25"), (Mode::Auto, "2026-07-28")];
    let plans = modes.map(|(mode, _)| Plan { mode, ..plain_plan(&aggregator(config.path()), vec![list(["time:"])]) });
    for (session, (mode, expected)) in Client::Python.run(&parts, &sandbox, &plans).into_iter().zip(modes) {
        let Session { revision, server_name, capabilities, answers, .. } = session;
        assert_eq!(revision, expected, "{mode:?}");
        assert_eq!(server_name.as_deref(), Some("mcp-simple-aggregator"));
        assert_eq!(capabilities, json!({"tools": {"listChanged": true}}));
        assert_eq!(names(&answers[0]), ["time:get_current_time", "time:convert_time"]);
    }
}
