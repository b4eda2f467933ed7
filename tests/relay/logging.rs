//! Log messages name their server, and reach a client from its level on.

use serde_json::json;
use testkit::{ClientSession, Puppet, Spec, raw};

use super::{at, code_of, connected, count_of, serving};

const MESSAGE: &str = "notifications/message";

fn message(params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{MESSAGE}","params":{params}}}"#)
}

#[test]
fn messages_are_labelled_by_server_and_otherwise_exact() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    client.ask("logging/setLevel", json!({"level": "debug"}));
    puppet.wait_for_count("logging/setLevel", 1);
    assert_eq!(at(&puppet.lines_of("logging/setLevel")[0], &["params", "level"]), "\"debug\"");

    puppet.say(&message(r#"{"level":"info","logger":"db","data":{ "n":1.0,"s":"\u0041" },"x":[]}"#));
    let line = client.notice_line(MESSAGE);
    assert_eq!(at(&line, &["params", "data"]), r#"{ "n":1.0,"s":"\u0041" }"#);
    assert_eq!(raw::text(at(&line, &["params", "logger"])).as_deref(), Some("s.db"));
    assert_eq!(at(&line, &["params", "x"]), "[]");

    puppet.say(&message(r#"{"level":"info","data":"plain"}"#));
    let line = client.notice_line(MESSAGE);
    assert_eq!(raw::text(at(&line, &["params", "logger"])).as_deref(), Some("s"));
}

#[test]
fn each_client_gets_log_messages_of_its_own_level() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let [mut curious, mut calm] = [(); 2].map(|()| serve.session("/mcp"));
    for (client, level) in [(&mut curious, "debug"), (&mut calm, "error")] {
        client.listen();
        assert_eq!(client.ask("logging/setLevel", json!({"level": level}))["result"], json!({}));
    }
    puppet.say(&message(r#"{"level":"info","data":"small"}"#));
    puppet.say(&message(r#"{"level":"critical","data":"great"}"#));
    assert_eq!(curious.notice(MESSAGE)["params"]["data"], "small");
    assert_eq!(curious.notice(MESSAGE)["params"]["data"], "great");
    assert_eq!(calm.notice(MESSAGE)["params"]["data"], "great");
    assert_eq!(count_of(&calm.take_all(), MESSAGE), 0);
    // The server gets the lowest level of all clients.
    let lines = puppet.lines_of("logging/setLevel");
    let last = lines.last().expect("the level was set");
    assert_eq!(at(last, &["params", "level"]), "\"debug\"");
}

#[test]
fn a_level_that_does_not_exist_is_refused() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let mut client = connected(&[("s", &puppet)]);
    assert_eq!(code_of(&client.ask("logging/setLevel", json!({"level": "loud"}))), -32602);
    assert_eq!(puppet.count("logging/setLevel"), 0);
}

#[test]
fn a_server_that_starts_later_also_gets_the_log_level() {
    let early = Puppet::new(Spec::legacy().tool("t"));
    let late = Puppet::new(Spec::legacy().tool("t").leaves("initialize"));
    let mut client = testkit::Launch::service(&super::config(&[("early", &early), ("late", &late)])).start();
    super::introduce(&mut client, &json!({}));
    let asked = late.expect("initialize");
    client.ask("logging/setLevel", json!({"level": "warning"}));
    early.wait_for_count("logging/setLevel", 1);
    asked.answer(
        r#"{"protocolVersion":"2025-11-25","capabilities":{"logging":{}},"serverInfo":{"name":"late","version":"1"}}"#,
    );
    late.wait_for_count("logging/setLevel", 1);
    assert_eq!(at(&late.lines_of("logging/setLevel")[0], &["params", "level"]), "\"warning\"");
}

#[test]
fn under_the_path_of_one_server_messages_are_left_as_they_are() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.session("/mcp/s");
    client.listen();
    client.ask("logging/setLevel", json!({"level": "debug"}));
    puppet.say(&message(r#"{"level":"info","logger":"db","data":1.0}"#));
    let line = client.notice_line(MESSAGE);
    assert_eq!(at(&line, &["params"]), r#"{"level":"info","logger":"db","data":1.0}"#);
}

#[test]
fn the_log_level_rises_again_when_the_client_that_lowered_it_leaves() {
    let puppet = Puppet::new(Spec::legacy().tool("t").echoes());
    let serve = serving(&[("s", &puppet)]);
    let [mut curious, mut calm] = [(); 2].map(|()| serve.session("/mcp"));
    let assert_asked = |levels: &[&str]| {
        puppet.wait_for_count("logging/setLevel", levels.len());
        let lines = puppet.lines_of("logging/setLevel");
        let asked: Vec<_> = lines.iter().filter_map(|line| raw::text(at(line, &["params", "level"]))).collect();
        assert_eq!(asked, levels);
    };
    calm.ask("logging/setLevel", json!({"level": "error"}));
    curious.ask("logging/setLevel", json!({"level": "debug"}));
    assert_asked(&["error", "debug"]);
    curious.delete();
    assert_asked(&["error", "debug", "error"]);
    // The same for a request with a lower level while it runs.
    let mut modern = serve.modern("/mcp");
    modern.myself.log_level = Some("info".to_owned());
    modern.ask("tools/call", json!({"name": "s.t", "arguments": {}}));
    assert_asked(&["error", "debug", "error", "info", "error"]);
    calm.delete();
    // Messages that a server sends by itself cannot be requested.
    assert_asked(&["error", "debug", "error", "info", "error", "info"]);
}
