//! Interaction with the user of a real client: instructions, URL elicitations, and log messages.

use serde_json::{Value, json};

use super::fixture::World;
use super::tour::Stop;
use crate::real::clients::{Client, EVERYTHING_A_CLIENT_HAS, Mode, Plan, Session};
use crate::real::steps::{call, call_with_replies, level, list, with_logs};

/// Runs steps through all servers at once.
#[track_caller]
fn answers(world: &World, client: Client, mode: Mode, steps: &[Value]) -> Vec<Value> {
    let plan = Plan { server: world.service.mcp(), mode, offers: EVERYTHING_A_CLIENT_HAS, steps: steps.to_vec() };
    let answers = world.run(client, &[plan]).remove(0).answers;
    assert_eq!(answers.len(), steps.len(), "{client:?} {mode:?}: {:?}", answers.last());
    answers
}

#[test]
fn the_merged_instructions_name_each_server() {
    let Some(world) = World::enter() else { return };
    // A client that connects before the servers are ready gets fewer instructions.
    let everybody = list(world.tour.stops.iter().map(Stop::prefix));
    answers(&world, Client::Python, Mode::Legacy, &[everybody]);
    let plan = |mode| Plan { server: world.service.mcp(), mode, offers: &[], steps: vec![list([""])] };
    let sessions = world.run(Client::Python, &[plan(Mode::Legacy), plan(Mode::Auto)]);
    for Session { revision, instructions, .. } in sessions {
        let mut rest = instructions.as_deref().expect("there are instructions");
        for words in ["everything", "Enable `toggle-simulated-logging`", "fm", "Greets and counts.", "Keeps notes."] {
            let position = rest.find(words);
            rest = &rest[position.unwrap_or_else(|| panic!("{revision}: {words:?} is not in {rest}"))..];
        }
    }
}

/// A call that first fails with a URL elicitation, and then sends another one.
fn call_that_needs_a_visit(id: &str) -> Value {
    let arguments = json!({"url": "https://example.com/", "elicitationId": id, "errorPath": true});
    let visited = json!({"action": "accept"});
    call_with_replies("everything.trigger-url-elicitation", &arguments, &[visited.clone(), visited])
}

#[test]
fn a_legacy_client_gets_url_elicitations_as_errors() {
    let Some(world) = World::enter() else { return };
    let answer = &answers(&world, Client::Python, Mode::Legacy, &[call_that_needs_a_visit("legacy")])[0];
    assert_eq!(answer["error"]["code"], -32042, "{answer}");
    let asked = &answer["error"]["data"]["elicitations"][0];
    assert_eq!((&asked["mode"], &asked["url"]), (&json!("url"), &json!("https://modelcontextprotocol.io")), "{answer}");
}

#[test]
fn a_modern_client_gets_the_url_elicitation_that_is_an_error_for_legacy_clients() {
    let Some(world) = World::enter() else { return };
    for client in [Client::Python, Client::TypeScriptV2] {
        let id = format!("modern-{client:?}");
        let answer = &answers(&world, client, Mode::Modern, &[call_that_needs_a_visit(&id)])[0];
        let links: Vec<&Value> = answer["asked"].as_array().into_iter().flatten().map(|asked| &asked["url"]).collect();
        assert_eq!(links, ["https://modelcontextprotocol.io", "https://example.com/"], "{client:?}: {answer}");
        assert_ne!(answer["result"]["isError"], true, "{client:?}: {answer}");
    }
}

#[test]
fn a_legacy_client_gets_log_messages_of_its_level_from_legacy_and_modern_servers() {
    let Some(world) = World::enter() else { return };
    for client in [Client::Python, Client::TypeScriptV1] {
        let tools = ["fm.say", "notes.say", "notes-legacy.say"];
        // Both are warnings. If the first were sent, it would come before the second.
        let steps = tools.map(|tool| {
            [
                with_logs(0, level("error")),
                with_logs(0, call(tool, &json!({"text": "not to be told"}))),
                with_logs(0, level("debug")),
                with_logs(1, call(tool, &json!({"text": "to be told"}))),
            ]
        });
        let answers = answers(&world, client, Mode::Legacy, &steps.concat());
        for (tool, answers) in tools.iter().zip(answers.chunks(4)) {
            let logs: Vec<&Value> = answers.iter().flat_map(|answer| answer["logs"].as_array()).flatten().collect();
            let is_of_this_tool = |log: &&Value| log["level"] == "warning";
            let message: Vec<String> =
                logs.into_iter().filter(is_of_this_tool).map(|log| log["data"].to_string()).collect();
            assert_eq!(message.len(), 1, "{client:?} {tool}: {message:?}");
            assert!(message[0].contains("\"to be told\""), "{client:?} {tool}: {message:?}");
        }
    }
}
