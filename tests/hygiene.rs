//! After hundreds of starts, stops, crashes and kills: no process, no zombie, no open file is left.

use std::fs;

use rustix::process::Signal;
use serde_json::json;
use testkit::{
    Config, Driver, Launch, Serve, catches_signal, descendants, fake, ignores_signal, open_fds, process_state,
    processes_with_env, program, wait_until,
};

use crate::fixture::connected;

const CYCLES: usize = 200;
/// Enough to overlap, few enough for two cores.
const AT_ONCE: usize = 4;

/// One run of the program; how it ends depends on `number`.
fn live_and_end(number: usize, mark: &str) {
    let first = if number % 7 == 3 { fake().args(["--fail-at", "initialize"]) } else { fake() };
    let launch = Launch::aggregator(&Config::new().server("a", first).server("b", fake()));
    let mut client = launch.env("HYGIENE_MARK", mark).start();
    if !number.is_multiple_of(5) {
        client.initialize();
        client.tool_names();
    }
    if number % 6 == 2 {
        client.call("b:grandchild", json!({"setsid": number.is_multiple_of(4)}));
    }
    if number % 6 == 4 {
        client.call("b:crash", json!({"signal": 9}));
    }
    match number % 4 {
        0 => client.close_stdin(),
        1 => send_signal(&client, Signal::TERM),
        2 => client.kill_hard(),
        _ => {
            client.start_call("b:hang", json!({}));
            send_signal(&client, Signal::INT);
        }
    }
    let status = client.wait_exit();
    // A stop before it handles signals ends it by the signal; SIGKILL always does.
    let may_be_signalled = number % 4 == 2 || number.is_multiple_of(5);
    assert!(status.code() == Some(0) || may_be_signalled, "cycle {number}: {status}, {}", client.stderr_text());
}

/// Sends a signal at any moment, unless it would be lost: a test in the background of a script ignores SIGINT, and so
/// does a program that it starts, until the program handles signals.
#[track_caller]
fn send_signal(client: &Driver, signal: Signal) {
    if ignores_signal(std::process::id(), signal) {
        wait_until("the program listens for the signal", || catches_signal(client.pid(), signal).then_some(()));
    }
    client.signal(signal);
}

#[test]
fn two_hundred_restarts_leave_nothing_behind() {
    let mark = format!("hygiene-{}", std::process::id());
    std::thread::scope(|scope| {
        for lane in 0..AT_ONCE {
            let mark = &mark;
            scope.spawn(move || (lane..CYCLES).step_by(AT_ONCE).for_each(|number| live_and_end(number, mark)));
        }
    });
    let needle = format!("HYGIENE_MARK={mark}");
    wait_until("every process of every life is gone", || processes_with_env(&needle).is_empty().then_some(()));
}

#[test]
fn many_restarts_leave_no_zombies_and_no_open_files() {
    let config = (0..10).fold(Config::new(), |config, number| config.server(&format!("s{number}"), fake()));
    let mut client = connected(&config);
    client.tool_names();
    let files_of_ten = open_fds(client.pid());
    for number in 0..100 {
        client.call(&format!("s{}:echo", number % 10), json!({}));
    }
    assert_eq!(open_fds(client.pid()), files_of_ten, "calls leave no files open");

    for number in 1..10 {
        client.call(&format!("s{number}:crash"), json!({"code": number}));
    }
    let mut alone = connected(&Config::new().server("s0", fake()));
    alone.tool_names();
    let files_of_one = open_fds(alone.pid());
    wait_until("the files of crashed servers are closed", || (open_fds(client.pid()) == files_of_one).then_some(()));
    wait_until("one server and the watchdog are left, and no zombie", || {
        let left = descendants(client.pid());
        (left.len() == 2 && left.iter().all(|&pid| process_state(pid) != Some('Z'))).then_some(())
    });
    for _ in 0..100 {
        client.call("s0:echo", json!({}));
    }
    assert_eq!(open_fds(client.pid()), files_of_one);
}

#[test]
fn servers_inherit_one_pipe_of_ours_and_nothing_of_each_other() {
    let config = (0..5).fold(Config::new(), |config, number| config.server(&format!("s{number}"), fake()));
    let mut client = connected(&config);
    client.tool_names();
    let mut counts: Vec<usize> = descendants(client.pid()).into_iter().map(open_fds).collect();
    counts.sort_unstable();
    // The process that runs the tests may have left inheritable files open; a server that the test starts itself has
    // those, too.
    let mut direct = Launch::program(program("fake-server")).start();
    direct.initialize();
    let of_a_server = open_fds(direct.pid());
    // A fake server has a copy of its stdout besides the usual three; the watchdog has only the three.
    assert_eq!(counts[0], of_a_server - 1, "the watchdog");
    // The pipe shows the kernel when to kill it.
    assert_eq!(counts[1..], [of_a_server + 1; 5]);
}

/// The soft limit of open files that a process has.
fn open_files_of(process: u32) -> u64 {
    let limits = fs::read_to_string(format!("/proc/{process}/limits")).expect("the process is there");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("Linux says so");
    line.split_whitespace().next().expect("a soft limit").parse().expect("a number")
}

#[test]
fn servers_have_the_limit_of_open_files_that_the_service_found() {
    let found = 700;
    let config = Config::new().server("one", fake()).server("two", fake());
    let serve = Serve::start_as(&config, |launch| launch.through_shell(&format!("ulimit -Sn {found}")));
    let servers = wait_until("both servers run", || {
        let children = descendants(serve.pid());
        let is_server = |&process: &u32| {
            fs::read_to_string(format!("/proc/{process}/comm")).is_ok_and(|name| name.trim() == "fake-server")
        };
        let servers: Vec<u32> = children.into_iter().filter(is_server).collect();
        (servers.len() == 2).then_some(servers)
    });
    // While the service starts a program, its own limit is that of the program.
    wait_until("the service has a higher limit", || (open_files_of(serve.pid()) > found).then_some(()));
    for server in servers {
        assert_eq!(open_files_of(server), found);
    }
}
