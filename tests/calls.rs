//! `tools/call`: to the right server under the right name, and the result back unchanged.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Config, Launch, fake, raw, wait_until};

use crate::fixture::{Journal, START_TIMEOUT, connected, error_of, initialized, pid_in, text_of, with_one_server};

#[test]
fn a_call_reaches_the_server_that_has_the_tool_under_its_own_name() {
    let (one, two) = (Journal::new(), Journal::new());
    let mut client = connected(&Config::new().server("one", one.fake()).server("two", two.fake()));
    assert_eq!(text_of(&client.call("two:echo", json!({"text": "for two"}))), "for two");
    let received: Value = serde_json::from_slice(&two.wait_for("tools/call")).unwrap();
    assert_eq!(received["params"], json!({"name": "echo", "arguments": {"text": "for two"}}));
    assert!(one.of_method("tools/call").is_empty());
}

#[test]
fn missing_names_are_reported_with_the_reason() {
    let config = Config::new()
        .server("one", fake())
        .server("one:b", fake().args(["--only-generated", "--tools", "1"]))
        .server("broken", fake().args(["--fail-at", "initialize"]));
    let mut client = connected(&config);
    client.tool_names();
    for (name, data) in [
        ("one:nope", json!({"reason": "unknown_tool", "server": "one"})),
        ("one:", json!({"reason": "unknown_tool", "server": "one"})),
        ("one:b:nope", json!({"reason": "unknown_tool", "server": "one:b"})),
        ("zero:echo", json!({"reason": "unknown_server"})),
        (":echo", json!({"reason": "unknown_server"})),
        ("ONE:echo", json!({"reason": "unknown_server"})),
        (" one:echo", json!({"reason": "unknown_server"})),
    ] {
        let answer = client.call(name, json!({}));
        assert_eq!(error_of(&answer), (-32601, &*format!("Tool not found: {name}")));
        assert_eq!(answer["error"]["data"], data, "{name}");
    }
    let answer = client.call("broken:echo", json!({}));
    assert_eq!(error_of(&answer), (-32601, "Tool not found: broken:echo"));
    assert_eq!(answer["error"]["data"]["reason"], "server_failed");
    assert_eq!(answer["error"]["data"]["server"], "broken");
    let detail = answer["error"]["data"]["detail"].as_str().unwrap();
    assert!(detail.contains("status 3"), "{detail}");
}

#[test]
fn a_name_without_separator_gets_an_error_that_says_so() {
    let mut client = with_one_server();
    for name in ["echo", "one", "", "é\"\\\n"] {
        let answer = client.call(name, json!({}));
        assert_eq!(error_of(&answer), (-32602, &*format!("Tool name must be prefixed with server key: {name}")));
    }
}

#[test]
fn errors_and_error_results_of_a_server_pass_unchanged() {
    let mut client = with_one_server();
    let failed = r#"{"isError":true,"content":[{"type":"text","text":"no such file"}],"x":1.0}"#;
    let id = client.start_call("one:raw", json!({"result": failed}));
    let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{failed}}}"#);
    assert_eq!(client.response_line(id), expected.as_bytes());

    let error = r#"{"code":-32603,"message":"File not found","data":{"errno":-2,"code":"ENOENT"}}"#;
    let id = client.start_call("one:raw_error", json!({"error": error}));
    let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#);
    assert_eq!(client.response_line(id), expected.as_bytes());
}

#[test]
fn concurrent_calls_get_their_own_responses() {
    let servers = ["a", "b", "c", "d"];
    let config = servers.iter().fold(Config::new(), |config, name| config.server(name, fake()));
    let mut client = connected(&config);
    let calls: Vec<(u64, String)> = (0..400)
        .map(|number| {
            let text = format!("call {number}");
            (client.start_call(&format!("{}:echo", servers[number % 4]), json!({"text": text})), text)
        })
        .collect();
    for (id, text) in calls.iter().rev() {
        assert_eq!(text_of(&client.response(*id)), text);
    }
}

#[test]
fn a_slow_call_holds_up_no_other() {
    let mut client = connected(&Config::new().server("one", fake()).server("two", fake()));
    let hanging = client.start_call("one:hang", json!({}));
    let slow = client.start_call("one:sleep", json!({"ms": 300}));
    assert_eq!(text_of(&client.call("one:echo", json!({"text": "same server"}))), "same server");
    assert_eq!(text_of(&client.call("two:echo", json!({"text": "other server"}))), "other server");
    assert_eq!(text_of(&client.response(slow)), "slept");
    let still_open = client.call("one:pending", json!({}));
    assert_eq!(still_open["result"]["structuredContent"]["ids"].as_array().unwrap().len(), 1, "call {hanging}");
}

#[test]
fn the_same_id_used_twice_is_answered_twice() {
    let mut client = connected(&Config::new().server("one", fake()).server("two", fake()));
    for server in ["one", "two"] {
        let call = json!({"jsonrpc": "2.0", "id": "same", "method": "tools/call",
            "params": {"name": format!("{server}:echo"), "arguments": {"text": server}}});
        client.send(&call);
    }
    let mut texts = [client.response("same"), client.response("same")].map(|answer| text_of(&answer).to_owned());
    texts.sort();
    assert_eq!(texts, ["one", "two"]);
}

#[test]
fn our_ids_and_the_clients_never_meet() {
    let journal = Journal::new();
    let mut client = connected(&Config::new().server("one", journal.fake()));
    client.send(&json!({"jsonrpc": "2.0", "id": "secret-id", "method": "tools/call",
        "params": {"name": "one:echo", "_meta": {"progressToken": "secret-token"}}}));
    client.response("secret-id");
    let received = String::from_utf8(journal.wait_for("tools/call")).unwrap();
    assert!(!received.contains("secret"), "{received}");
}

#[test]
fn progress_tokens_are_returned_as_they_were_written() {
    let mut client = with_one_server();
    for token in
        ["7", "\"t\"", "1.0", "1e2", "-0", "\"\"", r#""\u0041\ud800""#, "123456789012345678901234567890", r#""a\"b""#]
    {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":"p","method":"tools/call","params":{{"_meta":{{"x":1,"progressToken":{token}}},"name":"one:progress","arguments":{{"steps":3}}}}}}"#
        );
        client.send_raw(format!("{call}\n").as_bytes());
        for step in 1..=3 {
            let line = client.next_line();
            let expected = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{step},"total":3,"message":"step {step}"}}}}"#
            );
            assert_eq!(String::from_utf8_lossy(&line), expected, "the one of an unknown token was dropped");
        }
        assert_eq!(text_of(&client.response("p")), "progressed");
    }
}

#[test]
fn without_a_token_there_is_no_progress() {
    let mut client = with_one_server();
    assert_eq!(text_of(&client.call("one:progress", json!({"steps": 3}))), "progressed");
    client.expect_silence(Duration::from_millis(20));
}

#[test]
fn progress_of_one_call_is_not_taken_for_that_of_another() {
    let mut client = connected(&Config::new().server("one", fake()).server("two", fake()));
    // Both servers count their requests in the same way, so both use the same numbers towards us.
    for server in ["one", "two"] {
        client.send(&json!({"jsonrpc": "2.0", "id": server, "method": "tools/call", "params":
            {"name": format!("{server}:progress"), "arguments": {"steps": 5, "ms": 5}, "_meta": {"progressToken": server}}}));
    }
    client.response("one");
    client.response("two");
    let lines = client.drain();
    for server in ["one", "two"] {
        let token = raw::quote(server);
        let steps: Vec<_> = lines
            .iter()
            .filter(|line| raw::at(line, &["params", "progressToken"]) == Some(&token))
            .map(|line| raw::at(line, &["params", "progress"]).unwrap())
            .collect();
        assert_eq!(steps, ["1", "2", "3", "4", "5"], "{server}");
    }
    assert_eq!(lines.len(), 10);
}

#[test]
fn a_cancellation_reaches_the_server_under_the_id_it_knows() {
    let journal = Journal::new();
    let mut client = connected(&Config::new().server("one", journal.fake()).server("two", fake()));
    let call = json!({"jsonrpc": "2.0", "id": "give-up", "method": "tools/call", "params": {"name": "one:hang"}});
    client.send(&call);
    let received = journal.wait_for("tools/call");
    let server_id = raw::at(&received, &["id"]).unwrap();
    client.send_raw(
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":\"give-up\",\"reason\":\"changed \\u006dy mind\",\"x\":1.0}}\n",
    );
    let cancelled = String::from_utf8(journal.wait_for("notifications/cancelled")).unwrap();
    assert_eq!(
        cancelled,
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{server_id},"reason":"changed \u006dy mind","x":1.0}}}}"#
        )
    );
    let pending = client.call("one:pending", json!({}));
    assert_eq!(pending["result"]["structuredContent"]["ids"], json!([]));
    client.expect_silence(Duration::from_millis(20));
}

#[test]
fn a_response_after_its_cancellation_is_discarded() {
    let journal = Journal::new();
    let mut client = connected(&Config::new().server("one", journal.fake()));
    let id = client.start_call("one:late_after_cancel", json!({}));
    journal.wait_for("tools/call");
    client.notify("notifications/cancelled", json!({"requestId": id}));
    // The server answers the cancelled call before this one.
    client.call("one:echo", json!({}));
    client.expect_silence(Duration::from_millis(20));
}

#[test]
fn cancelling_what_is_not_there_is_harmless() {
    let journal = Journal::new();
    let mut client = connected(&Config::new().server("one", journal.fake()));
    let answered = client.start_call("one:echo", json!({}));
    client.response(answered);
    for params in [
        json!({"requestId": answered}),
        json!({"requestId": 424242}),
        json!({"requestId": "x"}),
        json!({"requestId": null}),
        json!({"requestId": {}}),
        json!({}),
        json!([]),
    ] {
        client.notify("notifications/cancelled", params);
    }
    assert_eq!(text_of(&client.call("one:echo", json!({"text": "still here"}))), "still here");
    assert!(journal.of_method("notifications/cancelled").is_empty());
    assert_eq!(client.drain().len(), 0);
}

#[test]
fn a_call_to_a_server_that_is_still_starting_waits_for_it() {
    let config = Config::new().server("slow", fake().args(["--start-delay-ms", "500"])).server("quick", fake());
    let mut client = connected(&config);
    let waiting = client.start_call("slow:echo", json!({"text": "patience"}));
    let unknown = client.start_call("slow:nope", json!({}));
    assert_eq!(text_of(&client.call("quick:echo", json!({"text": "first"}))), "first");
    assert_eq!(text_of(&client.response(waiting)), "patience");
    assert_eq!(error_of(&client.response(unknown)), (-32601, "Tool not found: slow:nope"));
}

#[test]
fn a_call_that_waits_for_a_server_that_never_starts_fails() {
    let config = Config::new().server("hangs", fake().args(["--hang-at", "initialize"]));
    let mut client = initialized(Launch::aggregator(&config).env(START_TIMEOUT, "0.3"));
    let answer = client.call("hangs:echo", json!({}));
    assert_eq!(error_of(&answer), (-32601, "Tool not found: hangs:echo"));
    assert_eq!(answer["error"]["data"]["reason"], "server_failed");
}

#[test]
fn what_waits_for_a_server_can_be_cancelled() {
    let journal = Journal::new();
    let mut client = connected(&Config::new().server("slow", journal.fake_that_waits()));
    let call = client.start_call("slow:echo", json!({}));
    let list = client.request("tools/list", json!({}));
    for id in [call, list] {
        client.notify("notifications/cancelled", json!({"requestId": id}));
    }
    // Its answer shows that everything before it has been read.
    let ping = client.request("ping", json!({}));
    client.response(ping);
    journal.let_it_start();
    assert_eq!(text_of(&client.call("slow:echo", json!({"text": "later"}))), "later");
    assert_eq!(journal.of_method("tools/call").len(), 1);
    assert_eq!(client.drain().len(), 0);
}

#[test]
fn a_call_in_flight_when_its_server_dies_reports_which_server_and_how() {
    for (arguments, how) in
        [(json!({"code": 7}), "it exited with status 7"), (json!({"signal": 9}), "it was killed by signal 9 (SIGKILL)")]
    {
        let mut client = connected(&Config::new().server("one", fake()).server("two", fake()));
        let hanging = client.start_call("one:hang", json!({}));
        let fatal = client.start_call("one:crash", arguments);
        for id in [hanging, fatal] {
            let answer = client.response(id);
            let (code, message) = error_of(&answer);
            assert_eq!(code, -32603);
            assert!(message.contains("`one`") && message.contains(how), "{message}");
            let data = json!({"server": "one", "reason": "server_ended", "safeToRetry": false});
            assert_eq!(answer["error"]["data"], data);
        }
        assert_eq!(text_of(&client.call("two:echo", json!({"text": "unharmed"}))), "unharmed");
    }
}

#[test]
fn the_last_answer_of_a_server_that_leaves_is_delivered() {
    for _ in 0..10 {
        let mut client = with_one_server();
        assert_eq!(text_of(&client.call("one:reply_then_exit", json!({"code": 0}))), "done");
    }
}

#[test]
fn answers_in_pieces_are_put_together() {
    let mut client = with_one_server();
    assert_eq!(text_of(&client.call("one:split_answer", json!({}))), "done");
}

#[test]
fn a_log_message_of_a_server_is_not_passed_on() {
    let mut client = with_one_server();
    assert_eq!(text_of(&client.call("one:logs", json!({}))), "done");
    assert_eq!(client.drain().len(), 0, "we do not offer logging");
}

#[test]
fn arguments_are_optional_and_need_not_be_an_object() {
    let mut client = with_one_server();
    client.send(&json!({"jsonrpc": "2.0", "id": "none", "method": "tools/call", "params": {"name": "one:echo"}}));
    assert_eq!(client.response("none")["result"], json!({"content": [{"type": "text", "text": "echo"}]}));
    for arguments in [json!(null), json!([1]), json!("x"), json!(5)] {
        let answer = client.call("one:echo", arguments.clone());
        assert_eq!(answer["result"]["structuredContent"], arguments);
    }
}

#[test]
fn there_is_no_timeout_of_ours_on_a_call() {
    let config = Config::new().server("one", fake());
    let mut client = initialized(Launch::aggregator(&config).env(START_TIMEOUT, "12"));
    client.tool_names();
    assert_eq!(text_of(&client.call("one:sleep", json!({"ms": 12_500}))), "slept");
}

#[test]
fn a_server_that_was_killed_from_outside_fails_its_calls() {
    let mut client = with_one_server();
    let pid = pid_in(&client.call("one:pid", json!({})));
    let hanging = client.start_call("one:hang", json!({}));
    let open =
        || (client.call("one:pending", json!({}))["result"]["structuredContent"]["ids"] != json!([])).then_some(());
    wait_until("the call has arrived", open);
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let answer = client.response(hanging);
    assert!(error_of(&answer).1.contains("signal 15 (SIGTERM)"), "{answer}");
}

#[test]
fn a_call_under_a_safe_name_is_reported_as_much_as_one_under_the_canonical() {
    let config = Config::new()
        .server("slow", fake().args(["--start-delay-ms", "300"]))
        .server("broken", fake().args(["--fail-at", "start"]));
    let mut client = connected(&config);
    assert_eq!(text_of(&client.call("slow__echo", json!({"text": "waited for"}))), "waited for");
    for name in ["broken__echo", "slow__nope"] {
        let answer = client.call(name, json!({}));
        assert_eq!(error_of(&answer), (-32601, &*format!("Tool not found: {name}")));
    }
}

#[test]
fn progress_ends_with_a_cancellation() {
    let mut client = with_one_server();
    client.send(&json!({"jsonrpc": "2.0", "id": "long", "method": "tools/call", "params":
        {"name": "one:progress", "arguments": {"steps": 100_000, "ms": 1}, "_meta": {"progressToken": "t"}}}));
    client.notification("notifications/progress");
    client.notify("notifications/cancelled", json!({"requestId": "long"}));
    client.call("one:echo", json!({}));
    client.drain();
    client.expect_silence(Duration::from_millis(50));
}

/// A pseudo-random sequence that is the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn in_the_thick_of_it_every_call_is_answered_exactly_once() {
    let servers = ["a", "b", "c", "d"];
    let config = servers.iter().fold(Config::new(), |config, name| config.server(name, fake()));
    let mut client = connected(&config);
    client.tool_names();
    let (mut dice, mut expected, mut cancelled) = (Dice(7), Vec::new(), Vec::new());
    for round in 0..3000 {
        let server = servers[dice.below(4) as usize];
        let tool = match dice.below(20) {
            0 => "sleep",
            1 => "twice",
            2 => "wrong_id",
            3 => "junk_then_answer",
            4 => "nope",
            5 => "blob",
            6 => "progress",
            7 => {
                client.send_raw(b"{ nonsense\n");
                "echo"
            }
            8 => "hang",
            _ => "echo",
        };
        // One server dies in the middle; pending calls to it get an error.
        let tool = if round == 1500 { "crash" } else { tool };
        let arguments = json!({"ms": dice.below(30), "bytes": dice.below(300_000), "steps": 2, "code": 1});
        let id = client.start_call(&format!("{server}:{tool}"), arguments);
        if tool == "hang" || dice.below(15) == 0 {
            client.notify("notifications/cancelled", json!({"requestId": id}));
            cancelled.push(id.to_string());
        } else {
            expected.push(id.to_string());
        }
    }
    let mut counts = std::collections::HashMap::new();
    let mut missing: std::collections::HashSet<&String> = expected.iter().collect();
    while !missing.is_empty() {
        let line = client.next_line();
        let Some(id) = raw::at(&line, &["id"]).map(str::to_owned) else { continue };
        missing.remove(&id);
        *counts.entry(id).or_insert(0) += 1;
    }
    client.close_stdin();
    for line in client.wait_stdout_end() {
        if let Some(id) = raw::at(&line, &["id"]) {
            *counts.entry(id.to_owned()).or_insert(0) += 1;
        }
    }
    assert!(expected.iter().all(|id| counts.get(id) == Some(&1)), "an answer came twice");
    // A cancelled call may have been answered before the cancellation arrived.
    assert!(cancelled.iter().all(|id| counts.get(id).is_none_or(|&count| count == 1)));
    assert_eq!(client.wait_exit().code(), Some(0));
}

#[test]
fn the_last_answer_of_a_server_that_leaves_reaches_a_slow_client_too() {
    let config = Config::new().server("one", fake());
    let mut client = initialized(Launch::aggregator(&config).read_ahead(1));
    let pid = pid_in(&client.call("one:pid", json!({})));
    let large: Vec<u64> = (0..7).map(|_| client.start_call("one:blob", json!({"bytes": 1 << 20}))).collect();
    // Enough to fill the path to the client. There is no event to wait for, so this waits for a time.
    assert!(client.exit_within(Duration::from_millis(300)).is_none());
    let last = client.start_call("one:reply_then_exit", json!({"code": 0}));
    // It has written everything and exited; only now the client begins to read.
    testkit::wait_gone(pid);
    client.wait_for_stderr("server `one` failed during runtime");
    for id in large {
        assert!(client.response_line(id).len() > 1 << 20);
    }
    assert_eq!(text_of(&client.response(last)), "done");
}

#[test]
fn calls_that_wait_for_a_server_reach_it_in_the_order_they_were_sent() {
    let journal = Journal::new();
    let mut client = connected(&Config::new().server("slow", journal.fake().args(["--start-delay-ms", "400"])));
    let expected: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    let calls: String = expected
        .iter()
        .map(|number| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"slow:echo","arguments":{{"number":{number}}}}}}}"#
            ) + "\n"
        })
        .collect();
    client.send_raw(calls.as_bytes());
    for number in &expected {
        client.response_to_raw_id(number);
    }
    let received: Vec<String> = journal
        .of_method("tools/call")
        .iter()
        .map(|call| raw::at(call, &["params", "arguments", "number"]).unwrap().to_owned())
        .collect();
    assert_eq!(received, expected);
}

#[test]
fn only_so_much_waits_for_a_server_and_what_is_too_much_is_reported_at_once() {
    let config = Config::new().server("late", fake().args(["--start-delay-ms", "60000"])).server("good", fake());
    let mut client = connected(&config);
    let padding = "p".repeat(1 << 20);
    let calls: Vec<u64> = (0..70).map(|_| client.start_call("late:size", json!({"p": padding}))).collect();
    let answer = client.response(calls[69]);
    error_of(&answer);
    let refusal = json!({"server": "late", "reason": "server_congested", "safeToRetry": true});
    assert_eq!(answer["error"]["data"], refusal);
    assert_eq!(text_of(&client.call("good:echo", json!({"text": "unharmed"}))), "unharmed");
    // 64 calls of slightly more than 1 MiB fit; further ones wait.
    let answered: Vec<String> =
        client.drain().iter().filter_map(|line| raw::at(line, &["id"]).map(str::to_owned)).collect();
    let refused: Vec<String> = calls[64..69].iter().map(u64::to_string).collect();
    assert_eq!(answered, refused);
}

#[test]
fn an_answer_with_an_error_that_is_null_is_a_result_and_keeps_every_byte() {
    let mut client = with_one_server();
    for rest in [
        r#""result":{"content":[ ],"x":1.0},"error":null}"#,
        r#""error":null,"result":{"content":[ ],"x":1.0}}"#,
        r#""error" : null , "result" : {} }"#,
    ] {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{{id}},{rest}"#);
        let id = client.start_call("one:raw_line", json!({"line": line}));
        let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},{rest}"#);
        assert_eq!(String::from_utf8(client.response_line(id)).unwrap(), expected);
    }
}

#[test]
fn an_answer_whose_id_came_back_as_a_string_reaches_its_caller() {
    let mut client = with_one_server();
    let line = r#"{"jsonrpc":"2.0","id":"{id}","result":{"content":[],"x":1.0}}"#;
    let id = client.start_call("one:raw_line", json!({"line": line}));
    let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"content":[],"x":1.0}}}}"#);
    assert_eq!(String::from_utf8(client.response_line(id)).unwrap(), expected);
}
