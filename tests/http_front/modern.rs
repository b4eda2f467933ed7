//! 2026-07-28 over HTTP: headers that mirror the body, and methods that only legacy clients may send.

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::serve::Fetched;
use testkit::{ClientSession, ModernHttp, Puppet, Serve, Spec};

use super::{PING, assert_echoes, initialize};
use crate::relay::serving;

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

fn puppet() -> Puppet {
    let region = r#"{"name":"h","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"count":{"type":"integer","x-mcp-header":"Count"}}}}"#;
    Puppet::new(Spec::legacy().tool("t").raw_tool(region).prompt("p").resource("r://é").echoes())
}

/// A valid modern request.
fn request(client: &ModernHttp, method: &str, params: Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": client.dress(params)}).to_string()
}

#[track_caller]
fn assert_code(answer: &Fetched, status: u16, code: i64) {
    assert_eq!((answer.status, answer.error_code()), (status, Some(code)), "{answer:?}");
}

/// Fetches, and expects the error code for headers that do not match the body.
#[track_caller]
fn assert_mismatch(serve: &Serve, ask: &HttpRequest) {
    let answer = serve.fetch(ask);
    assert_eq!((answer.status, answer.error_code()), (400, Some(-32020)), "{ask:?}: {answer:?}");
    assert_eq!(answer.json()["id"], 1, "{answer:?}");
}

#[test]
fn headers_must_mirror_the_body() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let client = serve.modern("/mcp");
    let call = client.post(&request(&client, "tools/call", json!({"name": "s.t"})));
    assert_eq!(serve.fetch(&call).status, 200);
    let calls = puppet.count("tools/call");
    assert_mismatch(&serve, &call.clone().without("Mcp-Method"));
    assert_mismatch(&serve, &call.clone().header("Mcp-Method", "tools/list"));
    assert_mismatch(&serve, &call.clone().header("Mcp-Method", "Tools/Call"));
    assert_mismatch(&serve, &call.clone().without("Mcp-Name"));
    assert_mismatch(&serve, &call.clone().header("Mcp-Name", "t"));
    assert_mismatch(&serve, &call.clone().header("Mcp-Name", "=?base64?!!?="));
    assert_mismatch(&serve, &call.clone().without("MCP-Protocol-Version"));
    assert_mismatch(&serve, &call.header("MCP-Protocol-Version", "2025-11-25"));
    assert_eq!(puppet.count("tools/call"), calls, "none of these reached the server");

    let list = client.post(&request(&client, "tools/list", json!({})));
    assert_eq!(serve.fetch(&list).status, 200);
    assert_mismatch(&serve, &list.without("Mcp-Method"));
}

#[test]
fn names_beyond_ascii_are_mirrored_in_base64() {
    let puppet = puppet();
    puppet.change(|spec| spec.answers("resources/read", r#"{"contents":[]}"#));
    let serve = serving(&[("s", &puppet)]);
    let client = serve.modern("/mcp");
    let read = client.post(&request(&client, "resources/read", json!({"uri": "r://é"})));
    let encoded = read.clone().header("Mcp-Name", "=?base64?cjovL8Op?=");
    assert_eq!(serve.fetch(&encoded).status, 200);
    assert_mismatch(&serve, &read.header("Mcp-Name", "=?base64?cjovL2U=?="));
    // A value that needs no encoding may be sent in Base64, too.
    let call = client.post(&request(&client, "tools/call", json!({"name": "s.t"})));
    assert_eq!(serve.fetch(&call.header("Mcp-Name", "=?base64?cy50?=")).status, 200);
}

#[test]
fn annotated_parameters_are_mirrored_too() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let client = serve.modern("/mcp");
    let arguments = json!({"region": "eu", "count": 3});
    let call = client.post(&request(&client, "tools/call", json!({"name": "s.h", "arguments": arguments})));
    let call = call.header("Mcp-Param-Region", "eu").header("Mcp-Param-Count", "3");
    assert_eq!(serve.fetch(&call).status, 200);
    assert_mismatch(&serve, &call.clone().header("Mcp-Param-Region", "us"));
    assert_mismatch(&serve, &call.clone().without("Mcp-Param-Region"));
    // A header without an annotation is ignored.
    assert_eq!(serve.fetch(&call.header("Mcp-Param-Other", "x")).status, 200);
    let bare = client.post(&request(&client, "tools/call", json!({"name": "s.h", "arguments": {}})));
    assert_eq!(serve.fetch(&bare).status, 200);
}

#[test]
fn a_request_states_its_client_and_its_revision() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let client = serve.modern("/mcp");
    let with_meta = |meta: Value| {
        client.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}).to_string())
    };
    assert_code(&serve.fetch(&with_meta(json!({VERSION: "2026-07-28"}))), 400, -32602);
    let no_version = with_meta(json!({CAPABILITIES: {}})).header("MCP-Protocol-Version", "2026-07-28");
    assert_code(&serve.fetch(&no_version), 400, -32602);
    assert_code(&serve.fetch(&with_meta(json!({VERSION: "2026-07-28", CAPABILITIES: []}))), 400, -32602);

    let future = serve.fetch(&with_meta(json!({VERSION: "2099-01-01", CAPABILITIES: {}})));
    assert_code(&future, 400, -32022);
    let data = future.json()["error"]["data"].clone();
    assert_eq!(data["requested"], "2099-01-01");
    assert!(data["supported"].as_array().is_some_and(|known| known.contains(&json!("2026-07-28"))), "{data}");
}

#[test]
fn methods_that_are_unknown_or_of_the_other_lifecycle_are_not_found() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let client = serve.modern("/mcp");
    for method in
        ["custom/thing", "initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"]
    {
        let params = json!({"uri": "r://é", "level": "info", "protocolVersion": "2025-11-25", "capabilities": {}});
        assert_code(&serve.fetch(&client.post(&request(&client, method, params))), 404, -32601);
    }
    assert_eq!(puppet.count("resources/subscribe"), 0);
    // A refusal by the server or by us is an ordinary response.
    let unknown = serve.fetch(&client.post(&request(&client, "tools/call", json!({"name": "s.nothing"}))));
    assert_code(&unknown, 200, -32601);
}

#[test]
fn there_are_no_sessions_and_no_resumable_streams() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let mut client = serve.modern("/mcp");
    let list = client.post(&request(&client, "tools/list", json!({}))).header("Mcp-Session-Id", "whatever");
    let answer = serve.fetch(&list);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers.get("mcp-session-id"), None);
    for method in ["GET", "DELETE"] {
        let ask = HttpRequest::new(method, "/mcp")
            .header("Accept", "text/event-stream")
            .header("MCP-Protocol-Version", "2026-07-28");
        assert_eq!(serve.fetch(&ask).status, 405, "{method}");
    }
    assert_echoes(&mut client, "s.t");
}

#[test]
fn legacy_and_modern_clients_share_one_endpoint() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let mut modern = serve.modern("/mcp");
    let mut legacy = serve.session("/mcp");
    for _ in 0..3 {
        assert_echoes(&mut modern, "s.t");
        assert_echoes(&mut legacy, "s.t");
    }
    let welcome = serve.fetch(&HttpRequest::post("/mcp", initialize("2025-06-18")));
    assert_eq!(welcome.json()["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(serve.fetch(&HttpRequest::post("/mcp", PING)).status, 400);
}

#[test]
fn a_notification_is_accepted_and_a_batch_is_not() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let client = serve.modern("/mcp");
    let meta = client.dress(json!({"requestId": 1}));
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": meta}).to_string();
    let answer = serve.fetch(&client.post(&notification));
    assert_eq!((answer.status, answer.body.as_str()), (202, ""));
    let batch = format!("[{}]", request(&client, "tools/list", json!({})));
    let refused = serve.fetch(&client.post(&batch).header("Mcp-Method", "tools/list"));
    assert_eq!(refused.status, 400, "{refused:?}");
}

#[test]
fn a_listen_streams_until_it_is_closed() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let client = serve.modern("/mcp");
    let listen = request(&client, "subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let mut connection = serve.connect();
    let mut answer = connection.ask(&client.post(&listen));
    assert_eq!(answer.status, 200);
    assert!(answer.is_stream());
    assert_eq!(answer.header("x-accel-buffering"), Some("no"));
    let first = answer.next_message().expect("a first message");
    assert_eq!(first.json()["method"], "notifications/subscriptions/acknowledged");
    // Streams cannot be resumed, so events have no ids.
    assert_eq!(first.id, None);
    puppet.change(|spec| spec.tool("new"));
    puppet.notify("notifications/tools/list_changed", &json!({}));
    answer.message(Some("notifications/tools/list_changed"));
}
