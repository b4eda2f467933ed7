//! Resource updates go to subscribers; the server is subscribed to once.

use serde_json::json;
use testkit::{ClientSession, Puppet, Spec};

use super::{at, code_of, connected, count_of, serving};

const UPDATED: &str = "notifications/resources/updated";

fn updated(uri: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{UPDATED}","params":{{"uri":"{uri}","x":1.0}}}}"#)
}

/// Announces a new tool, and checks that all clients get this notification and none before it.
fn announce_new_tool(puppet: &Puppet, name: &str) {
    puppet.change(|spec| spec.tool(name));
    puppet.notify("notifications/tools/list_changed", &json!({}));
}

#[test]
fn a_subscriber_gets_verbatim_updates_until_it_unsubscribes() {
    let (first, second) =
        (Puppet::new(Spec::legacy().resource("a://1")), Puppet::new(Spec::legacy().resource("b://1")));
    let mut client = connected(&[("first", &first), ("second", &second)]);
    assert_eq!(client.ask("resources/subscribe", json!({"uri": "b://1"}))["result"], json!({}));
    assert_eq!(at(&second.lines_of("resources/subscribe")[0], &["params", "uri"]), "\"b://1\"");
    assert_eq!(first.count("resources/subscribe"), 0);
    second.say(&updated("b://1"));
    let line = client.notice_line(UPDATED);
    assert_eq!(at(&line, &["params"]), r#"{"uri":"b://1","x":1.0}"#);

    assert_eq!(client.ask("resources/unsubscribe", json!({"uri": "b://1"}))["result"], json!({}));
    second.wait_for_count("resources/unsubscribe", 1);
    second.say(&updated("b://1"));
    announce_new_tool(&second, "fence");
    client.notice("notifications/tools/list_changed");
    assert_eq!(count_of(&client.take_all(), UPDATED), 0);
}

#[test]
fn several_subscribers_are_one_to_the_server() {
    let puppet = Puppet::new(Spec::legacy().resource("a://1").resource("a://2"));
    let serve = serving(&[("s", &puppet)]);
    let [mut one, mut two, mut other] = [(); 3].map(|()| serve.session("/mcp"));
    for client in [&mut one, &mut two, &mut other] {
        client.listen();
    }
    for client in [&mut one, &mut two] {
        assert_eq!(client.ask("resources/subscribe", json!({"uri": "a://1"}))["result"], json!({}));
    }
    other.ask("resources/subscribe", json!({"uri": "a://2"}));
    assert_eq!(puppet.count("resources/subscribe"), 2);
    puppet.say(&updated("a://1"));
    for client in [&mut one, &mut two] {
        assert_eq!(client.notice(UPDATED)["params"]["uri"], "a://1");
    }

    one.ask("resources/unsubscribe", json!({"uri": "a://1"}));
    puppet.say(&updated("a://1"));
    assert_eq!(two.notice(UPDATED)["params"]["uri"], "a://1");
    assert_eq!(puppet.count("resources/unsubscribe"), 0);
    announce_new_tool(&puppet, "fence");
    for client in [&mut one, &mut other] {
        client.notice("notifications/tools/list_changed");
        assert_eq!(count_of(&client.take_all(), UPDATED), 0);
    }

    two.ask("resources/unsubscribe", json!({"uri": "a://1"}));
    puppet.wait_for_count("resources/unsubscribe", 1);
    assert_eq!(at(&puppet.lines_of("resources/unsubscribe")[0], &["params", "uri"]), "\"a://1\"");
}

#[test]
fn subscribing_twice_is_one_subscription_of_that_client() {
    let puppet = Puppet::new(Spec::legacy().resource("a://1"));
    let mut client = connected(&[("s", &puppet)]);
    for _ in 0..2 {
        assert_eq!(client.ask("resources/subscribe", json!({"uri": "a://1"}))["result"], json!({}));
    }
    client.ask("resources/unsubscribe", json!({"uri": "a://1"}));
    puppet.wait_for_count("resources/unsubscribe", 1);
    puppet.say(&updated("a://1"));
    announce_new_tool(&puppet, "fence");
    client.notice("notifications/tools/list_changed");
    assert_eq!(count_of(&client.take_all(), UPDATED), 0);
}

#[test]
fn a_client_that_leaves_is_unsubscribed() {
    let puppet = Puppet::new(Spec::legacy().resource("a://1"));
    let serve = serving(&[("s", &puppet)]);
    let mut session = serve.session("/mcp");
    session.ask("resources/subscribe", json!({"uri": "a://1"}));
    session.delete();
    puppet.wait_for_count("resources/unsubscribe", 1);

    let mut older = serve.sse("/sse");
    older.ask("resources/subscribe", json!({"uri": "a://1"}));
    puppet.wait_for_count("resources/subscribe", 2);
    older.close();
    puppet.wait_for_count("resources/unsubscribe", 2);
}

#[test]
fn the_servers_refusal_of_a_subscription_is_passed_on() {
    let puppet = Puppet::new(Spec::legacy().resource("a://1").leaves("resources/subscribe"));
    let mut client = connected(&[("s", &puppet)]);
    let id = client.begin("resources/subscribe", json!({"uri": "a://1"}));
    puppet.expect("resources/subscribe").fail(r#"{"code":-32602,"message":"not this one"}"#);
    assert_eq!(code_of(&client.answer_to(id)), -32602);
    // The subscription failed, so a second attempt reaches the server again.
    let id = client.begin("resources/subscribe", json!({"uri": "a://1"}));
    puppet.expect("resources/subscribe").answer("{}");
    assert_eq!(client.answer_to(id)["result"], json!({}));
}
