//! If the program, the watchdog or both are killed or stopped, no server is left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, getuid, kill_process};
use serde_json::json;
use tempfile::TempDir;
use testkit::processes::awaits_signal;
use testkit::{
    Config, Driver, Launch, ServerEntry, copy_program, descendants, fake, process_exists, process_state,
    processes_with_env, program, wait_gone_or_zombie, wait_until,
};

use crate::fixture::{connected, initialized, pid_in};

/// A server that ends only by SIGKILL.
fn stubborn() -> ServerEntry {
    fake().args(["--ignore-eof", "--ignore-term"])
}

/// A shell with a server as its child; neither ends by itself.
fn stubborn_behind_a_shell() -> ServerEntry {
    let server = program("fake-server");
    let script = format!("trap '' TERM; exec 3<&0; '{}' --ignore-eof --ignore-term <&3 & wait; wait", server.display());
    ServerEntry::new("sh").args(["-c", &script])
}

fn signal(process: u32, signal: Signal) {
    let process = Pid::from_raw(process.cast_signed()).expect("a process number");
    kill_process(process, signal).expect("the process is there");
}

fn is_watchdog(process: u32) -> bool {
    fs::read(format!("/proc/{process}/cmdline")).is_ok_and(|line| line.starts_with(b"mcp-aggregator-watchdog"))
}

/// The current watchdog, once it runs.
#[track_caller]
fn watchdog_of(program: u32) -> u32 {
    wait_until("a watchdog runs", || descendants(program).into_iter().find(|&process| is_watchdog(process)))
}

#[track_caller]
fn assert_all_end(processes: &[u32]) {
    processes.iter().for_each(|&process| wait_gone_or_zombie(process));
}

#[test]
fn the_program_and_its_watchdog_killed_at_once_leave_nothing() {
    for round in 0..15 {
        let config = Config::new().server("one", stubborn()).server("shell", stubborn_behind_a_shell());
        let mut client = connected(&config);
        client.call("one:grandchild", json!({"ignore_term": true}));
        client.call("shell:pid", json!({}));
        let watchdog = watchdog_of(client.pid());
        let processes = descendants(client.pid());
        // Either may end first.
        let order = if round % 2 == 0 { [client.pid(), watchdog] } else { [watchdog, client.pid()] };
        order.into_iter().for_each(|process| signal(process, Signal::KILL));
        client.wait_exit();
        assert_all_end(&processes);
    }
}

#[test]
fn a_service_and_its_watchdog_killed_at_once_leave_nothing() {
    let config = Config::new().server("one", stubborn()).server("two", stubborn());
    let mark = format!("killed-service-{}", std::process::id());
    for _ in 0..3 {
        let mut client = initialized(Launch::service(&config).env("KILLED_MARK", &mark));
        client.call("one.pid", json!({}));
        client.call("two.pid", json!({}));
        let watchdog = watchdog_of(client.pid());
        signal(client.pid(), Signal::KILL);
        signal(watchdog, Signal::KILL);
        client.wait_exit();
        let needle = format!("KILLED_MARK={mark}");
        wait_until("everything is gone", || processes_with_env(&needle).is_empty().then_some(()));
    }
}

#[test]
fn a_stopped_watchdog_does_not_keep_servers_alive() {
    for _ in 0..5 {
        let mut client = connected(&Config::new().server("one", stubborn()));
        let grandchild = pid_in(&client.call("one:grandchild", json!({"setsid": true, "ignore_term": true})));
        let mut processes = descendants(client.pid());
        processes.push(grandchild);
        signal(watchdog_of(client.pid()), Signal::STOP);
        client.kill_hard();
        client.wait_exit();
        assert_all_end(&processes);
    }
}

#[test]
fn a_stopped_watchdog_is_woken() {
    let mut client = connected(&Config::new().server("one", fake()));
    client.tool_names();
    let watchdog = watchdog_of(client.pid());
    for _ in 0..20 {
        signal(watchdog, Signal::STOP);
        // On a busy machine it takes a while until it stops.
        wait_until("the signal has reached it", || (!awaits_signal(watchdog, Signal::STOP)).then_some(()));
        wait_until("it runs again", || process_state(watchdog).filter(|state| !"Tt".contains(*state)));
    }
    assert!(is_watchdog(watchdog), "it is the same one");
}

#[test]
fn a_watchdog_that_is_killed_twenty_times_still_watches() {
    let mut client = connected(&Config::new().server("one", stubborn()));
    let server = pid_in(&client.call("one:pid", json!({})));
    for _ in 0..20 {
        let watchdog = watchdog_of(client.pid());
        signal(watchdog, Signal::KILL);
        wait_until("it is gone", || (!is_watchdog(watchdog)).then_some(()));
    }
    assert!(process_exists(server), "servers do not depend on it");
    // Only a watchdog finds it: a process in its own session is not in the process group.
    let grandchild = pid_in(&client.call("one:grandchild", json!({"setsid": true, "ignore_term": true})));
    watchdog_of(client.pid());
    let processes = [descendants(client.pid()), vec![grandchild]].concat();
    client.kill_hard();
    client.wait_exit();
    assert_all_end(&processes);
}

#[test]
fn a_watchdog_ignores_signals_that_ask_it_to_end() {
    let mut client = connected(&Config::new().server("one", fake()));
    client.tool_names();
    let watchdog = watchdog_of(client.pid());
    let ignored = || {
        let status = fs::read_to_string(format!("/proc/{watchdog}/status")).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim().to_owned();
        u64::from_str_radix(&mask, 16).unwrap()
    };
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM] {
        wait_until("the signal is ignored", || (ignored() >> (signal.as_raw() - 1) & 1 == 1).then_some(()));
    }
}

/// Copies of the programs that everybody may run, and a user other than root, if we are root.
struct OtherUser {
    folder: TempDir,
    user: Option<u32>,
}

impl OtherUser {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        open_to_all(folder.path());
        let this = Self { folder, user: getuid().is_root().then_some(65_534) };
        for name in ["mcp-simple-aggregator", "fake-server"] {
            copy_program(&program(name), &this.path(name));
            open_to_all(&this.path(name));
        }
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// With two servers, `one` and `two`.
    fn connected(&self) -> Driver {
        let config = self.path("config.json");
        let server = || ServerEntry::new(self.path("fake-server"));
        let text = Config::new().server("one", server()).server("two", server()).text();
        fs::write(&config, text).expect("a temporary folder can be written");
        open_to_all(&config);
        let launch = Launch::program(self.path("mcp-simple-aggregator")).arg("--config").arg(config).cwd("/");
        initialized(match self.user {
            Some(user) => launch.as_user(user),
            None => launch,
        })
    }
}

fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

#[test]
fn a_grandchild_whose_environment_cannot_be_read_ends_with_us() {
    let other = OtherUser::new();
    let hidden = json!({"setsid": true, "ignore_term": true, "undumpable": true});
    for is_killed in [true, false] {
        let mut client = other.connected();
        let grandchild = pid_in(&client.call("one:grandchild", hidden.clone()));
        if is_killed {
            client.kill_hard();
        } else {
            client.close_stdin();
        }
        client.wait_exit();
        wait_gone_or_zombie(grandchild);
    }
}

#[test]
fn a_grandchild_whose_environment_cannot_be_read_ends_with_its_server_and_no_other() {
    let other = OtherUser::new();
    let hidden = json!({"setsid": true, "ignore_term": true, "undumpable": true});
    let mut client = other.connected();
    let grandchild = pid_in(&client.call("one:grandchild", hidden.clone()));
    let neighbour = pid_in(&client.call("two:grandchild", hidden));
    client.call("one:crash", json!({"signal": 9}));
    wait_gone_or_zombie(grandchild);
    client.wait_for_stderr("server `one` failed during runtime");
    assert!(process_state(neighbour).is_some_and(|state| state != 'Z'), "the neighbour's are left alone");
    client.close_stdin();
    client.wait_exit();
    wait_gone_or_zombie(neighbour);
}
