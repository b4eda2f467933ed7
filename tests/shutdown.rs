//! However the program ends, none of its processes remain.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use testkit::{
    Config, DEADLINE, Driver, Launch, ServerEntry, catches_signal, descendants, fake, process_exists, program,
    takes_less_than, wait_gone, wait_gone_or_zombie, wait_until,
};

use crate::fixture::{Journal, connected, error_of, initialized, pid_in, text_of};

/// How the shutdown starts.
#[derive(Clone, Copy, Debug)]
enum End {
    StdinCloses,
    Terminated,
    Interrupted,
    HungUp,
    KilledHard,
}

const ORDERLY: [End; 4] = [End::StdinCloses, End::Terminated, End::Interrupted, End::HungUp];

impl End {
    fn begin(self, client: &mut Driver) {
        match self {
            Self::StdinCloses => client.close_stdin(),
            Self::Terminated => client.signal(Signal::TERM),
            Self::Interrupted => client.signal(Signal::INT),
            Self::HungUp => client.signal(Signal::HUP),
            Self::KilledHard => client.kill_hard(),
        }
    }
}

/// Ends the program in this way, and checks that `others` and all its processes have ended.
#[track_caller]
fn assert_nothing_is_left(mut client: Driver, end: End, others: &[u32]) {
    let mut processes = descendants(client.pid());
    processes.extend(others);
    end.begin(&mut client);
    let status = client.wait_exit();
    if let End::KilledHard = end {
        assert_eq!(status.code(), None);
    } else {
        assert_eq!(status.code(), Some(0), "{end:?}: {}", client.stderr_text());
        assert_eq!(client.stderr_text(), "", "an orderly end is no news");
    }
    for pid in processes {
        wait_gone_or_zombie(pid);
    }
}

#[test]
fn servers_and_watchdog_end_with_us() {
    for end in ORDERLY.into_iter().chain([End::KilledHard]) {
        let mut client = connected(&Config::new().server("one", fake()).server("two", fake()));
        client.tool_names();
        assert_eq!(descendants(client.pid()).len(), 3, "two servers and the watchdog");
        assert_nothing_is_left(client, end, &[]);
    }
}

#[test]
fn on_an_orderly_end_nothing_outlives_us_even_for_a_moment() {
    for end in ORDERLY {
        let mut client = connected(&Config::new().server("one", fake()).server("two", fake()));
        client.tool_names();
        let processes = descendants(client.pid());
        end.begin(&mut client);
        client.wait_exit();
        let left: Vec<_> = processes.into_iter().filter(|&pid| process_exists(pid)).collect();
        assert!(left.is_empty(), "{end:?} left {left:?}, not even reaped");
    }
}

#[test]
fn servers_that_ignore_their_input_and_termination_are_killed() {
    for end in [End::StdinCloses, End::Terminated, End::KilledHard] {
        let stubborn = fake().args(["--ignore-term", "--ignore-eof"]);
        let mut client = connected(&Config::new().server("stubborn", stubborn).server("one", fake()));
        client.tool_names();
        assert_nothing_is_left(client, end, &[]);
    }
}

#[test]
fn grandchildren_end_with_us() {
    for end in [End::StdinCloses, End::Terminated, End::KilledHard] {
        // Stubborn ones take seconds to stop, so all kinds are stopped at once.
        std::thread::scope(|scope| {
            for arguments in [
                json!({}),
                json!({"ignore_term": true}),
                json!({"setsid": true}),
                json!({"setsid": true, "ignore_term": true}),
                json!({"inherit": true, "ignore_term": true}),
                json!({"inherit": true, "setsid": true, "ignore_term": true}),
            ] {
                scope.spawn(move || {
                    let mut client = connected(&Config::new().server("one", fake()));
                    let grandchild = pid_in(&client.call("one:grandchild", arguments));
                    assert_nothing_is_left(client, end, &[grandchild]);
                });
            }
        });
    }
}

#[test]
fn grandchildren_of_a_server_that_crashed_end_at_once() {
    for arguments in [
        json!({}),
        json!({"ignore_term": true}),
        json!({"setsid": true, "ignore_term": true}),
        json!({"inherit": true, "ignore_term": true}),
    ] {
        let mut client = connected(&Config::new().server("one", fake()).server("two", fake()));
        let grandchild = pid_in(&client.call("one:grandchild", arguments.clone()));
        let neighbour = pid_in(&client.call("two:grandchild", arguments));
        client.call("one:crash", json!({"signal": 9}));
        wait_gone_or_zombie(grandchild);
        client.wait_for_stderr("server `one` failed during runtime");
        assert!(process_exists(neighbour), "the neighbour's are left alone");
    }
}

#[test]
fn a_server_behind_a_shell_ends_with_us() {
    let command = format!("{} & wait", program("fake-server").display());
    for end in [End::StdinCloses, End::Terminated, End::KilledHard] {
        let shell = ServerEntry::new("sh").args(["-c", &format!("exec 3<&0; {}", command.replace(" &", " <&3 &"))]);
        let mut client = connected(&Config::new().server("shell", shell));
        assert_eq!(text_of(&client.call("shell:echo", json!({"text": "hi"}))), "hi");
        assert_nothing_is_left(client, end, &[]);
    }
}

#[test]
fn aggregators_behind_aggregators_end_with_us() {
    for end in [End::StdinCloses, End::Terminated, End::KilledHard] {
        let inner = Config::new().server("x", fake().args(["--ignore-eof"])).write();
        let nested =
            ServerEntry::new(program("mcp-simple-aggregator")).arg("--config").arg(inner.path().to_str().unwrap());
        let mut client = connected(&Config::new().server("inner", nested));
        let grandchild = pid_in(&client.call("inner:x:grandchild", json!({"setsid": true, "ignore_term": true})));
        assert_nothing_is_left(client, end, &[grandchild]);
    }
}

#[test]
fn a_stop_while_servers_are_starting_leaves_nothing() {
    for end in ORDERLY.into_iter().chain([End::KilledHard]) {
        let config = Config::new()
            .server("hangs", fake().args(["--hang-at", "initialize"]))
            .server("sleeps", fake().args(["--start-delay-ms", "600000"]));
        let client = connected(&config);
        assert_nothing_is_left(client, end, &[]);
    }
}

#[test]
fn a_stop_right_after_the_start_leaves_nothing() {
    for end in [End::StdinCloses, End::KilledHard] {
        let mark = format!("{end:?}-{}", std::process::id());
        let config = (0..5).fold(Config::new(), |config, number| config.server(&format!("s{number}"), fake()));
        let mut client = Launch::aggregator(&config).env("STOPPING_MARK", &mark).start();
        end.begin(&mut client);
        client.wait_exit();
        let needle = format!("STOPPING_MARK={mark}");
        wait_until("everything is gone", || testkit::processes_with_env(&needle).is_empty().then_some(()));
    }
}

#[test]
fn a_second_signal_means_now() {
    // After one signal, the server would have had a second.
    takes_less_than(Duration::from_millis(950), || {
        let stubborn = fake().args(["--ignore-term", "--ignore-eof"]);
        let mut client = connected(&Config::new().server("stubborn", stubborn));
        let server = pid_in(&client.call("stubborn:pid", json!({})));
        let begun = Instant::now();
        client.signal(Signal::TERM);
        client.signal(Signal::INT);
        assert_eq!(client.wait_exit().code(), Some(0));
        let took = begun.elapsed();
        wait_gone(server);
        took
    });
}

#[test]
fn a_client_that_leaves_right_after_a_call_still_gets_its_answer() {
    let mut client = connected(&Config::new().server("one", fake().args(["--start-delay-ms", "200"])));
    let list = client.request("tools/list", json!({}));
    let call = client.start_call("one:sleep", json!({"ms": 200}));
    client.close_stdin();
    assert_eq!(text_of(&client.response(call)), "slept");
    assert!(client.response(list)["result"]["tools"].is_array());
    assert_eq!(client.wait_exit().code(), Some(0));
}

#[test]
fn a_client_that_leaves_gets_an_answer_of_50_mb_whole() {
    let mut client = connected(&Config::new().server("one", fake()));
    client.tool_names();
    let id = client.start_call("one:blob", json!({"bytes": 50_000_000}));
    client.close_stdin();
    assert!(client.response_line(id).len() > 50_000_000);
    assert_eq!(client.wait_exit().code(), Some(0));
}

#[test]
fn a_call_that_never_ends_does_not_keep_us_for_ever() {
    let mut client = connected(&Config::new().server("one", fake()));
    client.tool_names();
    let hanging = client.start_call("one:hang", json!({}));
    client.close_stdin();
    let answer = client.response(hanging);
    assert!(error_of(&answer).1.contains("`one`"), "{answer}");
    assert_eq!(client.wait_exit().code(), Some(0));
}

#[test]
fn calls_in_flight_at_shutdown_get_an_error() {
    let journal = Journal::new();
    let mut client = connected(&Config::new().server("one", journal.fake()));
    let hanging = client.start_call("one:hang", json!({}));
    journal.wait_for("tools/call");
    client.signal(Signal::TERM);
    let answer = client.response(hanging);
    assert_eq!(error_of(&answer).0, -32603);
    assert_eq!(answer["error"]["data"]["server"], "one");
    assert_eq!(client.wait_exit().code(), Some(0));
    assert_eq!(client.stderr_text(), "");
}

#[test]
fn a_client_that_dies_takes_everything_with_it() {
    // Both ends close at once, and nobody reads the response that is on its way.
    let file = Config::new().server("one", fake()).write();
    let mut child = Command::new(program("mcp-simple-aggregator"))
        .arg("--config")
        .arg(file.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let processes = wait_until("server and watchdog run", || {
        let processes = descendants(child.id());
        (processes.len() == 2).then_some(processes)
    });
    let hello = br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
    std::io::Write::write_all(&mut stdin, &[&hello[..], b"\n"].concat()).unwrap();
    let call =
        br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"one:blob","arguments":{"bytes":5000000}}}"#;
    std::io::Write::write_all(&mut stdin, &[&call[..], b"\n"].concat()).unwrap();
    let hang = br#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"one:hang"}}"#;
    std::io::Write::write_all(&mut stdin, &[&hang[..], b"\n"].concat()).unwrap();
    drop(child.stdout.take());
    drop(stdin);
    let status = wait_until("the program has ended", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    for pid in processes {
        wait_gone_or_zombie(pid);
    }
}

#[test]
fn a_watchdog_that_is_killed_is_no_reason_to_stop() {
    let mut client = connected(&Config::new().server("one", fake()));
    let server = pid_in(&client.call("one:pid", json!({})));
    let watchdog = descendants(client.pid()).into_iter().find(|&pid| pid != server).unwrap();
    let pid = rustix::process::Pid::from_raw(watchdog.cast_signed()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    assert_eq!(text_of(&client.call("one:echo", json!({"text": "goes on"}))), "goes on");
    client.close_stdin();
    assert_eq!(client.wait_exit().code(), Some(0));
    wait_gone(server);
}

#[test]
fn a_signal_to_the_whole_group_ends_in_order_too() {
    // Ctrl-C in a terminal reaches every process of the foreground group.
    use std::os::unix::process::CommandExt;
    let file = Config::new().server("one", fake()).write();
    let mut command = Command::new(program("mcp-simple-aggregator"));
    command.arg("--config").arg(file.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.process_group(0).spawn().unwrap();
    let processes = wait_until("server and watchdog run", || {
        let processes = descendants(child.id());
        (processes.len() == 2).then_some(processes)
    });
    // Signals are handled before the first line is read.
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").unwrap();
    let mut first = [0_u8; 1];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    let group = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process_group(group, Signal::INT).unwrap();
    let status = wait_until("the program has ended", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    for pid in processes {
        wait_gone_or_zombie(pid);
    }
}

#[test]
fn a_client_that_no_longer_listens_is_disconnected() {
    let file = Config::new().server("one", fake()).write();
    let mut child = Command::new(program("mcp-simple-aggregator"))
        .arg("--config")
        .arg(file.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Another process may have inherited our end of its stdin, so that it never closes.
    let stdin = child.stdin.take().unwrap();
    drop(child.stdout.take());
    let status = wait_until("the program has ended", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
    drop(stdin);
}

#[test]
fn a_watchdog_that_is_killed_is_replaced() {
    let mut client = connected(&Config::new().server("stubborn", fake().arg("--ignore-eof").arg("--ignore-term")));
    client.tool_names();
    let watchdog = |client: &Driver| descendants(client.pid()).into_iter().find(|&pid| is_watchdog(pid));
    let first = watchdog(&client).expect("a watchdog");
    let number = rustix::process::Pid::from_raw(first.cast_signed()).expect("a process number");
    rustix::process::kill_process(number, Signal::KILL).unwrap();
    wait_until("another watchdog", || watchdog(&client).filter(|&second| second != first));
    assert_nothing_is_left(client, End::KilledHard, &[]);
}

fn is_watchdog(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"mcp-aggregator-watchdog"))
}

#[test]
fn killed_in_the_first_moments_we_leave_nothing() {
    let mark = format!("first-moments-{}", std::process::id());
    let stubborn = fake().args(["--ignore-eof", "--ignore-term"]);
    let config = (0..5).fold(Config::new(), |config, number| config.server(&format!("s{number}"), stubborn.clone()));
    for round in 0..30 {
        let mut client = Launch::aggregator(&config).env("STOPPING_MARK", &mark).start();
        // No event marks the middle of a start, so many moments are tried.
        std::thread::sleep(Duration::from_micros(round * 200));
        client.kill_hard();
        client.wait_exit();
    }
    let needle = format!("STOPPING_MARK={mark}");
    wait_until("everything is gone", || testkit::processes_with_env(&needle).is_empty().then_some(()));
}

#[test]
fn a_second_signal_does_not_wait_for_a_client_that_does_not_read() {
    // After one signal, we wait five seconds for it to read.
    takes_less_than(Duration::from_secs(3), || {
        let mut client = initialized(Launch::aggregator(&Config::new().server("one", fake())).read_ahead(1));
        let server = pid_in(&client.call("one:pid", json!({})));
        for _ in 0..20 {
            client.start_call("one:blob", json!({"bytes": 1 << 20}));
        }
        // Enough to fill the path to the client. There is no event to wait for, so this waits for a time.
        assert!(client.exit_within(Duration::from_millis(300)).is_none());
        client.signal(Signal::TERM);
        wait_gone(server);
        client.signal(Signal::TERM);
        let begun = Instant::now();
        assert_eq!(client.wait_exit().code(), Some(0));
        begun.elapsed()
    });
}

/// A program in the background of a script ignores SIGINT until it handles it.
#[test]
fn an_ignored_signal_is_handled_again_before_anything_starts() {
    for _ in 0..10 {
        let file = Config::new().server("one", fake()).write();
        let script = "trap '' INT; exec \"$0\" \"$@\"";
        let launch = Launch::program("sh").args(["-c", script]).arg(program("mcp-simple-aggregator"));
        let mut client = launch.arg("--config").arg(file.path()).start();
        // Without a pause: the moment in which the first process starts matters.
        let children = format!("/proc/{0}/task/{0}/children", client.pid());
        let deadline = Instant::now() + DEADLINE;
        while std::fs::read_to_string(&children).unwrap().is_empty() {
            assert!(Instant::now() < deadline, "nothing is started");
        }
        assert!(catches_signal(client.pid(), Signal::INT), "it is started before signals are heard");
        client.signal(Signal::INT);
        assert_eq!(client.wait_exit().code(), Some(0));
    }
}

#[test]
fn a_list_that_waits_for_a_server_is_answered_when_the_client_closes_its_input() {
    let quick = fake().args(["--only-generated", "--tools", "1"]);
    let config = Config::new().server("late", fake().args(["--start-delay-ms", "20000"])).server("quick", quick);
    let mut client = connected(&config);
    client.call("quick:tool_0", json!({}));
    let list = client.request("tools/list", json!({}));
    client.close_stdin();
    let answer = client.response(list);
    let names: Vec<_> = answer["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["quick:tool_0"]);
    assert_eq!(client.wait_exit().code(), Some(0));
}

#[test]
fn a_watchdog_without_a_mark_ends_nothing() {
    let mut client = connected(&Config::new().server("bystander", fake()));
    let bystander = pid_in(&client.call("bystander:pid", json!({})));
    for arguments in [&["__watchdog"][..], &["__watchdog", ""], &["__watchdog", "nonsense"]] {
        let mut reported = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut reported, format!("+{bystander}\n").as_bytes()).unwrap();
        std::io::Seek::rewind(&mut reported).unwrap();
        let mut command = Command::new(program("mcp-simple-aggregator"));
        let output = testkit::run::run_command(command.args(arguments).stdin(reported));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
    assert_eq!(pid_in(&client.call("bystander:pid", json!({}))), bystander);
}
