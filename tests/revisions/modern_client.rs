//! A client of 2026-07-28 in front of a server with `initialize`.

use serde_json::{Value, json};
use testkit::{ClientSession, Launch, ModernStdio, Puppet, Spec, raw};

use super::{CAPABILITIES, INFO, LOG_LEVEL, VERSION, modern_over_stdio};
use crate::relay::{at, code_of, config, count_of, serving};

fn everything() -> Spec {
    Spec::legacy().tool("t").prompt("p").resource("r://1").template("r://{x}/y")
}

/// The members of an object except these, each as it was written.
fn without(object: &str, left_out: &[&str]) -> Vec<(String, String)> {
    let members = raw::members(object.as_bytes()).expect("it is an object");
    let members = members.into_iter().filter(|(key, _)| !left_out.contains(&key.as_str()));
    members.map(|(key, value)| (key, value.to_owned())).collect()
}

#[test]
fn results_gain_only_what_the_newer_revision_demands() {
    let rest = r#"{"x":1.0,"content":[{"type":"text","text":"\u0041"}],"structuredContent":{"n":1e400},"messages":[ ],"contents":[],"_meta":{"k":"\ud800"}}"#;
    for over_http in [false, true] {
        let puppet = if over_http { Puppet::over_http(everything()) } else { Puppet::new(everything()) };
        let serve = serving(&[("s", &puppet)]);
        let mut remote = serve.modern("/mcp");
        let mut local = modern_over_stdio(&[("s", &puppet)]);
        for client in [&mut remote as &mut dyn ClientSession, &mut local] {
            for (method, params) in [
                ("tools/call", json!({"name": "s.t"})),
                ("prompts/get", json!({"name": "s.p"})),
                ("resources/read", json!({"uri": "r://1"})),
            ] {
                let id = client.begin(method, params);
                puppet.expect(method).answer(rest);
                let line = client.line_to(&id.to_string());
                let result = at(&line, &["result"]);
                assert_eq!(at(&line, &["result", "resultType"]), "\"complete\"");
                assert_eq!(without(result, &["resultType", "ttlMs", "cacheScope"]), without(rest, &[]), "{method}");
                let hints = (raw::at(&line, &["result", "ttlMs"]), raw::at(&line, &["result", "cacheScope"]));
                let expected = (method == "resources/read").then_some(("0", "\"private\""));
                assert_eq!(hints, expected.map_or((None, None), |(ttl, scope)| (Some(ttl), Some(scope))), "{method}");
            }
            for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
                let page = client.ask(method, json!({}));
                assert_eq!(page["result"]["resultType"], "complete", "{method}");
                assert_eq!((&page["result"]["ttlMs"], &page["result"]["cacheScope"]), (&json!(0), &json!("private")));
            }
        }
    }
}

#[test]
fn a_legacy_server_sees_nothing_of_the_modern_revision() {
    let puppet = Puppet::new(everything());
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp").interactive();
    let params =
        client.dress(json!({"name": "s.t", "arguments": {"a": 1.5}, "_meta": {"k": "v", "progressToken": "p"}}));
    let id = client.begin("tools/call", params);
    let call = puppet.expect("tools/call");
    assert_eq!(call.param(&["arguments"]), Some(r#"{"a":1.5}"#));
    assert_eq!(call.param(&["_meta", "k"]), Some("\"v\""));
    for member in [VERSION, CAPABILITIES, INFO, LOG_LEVEL] {
        assert_eq!(call.param(&["_meta", member]), None, "{member}");
    }
    call.progress(r#""progress":1.0"#);
    let line = client.notice_line("notifications/progress");
    assert_eq!(at(&line, &["params"]), r#"{"progressToken":"p","progress":1.0}"#);
    call.answer(r#"{"content":[]}"#);
    client.answer_to(id);

    client.begin_call("s.t", json!({}));
    // An empty `_meta` is removed.
    assert_eq!(puppet.expect("tools/call").param(&["_meta"]), None);
}

#[test]
fn a_call_does_not_become_a_task_of_the_other_lifecycle() {
    let legacy = Puppet::new(everything().capabilities(r#"{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}"#));
    let modern = Puppet::new(Spec::modern().tool("t"));
    let serve = serving(&[("legacy", &legacy), ("modern", &modern)]);
    let mut newer = serve.modern("/mcp");
    let mut older = serve.session("/mcp");
    for (client, puppet, tool) in
        [(&mut newer as &mut dyn ClientSession, &legacy, "legacy.t"), (&mut older, &modern, "modern.t")]
    {
        let params = json!({"name": tool, "task": {"ttl": 60000}, "arguments": {"task": 1}});
        let id = client.begin("tools/call", params);
        let call = puppet.expect("tools/call");
        assert_eq!(call.param(&["task"]), None);
        assert_eq!(call.param(&["arguments"]), Some(r#"{"task":1}"#));
        call.answer(r#"{"resultType":"complete","content":[]}"#);
        assert_eq!(client.answer_to(id)["result"]["content"], json!([]));
    }
}

#[test]
fn errors_have_the_codes_of_the_clients_lifecycle() {
    let puppet = Puppet::new(everything());
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp");
    let id = client.begin("resources/read", json!({"uri": "r://1"}));
    puppet.expect("resources/read").fail(r#"{"code":-32002,"message":"gone \u0041","data":{"uri":"r://1"}}"#);
    let line = client.line_to(&id.to_string());
    assert_eq!(at(&line, &["error"]), r#"{"code":-32602,"message":"gone \u0041","data":{"uri":"r://1"}}"#);

    let id = client.begin("resources/read", json!({"uri": "nowhere://"}));
    puppet.expect("resources/read").fail(r#"{"code":-32002,"message":"gone"}"#);
    assert_eq!(code_of(&client.answer_to(id)), -32602);

    let id = client.begin_call("s.t", json!({}));
    let own = r#"{"code":-32050, "message":"own","data":1.0}"#;
    puppet.expect("tools/call").fail(own);
    assert_eq!(at(&client.line_to(&id.to_string()), &["error"]), own);
}

#[test]
fn giving_up_a_request_cancels_it_at_the_server() {
    let puppet = Puppet::new(everything());
    let serve = serving(&[("s", &puppet)]);
    let mut remote = serve.modern("/mcp");
    let id = remote.begin_call("s.t", json!({}));
    let call = puppet.expect("tools/call");
    remote.abandon(id);
    assert_eq!(puppet.expect("notifications/cancelled").param(&["requestId"]), call.id());

    let mut local = modern_over_stdio(&[("s", &puppet)]);
    let id = local.begin_call("s.t", json!({}));
    let call = puppet.expect("tools/call");
    local.cancel(id);
    assert_eq!(puppet.expect("notifications/cancelled").param(&["requestId"]), call.id());
}

#[test]
fn the_reason_of_a_cancellation_reaches_the_server() {
    type Start = fn(&testkit::Config) -> Launch;
    let launches: [(Start, &str); 2] = [(Launch::service, "s.t"), (Launch::aggregator, "s:t")];
    for (launch, tool) in launches {
        let puppet = Puppet::new(everything());
        let mut client = ModernStdio::new(launch(&config(&[("s", &puppet)])).start()).interactive();
        assert_eq!(client.ids("tools/list"), [tool]);
        for (meta, kept) in [(json!({"k": "v"}), Some(r#"{"k":"v"}"#)), (json!({VERSION: "2026-07-28"}), None)] {
            let id = client.begin_call(tool, json!({}));
            let call = puppet.expect("tools/call");
            let params = json!({"requestId": id, "reason": "changed my mind", "_meta": meta});
            client.tell("notifications/cancelled", params);
            let notice = puppet.expect("notifications/cancelled");
            assert_eq!(notice.param(&["requestId"]), call.id());
            assert_eq!(notice.param(&["reason"]), Some("\"changed my mind\""));
            assert_eq!(notice.param(&["_meta"]), kept);
        }
    }
}

#[test]
fn log_messages_go_only_to_requests_with_a_low_enough_level() {
    let puppet = Puppet::new(everything());
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp");
    client.myself.log_level = Some("warning".to_owned());
    let id = client.begin_call("s.t", json!({}));
    let call = puppet.expect("tools/call");
    puppet.wait_for_count("logging/setLevel", 1);
    let say = |level: &str| {
        let params = format!(r#"{{"level":"{level}","logger":"db","data":"{level}"}}"#);
        call.aside(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{params}}}"#));
    };
    say("info");
    say("error");
    let heard = client.notice("notifications/message");
    assert_eq!((&heard["params"]["level"], &heard["params"]["logger"]), (&json!("error"), &json!("s.db")));
    call.answer("{}");
    client.answer_to(id);
    assert_eq!(count_of(&client.take_all(), "notifications/message"), 0);

    client.myself.log_level = None;
    let id = client.begin_call("s.t", json!({}));
    let quiet = puppet.expect("tools/call");
    say("emergency");
    quiet.answer("{}");
    client.answer_to(id);
    assert_eq!(count_of(&client.take_all(), "notifications/message"), 0);
}

#[test]
fn roots_requested_outside_any_call_are_refused() {
    let puppet = Puppet::new(everything());
    let _client = modern_over_stdio(&[("s", &puppet)]);
    puppet.ask("early", "roots/list", &json!({}));
    assert!(puppet.response("early")["error"].is_object());
}

#[test]
fn completion_is_translated() {
    let puppet = Puppet::new(everything());
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp");
    let id = client.begin(
        "completion/complete",
        json!({"ref": {"type": "ref/prompt", "name": "s.p"}, "argument": {"name": "x", "value": ""}}),
    );
    let request = puppet.expect("completion/complete");
    assert_eq!(request.param(&["ref", "name"]), Some("\"p\""));
    request.answer(r#"{"completion":{"values":["\u0041"]}}"#);
    let line = client.line_to(&id.to_string());
    assert_eq!(at(&line, &["result", "completion"]), r#"{"values":["\u0041"]}"#);
    assert_eq!(at(&line, &["result", "resultType"]), "\"complete\"");
}

#[test]
fn legacy_methods_of_modern_clients_are_unknown_over_stdio_too() {
    let puppet = Puppet::new(everything());
    let mut client = modern_over_stdio(&[("s", &puppet)]);
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "x/y"] {
        let answer = client.ask(method, json!({"uri": "r://1", "level": "info", "protocolVersion": "2025-11-25"}));
        assert_eq!(code_of(&answer), -32601, "{method}");
    }
}

#[test]
fn a_modern_request_over_stdio_must_be_complete() {
    let puppet = Puppet::new(everything());
    let mut client = modern_over_stdio(&[("s", &puppet)]);
    let mut bad = |meta: Value| {
        let id = client.driver.fresh_id();
        let request = json!({"jsonrpc": "2.0", "id": id, "method": "tools/list", "params": {"_meta": meta}});
        client.send_line(&request.to_string());
        client.answer_to(id)
    };
    let missing = bad(json!({VERSION: "2026-07-28"}));
    assert_eq!(code_of(&missing), -32602);
    let unknown = bad(json!({VERSION: "2099-01-01", CAPABILITIES: {}}));
    assert_eq!(code_of(&unknown), -32022);
    assert_eq!(unknown["error"]["data"]["requested"], "2099-01-01");
    let supported = unknown["error"]["data"]["supported"].as_array().expect("supported revisions");
    assert!(supported.contains(&json!("2026-07-28")), "{unknown}");
}
