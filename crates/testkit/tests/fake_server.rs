//! Tests of the harness and the fake server.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{Driver, Launch, Signal, raw};

const FAKE: &str = env!("CARGO_BIN_EXE_fake-server");

fn launch(arguments: &[&str]) -> Launch {
    Launch::program(FAKE).args(arguments)
}

/// A fake server that is initialized.
fn fake(arguments: &[&str]) -> Driver {
    let mut driver = launch(arguments).start();
    driver.initialize();
    driver
}

fn pid_of(answer: &Value) -> u32 {
    let pid = answer["result"]["structuredContent"]["pid"].as_u64();
    pid.and_then(|pid| u32::try_from(pid).ok()).expect("the answer holds a pid")
}

#[test]
fn arguments_meta_and_ids_pass_byte_for_byte() {
    for arguments in [&[][..], &["--result-first"], &["--junk"]] {
        let mut driver = fake(arguments);
        for id in ["1e2", "1.0", "-0", r#""\u0041\ud800""#, "123456789012345678901234567890"] {
            let sent = r#"{ "n":1.50,"n":1e2, "s":"\ud800\u00e9é\/" ,"deep":[[{}]]}"#;
            let line = format!(
                r#"{{"method":"tools/call","id":{id},"params":{{"_meta":{{ "x" : 1 }},"arguments":{sent},"name":"echo"}},"jsonrpc":"2.0"}}"#
            );
            driver.send_raw(line.as_bytes());
            driver.send_raw(b"\n");
            let answer = driver.response_to_raw_id(id);
            assert_eq!(raw::at(&answer, &["result", "structuredContent"]), Some(sent));
            assert_eq!(raw::at(&answer, &["result", "_meta"]), Some(r#"{ "x" : 1 }"#));
        }
    }
}

#[test]
fn raw_results_errors_and_lines_are_written_verbatim() {
    let mut driver = fake(&[]);
    let id = driver.start_call("raw", json!({"result": "{ \"a\" : 1e2 }"}));
    assert_eq!(raw::at(&driver.response_line(id), &["result"]), Some("{ \"a\" : 1e2 }"));
    let id = driver.start_call("raw_error", json!({"error": "{\"code\":99999999999}"}));
    assert_eq!(raw::at(&driver.response_line(id), &["error"]), Some("{\"code\":99999999999}"));
    let id = driver.start_call("raw_line", json!({"line": "{id} and {id} {"}));
    assert_eq!(driver.next_line(), format!("{id} and {id} {{").into_bytes());
    driver.start_call("raw_line", json!({"hex": "ff 00 22"}));
    assert_eq!(driver.next_line(), [0xff, 0x00, 0x22]);
}

#[test]
fn responses_out_of_order_reach_their_requests() {
    let mut driver = fake(&[]);
    let hanging = driver.start_call("hang", json!({}));
    let slow = driver.start_call("sleep", json!({"ms": 50}));
    let pending = driver.call("pending", json!({}));
    assert_eq!(pending["result"]["structuredContent"]["ids"], json!([hanging, slow]));
    let logs = driver.start_call("logs", json!({}));
    assert_eq!(driver.response(slow)["result"]["content"][0]["text"], "slept");
    assert_eq!(driver.response(logs)["result"]["content"][0]["text"], "done");
    assert_eq!(driver.notification("notifications/message")["params"]["data"], "a log message");
    driver.expect_silence(Duration::from_millis(20));
}

#[test]
fn pages_are_followed_even_through_an_empty_cursor() {
    let generated: Vec<String> = (0..25).map(|number| format!("tool_{number}")).collect();
    for arguments in [&["--page-size", "7"][..], &["--page-size", "7", "--empty-cursor"], &[]] {
        let mut driver = fake(&[arguments, &["--tools", "25", "--only-generated"]].concat());
        assert_eq!(driver.tool_names(), generated);
        let length = driver.list_raw_tools()[0].len();
        assert!((280..=340).contains(&length), "{length}");
        let id = driver.request("tools/list", json!({"cursor": "not mine"}));
        assert_eq!(driver.response(id)["error"]["code"], -32602);
    }
}

#[test]
fn tool_definitions_of_a_file_are_listed_verbatim() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tools");
    let definitions = [r#"{ "inputSchema":{"type":"object"},"x":1e2 , "name":"\u0061b" }"#, r#"{"name":"c"}"#];
    fs::write(&file, definitions.join("\n")).unwrap();
    let mut driver = fake(&["--tool-file", file.to_str().unwrap(), "--only-generated"]);
    assert_eq!(driver.list_raw_tools(), definitions);
    assert_eq!(driver.call("ab", json!({"text": "hi"}))["result"]["content"][0]["text"], "hi");
    let unknown = driver.call("zz", json!({}));
    assert_eq!((&unknown["error"]["code"], &unknown["error"]["data"]["tool"]), (&json!(-32602), &json!("zz")));
}

#[test]
fn the_list_can_change() {
    let mut driver = fake(&["--tools", "1", "--only-generated"]);
    driver.call("change_tools", json!({"names": ["new", "newer"]}));
    driver.notification("notifications/tools/list_changed");
    assert_eq!(driver.tool_names(), ["new", "newer"]);
}

#[test]
fn fifty_megabytes_pass_both_ways() {
    const LENGTH: usize = 50_000_000;
    let mut driver = fake(&[]);
    let id = driver.start_call("blob", json!({"bytes": LENGTH}));
    let line = driver.response_line(id);
    assert!(line.len() > LENGTH);
    let sent = json!({"jsonrpc": "2.0", "id": "big", "method": "tools/call",
        "params": {"name": "size", "arguments": {"text": "y".repeat(LENGTH)}}});
    driver.send(&sent);
    let answer = driver.response("big");
    assert_eq!(answer["result"]["structuredContent"]["bytes"], sent.to_string().len());
}

#[test]
fn every_phase_can_fail() {
    for phase in ["start", "initialize", "initialized", "list"] {
        let mut driver = launch(&["--fail-at", phase, "--stderr-line", "hello"]).start();
        driver.send_raw(b"{\"id\":1,\"method\":\"initialize\"}\n{\"method\":\"notifications/initialized\"}\n");
        driver.send_raw(b"{\"id\":2,\"method\":\"tools/list\"}\n");
        assert_eq!(driver.wait_exit().code(), Some(3), "{phase}");
        driver.wait_for_stderr("giving up");
        assert_eq!(driver.stderr_text().lines().count(), 3);
        let answers = driver.wait_stdout_end().len();
        assert_eq!(answers, usize::from(matches!(phase, "initialized" | "list")), "{phase}");
    }
}

#[test]
fn every_phase_can_hang_or_answer_badly() {
    let mut driver = launch(&["--hang-at", "initialize", "--error-at", "list"]).start();
    driver.request("initialize", json!({}));
    let id = driver.request("tools/list", json!({}));
    assert_eq!(driver.response(id)["error"]["code"], -32603);
    driver.expect_silence(Duration::from_millis(20));

    let mut driver = launch(&["--garbage-at", "initialize"]).start();
    driver.request("initialize", json!({}));
    assert_eq!(driver.next_line(), b"this is not JSON");

    let mut driver = launch(&["--version", "1999-01-01", "--name", "old"]).start();
    let answer = driver.initialize_as("someone", "2024-11-05");
    assert_eq!(answer["result"]["protocolVersion"], "1999-01-01");
    assert_eq!(answer["result"]["serverInfo"]["name"], "old");

    let mut driver = fake(&["--close-stdout-after-init"]);
    assert!(driver.wait_stdout_end().is_empty());
    assert_eq!(driver.exit_within(Duration::from_millis(20)), None);
}

#[test]
fn extra_wrong_and_broken_lines_surround_the_right_answer() {
    let mut driver = fake(&[]);
    for (tool, lines) in [("twice", 2), ("wrong_id", 3), ("null_id", 2), ("junk_then_answer", 4), ("split_answer", 1)] {
        let id = driver.start_call(tool, json!({}));
        assert_eq!(driver.response(id)["result"]["content"][0]["text"], "done", "{tool}");
        let id = driver.request("ping", json!({}));
        driver.response(id);
        assert_eq!(driver.drain().len(), lines - 1, "{tool}");
    }
}

#[test]
fn progress_carries_the_token_as_it_was_sent() {
    let mut driver = fake(&[]);
    for token in ["1e2", r#""\u0041""#] {
        let params = format!(r#"{{"name":"progress","arguments":{{"steps":2}},"_meta":{{"progressToken":{token}}}}}"#);
        driver.send_raw(format!("{{\"id\":\"p\",\"method\":\"tools/call\",\"params\":{params}}}\n").as_bytes());
        driver.response("p");
        let tokens: Vec<String> =
            driver.drain().iter().map(|line| raw::at(line, &["params", "progressToken"]).unwrap().to_owned()).collect();
        assert_eq!(tokens, ["999999", token, token]);
    }
}

#[test]
fn a_cancelled_call_is_silent_unless_asked_to_answer_late() {
    let mut driver = fake(&[]);
    let hanging = driver.start_call("hang", json!({}));
    let late = driver.start_call("late_after_cancel", json!({}));
    for id in [hanging, late] {
        driver.notify("notifications/cancelled", json!({"requestId": id}));
    }
    driver.response(late);
    assert_eq!(driver.call("pending", json!({}))["result"]["structuredContent"]["ids"], json!([]));
    driver.expect_silence(Duration::from_millis(20));
}

#[test]
fn the_server_asks_and_the_journal_keeps_every_line() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let mut driver = fake(&["--asks", "--journal", journal.to_str().unwrap()]);
    let ids =
        ["roots/list", "sampling/createMessage", "ping"].map(|method| driver.request_from_server(method)["id"].clone());
    assert_eq!(ids, [json!("ask-roots"), json!(7), json!("ask-ping")]);
    driver.send_raw(b"{ \"id\":7 ,\"result\":{}}\nnot json\n");
    assert_eq!(driver.response(Value::Null)["error"]["code"], -32700);
    let written = fs::read(&journal).unwrap();
    assert!(written.ends_with(b"{ \"id\":7 ,\"result\":{}}\nnot json\n"));
}

#[test]
fn sockets_serve_as_well_as_pipes() {
    for launch in [launch(&[]), launch(&[]).over_sockets()] {
        let mut driver = launch.start();
        driver.initialize();
        assert_eq!(pid_of(&driver.call("pid", json!({}))), driver.pid());
        driver.close_stdin();
        assert!(driver.wait_exit().success());
        assert!(driver.wait_stdout_end().is_empty());
    }
    let mut driver = launch(&[]).over_sockets().start();
    driver.initialize();
    let stdin = fs::read_link(format!("/proc/{}/fd/0", driver.pid())).unwrap();
    assert!(stdin.to_str().unwrap().starts_with("socket:"), "{stdin:?}");
}

#[test]
fn environment_arguments_and_folder_reach_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = launch(&["--tools", "3"]).env("TESTKIT_MARK", "seven=8").cwd(folder.path()).start();
    driver.initialize();
    let answer = |driver: &mut Driver, tool: &str, arguments: Value| {
        driver.call(tool, arguments)["result"]["structuredContent"].clone()
    };
    assert_eq!(answer(&mut driver, "env", json!({"name": "TESTKIT_MARK"})), json!({"value": "seven=8"}));
    assert_eq!(answer(&mut driver, "env", json!({"name": "TESTKIT_NOT_SET"})), json!({"value": null}));
    assert_eq!(answer(&mut driver, "args", json!({})), json!({"args": ["--tools", "3"]}));
    let cwd = answer(&mut driver, "cwd", json!({}));
    assert_eq!(Path::new(cwd["cwd"].as_str().unwrap()), folder.path().canonicalize().unwrap());
    assert_eq!(testkit::processes_with_env("TESTKIT_MARK=seven"), [driver.pid()]);
    assert!(testkit::open_fds(driver.pid()) >= 3);
    assert!(testkit::rss_kb(driver.pid()) > 100);
}

#[test]
fn crashes_end_the_server_by_code_or_signal() {
    let mut driver = fake(&[]);
    driver.start_call("crash", json!({"code": 7}));
    assert_eq!(driver.wait_exit().code(), Some(7));
    for signal in [Signal::KILL, Signal::SEGV, Signal::TERM] {
        let mut driver = fake(&[]);
        driver.start_call("crash", json!({"signal": signal.as_raw()}));
        assert_eq!(driver.wait_exit().signal(), Some(signal.as_raw()));
    }
    let mut driver = fake(&[]);
    assert_eq!(driver.call("reply_then_exit", json!({"code": 4}))["result"]["content"][0]["text"], "done");
    assert_eq!(driver.wait_exit().code(), Some(4));
}

#[test]
fn a_stubborn_server_ends_only_by_sigkill() {
    let mut driver = fake(&["--ignore-term", "--ignore-eof"]);
    let pid = driver.pid();
    driver.signal(Signal::TERM);
    assert_eq!(pid_of(&driver.call("pid", json!({}))), pid);
    driver.close_stdin();
    assert_eq!(driver.exit_within(Duration::from_millis(50)), None);
    driver.kill_hard();
    assert_eq!(driver.wait_exit().signal(), Some(Signal::KILL.as_raw()));
    testkit::wait_gone(pid);
}

#[test]
fn an_ordinary_server_ends_by_sigterm() {
    let mut driver = fake(&[]);
    driver.signal(Signal::TERM);
    assert_eq!(driver.wait_exit().signal(), Some(Signal::TERM.as_raw()));
}

#[test]
fn grandchildren_outlive_the_server_as_described() {
    for (setsid, ignore_term, inherit) in [(false, false, false), (true, true, false), (false, true, true)] {
        let mut driver = fake(&[]);
        let arguments = json!({"setsid": setsid, "ignore_term": ignore_term, "inherit": inherit});
        let pid = pid_of(&driver.call("grandchild", arguments));
        assert_eq!(testkit::descendants(driver.pid()), [pid]);
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let session: u32 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(3).unwrap().parse().unwrap();
        assert_eq!(session == pid, setsid);

        driver.kill_hard();
        // Not `wait_exit`, which waits for the end of stderr too: the grandchild may hold it open.
        testkit::wait_gone_or_zombie(driver.pid());
        assert!(testkit::process_exists(pid));
        assert_eq!(testkit::ignores_signal(pid, Signal::TERM), ignore_term);
        let target = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        rustix::process::kill_process(target, Signal::TERM).unwrap();
        if ignore_term {
            rustix::process::kill_process(target, Signal::KILL).unwrap();
        }
        testkit::wait_gone_or_zombie(pid);
        driver.wait_exit();
        driver.wait_stdout_end();
    }
}

#[test]
fn floods_junk_and_delays_do_not_stop_it() {
    let started = Instant::now();
    let mut driver = launch(&["--flood-stderr", "1000000", "--start-delay-ms", "50", "--junk"]).start();
    driver.initialize();
    assert!(started.elapsed() >= Duration::from_millis(50));
    assert_eq!(driver.next_line(), b"*** fake-server 1.0 ready ***");
    driver.call("stderr", json!({"bytes": 500_000}));
    testkit::wait_until("all of stderr", || (driver.stderr_text().len() == 1_500_000).then_some(()));
}

#[test]
fn a_client_that_does_not_read_stops_the_writer() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let mut driver = launch(&["--journal", journal.to_str().unwrap()]).read_ahead(0).start();
    driver.initialize();
    for _ in 0..4 {
        driver.start_call("blob", json!({"bytes": 1_000_000}));
    }
    let last = driver.start_call("pid", json!({}));
    let received = |name: &str| fs::read_to_string(&journal).unwrap().contains(name);
    testkit::wait_until("the first blob was asked for", || received("blob").then_some(()));
    // That something does not happen can only be shown by waiting.
    std::thread::sleep(Duration::from_millis(100));
    assert!(!received("\"pid\""));
    driver.response(last);
}

#[test]
fn a_run_gives_status_and_output() {
    let output = testkit::run(FAKE, ["--fail-at", "start"]);
    assert_eq!((output.status.code(), output.stdout.as_str()), (Some(3), ""));
    assert!(output.stderr.ends_with("giving up at Start\n"));
    let output = testkit::run(FAKE, ["--nonsense"]);
    assert_eq!(output.stderr, "fake-server: unknown flag `--nonsense`\n");
}

#[test]
#[should_panic(expected = "stdout ended while waiting for the answer to request 1")]
fn waiting_for_a_dead_program_fails_at_once_with_its_stderr() {
    launch(&["--fail-at", "start"]).start().initialize();
}
