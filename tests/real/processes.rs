//! Real servers start in parallel, and nothing of them is left after shutdown.

use serde_json::json;
use testkit::{Driver, Launch, descendants, processes_with_env, wait_until};

use super::parts::{Part, Parts};
use super::sandbox::Sandbox;
use super::servers::{self, Server, config_of};

/// Starts us with these servers. The mark finds every process of this test.
#[track_caller]
fn start(servers: &[&Server], sandbox: &Sandbox) -> (Driver, String) {
    let (name, value) = ("REAL_TEST", sandbox.path("").display().to_string());
    let launch = Launch::aggregator(&config_of(servers)).env(name, &value).env("HOME", sandbox.home());
    (launch.start(), format!("{name}={value}"))
}

#[track_caller]
fn wait_until_nothing_is_left(mark: &str) {
    wait_until("no process of this test is left", || processes_with_env(mark).is_empty().then_some(()));
}

#[test]
fn five_servers_start_at_once_and_stop_without_a_trace() {
    let Some(parts) = Parts::with(&[Part::Npm, Part::Python]) else { return };
    let sandbox = Sandbox::new();
    let servers = servers::all(&parts, &sandbox);
    let (mut client, mark) = start(&servers.iter().collect::<Vec<_>>(), &sandbox);
    // All run before the first request: none waited for another.
    wait_until("five servers were started", || (servers_of(&client, &servers) == 5).then_some(()));
    client.initialize();
    // Calls wait for their own server only.
    let calls = [
        client.start_call("time:get_current_time", json!({"timezone": "UTC"})),
        client.start_call("everything:echo", json!({"message": "hello"})),
        client.start_call("memory:read_graph", json!({})),
        client.start_call("filesystem:list_allowed_directories", json!({})),
        client.start_call("git:git_branch", json!({"repo_path": sandbox.path("repository"), "branch_type": "local"})),
    ];
    for call in calls {
        let answer = client.response(call);
        assert!(answer["result"]["content"][0]["text"].is_string(), "{answer}");
        assert_ne!(answer["result"]["isError"], true, "{answer}");
    }

    client.close_stdin();
    assert!(client.wait_exit().success());
    wait_until_nothing_is_left(&mark);
    assert_eq!(client.stderr_text(), "", "an orderly stop is no news");
}

/// How many of the servers run as processes of ours.
fn servers_of(client: &Driver, servers: &[Server]) -> usize {
    let command_lines: Vec<String> = descendants(client.pid()).into_iter().map(command_line).collect();
    let runs = |server: &&Server| {
        let wanted = server.args.join(" ");
        command_lines.iter().any(|line| line.contains(&wanted))
    };
    servers.iter().filter(runs).count()
}

fn command_line(pid: u32) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

#[test]
fn a_server_started_by_npx_ends_with_all_its_processes_when_the_client_disconnects() {
    let Some(parts) = Parts::with(&[Part::Npm]) else { return };
    let sandbox = Sandbox::new();
    let (mut client, mark) = start(&[&servers::everything_by_npx(&parts)], &sandbox);
    client.initialize();
    assert_npx_answers(&mut client);
    client.close_stdin();
    assert!(client.wait_exit().success());
    wait_until_nothing_is_left(&mark);
}

#[test]
fn a_server_started_by_npx_ends_with_all_its_processes_when_we_are_killed() {
    let Some(parts) = Parts::with(&[Part::Npm]) else { return };
    let sandbox = Sandbox::new();
    let (mut client, mark) = start(&[&servers::everything_by_npx(&parts)], &sandbox);
    client.initialize();
    assert_npx_answers(&mut client);
    client.kill_hard();
    client.wait_exit();
    wait_until_nothing_is_left(&mark);
}

#[track_caller]
fn assert_npx_answers(client: &mut Driver) {
    let answer = client.call("npx:echo", json!({"message": "hello"}));
    assert_eq!(answer["result"]["content"][0]["text"], "Echo: hello", "{answer}");
    let server = "mcp-server-everything";
    let of_npx = descendants(client.pid()).into_iter().filter(|pid| command_line(*pid).contains(server)).count();
    assert!(of_npx >= 2, "npx and the server are processes of their own");
}
