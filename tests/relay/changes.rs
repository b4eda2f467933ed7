//! List changes: listeners are notified when the change is visible, and only of changes.

use serde_json::json;
use testkit::{ClientSession, Driver, Puppet, Spec};

use super::{connected, count_of, serving};

const KINDS: [(&str, &str); 4] = [
    ("tools/list", "notifications/tools/list_changed"),
    ("prompts/list", "notifications/prompts/list_changed"),
    ("resources/list", "notifications/resources/list_changed"),
    ("resources/templates/list", "notifications/resources/list_changed"),
];

fn with_another(spec: Spec, method: &str) -> Spec {
    match method {
        "tools/list" => spec.tool("new"),
        "prompts/list" => spec.prompt("new"),
        "resources/list" => spec.resource("r://new"),
        _ => spec.template("r://new/{x}"),
    }
}

fn offered(method: &str) -> &'static str {
    match method {
        "tools/list" | "prompts/list" => "s.new",
        "resources/list" => "r://new",
        _ => "r://new/{x}",
    }
}

#[test]
fn a_change_of_each_kind_is_announced_and_can_be_seen_then() {
    for (method, changed) in KINDS {
        let puppet = Puppet::new(Spec::legacy().tool("t").prompt("p").resource("r://1").template("r://{x}/1"));
        let mut client = connected(&[("s", &puppet)]);
        for (method, _) in KINDS {
            assert_eq!(client.ids(method).len(), 1, "{method}");
        }
        client.take_all();
        puppet.change(|spec| with_another(spec, method));
        puppet.notify(changed, &json!({}));
        client.notice(changed);
        assert!(client.ids(method).contains(&offered(method).to_owned()), "{method}");
        let others = client.take_all();
        for (_, other) in KINDS.iter().filter(|(_, other)| *other != changed) {
            assert_eq!(count_of(&others, other), 0, "{other} came with {changed}");
        }
    }
}

#[test]
fn an_announcement_without_a_change_is_not_passed_on() {
    let puppet = Puppet::new(Spec::legacy().tool("t").prompt("p"));
    let mut client = connected(&[("s", &puppet)]);
    client.take_all();
    let asked = puppet.count("prompts/list");
    puppet.notify("notifications/prompts/list_changed", &json!({}));
    puppet.wait_for_count("prompts/list", asked + 1);
    puppet.change(|spec| spec.tool("new"));
    puppet.notify("notifications/tools/list_changed", &json!({}));
    client.notice("notifications/tools/list_changed");
    assert_eq!(count_of(&client.take_all(), "notifications/prompts/list_changed"), 0);
}

#[test]
fn a_server_that_dies_takes_what_it_offered_along() {
    let dying = Puppet::new(Spec::legacy().tool("t").prompt("p").resource("r://1"));
    let well = Puppet::new(Spec::legacy().tool("t"));
    let mut client = connected(&[("dying", &dying), ("well", &well)]);
    client.take_all();
    dying.die();
    let gone = |client: &mut Driver, method: &str, id: &str| client.wait_for_item(method, id, false);
    gone(&mut client, "tools/list", "dying.t");
    gone(&mut client, "prompts/list", "dying.p");
    gone(&mut client, "resources/list", "r://1");
    assert_eq!(client.ids("tools/list"), ["well.t"]);
}

#[test]
fn every_session_is_notified_on_its_stream() {
    let puppet = Puppet::new(Spec::legacy().tool("t").resource("r://1"));
    let serve = serving(&[("s", &puppet)]);
    let mut all = serve.session("/mcp");
    let mut one = serve.session("/mcp/s");
    let mut older = serve.sse("/sse");
    all.listen();
    one.listen();
    puppet.change(|spec| spec.tool("new").resource("r://2"));
    puppet.notify("notifications/tools/list_changed", &json!({}));
    puppet.notify("notifications/resources/list_changed", &json!({}));
    for client in [&mut all as &mut dyn ClientSession, &mut one, &mut older] {
        client.notice("notifications/tools/list_changed");
        client.notice("notifications/resources/list_changed");
        assert_eq!(client.ids("resources/list"), ["r://1", "r://2"]);
    }
}
