//! Real servers that remember something, with an instance for each identity: nothing crosses.

use serde_json::{Value, json};
use testkit::{ClientSession, HttpSession};

use super::parts::{Part, Parts};
use super::sandbox::Sandbox;
use super::{servers, service};
use crate::instances::{ann_and_ben, with_tokens};

const GRAPH: &str = "memory://knowledge-graph";

#[expect(clippy::needless_pass_by_value, reason = "a value is written where it is used")]
fn call(session: &mut HttpSession, tool: &str, arguments: Value) -> Value {
    let answer = session.ask("tools/call", json!({"name": tool, "arguments": arguments}));
    assert!(answer["result"]["isError"] != true && answer["result"].is_object(), "{tool}: {answer}");
    answer["result"]["structuredContent"].clone()
}

fn remember(session: &mut HttpSession, name: &str) {
    let entity = json!({"name": name, "entityType": "person", "observations": [format!("{name} was here")]});
    call(session, "memory.create_entities", json!({"entities": [entity]}));
}

fn remembered(session: &mut HttpSession) -> Vec<String> {
    let graph = call(session, "memory.read_graph", json!({}));
    let entities = graph["entities"].as_array().unwrap_or_else(|| panic!("{graph}"));
    entities.iter().map(|entity| entity["name"].as_str().expect("a name").to_owned()).collect()
}

fn think(session: &mut HttpSession, number: u64) -> u64 {
    let thought = json!({"thought": "hm", "nextThoughtNeeded": true, "thoughtNumber": number, "totalThoughts": 9});
    let done = call(session, "thinking.sequentialthinking", thought);
    done["thoughtHistoryLength"].as_u64().unwrap_or_else(|| panic!("{done}"))
}

#[test]
fn what_a_server_remembers_about_one_identity_no_other_sees() {
    let Some(parts) = Parts::with(&[Part::Npm]) else { return };
    let sandbox = Sandbox::new();
    let for_each = |server: servers::Server| {
        let mut entry = server.to_value();
        entry["share"] = "user".into();
        (server.key, entry)
    };
    // The memory is a file, so each instance needs one of its own.
    let memory = servers::memory(&parts, &sandbox.path("{instance}.jsonl"));
    let config = service::config_of(&[for_each(memory), for_each(servers::thinking(&parts))]);
    let (serve, _tokens) = with_tokens(&config);
    let [mut ann, mut ben] = ann_and_ben(&serve);
    let [mut ann_again, _] = ann_and_ben(&serve);

    remember(&mut ann, "Ann");
    remember(&mut ben, "Ben");
    assert_eq!(remembered(&mut ann_again), ["Ann"]);
    assert_eq!(remembered(&mut ben), ["Ben"]);
    let read = |session: &mut HttpSession| session.ask("resources/read", json!({"uri": GRAPH})).to_string();
    let (of_ann, of_ben) = (read(&mut ann), read(&mut ben));
    assert!(of_ann.contains("Ann was here") && !of_ann.contains("Ben"), "{of_ann}");
    assert!(of_ben.contains("Ben was here") && !of_ben.contains("Ann"), "{of_ben}");

    // A change reaches the subscribers of the same instance only.
    for session in [&mut ann, &mut ben] {
        session.listen();
        let subscribed = session.ask("resources/subscribe", json!({"uri": GRAPH}));
        assert!(subscribed["result"].is_object(), "{subscribed}");
    }
    remember(&mut ann_again, "Anna");
    ann.notice("notifications/resources/updated");
    remembered(&mut ben);
    let unasked = ben.take_all();
    assert!(!unasked.iter().any(|line| String::from_utf8_lossy(line).contains("resources/updated")), "{unasked:?}");

    assert_eq!([think(&mut ann, 1), think(&mut ann_again, 2), think(&mut ben, 1), think(&mut ann, 3)], [1, 2, 1, 3]);
}
