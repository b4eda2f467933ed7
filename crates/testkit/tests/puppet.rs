//! Tests of the puppet over stdio and HTTP, with clients of all lifecycles.

use serde_json::json;
use testkit::{ClientSession, Driver, HttpSession, Launch, ModernHttp, ModernStdio, Puppet, Spec, program, raw};

/// The process of a puppet over stdio, driven directly.
fn driven(puppet: &Puppet) -> Driver {
    Launch::program(program("puppet")).args(puppet.entry().arguments()).env("PUPPET_MARK", "here").start()
}

#[test]
fn messages_of_the_test_reach_the_client_verbatim() {
    let puppet = Puppet::new(Spec::legacy().tool("t").prompt("p").pages_of(1).instructions("be kind"));
    let mut client = driven(&puppet);
    let welcome = client.initialize();
    assert_eq!(welcome["result"]["instructions"], "be kind");
    assert_eq!(client.ids("tools/list"), ["t"]);
    let id = client.begin_call("t", json!({}));
    let call = puppet.expect("tools/call");
    assert_eq!(call.text_param(&["name"]).as_deref(), Some("t"));
    call.ask("\"q\"", "ping", "{}");
    let question = client.question("ping");
    client.reply(&question, json!({}));
    assert_eq!(puppet.response("q")["result"], json!({}));
    call.answer("{ \"a\" : 1.0 }");
    let line = client.line_to(&id.to_string());
    assert_eq!(raw::at(&line, &["result"]), Some("{ \"a\" : 1.0 }"));
    assert_eq!(puppet.wait_for_instance(1).env["PUPPET_MARK"], "here");
    puppet.die();
    client.wait_exit();
}

#[test]
fn it_ends_when_its_stdin_does() {
    let puppet = Puppet::new(Spec::legacy());
    let mut client = driven(&puppet);
    client.initialize();
    client.close_stdin();
    assert!(client.wait_exit().success());
}

#[test]
fn it_plays_a_modern_server_over_stdio() {
    let puppet = Puppet::new(Spec::modern().tool("t").hints(7, "public"));
    let mut client = ModernStdio::new(driven(&puppet));
    let page = client.ask("tools/list", json!({}));
    assert_eq!(page["result"]["ttlMs"], 7);
    let refusal = client.ask("initialize", json!({"protocolVersion": "2025-11-25"}));
    assert_eq!(refusal["error"]["code"], -32022);
    let listen = client.begin("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    client.notice("notifications/subscriptions/acknowledged");
    puppet.news("notifications/tools/list_changed", &json!({}));
    let news = client.notice("notifications/tools/list_changed");
    assert_eq!(news["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], listen);
    client.cancel(listen);
    puppet.wait_for_listens("the listen is over", <[_]>::is_empty);
}

#[test]
fn it_plays_a_legacy_server_over_http() {
    let puppet = Puppet::over_http(Spec::legacy().tool("t"));
    let mut client = HttpSession::open(puppet.address(), "/mcp");
    assert_eq!(client.ids("tools/list"), ["t"]);
    client.listen();
    puppet.notify("notifications/tools/list_changed", &json!({}));
    client.notice("notifications/tools/list_changed");
    let id = client.begin("tools/call", json!({"name": "t", "_meta": {"progressToken": "x"}}));
    let call = puppet.expect("tools/call");
    assert_eq!(call.header("mcp-session-id"), Some(client.id()));
    call.progress("\"progress\":1");
    assert_eq!(client.notice("notifications/progress")["params"]["progressToken"], "x");
    call.answer("{}");
    assert_eq!(client.answer_to(id)["result"], json!({}));
}

#[test]
fn it_sees_a_modern_client_give_up_over_http() {
    let puppet = Puppet::over_http(Spec::modern().tool("t"));
    let mut client = ModernHttp::new(puppet.address(), "/mcp");
    let id = client.begin_call("t", json!({}));
    let call = puppet.expect("tools/call");
    assert_eq!((call.header("mcp-method"), call.header("mcp-name")), (Some("tools/call"), Some("t")));
    client.abandon(id);
    call.wait_abandoned();
}
