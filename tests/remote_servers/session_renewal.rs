//! A session that the server ended is established again, and nothing sent in it is lost.

use std::time::Duration;

use serde_json::json;
use testkit::{ClientSession, Puppet, Spec};

use crate::relay::{at, serving};

const UPDATED: &str = "notifications/resources/updated";
const MESSAGE: &str = "notifications/message";

fn server() -> Puppet {
    Puppet::over_http(Spec::legacy().tool("t").prompt("p").resource("r://1").resource("r://2").echoes())
}

#[test]
fn a_reconnected_server_gets_subscriptions_and_log_level_again() {
    let puppet = server();
    let serve = serving(&[("s", &puppet)]);
    let [mut one, mut two] = [(); 2].map(|()| serve.session("/mcp"));
    let mut modern = serve.modern("/mcp");
    for client in [&mut one, &mut two] {
        client.listen();
        assert_eq!(client.ask("resources/subscribe", json!({"uri": "r://1"}))["result"], json!({}));
    }
    one.ask("logging/setLevel", json!({"level": "debug"}));
    modern.begin("subscriptions/listen", json!({"notifications": {"resourceSubscriptions": ["r://2"]}}));
    modern.notice("notifications/subscriptions/acknowledged");
    puppet.wait_for_count("logging/setLevel", 1);
    assert_eq!(puppet.count("resources/subscribe"), 2);
    // Twice in a row, because one renewal must not prevent the next.
    for renewal in 1..=2 {
        puppet.forget_sessions();
        assert!(one.ask("tools/call", json!({"name": "s.t"}))["result"].is_object());
        puppet.wait_for_count("initialize", renewal + 1);
        // One subscription for each resource, however many clients subscribe.
        puppet.wait_for_count("resources/subscribe", 2 * (renewal + 1));
        puppet.wait_for_count("logging/setLevel", renewal + 1);
        let levels = puppet.lines_of("logging/setLevel");
        assert_eq!(at(levels.last().expect("it was set"), &["params", "level"]), "\"debug\"");
        for uri in ["r://1", "r://2"] {
            puppet.notify(UPDATED, &json!({"uri": uri}));
        }
        puppet.notify(MESSAGE, &json!({"level": "debug", "data": renewal}));
        for client in [&mut one, &mut two] {
            assert_eq!(client.notice(UPDATED)["params"]["uri"], "r://1");
        }
        assert_eq!(modern.notice(UPDATED)["params"]["uri"], "r://2");
        assert_eq!(one.notice(MESSAGE)["params"]["data"], renewal);
    }
    assert_eq!(puppet.count("resources/subscribe"), 6);
}

#[test]
fn a_client_that_only_listens_keeps_receiving_without_any_calls() {
    let puppet = server();
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.session("/mcp");
    client.listen();
    client.ask("resources/subscribe", json!({"uri": "r://1"}));
    // A message on the stream shows that it is open.
    puppet.notify(UPDATED, &json!({"uri": "r://1"}));
    client.notice(UPDATED);
    puppet.forget_sessions();
    puppet.wait_for_count("resources/subscribe", 2);
    puppet.notify(UPDATED, &json!({"uri": "r://1"}));
    assert_eq!(client.notice(UPDATED)["params"]["uri"], "r://1");
    assert_eq!(puppet.count("initialize"), 2);
}

#[test]
fn items_and_self_description_are_read_again() {
    let puppet = server();
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.session("/mcp");
    client.listen();
    for renewal in 1..=2 {
        let (tool, words) = (format!("new-{renewal}"), format!("Version {renewal}."));
        puppet.change(|spec| spec.tool(&tool).instructions(&words).capabilities(r#"{"tools":{"listChanged":true}}"#));
        puppet.forget_sessions();
        client.ask("tools/call", json!({"name": "s.t"}));
        client.wait_for_item("tools/list", &format!("s.{tool}"), true);
        client.wait_for_item("prompts/list", "s.p", false);
        client.wait_for_item("resources/list", "r://1", false);
        let welcome = serve.session("/mcp/s").welcome.clone();
        assert_eq!(welcome["result"]["instructions"], words, "{welcome}");
        assert_eq!(welcome["result"]["capabilities"]["prompts"], json!(null), "{welcome}");
    }
}

#[test]
fn a_server_that_forgets_us_with_every_request_is_not_stormed() {
    let puppet = server();
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.session("/mcp");
    client.ask("resources/subscribe", json!({"uri": "r://1"}));
    puppet.turn_forgetful();
    let answer = client.ask("tools/call", json!({"name": "s.t"}));
    assert!(answer["error"]["message"].as_str().is_some_and(|text| text.contains("404")), "{answer}");
    std::thread::sleep(Duration::from_secs(5));
    // Each listing is a few requests, each of which starts a session; there are few listings.
    let introductions = puppet.count("initialize");
    assert!(introductions < 40, "{introductions} introductions within five seconds");
}
