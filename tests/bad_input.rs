//! Invalid messages get the right error, and the program continues.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Config, Driver, fake};

use crate::fixture::{Journal, error_of, text_of, with_one_server};

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const INVALID_PARAMS: i64 = -32602;

#[track_caller]
fn answer_to(client: &mut Driver, line: &[u8]) -> Value {
    client.send_raw(line);
    client.send_raw(b"\n");
    let answer = client.next_line();
    serde_json::from_slice(&answer).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&answer)))
}

#[track_caller]
fn assert_alive(client: &mut Driver) {
    assert_eq!(text_of(&client.call("one:echo", json!({"text": "still here"}))), "still here");
    assert_eq!(client.drain().len(), 0);
}

/// A client that negotiated the only revision with batches.
fn with_batches() -> Driver {
    let mut client = Driver::start(&Config::new().server("one", fake()).server("two", fake()));
    client.initialize_as("testkit", "2025-03-26");
    client.tool_names();
    client
}

#[test]
fn what_is_not_json_is_a_parse_error() {
    let mut client = with_one_server();
    for line in [
        &b"hello"[..],
        b"{",
        b"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"} x",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}{}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",}",
        b"{\"jsonrpc\":\"2.0\",\"id\":01,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"pi\tng\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\\x\"}",
        b"{'jsonrpc':'2.0'}",
        b"{\"jsonrpc\":\"2.0\",\"id\":NaN,\"method\":\"ping\"}",
        b"Content-Length: 5",
        b"\"unterminated",
        b"\0",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"one:echo\",\"arguments\":{\"a\":tru}}}",
    ] {
        let answer = answer_to(&mut client, line);
        assert_eq!((error_of(&answer).0, &answer["id"]), (PARSE_ERROR, &json!(null)), "{}", line.escape_ascii());
    }
    assert_alive(&mut client);
}

#[test]
fn what_is_not_utf8_is_a_parse_error() {
    let mut client = with_one_server();
    for line in [
        &b"\xff\xfe"[..],
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"p\xff\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":\"\xc3\",\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"one:echo\",\"arguments\":{\"a\":\"\xed\xa0\x80\"}}}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"one:echo\",\"arguments\":{\"\xf8\":1}}}",
    ] {
        let answer = answer_to(&mut client, line);
        assert_eq!((error_of(&answer).0, &answer["id"]), (PARSE_ERROR, &json!(null)), "{}", line.escape_ascii());
    }
    assert_alive(&mut client);
}

#[test]
fn what_is_no_object_is_an_invalid_request() {
    let mut client = with_one_server();
    for line in
        ["5", "\"ping\"", "null", "true", "-0.0", "[]", "[1]", r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, "{}"]
    {
        let answer = answer_to(&mut client, line.as_bytes());
        assert_eq!((error_of(&answer).0, &answer["id"]), (INVALID_REQUEST, &json!(null)), "{line}");
    }
    assert_alive(&mut client);
}

#[test]
fn invalid_json_rpc_is_an_invalid_request_with_its_id_if_valid() {
    let mut client = with_one_server();
    for (line, id) in [
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, json!(null)),
        (r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#, json!(null)),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, json!(null)),
        (r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#, json!(null)),
        (r#"{"id":1,"method":"ping"}"#, json!(1)),
        (r#"{"jsonrpc":"1.0","id":2,"method":"ping"}"#, json!(2)),
        (r#"{"jsonrpc":2.0,"id":3,"method":"ping"}"#, json!(3)),
        (r#"{"jsonrpc":null,"id":"x","method":"ping"}"#, json!("x")),
        (r#"{"jsonrpc":"2.0","id":4}"#, json!(4)),
        (r#"{"jsonrpc":"2.0","id":5,"method":5}"#, json!(5)),
        (r#"{"jsonrpc":"2.0","id":6,"method":null}"#, json!(6)),
        (r#"{"jsonrpc":"2.0","id":7,"method":["ping"]}"#, json!(7)),
        (r#"{"jsonrpc":"2.0","method":5}"#, json!(null)),
    ] {
        let answer = answer_to(&mut client, line.as_bytes());
        assert_eq!((error_of(&answer).0, &answer["id"]), (INVALID_REQUEST, &id), "{line}");
    }
    assert_alive(&mut client);
}

#[test]
fn a_member_that_decides_and_is_given_twice_is_refused() {
    let mut client = with_one_server();
    for line in [
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"\u0069d":2,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one:echo","name":"one:crash"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one:echo"},"params":{"name":"one:crash"}}"#,
    ] {
        let answer = answer_to(&mut client, line.as_bytes());
        assert_eq!(error_of(&answer).0, INVALID_REQUEST, "{line}");
    }
    assert_alive(&mut client);
}

#[test]
fn params_that_do_not_fit_are_invalid_params() {
    let mut client = with_one_server();
    for params in [
        "[]",
        "[\"one:echo\"]",
        "null",
        "5",
        "\"one:echo\"",
        "{}",
        r#"{"name":5}"#,
        r#"{"name":null}"#,
        r#"{"name":["one:echo"]}"#,
        r#"{"name":"\ud800"}"#,
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        let answer = answer_to(&mut client, line.as_bytes());
        assert_eq!((error_of(&answer).0, &answer["id"]), (INVALID_PARAMS, &json!(1)), "{params}");
    }
    let answer = answer_to(&mut client, br#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#);
    assert_eq!(error_of(&answer).0, INVALID_PARAMS);
    assert_alive(&mut client);
}

#[test]
fn unrequested_responses_are_ignored() {
    let mut client = with_one_server();
    for line in
        [r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}"#]
    {
        client.send_raw(line.as_bytes());
        client.send_raw(b"\n");
    }
    assert_alive(&mut client);
}

#[test]
fn line_ends_of_windows_and_blank_lines_do_no_harm() {
    let mut client = with_one_server();
    client.send_raw(b"\r\n\n   \n\t\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r\n\r\n\n");
    client.send_raw(b"  {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"} \t\r\n");
    assert_eq!(client.next_line(), br#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(client.next_line(), br#"{"jsonrpc":"2.0","id":2,"result":{}}"#);
    assert_alive(&mut client);
}

#[test]
fn a_call_with_line_ends_of_windows_reaches_its_server() {
    let mut client = with_one_server();
    client.send_raw(b"{\"jsonrpc\":\"2.0\",\"id\":\"w\",\"method\":\"tools/call\",\"params\":{\"name\":\"one:echo\",\"arguments\":{\"text\":\"hi\"}}}\r\n");
    assert_eq!(text_of(&client.response("w")), "hi");
    assert_alive(&mut client);
}

#[test]
fn a_message_may_arrive_byte_by_byte_and_many_at_once() {
    let mut client = with_one_server();
    for byte in b"{\"jsonrpc\":\"2.0\",\"id\":\"slow\",\"method\":\"ping\"}\n" {
        client.send_raw(&[*byte]);
    }
    client.response("slow");
    let many: String =
        (0..5000).map(|id| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}\n")).collect();
    client.send_raw(many.as_bytes());
    for id in 0..5000 {
        assert_eq!(client.next_line(), format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).into_bytes());
    }
    assert_alive(&mut client);
}

#[test]
fn a_last_line_without_newline_is_answered() {
    let mut client = with_one_server();
    client.tool_names();
    client.send_raw(br#"{"jsonrpc":"2.0","id":"last","method":"tools/call","params":{"name":"one:echo","arguments":{"text":"bye"}}}"#);
    client.close_stdin();
    assert_eq!(text_of(&client.response("last")), "bye");
    assert_eq!(client.wait_exit().code(), Some(0));
}

#[test]
fn a_torn_last_line_is_a_parse_error() {
    let mut client = with_one_server();
    client.send_raw(br#"{"jsonrpc":"2.0","id":"last","meth"#);
    client.close_stdin();
    let lines = client.wait_stdout_end();
    assert_eq!(lines.len(), 1);
    assert_eq!(error_of(&serde_json::from_slice(&lines[0]).unwrap()).0, PARSE_ERROR);
    assert_eq!(client.wait_exit().code(), Some(0));
}

#[test]
fn other_revisions_have_no_batches() {
    for revision in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let mut client = Driver::start(&Config::new());
        client.initialize_as("testkit", revision);
        let answer = answer_to(&mut client, br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#);
        assert_eq!(error_of(&answer).0, INVALID_REQUEST, "{revision}");
    }
}

#[test]
fn a_batch_is_split_and_its_answers_come_in_one_array() {
    let mut client = with_batches();
    let batch = json!([
        {"jsonrpc": "2.0", "id": "slow", "method": "tools/call", "params": {"name": "one:sleep", "arguments": {"ms": 100}}},
        {"jsonrpc": "2.0", "method": "notifications/nonsense"},
        {"jsonrpc": "2.0", "id": "ping", "method": "ping"},
        {"jsonrpc": "2.0", "id": "quick", "method": "tools/call", "params": {"name": "two:echo", "arguments": {"text": "2"}}},
        {"jsonrpc": "2.0", "id": "lost", "method": "tools/call", "params": {"name": "two:nope"}},
        {"jsonrpc": "2.0", "id": "list", "method": "tools/list"},
        {"jsonrpc": "2.0", "id": "what", "method": "what"},
        {"jsonrpc": "2.0", "id": 9, "result": {}},
        5,
    ]);
    let answer = answer_to(&mut client, batch.to_string().as_bytes());
    let answers = answer.as_array().unwrap();
    let by_id =
        |id: Value| answers.iter().find(|answer| answer["id"] == id).unwrap_or_else(|| panic!("no {id} in {answer}"));
    assert_eq!(answers.len(), 7, "{answer}");
    assert_eq!(text_of(by_id(json!("slow"))), "slept");
    assert_eq!(text_of(by_id(json!("quick"))), "2");
    assert_eq!(by_id(json!("ping"))["result"], json!({}));
    assert_eq!(error_of(by_id(json!("lost"))).0, -32601);
    assert_eq!(error_of(by_id(json!("what"))).0, -32601);
    assert!(by_id(json!("list"))["result"]["tools"].is_array());
    assert_eq!(error_of(by_id(json!(null))).0, INVALID_REQUEST);
    assert_alive(&mut client);
}

#[test]
fn a_batch_with_one_request_is_answered_by_an_array_of_one() {
    let mut client = with_batches();
    client.send_raw(b" [ {\"jsonrpc\":\"2.0\",\"id\":1e0,\"method\":\"ping\"} ] \n");
    assert_eq!(client.next_line(), br#"[{"jsonrpc":"2.0","id":1e0,"result":{}}]"#);
}

#[test]
fn results_in_a_batch_are_byte_exact() {
    let mut client = with_batches();
    let call = |id: &str, result: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"one:raw","arguments":{{"result":"{result}"}}}}}}"#
        )
    };
    client.send_raw(format!("[{},{}]\n", call("1.0", "{ }"), call(r#""\u0041""#, "[1e2 ]")).as_bytes());
    let expected = r#"[{"jsonrpc":"2.0","id":1.0,"result":{ }},{"jsonrpc":"2.0","id":"\u0041","result":[1e2 ]}]"#;
    assert_eq!(String::from_utf8(client.next_line()).unwrap(), expected);
}

#[test]
fn a_batch_of_notifications_gets_no_answer() {
    let mut client = with_batches();
    client.send(&json!([{"jsonrpc": "2.0", "method": "notifications/initialized"}, {"jsonrpc": "2.0", "method": "x"}]));
    assert_alive(&mut client);
}

#[test]
fn an_empty_batch_is_an_invalid_request() {
    let mut client = with_batches();
    for line in ["[]", " [ ] "] {
        let answer = answer_to(&mut client, line.as_bytes());
        assert_eq!((error_of(&answer).0, &answer["id"]), (INVALID_REQUEST, &json!(null)));
    }
    assert_alive(&mut client);
}

#[test]
fn a_batch_of_nonsense_is_answered_piece_by_piece() {
    let mut client = with_batches();
    let answer = answer_to(&mut client, b"[1,null,\"x\",{}]");
    let answers = answer.as_array().unwrap();
    assert_eq!(answers.len(), 4);
    assert!(answers.iter().all(|answer| error_of(answer).0 == INVALID_REQUEST));
    assert_alive(&mut client);
}

#[test]
fn a_batch_within_a_batch_is_an_invalid_request() {
    let mut client = with_batches();
    for (line, count) in [
        (r#"[[]]"#, 1),
        (r#"[[{"jsonrpc":"2.0","id":1,"method":"ping"}]]"#, 1),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},[{"jsonrpc":"2.0","id":2,"method":"ping"}]]"#, 2),
    ] {
        let answer = answer_to(&mut client, line.as_bytes());
        let answers = answer.as_array().unwrap_or_else(|| panic!("{line}: {answer}"));
        assert_eq!(answers.len(), count, "{line}: {answer}");
        assert_eq!(error_of(answers.last().unwrap()).0, INVALID_REQUEST);
    }
    assert_alive(&mut client);
}

#[test]
fn a_batch_that_is_not_json_is_a_parse_error() {
    let mut client = with_batches();
    let answer = answer_to(&mut client, br#"[{"jsonrpc":"2.0","id":1,"method":"ping"},]"#);
    assert_eq!(error_of(&answer).0, PARSE_ERROR);
    assert_alive(&mut client);
}

#[test]
fn a_cancelled_call_is_missing_from_the_answers_of_its_batch() {
    let mut client = with_batches();
    client.send(&json!([
        {"jsonrpc": "2.0", "id": "hang", "method": "tools/call", "params": {"name": "one:hang"}},
        {"jsonrpc": "2.0", "id": "echo", "method": "tools/call", "params": {"name": "two:echo"}},
    ]));
    client.expect_silence(Duration::from_millis(50));
    client.notify("notifications/cancelled", json!({"requestId": "hang"}));
    let answers: Value = serde_json::from_slice(&client.next_line()).unwrap();
    assert_eq!(answers.as_array().unwrap().len(), 1);
    assert_eq!(answers[0]["id"], "echo");
    assert_alive(&mut client);
}

#[test]
fn a_batch_whose_server_dies_is_still_answered() {
    let mut client = with_batches();
    client.send(&json!([
        {"jsonrpc": "2.0", "id": "crash", "method": "tools/call", "params": {"name": "two:crash"}},
        {"jsonrpc": "2.0", "id": "echo", "method": "tools/call", "params": {"name": "one:echo"}},
    ]));
    let line = client.line_where("the answer to the batch", |line| line.starts_with(b"["));
    let answers: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(answers.as_array().unwrap().len(), 2, "{answers}");
}

#[test]
fn a_batch_of_more_than_a_hundred_is_refused_and_nothing_of_it_is_done() {
    let journal = Journal::new();
    let mut client = Driver::start(&Config::new().server("one", journal.fake()));
    client.initialize_as("testkit", "2025-03-26");
    client.tool_names();
    let batch = |count: usize| {
        let call = |id| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "one:echo"}});
        Value::from_iter((0..count).map(call)).to_string()
    };
    let answer = answer_to(&mut client, batch(101).as_bytes());
    assert_eq!((error_of(&answer).0, &answer["id"]), (INVALID_REQUEST, &json!(null)));
    // A server handles calls in order, so any call of the batch would have come before this one.
    client.call("one:echo", json!({}));
    assert_eq!(journal.of_method("tools/call").len(), 1);
    assert_eq!(answer_to(&mut client, batch(100).as_bytes()).as_array().unwrap().len(), 100);
}

#[test]
fn a_list_with_params_that_do_not_fit_is_refused() {
    let mut client = with_one_server();
    for params in ["[]", r#"["x"]"#, "5", "\"x\"", "true"] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{params}}}"#);
        let answer = answer_to(&mut client, line.as_bytes());
        assert_eq!((error_of(&answer).0, &answer["id"]), (INVALID_PARAMS, &json!(1)), "{params}");
    }
    assert_alive(&mut client);
}
