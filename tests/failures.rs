//! Servers that fail: reported once, with all details, without harm to others.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::processes::peak_rss_kb;
use testkit::{Config, Driver, Launch, ServerEntry, fake, raw, wait_gone, write_script};

use crate::fixture::{Journal, START_TIMEOUT, connected, error_of, initialized, pid_in, text_of};

const LIST_CHANGED: &str = "notifications/tools/list_changed";

/// A config with this server, called `bad one`, next to a healthy one.
fn beside_a_healthy_one(bad: ServerEntry) -> Config {
    Config::new().server("bad one", bad).server("good", fake().args(["--only-generated", "--tools", "1"]))
}

/// Runs a client with a config whose server `bad one` does not start; returns what was reported about it.
#[track_caller]
fn report_of(launch: Launch) -> String {
    let mut client = initialized(launch);
    assert_eq!(client.tool_names(), ["good:tool_0"]);
    assert_eq!(text_of(&client.call("good:tool_0", json!({"text": "unharmed"}))), "unharmed");
    client.wait_for_stderr("server `bad one` failed");
    client.close_stdin();
    assert_eq!(client.wait_exit().code(), Some(0));
    let stderr = client.stderr_text();
    assert_eq!(stderr.matches("server `bad one` failed").count(), 1, "told once: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr
}

#[track_caller]
fn assert_reported(bad: ServerEntry, expected: &[&str]) {
    let stderr = report_of(Launch::aggregator(&beside_a_healthy_one(bad)).env(START_TIMEOUT, "20"));
    for words in expected {
        assert!(stderr.contains(words), "expected `{words}` in\n{stderr}");
    }
}

#[track_caller]
fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process has a positive number");
    kill_process(pid, signal).expect("the server runs");
}

#[test]
fn a_server_that_exits_while_starting_is_reported_with_status_and_stderr() {
    for phase in ["start", "initialize", "initialized", "list"] {
        assert_reported(
            fake().args(["--fail-at", phase]),
            &["failed during initialization", "status 3", "something is missing", "giving up at"],
        );
    }
}

#[test]
fn a_server_that_is_killed_while_starting_is_reported_with_the_signal() {
    let entry = ServerEntry::new("sh").args(["-c", "echo so long >&2; kill -SEGV $$"]);
    assert_reported(entry, &["failed during initialization", "signal 11 (SIGSEGV)", "so long"]);
}

#[test]
fn a_server_that_refuses_is_reported_with_its_error() {
    for (phase, method) in [("initialize", "`initialize`"), ("list", "`tools/list`")] {
        assert_reported(
            fake().args(["--error-at", phase]),
            &["failed during initialization", method, "fake-server refuses", "-32603"],
        );
    }
}

#[test]
fn a_program_that_is_not_there_is_reported_with_where_it_was_looked_for() {
    let path = std::env::join_paths(["/first/folder", "/second/folder"]).unwrap();
    let entry = ServerEntry::new("no-such-program").env("PATH", path.to_str().unwrap());
    assert_reported(
        entry,
        &["failed during startup", "program `no-such-program` was not found", "/first/folder", "/second/folder"],
    );
    let stderr = report_of(Launch::aggregator(&beside_a_healthy_one(ServerEntry::new("no-such-program"))));
    let first = std::env::split_paths(&std::env::var_os("PATH").unwrap()).next().unwrap();
    assert!(stderr.contains(first.to_str().unwrap()), "{stderr}");
}

#[test]
fn a_path_that_leads_nowhere_is_reported() {
    assert_reported(
        ServerEntry::new("/no/such/program"),
        &["failed during startup", "`/no/such/program` does not exist"],
    );
}

#[test]
fn what_cannot_be_executed_is_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str, mode: u32| {
        let path = folder.path().join(name);
        write_script(&path, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let plain = script("plain", "#!/bin/sh\n", 0o644);
    assert_reported(ServerEntry::new(&plain), &["failed during startup", "is not executable"]);
    let orphan = script("orphan", "#!/no/such/interpreter\n", 0o755);
    assert_reported(ServerEntry::new(&orphan), &["failed during startup", "interpreter"]);
    // As in a shell, a file that is not a program is run as a script; a moment later this fails.
    let noise = script("noise", "\u{1}\u{2}\u{3}", 0o755);
    assert_reported(ServerEntry::new(&noise), &["failed during initialization", "status 127"]);
    assert_reported(ServerEntry::new(folder.path()), &["failed during startup", "is not executable"]);
}

#[test]
fn a_working_directory_that_is_not_there_is_reported() {
    assert_reported(fake().field("cwd", "/no/such/folder"), &["failed during startup", "`/no/such/folder`"]);
}

#[test]
fn a_server_that_times_out_is_reported_and_stopped() {
    for (phase, method) in [("initialize", "`initialize`"), ("list", "`tools/list`")] {
        let bad = fake().args(["--hang-at", phase, "--stderr-line", "thinking"]).field("startTimeout", 12_000);
        let stderr = report_of(Launch::aggregator(&beside_a_healthy_one(bad)));
        for words in ["failed during initialization", method, "within 12 s", "thinking"] {
            assert!(stderr.contains(words), "expected `{words}` in\n{stderr}");
        }
    }
}

#[test]
fn a_server_that_speaks_garbage_is_reported() {
    for phase in ["initialize", "list"] {
        let bad = fake().args(["--garbage-at", phase]).field("startTimeout", 12_000);
        let stderr = report_of(Launch::aggregator(&beside_a_healthy_one(bad)));
        assert!(stderr.contains("this is not JSON"), "what it said is shown: {stderr}");
    }
    let bad = ServerEntry::new("sh").args(["-c", "yes hello | head -c 1000000; exec sleep 600"]);
    let stderr = report_of(Launch::aggregator(&beside_a_healthy_one(bad.field("startTimeout", 5000))));
    assert!(stderr.len() < 10_000, "a babbling server does not flood the log: {} bytes", stderr.len());
}

#[test]
fn a_server_that_is_no_server_is_reported() {
    assert_reported(ServerEntry::new("true"), &["failed during initialization", "status 0"]);
    // Only these give up soon: a healthy server may take its time on a busy machine.
    let soon = |bad: ServerEntry| Launch::aggregator(&beside_a_healthy_one(bad.field("startTimeout", 5000)));
    let stderr = report_of(soon(ServerEntry::new("sleep").arg("600")));
    assert!(stderr.contains("`initialize`"), "{stderr}");
    // Echoes our own requests back to us.
    report_of(soon(ServerEntry::new("cat")));
}

#[test]
fn a_flood_on_stderr_blocks_nothing() {
    let config = Config::new().server("flood", fake().args(["--flood-stderr", "10000000"])).server("good", fake());
    let mut client = connected(&config);
    client.tool_names();
    assert_eq!(text_of(&client.call("flood:stderr", json!({"bytes": 10_000_000}))), "done");
    assert_eq!(text_of(&client.call("good:echo", json!({"text": "hi"}))), "hi");
    assert_eq!(client.stderr_text(), "", "what servers say on stderr is kept for when they fail");
    client.call("flood:crash", json!({}));
    client.wait_for_stderr("server `flood` failed during runtime");
    assert!(client.stderr_text().len() < 20_000, "only its last lines are shown");
}

#[test]
fn a_stderr_line_without_an_end_is_accepted() {
    let script = "head -c 5000000 /dev/zero | tr '\\0' x >&2; exit 5";
    let stderr = report_of(Launch::aggregator(&beside_a_healthy_one(ServerEntry::new("sh").args(["-c", script]))));
    assert!(stderr.contains("status 5") && stderr.len() < 20_000, "{} bytes", stderr.len());
}

#[test]
fn junk_on_stdout_is_tolerated_with_one_warning() {
    let mut client = connected(&Config::new().server("one", fake().arg("--junk")));
    client.tool_names();
    for _ in 0..3 {
        assert_eq!(text_of(&client.call("one:junk_then_answer", json!({}))), "done");
    }
    assert_eq!(client.drain().len(), 0, "none of it reaches the client");
    client.wait_for_stderr("fake-server 1.0 ready");
    assert_eq!(client.stderr_text().matches("WARN").count(), 1, "{}", client.stderr_text());
}

#[test]
fn lines_that_are_almost_answers_fail_the_call_they_answer() {
    let mut client = connected(&Config::new().server("one", fake()));
    for (argument, value) in [
        ("line", r#"{"jsonrpc":"2.0","id":{id},"result":{"a":tru}}"#),
        ("line", r#"{"jsonrpc":"2.0","id":{id},"result":{}"#),
        ("line", r#"{"jsonrpc":"2.0","id":{id},"result":{}}}"#),
        ("line", r#"{"jsonrpc":"2.0","id":{id},"result":{},"error":{}}"#),
        ("line", r#"{"id":{id},"result":{}}"#),
        ("line", r#"{"jsonrpc":"2.0","id":{id}}"#),
        // The same with `{id}` in hexadecimal and bytes that are not UTF-8.
        ("hex", "7b226a736f6e727063223a22322e30222c226964223a7b69647d2c22726573756c74223a22ff227d"),
    ] {
        let answer = client.call("one:raw_line", json!({argument: value}));
        let (code, message) = error_of(&answer);
        assert_eq!(code, -32603, "{value}");
        assert!(message.contains("`one`"), "{message}");
        assert_eq!(answer["error"]["data"]["reason"], "unreadable_answer");
    }
    assert_eq!(text_of(&client.call("one:echo", json!({"text": "goes on"}))), "goes on");
}

#[test]
fn duplicate_responses_and_wrong_ids_reach_no_client() {
    let mut client = connected(&Config::new().server("one", fake()).server("two", fake()));
    let hanging = client.start_call("two:hang", json!({}));
    for tool in ["twice", "wrong_id", "null_id"] {
        assert_eq!(text_of(&client.call(&format!("one:{tool}"), json!({}))), "done");
    }
    // A response with the id of another server's call is not the response to that call.
    for number in 1..10 {
        let line = format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{"content":[]}}}}"#);
        client.start_call("one:raw_line", json!({"line": line}));
    }
    assert_eq!(text_of(&client.call("one:echo", json!({"text": "end"}))), "end");
    let two_has_it = client.call("two:pending", json!({}));
    assert_eq!(two_has_it["result"]["structuredContent"]["ids"].as_array().unwrap().len(), 1);
    let stray: Vec<_> =
        client.drain().into_iter().filter(|line| raw::at(line, &["id"]) == Some(&hanging.to_string())).collect();
    assert!(stray.is_empty(), "{stray:?}");
}

#[test]
fn a_server_that_cannot_read_a_call_and_so_not_its_id_answers_it_all_the_same() {
    let mut client = connected(&Config::new().server("one", fake()).server("two", fake()));
    let hanging = client.start_call("two:hang", json!({}));
    let unread = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"too deep for me"}}"#;
    let answer = client.call("one:raw_line", json!({"line": unread}));
    assert_eq!(error_of(&answer), (-32700, "too deep for me"));
    // With two pending calls it is unknown which one is meant, and no client gets a response that may belong to
    // another.
    let unanswered = client.start_call("two:raw_line", json!({"line": unread}));
    assert_eq!(text_of(&client.call("two:echo", json!({"text": "end"}))), "end");
    let ids = [hanging.to_string(), unanswered.to_string()];
    let stray = client.drain().into_iter().filter(|line| ids.iter().any(|id| raw::at(line, &["id"]) == Some(id)));
    assert_eq!(stray.count(), 0);
}

#[test]
fn a_crash_takes_the_tools_away_at_once_and_is_reported() {
    let mut client = connected(&beside_a_healthy_one(fake().args(["--stderr-line", "my last word"])));
    assert!(client.tool_names().contains(&"bad one:echo".to_owned()));
    let pid = pid_in(&client.call("bad one:pid", json!({})));
    let hanging = client.start_call("bad one:hang", json!({}));
    let fatal = client.start_call("bad one:crash", json!({"code": 9}));
    for id in [hanging, fatal] {
        let response = client.response(id);
        let error = error_of(&response).1;
        assert!(error.ends_with("it exited with status 9; it said: my last word"), "{error}");
    }
    client.notification(LIST_CHANGED);
    assert_eq!(client.tool_names(), ["good:tool_0"]);
    let later = client.call("bad one:echo", json!({}));
    assert_eq!(error_of(&later), (-32601, "Tool not found: bad one:echo"));
    assert_eq!(later["error"]["data"]["reason"], "server_failed");
    assert!(later["error"]["data"]["detail"].as_str().unwrap().contains("status 9"), "{later}");
    client.wait_for_stderr("server `bad one` failed during runtime: it exited with status 9");
    client.wait_for_stderr("my last word");
    wait_gone(pid);
    assert_eq!(text_of(&client.call("good:tool_0", json!({"text": "unharmed"}))), "unharmed");
    assert_eq!(client.drain().len(), 0, "told once");
    assert_eq!(client.stderr_text().matches("bad one").count(), 1, "{}", client.stderr_text());
}

#[test]
fn a_server_that_leaves_in_order_is_down_all_the_same() {
    let mut client = connected(&beside_a_healthy_one(fake()));
    client.tool_names();
    assert_eq!(text_of(&client.call("bad one:reply_then_exit", json!({"code": 0}))), "done");
    client.notification(LIST_CHANGED);
    assert_eq!(client.tool_names(), ["good:tool_0"]);
    client.wait_for_stderr("server `bad one` failed during runtime: it exited with status 0");
}

#[test]
fn a_crash_is_final() {
    let journal = Journal::new();
    let mut client = connected(&beside_a_healthy_one(journal.fake()));
    client.tool_names();
    client.call("bad one:crash", json!({}));
    client.notification(LIST_CHANGED);
    client.wait_for_stderr("failed during runtime");
    client.call("bad one:echo", json!({}));
    client.call("good:tool_0", json!({}));
    assert_eq!(journal.of_method("initialize").len(), 1, "a crashed server stays down");
}

#[test]
fn a_server_that_closes_its_output_is_down() {
    let mut client = connected(&beside_a_healthy_one(fake().arg("--close-stdout-after-init")));
    assert_eq!(client.tool_names(), ["good:tool_0"]);
    client.wait_for_stderr("server `bad one` failed");
    client.wait_for_stderr("closed its output");
}

#[test]
fn a_server_that_stops_reading_stalls_no_other() {
    let mut client = connected(&Config::new().server("deaf", fake()).server("good", fake()));
    let pid = pid_in(&client.call("deaf:pid", json!({})));
    signal(pid, Signal::STOP);
    let padding = "p".repeat(1 << 20);
    let calls: Vec<u64> = (0..12).map(|_| client.start_call("deaf:size", json!({"p": padding}))).collect();
    for _ in 0..20 {
        assert_eq!(text_of(&client.call("good:echo", json!({"text": "swift"}))), "swift");
    }
    signal(pid, Signal::CONT);
    let answers: Vec<Value> = calls.into_iter().map(|id| client.response(id)).collect();
    let refused: Vec<&Value> = answers.iter().filter(|answer| answer.get("error").is_some()).collect();
    assert!(refused.len() < answers.len(), "what was accepted is answered once it reads again");
    for answer in refused {
        assert_eq!(
            answer["error"]["data"],
            json!({"server": "deaf", "reason": "server_congested", "safeToRetry": true})
        );
    }
    assert_eq!(text_of(&client.call("deaf:echo", json!({"text": "back"}))), "back");
}

#[test]
fn a_client_that_reads_slowly_gets_everything_and_costs_no_memory() {
    let config = Config::new().server("one", fake()).server("two", fake());
    let mut client = initialized(Launch::aggregator(&config).read_ahead(1));
    client.call("one:echo", json!({}));
    let ids: Vec<u64> = (0..150)
        .map(|number| client.start_call(["one:blob", "two:blob"][number % 2], json!({"bytes": 1 << 20})))
        .collect();
    // Nothing is read for a while. There is no event to wait for, so this gives the servers time to respond.
    assert!(client.exit_within(Duration::from_millis(700)).is_none());
    let peak = peak_rss_kb(client.pid());
    assert!(peak < 48 << 10, "{peak} kB for a client that does not read");
    for id in ids {
        assert!(client.response_line(id).len() > 1 << 20);
    }
}

#[test]
fn a_server_may_ask_and_gets_an_answer() {
    let journal = Journal::new();
    let mut client = connected(&Config::new().server("one", journal.fake().arg("--asks")));
    client.tool_names();
    // The server sent its request before it listed its tools, but we may still be answering.
    let answers = testkit::wait_until("the server's three questions are answered", || {
        let answers: Vec<Value> = journal
            .lines()
            .iter()
            .filter_map(|line| serde_json::from_slice(line).ok())
            .filter(|line: &Value| line.get("method").is_none())
            .collect();
        (answers.len() == 3).then_some(answers)
    });
    let by_id = |id: Value| answers.iter().find(|answer| answer["id"] == id).unwrap();
    assert_eq!(by_id(json!("ask-ping"))["result"], json!({}));
    assert_eq!(error_of(by_id(json!("ask-roots"))).0, -32601);
    assert_eq!(error_of(by_id(json!(7))).0, -32601);
    assert_eq!(client.drain().len(), 0, "the client hears nothing of it");
}

#[test]
fn servers_of_every_revision_are_taken() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut client = connected(&Config::new().server("one", fake().args(["--version", version])));
        assert_eq!(text_of(&client.call("one:echo", json!({"text": version}))), version);
    }
}

#[test]
fn the_program_keeps_running_if_all_servers_fail() {
    let config = (0..5).fold(Config::new(), |config, number| {
        config.server(&format!("bad{number}"), fake().args(["--fail-at", ["start", "initialize", "list"][number % 3]]))
    });
    let mut client = connected(&config);
    assert!(client.tool_names().is_empty());
    for number in 0..5 {
        client.wait_for_stderr(&format!("server `bad{number}` failed"));
    }
    let id = client.request("ping", json!({}));
    client.response(id);
}

#[test]
fn fifty_servers_start_together() {
    let config = (0..50).fold(Config::new(), |config, number| {
        config.server(
            &format!("s{number}"),
            fake().args(["--only-generated", "--tools", "2", "--start-delay-ms", "2000"]),
        )
    });
    let began = Instant::now();
    let mut client: Driver = connected(&config);
    testkit::wait_until("all servers have started", || (client.tool_names().len() == 100).then_some(()));
    // One after another, they would take longer by themselves.
    assert!(began.elapsed() < Duration::from_secs(100), "{:?}", began.elapsed());
    assert_eq!(text_of(&client.call("s49:tool_1", json!({"text": "last"}))), "last");
}

#[test]
fn a_server_that_closes_its_input_fails_its_calls_instead_of_losing_them() {
    let script = r#"
        answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$(printf %s "$1" | sed 's/.*"id":\([0-9]*\).*/\1/')" "$2"; }
        read -r line
        answer "$line" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}'
        read -r line
        read -r line
        exec 0<&-
        answer "$line" '{"tools":[{"name":"x","inputSchema":{"type":"object"}}]}'
        exec sleep 600
    "#;
    let config = Config::new().server("shut", ServerEntry::new("sh").args(["-c", script])).server("good", fake());
    let mut client = connected(&config);
    assert_eq!(client.tool_names()[0], "shut:x");
    let calls: Vec<u64> = (0..3).map(|_| client.start_call("shut:x", json!({}))).collect();
    assert_eq!(text_of(&client.call("good:echo", json!({"text": "unharmed"}))), "unharmed");
    for id in calls {
        let answer = client.response(id);
        assert_eq!(answer["error"]["data"]["server"], "shut", "{answer}");
    }
}

#[test]
fn a_server_with_a_hundred_thousand_tools_delays_no_other() {
    let huge = fake().args(["--only-generated", "--tools", "100000", "--start-delay-ms", "100"]);
    let mut client = connected(&Config::new().server("huge", huge).server("good", fake()));
    client.call("good:echo", json!({}));
    let list = client.request("tools/list", json!({}));
    let mut slowest = Duration::ZERO;
    while client.drain().is_empty() {
        let begun = Instant::now();
        let id = client.request("ping", json!({}));
        let answered = client.line_where("the answer to a ping or the list", |line| {
            let id_at = raw::at(line, &["id"]);
            id_at == Some(&id.to_string()) || id_at == Some(&list.to_string())
        });
        slowest = slowest.max(begun.elapsed());
        if answered.len() > 1000 {
            break;
        }
    }
    // Building such a list takes time, but not quadratic time.
    assert!(slowest < Duration::from_secs(60), "a ping took {slowest:?}");
}

#[test]
fn a_server_that_lists_its_tools_and_closes_its_output_in_the_same_breath_is_down() {
    for _ in 0..10 {
        let mut client = connected(&beside_a_healthy_one(fake().arg("--close-stdout-after-list")));
        let early = client.start_call("bad one:echo", json!({}));
        error_of(&client.response(early));
        client.wait_for_stderr("server `bad one` failed");
        assert_eq!(client.tool_names(), ["good:tool_0"]);
        error_of(&client.call("bad one:echo", json!({})));
        assert_eq!(text_of(&client.call("good:tool_0", json!({"text": "unharmed"}))), "unharmed");
    }
}

#[test]
fn a_server_whose_tools_keep_changing_is_listed_at_intervals() {
    let journal = Journal::new();
    let config = Config::new().server("restless", journal.fake().arg("--restless")).server("good", fake());
    let mut client = connected(&config);
    client.tool_names();
    for _ in 0..300 {
        assert_eq!(text_of(&client.call("good:echo", json!({"text": "swift"}))), "swift");
    }
    let changes = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{LIST_CHANGED}\"}}\n").repeat(300);
    let line = format!(r#"{changes}{{"jsonrpc":"2.0","id":{{id}},"result":{{"content":[]}}}}"#);
    assert!(client.call("restless:raw_line", json!({"line": line})).get("result").is_some());
    client.call("restless:change_tools", json!({"names": ["last"]}));
    client.notification(LIST_CHANGED);
    assert!(client.tool_names().contains(&"restless:last".to_owned()));
    assert_eq!(text_of(&client.call("good:echo", json!({"text": "still swift"}))), "still swift");
    let asked = journal.of_method("tools/list").len();
    assert!(asked < 20, "asked {asked} times");
}

#[test]
fn a_start_that_fails_is_reported_without_the_value_of_any_variable() {
    let file = tempfile::NamedTempFile::with_prefix("hunter2-").unwrap();
    let file = file.path().to_str().unwrap();
    for (bad, secret) in [
        (ServerEntry::new("${SECRET}"), "hunter2-program"),
        (ServerEntry::new("${SECRET}"), "/no/such/hunter2-program"),
        (ServerEntry::new("${SECRET}"), file),
        (ServerEntry::new("/no/such/${SECRET}/x"), "hunter2-folder"),
        (fake().field("cwd", "${SECRET}"), "/no/such/hunter2-folder"),
        (fake().field("cwd", "/no/such/${SECRET}"), "hunter2-folder"),
    ] {
        let launch = Launch::aggregator(&beside_a_healthy_one(bad)).arg("--debug").env("SECRET", secret);
        let mut client = initialized(launch);
        let answer = client.call("bad one:echo", json!({}));
        client.wait_for_stderr("server `bad one` failed during startup");
        client.close_stdin();
        assert_eq!(client.wait_exit().code(), Some(0));
        for reported in [answer["error"]["data"]["detail"].as_str().unwrap(), &client.stderr_text()] {
            assert!(reported.contains("${SECRET}"), "as it was written: {reported}");
            assert!(!reported.contains("hunter2"), "{reported}");
        }
    }
}
