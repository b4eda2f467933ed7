//! Which names official clients see, by what they call themselves, and under which names they can call.

use serde_json::{Value, json};

use super::clients::{Client, Mode, Plan};
use super::parts::{Part, Parts};
use super::sandbox::Sandbox;
use super::servers;
use super::service::{Service, config_of, over_stdio};
use super::steps::{call, list};

/// What most model APIs accept as the name of a tool.
fn is_safe(name: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    (1..=64).contains(&name.len()) && name.bytes().all(is_fit)
}

fn names(tools: &Value) -> Vec<&str> {
    let tools = tools.as_array().unwrap_or_else(|| panic!("expected a list, but got {tools}"));
    tools.iter().map(|tool| tool["name"].as_str().expect("a tool has a name")).collect()
}

#[test]
fn official_clients_of_any_name_get_names_that_model_apis_accept_and_may_call_by_either() {
    let Some(parts) = Parts::with(&[Part::Npm, Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let time = ("time", servers::time(&parts).to_value());
    let service = Service::start(std::slice::from_ref(&time), &sandbox.home());
    let config = config_of(&[time]).write();
    let zone = json!({"timezone": "UTC"});
    let both = [call("time__get_current_time", &zone), call("time.get_current_time", &zone)];
    for (client, mode) in [
        (Client::Python, Mode::Legacy),
        (Client::Python, Mode::Modern),
        (Client::TypeScriptV1, Mode::Legacy),
        (Client::TypeScriptV2, Mode::Modern),
    ] {
        for server in [service.mcp(), over_stdio(config.path())] {
            for (name, prefix) in [("my-own-agent", "time__"), ("mcp-inspector", "time.")] {
                let steps = std::iter::once(list([prefix])).chain(both.clone()).collect();
                let plan = Plan { server: server.clone(), mode, offers: &[], steps };
                let seen = client.run_as(name, &parts, &sandbox, &plan);
                let who = format!("{client:?} {mode:?} as {name} with {server}");
                let [listed, calls @ ..] = seen.answers.as_slice() else { panic!("{who}: no answers") };
                let listed = names(listed);
                assert!(listed.iter().all(|name| name.starts_with(prefix)), "{who}: {listed:?}");
                assert_eq!(listed.iter().all(|name| is_safe(name)), prefix == "time__", "{who}: {listed:?}");
                assert_eq!(calls.len(), 2, "{who}");
                for answer in calls {
                    assert_ne!(answer["result"]["isError"], true, "{who}: {answer}");
                    assert!(answer["result"]["content"][0]["text"].is_string(), "{who}: {answer}");
                }
            }
        }
    }
}
