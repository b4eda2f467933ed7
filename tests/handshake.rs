//! The handshake between client and aggregator.

use std::time::Duration;

use serde_json::json;
use testkit::{Config, Driver, Launch, fake};

use crate::fixture::{START_TIMEOUT, error_of, text_of, with_one_server};

#[test]
fn initialize_is_answered_while_servers_hang() {
    let config = Config::new()
        .server("hangs", fake().args(["--hang-at", "initialize"]))
        .server("sleeps", fake().args(["--start-delay-ms", "600000"]));
    let mut client = Driver::start(&config);
    assert_eq!(client.initialize()["result"]["serverInfo"]["name"], "mcp-simple-aggregator");
    let id = client.request("ping", json!({}));
    assert_eq!(client.response(id)["result"], json!({}));
}

#[test]
fn known_revisions_are_echoed_and_others_get_our_newest() {
    for (asked, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
        ("", "2025-11-25"),
    ] {
        let mut client = Driver::start(&Config::new());
        let answer = client.initialize_as("somebody", asked);
        assert_eq!(answer["result"]["protocolVersion"], agreed, "asked for {asked:?}");
    }
}

#[test]
fn capabilities_are_tools_that_change_and_nothing_else() {
    let mut client = with_one_server();
    let answer = client.initialize();
    assert_eq!(answer["result"]["capabilities"], json!({"tools": {"listChanged": true}}));
    let members: Vec<_> = answer["result"].as_object().unwrap().keys().collect();
    assert_eq!(members, ["protocolVersion", "capabilities", "serverInfo"]);
    assert_eq!(answer["jsonrpc"], "2.0");
}

#[test]
fn ping_is_answered_at_any_time() {
    let mut client = Driver::start(&Config::new());
    for params in [json!({}), json!({"_meta": {"progressToken": 1}})] {
        let id = client.request("ping", params);
        assert_eq!(client.response(id), json!({"jsonrpc": "2.0", "id": id, "result": {}}));
    }
    client.send_raw(b"{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}\n");
    assert_eq!(client.next_line(), br#"{"jsonrpc":"2.0","id":"p","result":{}}"#);
}

#[test]
fn methods_we_do_not_have_are_not_found() {
    let mut client = with_one_server();
    for method in ["resources/list", "prompts/get", "logging/setLevel", "server/discover", "nonsense", "", "Tools/List"]
    {
        let id = client.request(method, json!({}));
        let answer = client.response(id);
        assert_eq!(error_of(&answer), (-32601, &*format!("Method not found: {method}")));
    }
    assert_eq!(text_of(&client.call("one:echo", json!({"text": "still here"}))), "still here");
}

#[test]
fn notifications_we_do_not_know_get_no_answer() {
    let mut client = with_one_server();
    for method in ["notifications/roots/list_changed", "notifications/nonsense", "tools/list", "ping"] {
        client.notify(method, json!({}));
    }
    let id = client.request("ping", json!({}));
    let answer = client.next_line();
    assert_eq!(answer, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).into_bytes());
}

#[test]
fn a_request_without_revision_and_without_initialize_is_refused() {
    let config = Config::new().server("one", fake().args(["--only-generated", "--tools", "1"]));
    for launch in [Launch::aggregator(&config), Launch::service(&config)] {
        let mut client = launch.start();
        let only_capabilities = json!({"_meta": {"io.modelcontextprotocol/clientCapabilities": {}}});
        for method in
            ["tools/list", "tools/call", "server/discover", "subscriptions/listen", "prompts/list", "nonsense"]
        {
            for params in [json!({}), json!({"_meta": {}}), only_capabilities.clone()] {
                let id = client.request(method, params.clone());
                let answer = client.response(id);
                let (code, message) = error_of(&answer);
                assert_eq!(code, -32602, "{method} {params}: {answer}");
                assert!(message.contains("must send `initialize` first"), "{answer}");
                assert!(message.contains("io.modelcontextprotocol/protocolVersion"), "{answer}");
            }
        }
        client.send_raw(b"{\"jsonrpc\":\"2.0\",\"id\":\"none\",\"method\":\"tools/list\"}\n");
        assert_eq!(error_of(&client.response("none")).0, -32602);
        client.initialize();
        assert_eq!(client.tool_names().len(), 1);
    }
}

#[test]
fn a_client_need_not_wait_for_the_answer_to_initialize() {
    let config = Config::new().server("one", fake().args(["--only-generated", "--tools", "1"]));
    for launch in [Launch::aggregator(&config), Launch::service(&config)] {
        let mut client = launch.start();
        let hello = r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}"#;
        let both = [
            format!(r#"{{"jsonrpc":"2.0","id":"i","method":"initialize","params":{hello}}}"#),
            r#"{"jsonrpc":"2.0","id":"l","method":"tools/list"}"#.to_owned(),
        ];
        client.send_raw(format!("{}\n", both.join("\n")).as_bytes());
        assert_eq!(client.response("l")["result"]["tools"].as_array().map(Vec::len), Some(1));
        assert_eq!(client.response("i")["result"]["protocolVersion"], "2025-11-25");
    }
}

#[test]
fn a_second_initialize_is_answered_like_the_first() {
    let mut client = with_one_server();
    let answer = client.initialize_as("somebody else", "2024-11-05");
    assert_eq!(answer["result"]["protocolVersion"], "2024-11-05");
    assert_eq!(text_of(&client.call("one:echo", json!({"text": "hi"}))), "hi");
}

#[test]
fn an_invalid_initialize_is_refused() {
    let mut client = Driver::start(&Config::new());
    for params in [json!({}), json!({"protocolVersion": 5}), json!([]), json!(null), json!("2025-11-25")] {
        let id = client.request("initialize", params.clone());
        assert_eq!(error_of(&client.response(id)).0, -32602, "{params}");
    }
    client.initialize();
}

#[test]
fn a_start_timeout_that_is_no_number_is_refused() {
    for value in ["soon", "-1", "0", "", "NaN", "inf"] {
        let launch = Launch::aggregator(&Config::new()).env(START_TIMEOUT, value);
        let mut client = launch.start();
        assert_eq!(client.wait_exit().code(), Some(2), "{value:?}");
        client.wait_for_stderr(START_TIMEOUT);
    }
}

#[test]
fn nothing_unrequested_is_sent() {
    let mut client = with_one_server();
    client.tool_names();
    client.expect_silence(Duration::from_millis(50));
}

#[test]
fn a_start_timeout_may_be_as_long_as_anybody_writes_it() {
    for value in ["20.5", "1e5", "1e9", "1e19"] {
        let config = Config::new().server("one", fake());
        let mut client = Launch::aggregator(&config).env(START_TIMEOUT, value).start();
        client.initialize();
        assert_eq!(text_of(&client.call("one:echo", json!({"text": value}))), value);
        assert_eq!(client.stderr_text(), "");
    }
}
