//! Valid and invalid POST requests, and their responses.

use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::http_session::Hello;
use testkit::{ClientSession, HttpSession, Puppet, Spec};

use super::{PING, initialize};
use crate::relay::serving;

fn puppet() -> Puppet {
    Puppet::new(Spec::legacy().tool("t").echoes())
}

#[test]
fn a_plain_answer_is_json_to_the_byte() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let mut connection = serve.connect();
    connection.send(&session.post(
        r#"{ "jsonrpc":"2.0","method":"tools/call","id":"\u0041", "params":{"arguments":{"a":1.0},"name":"s.t"} }"#,
    ));
    let call = puppet.expect("tools/call");
    assert_eq!(call.param(&[]), Some(r#"{"arguments":{"a":1.0},"name":"t"}"#));
    call.answer("{ \"content\":[ ],\"x\":1e400 }");
    let mut answer = connection.answer();
    assert_eq!(answer.status, 200);
    assert!(answer.is_of_type("application/json"), "{:?}", answer.headers());
    let body = String::from_utf8(answer.bytes()).expect("UTF-8");
    assert_eq!(body.trim_end(), r#"{"jsonrpc":"2.0","id":"\u0041","result":{ "content":[ ],"x":1e400 }}"#);
}

#[test]
fn a_body_may_have_line_breaks_and_be_chunked() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let pretty = "{\r\n  \"jsonrpc\": \"2.0\",\n  \"id\": 1,\n  \"method\": \"tools/call\",\n  \"params\": {\n    \"name\": \"s.t\",\n    \"arguments\": {\"text\": \"é\"}\n  }\n}\n";
    let answer = serve.fetch(&session.post(pretty));
    assert_eq!(answer.json()["result"]["content"][0]["text"], "é");

    let chunks: String = pretty.char_indices().fold(String::new(), |mut all, (_, character)| {
        all.push_str(&format!("{:x}\r\n{character}\r\n", character.len_utf8()));
        all
    });
    let chunked = session.post(&format!("{chunks}0\r\n\r\n")).header("Transfer-Encoding", "chunked");
    let answer = serve.fetch(&chunked);
    assert_eq!(answer.json()["result"]["content"][0]["text"], "é");
}

#[test]
fn what_needs_no_answer_gets_202_and_nothing_else() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    for message in [
        r#"{"jsonrpc":"2.0","method":"notifications/custom"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#,
        r#"{"jsonrpc":"2.0","id":"nobody asked","result":{}}"#,
    ] {
        let answer = serve.fetch(&session.post(message));
        assert_eq!((answer.status, answer.body.as_str()), (202, ""), "{message}");
    }
}

#[test]
fn the_client_announces_its_capabilities() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s.t"}}"#;
    for accept in ["*/*", "application/*, text/*", "application/json;q=0.5, text/event-stream", "Application/JSON"] {
        assert_eq!(serve.fetch(&session.post(call).header("Accept", accept)).status, 200, "{accept}");
    }
    assert_eq!(serve.fetch(&session.post(call).without("Accept")).status, 200);
    let refused = serve.fetch(&session.post(call).header("Accept", "text/html"));
    assert_eq!(refused.status, 406, "{refused:?}");

    let streamed = serve.fetch(&session.post(call).header("Accept", "text/event-stream"));
    assert!(streamed.headers["content-type"].starts_with("text/event-stream"), "{streamed:?}");
    assert!(streamed.body.contains("data: {\"jsonrpc\":\"2.0\",\"id\":1,"), "{streamed:?}");

    let stream = session.get().header("Accept", "application/json");
    assert_eq!(serve.fetch(&stream).status, 406);
}

#[test]
fn a_client_that_understands_json_only_gets_the_answer_only() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let mut connection = serve.connect();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s.t","_meta":{"progressToken":1}}}"#;
    connection.send(&session.post(call).header("Accept", "application/json"));
    let call = puppet.expect("tools/call");
    call.progress(r#""progress":1"#);
    call.answer(r#"{"content":[]}"#);
    let mut answer = connection.answer();
    assert!(answer.is_of_type("application/json"));
    assert_eq!(answer.json(), json!({"jsonrpc": "2.0", "id": 1, "result": {"content": []}}));
}

#[test]
fn what_is_no_json_rpc_is_refused_with_a_reason() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    for (body, code) in [("", -32700), ("{", -32700), ("{} {}", -32700), ("\"text\"", -32600), ("{\"id\":1}", -32600)] {
        let answer = serve.fetch(&session.post(body));
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        assert_eq!(answer.error_code(), Some(code), "{body}");
    }
    for bad in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp"] {
        assert_eq!(serve.fetch(&session.post(PING).header("Content-Type", bad)).status, 415, "{bad}");
    }
    assert_eq!(serve.fetch(&session.post(PING).without("Content-Type")).status, 415);
    let good = session.post(PING).header("Content-Type", "Application/JSON; charset=utf-8");
    assert_eq!(serve.fetch(&good).status, 200);
}

#[test]
fn a_raw_control_character_in_a_string_is_invalid_json_everywhere() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let old = HttpSession::introduce(
        serve.address(),
        "/mcp",
        &Hello { revision: "2025-03-26".to_owned(), ..Hello::default() },
    );
    let older = serve.sse("/sse");
    let modern = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"#;
    for control in (0..0x20).map(char::from) {
        let text = format!(r#""arguments":{{"text":"a{control}b"}}"#);
        let call = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"s.t",{text}}}}}"#);
        let modern = call.replace(r#""name""#, &format!(r#"{modern}"name""#));
        for (entrance, ask) in [
            ("legacy", session.post(&call)),
            ("batch", old.post(&format!("[{call}]"))),
            ("HTTP+SSE", HttpRequest::post(&older.endpoint, &call)),
            ("modern", HttpRequest::post("/mcp", &modern).header("MCP-Protocol-Version", "2026-07-28")),
        ] {
            let answer = serve.fetch(&ask);
            assert_eq!((answer.status, answer.error_code()), (400, Some(-32700)), "{control:?} {entrance}: {answer:?}");
        }
        let rest = HttpRequest::post(
            "/api/v1/aggregator/tools/call",
            format!(r#"{{"name":"s.t","arguments":{{"text":"a{control}b"}}}}"#),
        );
        assert!((400..500).contains(&serve.fetch(&rest).status), "{control:?}");
    }
    let calls = puppet.journal().concat();
    assert!(!String::from_utf8_lossy(&calls).contains("tools/call"), "no server was asked");
}

#[test]
fn batches_belong_to_one_revision() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let batch = r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/custom"},{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{"name":"s.t"}}]"#;
    let hello = Hello { revision: "2025-03-26".to_owned(), ..Hello::default() };
    let old = HttpSession::introduce(serve.address(), "/mcp", &hello);
    let answer = serve.fetch(&old.post(batch));
    assert_eq!(answer.status, 200, "{answer:?}");
    let answers = answer.json();
    let mut ids: Vec<String> = answers.as_array().expect("an array").iter().map(|one| one["id"].to_string()).collect();
    ids.sort();
    assert_eq!(ids, ["\"b\"", "1"]);
    let only_notifications = r#"[{"jsonrpc":"2.0","method":"notifications/custom"}]"#;
    assert_eq!(serve.fetch(&old.post(only_notifications)).status, 202);

    let new = serve.session("/mcp");
    let refused = serve.fetch(&new.post(batch));
    assert_eq!((refused.status, refused.error_code()), (400, Some(-32600)), "{refused:?}");
}

#[test]
fn other_methods_and_paths_are_refused() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let put = serve.fetch(&session.dressed(HttpRequest::new("PUT", "/mcp")).body(PING));
    assert_eq!(put.status, 405);
    let allowed = put.headers.get("allow").cloned().unwrap_or_default();
    assert!(["GET", "POST", "DELETE"].iter().all(|method| allowed.contains(method)), "{allowed}");
    for path in ["/mcpx", "/message", "/../mcp", "/nothing"] {
        let answer = serve.fetch(&HttpRequest::post(path, initialize("2025-11-25")));
        assert!(answer.status == 404 || answer.status == 400, "{path}: {answer:?}");
    }
    assert_eq!(serve.fetch(&HttpRequest::new("GET", "/nothing")).status, 404);
    // The console is at this path.
    assert_eq!(serve.fetch(&HttpRequest::post("/", initialize("2025-11-25"))).status / 100, 4);
}

#[test]
fn a_connection_carries_one_request_after_the_other() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let mut connection = serve.connect();
    for number in 0..50 {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"s.t","arguments":{{"n":{number}}}}}}}"#
        );
        let answer = connection.ask(&session.post(&call)).json();
        assert_eq!((&answer["id"], &answer["result"]["structuredContent"]["n"]), (&json!(number), &json!(number)));
        let notification = session.post(r#"{"jsonrpc":"2.0","method":"notifications/custom"}"#);
        assert_eq!(connection.ask(&notification).status, 202);
    }
}

#[test]
fn the_public_health_report_contains_no_names() {
    let puppet = puppet();
    let serve = serving(&[("secretive", &puppet)]);
    let health = serve.fetch(&HttpRequest::new("GET", "/health"));
    assert_eq!(health.status, 200);
    assert_eq!(health.json()["status"], "ok");
    let counts: Value = health.json()["servers"].clone();
    assert!(counts.to_string().contains('1'), "{health:?}");
    assert!(!health.body.contains("secretive"), "{health:?}");
}

#[test]
fn an_error_of_the_protocol_is_an_ordinary_answer() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let mut session = serve.session("/mcp");
    let unknown = serve.fetch(&session.post(r#"{"jsonrpc":"2.0","id":1,"method":"custom/thing"}"#));
    assert_eq!((unknown.status, unknown.error_code()), (200, Some(-32601)), "{unknown:?}");
    let answer = session.ask("tools/call", json!({"name": "s.nothing"}));
    assert_eq!(answer["error"]["code"], -32601);
}

#[test]
fn requests_sent_without_waiting_are_answered_in_their_order() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let mut connection = serve.connect();
    let call = |number: u32| {
        let params = json!({"name": "s.t", "arguments": {"n": number}});
        json!({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).to_string()
    };
    for number in 0..10 {
        connection.send(&session.post(&call(number)));
    }
    for number in 0..10 {
        assert_eq!(connection.answer().json()["result"]["structuredContent"]["n"], number);
    }
}

#[test]
fn twenty_megabytes_pass_both_ways_unchanged_as_json_and_as_an_event() {
    let puppet = puppet();
    let serve = serving(&[("s", &puppet)]);
    let session = serve.session("/mcp");
    let arguments = format!(r#"{{"a":"{}"}}"#, "é\\u00e9\u{2028}".repeat(2_000_000));
    let call = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"s.t","arguments":{arguments}}}}}"#
    );
    for accept in ["application/json", "text/event-stream"] {
        let mut connection = serve.connect();
        let mut answer = connection.ask(&session.post(&call).header("Accept", accept));
        let body = if answer.is_stream() {
            answer.next_message().expect("one event").data.into_bytes()
        } else {
            answer.bytes()
        };
        let returned = testkit::raw::at(&body, &["result", "structuredContent"]);
        // Without the 20 MB in the failure message.
        assert!(returned == Some(arguments.as_str()), "{accept}: {} bytes came back", body.len());
    }
}
