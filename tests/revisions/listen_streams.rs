//! `subscriptions/listen` of modern clients and modern servers, with either kind on the other side.

use serde_json::{Value, json};
use testkit::{ClientSession, Puppet, Spec};

use super::{SUBSCRIPTION, modern_over_stdio};
use crate::relay::{at, connected, count_of, serving};

const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const UPDATED: &str = "notifications/resources/updated";
const TOOLS: &str = "notifications/tools/list_changed";
const PROMPTS: &str = "notifications/prompts/list_changed";

fn spec(base: Spec) -> Spec {
    base.tool("t").prompt("p").resource("r://1").resource("r://2")
}

#[track_caller]
fn listen(client: &mut dyn ClientSession, filter: &Value) -> (u64, Value) {
    let id = client.begin("subscriptions/listen", json!({"notifications": filter}));
    let acknowledged = client.notice(ACKNOWLEDGED);
    assert_eq!(acknowledged["params"]["_meta"][SUBSCRIPTION], id, "{acknowledged}");
    (id, acknowledged["params"]["notifications"].clone())
}

/// The client gets what it subscribed to, with its tag, and nothing else.
#[track_caller]
fn assert_receives_changes(client: &mut dyn ClientSession, puppet: &Puppet) {
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["r://1"]});
    let (id, honoured) = listen(client, &filter);
    assert_eq!(honoured, filter);
    puppet.wait_for_count("resources/subscribe", 1);
    puppet.notify(UPDATED, &json!({"uri": "r://1", "x": 1.5}));
    let updated = client.notice(UPDATED);
    assert_eq!(updated["params"], json!({"uri": "r://1", "x": 1.5, "_meta": {SUBSCRIPTION: id}}));
    puppet.notify(UPDATED, &json!({"uri": "r://2"}));
    puppet.change(|spec| spec.prompt("new").tool("new"));
    puppet.notify(PROMPTS, &json!({}));
    puppet.notify(TOOLS, &json!({}));
    assert_eq!(client.notice(TOOLS)["params"]["_meta"][SUBSCRIPTION], id);
    let rest = client.take_all();
    assert_eq!((count_of(&rest, UPDATED), count_of(&rest, PROMPTS)), (0, 0));
}

#[test]
fn a_modern_client_gets_legacy_notifications_tagged_with_its_subscription() {
    let puppet = Puppet::new(spec(Spec::legacy()));
    let serve = serving(&[("s", &puppet)]);
    assert_receives_changes(&mut serve.modern("/mcp"), &puppet);

    let puppet = Puppet::new(spec(Spec::legacy()));
    assert_receives_changes(&mut modern_over_stdio(&[("s", &puppet)]), &puppet);
}

#[test]
fn a_listen_over_http_ends_with_its_stream_and_so_do_its_subscriptions() {
    let puppet = Puppet::new(spec(Spec::legacy()));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp");
    let filter = json!({"resourceSubscriptions": ["r://1", "r://2"]});
    let (first, _) = listen(&mut client, &filter);
    let (second, _) = listen(&mut client, &json!({"resourceSubscriptions": ["r://1"]}));
    puppet.wait_for_count("resources/subscribe", 2);
    puppet.notify(UPDATED, &json!({"uri": "r://1"}));
    let mut heard = [client.notice(UPDATED), client.notice(UPDATED)]
        .map(|updated| updated["params"]["_meta"][SUBSCRIPTION].as_u64().expect("tagged"));
    heard.sort_unstable();
    assert_eq!(heard, [first, second]);
    client.abandon(first);
    puppet.wait_for_count("resources/unsubscribe", 1);
    assert_eq!(at(&puppet.lines_of("resources/unsubscribe")[0], &["params", "uri"]), "\"r://2\"");
    client.abandon(second);
    puppet.wait_for_count("resources/unsubscribe", 2);
    assert_eq!(puppet.count("resources/subscribe"), 2);
}

#[test]
fn a_listen_over_stdio_ends_when_it_is_cancelled() {
    let puppet = Puppet::new(spec(Spec::legacy()));
    let mut client = modern_over_stdio(&[("s", &puppet)]);
    let (id, _) = listen(&mut client, &json!({"resourceSubscriptions": ["r://1"]}));
    puppet.wait_for_count("resources/subscribe", 1);
    client.cancel(id);
    puppet.wait_for_count("resources/unsubscribe", 1);
}

#[test]
fn what_cannot_be_honoured_is_not_acknowledged() {
    let plain = r#"{"tools":{"listChanged":true},"resources":{}}"#;
    let puppet = Puppet::new(spec(Spec::legacy()).capabilities(plain));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp/s");
    let (_, honoured) = listen(
        &mut client,
        &json!({"toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["r://1"]}),
    );
    assert_eq!(honoured["toolsListChanged"], true);
    assert_ne!(honoured["promptsListChanged"], true, "{honoured}");
    assert!(honoured["resourceSubscriptions"].as_array().is_none_or(Vec::is_empty), "{honoured}");
    assert_eq!(puppet.count("resources/subscribe"), 0);
}

#[test]
fn a_legacy_clients_subscription_becomes_part_of_the_one_listen_to_a_modern_server() {
    for over_http in [false, true] {
        let base = spec(Spec::modern());
        let puppet = if over_http { Puppet::over_http(base) } else { Puppet::new(base) };
        let mut client = connected(&[("s", &puppet)]);
        assert_eq!(client.ask("resources/subscribe", json!({"uri": "r://1"}))["result"], json!({}));
        puppet.wait_for_listens("the subscription is part of a listen", |open| {
            open.iter().any(|listen| listen.param(&["notifications", "resourceSubscriptions"]) == Some(r#"["r://1"]"#))
        });
        assert_eq!(puppet.count("resources/subscribe"), 0);
        // The older subscription ends once the newer one is open.
        puppet.wait_for_listens("one listen is left", |open| open.len() == 1);
        puppet.news(UPDATED, &json!({"uri": "r://1", "x": 1.5}));
        let line = client.notice_line(UPDATED);
        assert_eq!(at(&line, &["params", "uri"]), "\"r://1\"");
        let updated: Value = serde_json::from_slice(&line).expect("JSON");
        assert!(updated["params"]["_meta"].get(SUBSCRIPTION).is_none(), "{updated}");

        assert_eq!(client.ask("resources/unsubscribe", json!({"uri": "r://1"}))["result"], json!({}));
        puppet.wait_for_listens("the subscription is gone", |open| {
            !open.is_empty()
                && open.iter().all(|listen| {
                    let uris = listen.param(&["notifications", "resourceSubscriptions"]);
                    uris.is_none_or(|uris| !uris.contains("r://1"))
                })
        });
    }
}

#[test]
fn changes_a_modern_server_announces_reach_a_legacy_client() {
    for over_http in [false, true] {
        let base = spec(Spec::modern());
        let puppet = if over_http { Puppet::over_http(base) } else { Puppet::new(base) };
        let mut client = connected(&[("s", &puppet)]);
        puppet.wait_for_listens("somebody listens", |open| !open.is_empty());
        client.take_all();
        puppet.change(|spec| spec.tool("new").prompt("new").resource("r://new"));
        for kind in ["tools", "prompts", "resources"] {
            puppet.news(&format!("notifications/{kind}/list_changed"), &json!({}));
            client.notice(&format!("notifications/{kind}/list_changed"));
        }
        assert!(client.ids("tools/list").contains(&"s.new".to_owned()));
        assert!(client.ids("resources/list").contains(&"r://new".to_owned()));
    }
}

#[test]
fn a_modern_client_gets_changes_of_a_modern_server() {
    let puppet = Puppet::new(spec(Spec::modern()));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp");
    let (id, _) = listen(&mut client, &json!({"resourcesListChanged": true, "resourceSubscriptions": ["r://1"]}));
    puppet.wait_for_listens("the subscription is part of a listen", |open| {
        open.len() == 1
            && open
                .iter()
                .any(|listen| listen.param(&["notifications", "resourceSubscriptions"]) == Some(r#"["r://1"]"#))
    });
    puppet.news(UPDATED, &json!({"uri": "r://1"}));
    assert_eq!(client.notice(UPDATED)["params"], json!({"uri": "r://1", "_meta": {SUBSCRIPTION: id}}));
    puppet.change(|spec| spec.resource("r://new"));
    puppet.news("notifications/resources/list_changed", &json!({}));
    assert_eq!(client.notice("notifications/resources/list_changed")["params"]["_meta"][SUBSCRIPTION], id);
    assert!(client.ids("resources/list").contains(&"r://new".to_owned()));
}

#[test]
fn a_modern_server_without_listen_streams_works() {
    let capabilities = r#"{"tools":{"listChanged":false}}"#;
    let puppet =
        Puppet::new(Spec::modern().tool("t").echoes().capabilities(capabilities).leaves("subscriptions/listen"));
    let mut client = connected(&[("s", &puppet)]);
    let answer = client.ask("tools/call", json!({"name": "s.t", "arguments": {"text": "well"}}));
    assert_eq!(answer["result"]["content"][0]["text"], "well");

    let refusing = Puppet::new(Spec::modern().tool("t").echoes().leaves("subscriptions/listen"));
    let mut client = connected(&[("s", &refusing)]);
    refusing.expect("subscriptions/listen").fail(r#"{"code":-32601,"message":"Method not found"}"#);
    let answer = client.ask("tools/call", json!({"name": "s.t", "arguments": {"text": "well"}}));
    assert_eq!(answer["result"]["content"][0]["text"], "well");
}
