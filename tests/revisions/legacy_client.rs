//! A client with `initialize` in front of a server of 2026-07-28.

use serde_json::{Value, json};
use testkit::{ClientSession, Puppet, Spec, raw};

use super::{CAPABILITIES, INFO, LOG_LEVEL, VERSION};
use crate::relay::{at, code_of, config, connected, connected_with, elements, introduce, serving};

fn everything() -> Spec {
    Spec::modern().tool("t").prompt("p").resource("r://1").template("r://{x}/y").hints(5000, "public")
}

#[test]
fn results_lose_only_what_the_newer_revision_added() {
    for puppet in [Puppet::new(everything()), Puppet::over_http(everything())] {
        let mut client = connected(&[("s", &puppet)]);
        let rest = r#""x":1.0, "_meta":{"io.modelcontextprotocol/serverInfo":{"name":"n","version":"1"},"k":"\u0041"}"#;
        for (method, params, own) in [
            ("tools/call", json!({"name": "s.t"}), r#""content":[{"type":"text","text":"\u0041"}]"#),
            ("prompts/get", json!({"name": "s.p"}), r#""messages":[ ]"#),
            ("resources/read", json!({"uri": "r://1"}), r#""contents":[{"uri":"r://1","text":"\u0041"}]"#),
        ] {
            let id = client.begin(method, params);
            let hints = if method == "resources/read" { r#","ttlMs":5,"cacheScope":"public""# } else { "" };
            puppet.expect(method).answer(&format!(r#"{{"resultType":"complete",{own},{rest}{hints}}}"#));
            assert_eq!(at(&client.line_to(&id.to_string()), &["result"]), format!("{{{own},{rest}}}"), "{method}");
        }
        for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
            let page = client.ask(method, json!({}));
            let members: Vec<&String> = page["result"].as_object().expect("a result").keys().collect();
            assert_eq!(members.len(), 1, "{method}: {members:?}");
        }
    }
}

#[test]
fn every_request_identifies_its_client_to_the_server() {
    let puppet = Puppet::new(everything());
    let mut client = connected_with(&[("s", &puppet)], &json!({"sampling": {"x": 1}, "elicitation": {}}));
    client.send_line(
        r#"{"jsonrpc":"2.0","id":"i","method":"tools/call","params":{"name":"s.t","arguments":{"a":1.0},"_meta":{"k":1e2}}}"#,
    );
    let call = puppet.expect("tools/call");
    assert_eq!(call.param(&["arguments"]), Some(r#"{"a":1.0}"#));
    assert_eq!(call.param(&["_meta", "k"]), Some("1e2"));
    assert_eq!(call.text_param(&["_meta", VERSION]).as_deref(), Some("2026-07-28"));
    let capabilities: Value =
        serde_json::from_str(call.param(&["_meta", CAPABILITIES]).expect("capabilities")).unwrap();
    assert_eq!(capabilities["sampling"], json!({"x": 1}));
    assert!(capabilities["elicitation"].is_object() && capabilities.get("roots").is_none(), "{capabilities}");
    assert!(capabilities.get("extensions").is_none_or(|found| found.get("io.modelcontextprotocol/tasks").is_none()));
    let info: Value = serde_json::from_str(call.param(&["_meta", INFO]).expect("client info")).unwrap();
    assert_eq!(info["name"], testkit::client::CLIENT_NAME);
    assert_eq!(call.param(&["_meta", LOG_LEVEL]), None);
    assert_eq!(puppet.count("notifications/initialized"), 0);
}

#[test]
fn over_http_headers_mirror_the_servers_own_names() {
    let tool = r#"{"name":"t é","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}"#;
    let puppet = Puppet::over_http(Spec::modern().raw_tool(tool).resource("r://1"));
    let mut client = connected(&[("s", &puppet)]);
    let id = client.begin_call("s.t é", json!({"region": "eu west", "other": 1}));
    let call = puppet.expect("tools/call");
    assert_eq!(call.header("mcp-protocol-version"), Some("2026-07-28"));
    assert_eq!(call.header("mcp-method"), Some("tools/call"));
    assert_eq!(call.header("mcp-name"), Some("=?base64?dCDDqQ==?="));
    assert_eq!(call.header("mcp-param-region"), Some("eu west"));
    assert_eq!(call.header("mcp-session-id"), None);
    call.answer(r#"{"resultType":"complete","content":[]}"#);
    client.answer_to(id);
    client.begin("resources/read", json!({"uri": "r://1"}));
    assert_eq!(puppet.expect("resources/read").header("mcp-name"), Some("r://1"));
}

#[test]
fn structured_content_that_is_no_object_is_dropped_where_it_can_be_seen() {
    let tool = r#"{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"array","items":{}}, "x":1.0}"#;
    let fine = r#"{"name":"u","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}"#;
    let puppet = Puppet::new(Spec::modern().raw_tool(tool).raw_tool(fine));
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.session("/mcp/s");
    let line = client.ask_raw("tools/list", json!({}));
    let listed = elements(&line, &["result", "tools"]);
    let shown: Value = serde_json::from_str(listed[0]).unwrap();
    assert_eq!(shown.get("outputSchema"), None, "{shown}");
    assert_eq!(raw::at(listed[0].as_bytes(), &["x"]), Some("1.0"));
    assert_eq!(listed[1], fine);

    let id = client.begin_call("t", json!({}));
    let content = r#"[{"type":"text","text":"[1.0]"}]"#;
    puppet
        .expect("tools/call")
        .answer(&format!(r#"{{"resultType":"complete","content":{content},"structuredContent":[1.0]}}"#));
    let line = client.line_to(&id.to_string());
    assert_eq!(at(&line, &["result", "content"]), content);
    assert_eq!(raw::at(&line, &["result", "structuredContent"]), None);

    let id = client.begin_call("t", json!({}));
    puppet.expect("tools/call").answer(r#"{"resultType":"complete","structuredContent":[1.0]}"#);
    let line = client.line_to(&id.to_string());
    assert_eq!(elements(&line, &["result", "content"]), [r#"{"type":"text","text":"[1.0]"}"#]);

    let id = client.begin_call("u", json!({}));
    puppet.expect("tools/call").answer(r#"{"resultType":"complete","content":[],"structuredContent":{"a": 1.0}}"#);
    assert_eq!(at(&client.line_to(&id.to_string()), &["result", "structuredContent"]), r#"{"a": 1.0}"#);
}

#[test]
fn a_missing_resource_has_the_error_code_of_the_clients_lifecycle() {
    let puppet = Puppet::new(everything());
    let mut client = connected(&[("s", &puppet)]);
    let id = client.begin("resources/read", json!({"uri": "r://1"}));
    puppet
        .expect("resources/read")
        .fail(r#"{"code":-32602,"message":"Resource not found: \u0041","data":{"uri":"r://1"}}"#);
    let line = client.line_to(&id.to_string());
    let expected = r#"{"code":-32002,"message":"Resource not found: \u0041","data":{"uri":"r://1"}}"#;
    assert_eq!(at(&line, &["error"]), expected);
}

#[test]
fn the_log_level_of_a_client_is_sent_with_each_of_its_requests() {
    let puppet = Puppet::new(everything());
    let mut client = connected(&[("s", &puppet)]);
    assert_eq!(client.ask("logging/setLevel", json!({"level": "warning"}))["result"], json!({}));
    let id = client.begin_call("s.t", json!({}));
    let call = puppet.expect("tools/call");
    assert_eq!(call.text_param(&["_meta", LOG_LEVEL]).as_deref(), Some("warning"));
    assert_eq!(puppet.count("logging/setLevel"), 0);
    call.aside(
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","logger":"db","data":{"n":1.0}}}"#,
    );
    let line = client.notice_line("notifications/message");
    assert_eq!(at(&line, &["params", "logger"]), "\"s.db\"");
    assert_eq!(at(&line, &["params", "data"]), r#"{"n":1.0}"#);
    call.answer(r#"{"resultType":"complete","content":[]}"#);
    client.answer_to(id);
}

#[test]
fn progress_and_cancellation_work_over_stdio_and_over_http() {
    for puppet in [Puppet::new(everything()), Puppet::over_http(everything())] {
        let mut client = connected(&[("s", &puppet)]);
        let id = client.begin("tools/call", json!({"name": "s.t", "_meta": {"progressToken": "tok"}}));
        let call = puppet.expect("tools/call");
        call.progress(r#""progress":1.0"#);
        let line = client.notice_line("notifications/progress");
        assert_eq!(at(&line, &["params"]), r#"{"progressToken":"tok","progress":1.0}"#);
        client.cancel(id);
        if call.header("host").is_some() {
            // Closing the stream cancels the request there.
            call.wait_abandoned();
            assert_eq!(puppet.count("notifications/cancelled"), 0);
        } else {
            assert_eq!(puppet.expect("notifications/cancelled").param(&["requestId"]), call.id());
        }
        assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
        assert_eq!(puppet.count("ping"), 0);
    }
}

#[test]
fn completion_is_translated() {
    let puppet = Puppet::new(everything());
    let mut client = connected(&[("s", &puppet)]);
    let id = client.begin(
        "completion/complete",
        json!({"ref": {"type": "ref/prompt", "name": "s.p"}, "argument": {"name": "x", "value": ""}}),
    );
    let request = puppet.expect("completion/complete");
    assert_eq!(request.param(&["ref", "name"]), Some("\"p\""));
    assert_eq!(request.text_param(&["_meta", VERSION]).as_deref(), Some("2026-07-28"));
    request.answer(r#"{"resultType":"complete","completion":{"values":["\u0041"]}}"#);
    assert_eq!(at(&client.line_to(&id.to_string()), &["result"]), r#"{"completion":{"values":["\u0041"]}}"#);
}

#[test]
fn servers_of_all_revisions_look_like_one_to_a_legacy_client() {
    let old = Puppet::new(Spec::legacy().tool("t").echoes().instructions("old ways"));
    let new = Puppet::new(Spec::modern().tool("t").echoes().instructions("new ways"));
    let web = Puppet::over_http(Spec::dual().tool("t").echoes());
    let serve = serving(&[("old", &old), ("new", &new), ("web", &web)]);
    let mut client = serve.session("/mcp");
    assert_eq!(client.ids("tools/list"), ["old.t", "new.t", "web.t"]);
    assert_eq!(client.welcome["result"]["instructions"], "## old\n\nold ways\n\n## new\n\nnew ways");
    for tool in ["old.t", "new.t", "web.t"] {
        let answer = client.ask("tools/call", json!({"name": tool, "arguments": {"text": tool}}));
        let expected = json!({"content": [{"type": "text", "text": tool}], "structuredContent": {"text": tool}});
        assert_eq!(answer["result"], expected);
    }
}

#[test]
fn a_configured_lifecycle_is_not_probed() {
    let dual = || Puppet::new(Spec::dual().tool("t").echoes());
    let (as_legacy, as_modern) = (dual(), dual());
    let config = testkit::Config::new()
        .server("l", as_legacy.entry().field("era", "legacy"))
        .server("m", as_modern.entry().field("era", "modern"));
    let mut client = testkit::Launch::service(&config).start();
    introduce(&mut client, &json!({}));
    assert_eq!(client.ids("tools/list"), ["l.t", "m.t"]);
    assert_eq!(as_legacy.count("server/discover"), 0);
    assert_eq!(as_modern.count("initialize"), 0);
}

#[test]
fn a_server_that_is_slow_to_show_its_lifecycle_is_still_supported() {
    let puppet = Puppet::new(Spec::modern().tool("t").echoes().leaves("initialize").leaves("server/discover"));
    let mut client = testkit::Launch::service(&config(&[("s", &puppet)])).start();
    introduce(&mut client, &json!({}));
    let data = r#"{"supported":["2026-07-28"],"requested":"2025-11-25"}"#;
    let refusal = format!(r#"{{"code":-32022,"message":"Unsupported protocol version","data":{data}}}"#);
    puppet.expect("initialize").fail(&refusal);
    puppet.expect("server/discover").answer(
        r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}"#,
    );
    client.wait_for_item("tools/list", "s.t", true);
    assert_eq!(puppet.count("notifications/initialized"), 0);
    assert_eq!(code_of(&client.ask("tools/call", json!({"name": "s.u"}))), -32601);
}
