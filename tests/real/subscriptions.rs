//! Real clients watch resources and lists of real servers through us: legacy clients subscribe, modern ones listen.

use serde_json::{Value, json};

use super::clients::{Client, Mode, Plan, Session};
use super::http_servers::{HttpServer, TRANSPORTS};
use super::parts::{Part, Parts};
use super::sandbox::Sandbox;
use super::servers;
use super::service::Service;
use super::steps::{call, list, other_lists, watch, with_prefix};

/// One client of each library and kind of revision.
const CLIENTS: [(Client, Mode); 4] = [
    (Client::Python, Mode::Legacy),
    (Client::Python, Mode::Modern),
    (Client::TypeScriptV1, Mode::Legacy),
    (Client::TypeScriptV2, Mode::Modern),
];

/// Runs the same steps with all of these endpoints, concurrently.
#[track_caller]
fn run(client: (Client, Mode), parts: &Parts, sandbox: &Sandbox, endpoints: &[Value], steps: &[Value]) -> Vec<Session> {
    let (client, mode) = client;
    let plan = |server: &Value| Plan { server: server.clone(), mode, offers: &[], steps: steps.to_vec() };
    let sessions = client.run(parts, sandbox, &endpoints.iter().map(plan).collect::<Vec<_>>());
    for (number, Session { answers, .. }) in sessions.iter().enumerate() {
        let last = answers.last().expect("there is a step");
        assert!(last.get("timedOut").is_none(), "{client:?} {mode:?} with endpoint {number}: {last}");
    }
    sessions
}

fn names(list: &Value) -> Vec<&str> {
    let items = list.as_array().unwrap_or_else(|| panic!("expected a list, but got {list}"));
    items.iter().map(|item| item["name"].as_str().expect("everything has a name")).collect()
}

/// Two notes, then a flip of all lists and all lists, and back.
fn steps_with_notes() -> Vec<Value> {
    let write = |notes: &[&str]| call("write", &json!({"names": notes, "content": "new"}));
    let flip = || watch(&[], &["tools", "prompts", "resources"], &call("flip", &json!({})));
    let [resources, _, prompts] = other_lists();
    let lists = [list(["notes."]), resources, prompts];
    // In the second step it is no longer subscribed to the first note, which changes before the second.
    let watches = [watch(&["note://one"], &[], &write(&["one"])), watch(&["note://two"], &[], &write(&["one", "two"]))];
    let steps = watches.into_iter().chain([flip()]).chain(lists.clone()).chain([flip()]).chain(lists);
    steps.map(|step| with_prefix("notes.", step)).collect()
}

#[test]
fn legacy_and_modern_clients_get_exactly_the_changes_they_subscribed_to() {
    let Some(parts) = Parts::with(&[Part::Npm, Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let lifecycles = ["legacy", "modern"];
    let services = lifecycles.map(|lifecycle| {
        let mut notes = servers::notes(&parts, &sandbox).to_value();
        notes["era"] = lifecycle.into();
        Service::start(&[("notes", notes)], &sandbox.home())
    });
    let endpoints = services.each_ref().map(Service::mcp);
    for client in CLIENTS {
        let sessions = run(client, &parts, &sandbox, &endpoints, &steps_with_notes());
        for (lifecycle, Session { answers, .. }) in lifecycles.iter().zip(sessions) {
            let context = format!("{client:?} with a {lifecycle} server");
            let changes: Vec<&Value> = [0, 1, 2, 6].iter().map(|&step| &answers[step]["changes"]).collect();
            let flipped = json!(["prompts", "resources", "tools"]);
            assert_eq!(changes, [&json!(["note://one"]), &json!(["note://two"]), &flipped, &flipped], "{context}");
            for (step, name) in [(3, "notes.extra"), (4, "extra"), (5, "notes.extra")] {
                let (with, without) = (&answers[step], &answers[step + 4]);
                assert!(names(with).contains(&name), "{context}: {with}");
                assert!(!names(without).contains(&name), "{context}: {without}");
            }
        }
    }
}

#[test]
fn legacy_and_modern_clients_subscribe_to_a_resource_over_every_transport() {
    let Some(parts) = Parts::with(&[Part::Npm, Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let [http, sse] = TRANSPORTS.map(|transport| HttpServer::everything(&parts, transport));
    let local = servers::everything(&parts).to_value();
    let servers = [("stdio", local), ("http", http.entry()), ("sse", sse.entry())];
    let service = Service::start(&servers, &sandbox.home());
    let endpoints = servers.each_ref().map(|(key, _)| service.mcp_of(key));
    let uri = "demo://resource/dynamic/text/1";
    let toggle = || call("toggle-subscriber-updates", &json!({}));
    for client in CLIENTS {
        let sessions = run(client, &parts, &sandbox, &endpoints, &[watch(&[uri], &[], &toggle()), toggle()]);
        for ((key, _), Session { answers, .. }) in servers.iter().zip(sessions) {
            let text = |answer: &Value| answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
            assert_eq!(answers[0]["changes"], json!([uri]), "{client:?} {key}: {}", answers[0]);
            assert!(text(&answers[0]).starts_with("Started"), "{client:?} {key}: {}", answers[0]);
            assert!(text(&answers[1]).starts_with("Stopped"), "{client:?} {key}: {}", answers[1]);
        }
    }
}
