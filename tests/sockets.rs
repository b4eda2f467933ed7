//! Any kind of stdin and stdout: pipes, sockets, files, or none.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use testkit::config::ConfigFile;
use testkit::{Config, Launch, descendants, fake, program, wait_gone_or_zombie, wait_until};

use crate::fixture::{initialized, text_of};

/// Runs the program with these streams to its end.
#[track_caller]
fn run_with(config: &Config, stdin: impl Into<Stdio>, stdout: impl Into<Stdio>) -> ExitStatus {
    let file = config.write();
    let mut command = Command::new(program("mcp-simple-aggregator"));
    command.arg("--config").arg(file.path()).stdin(stdin).stdout(stdout).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program can be started");
    drop(command);
    wait_until("the program has ended", || child.try_wait().expect("our own child can be waited for"))
}

const CONVERSATION: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"file","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"one:blob","arguments":{"bytes":3000000}}}
{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"one:echo","arguments":{"text":"hi"}}}
"#;

#[test]
fn sockets_work_as_pipes_do() {
    let mut client = initialized(Launch::aggregator(&Config::new().server("one", fake())).over_sockets());
    assert!(client.tool_names().contains(&"one:echo".to_owned()));
    assert_eq!(text_of(&client.call("one:blob", json!({"bytes": 5_000_000}))).len(), 5_000_000);
    let answer = client.call("one:size", json!({"t": "x".repeat(5_000_000)}));
    assert!(answer["result"]["structuredContent"]["bytes"].as_u64().unwrap() > 5_000_000);
    let processes = descendants(client.pid());
    client.close_stdin();
    assert_eq!(client.wait_exit().code(), Some(0));
    processes.into_iter().for_each(wait_gone_or_zombie);
}

/// Starts the program with one and the same socket as stdin and stdout.
#[track_caller]
fn over_one_socket(config: &ConfigFile) -> (Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets can be made");
    let mut command = Command::new(program("mcp-simple-aggregator"));
    command.arg("--config").arg(config.path()).stderr(Stdio::null());
    command.stdin(OwnedFd::from(theirs.try_clone().expect("a socket can be shared"))).stdout(OwnedFd::from(theirs));
    let child = command.spawn().expect("the program can be started");
    ours.set_read_timeout(Some(testkit::DEADLINE)).expect("a limit can be set");
    (child, ours)
}

#[test]
fn one_socket_may_be_both_stdin_and_stdout() {
    let file = Config::new().server("one", fake()).write();
    let (mut child, ours) = over_one_socket(&file);
    (&ours).write_all(CONVERSATION.as_bytes()).unwrap();
    let mut answers = BufReader::new(&ours);
    let mut lines = vec![String::new(); 4];
    for line in &mut lines {
        answers.read_line(line).unwrap();
    }
    assert!(lines.iter().any(|line| line.len() > 3_000_000));
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    let status = wait_until("the program has ended", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_client_that_shuts_down_half_of_a_socket_still_gets_its_answers() {
    let file = Config::new().server("one", fake()).write();
    let (mut child, ours) = over_one_socket(&file);
    let call =
        r#"{"jsonrpc":"2.0","id":"last","method":"tools/call","params":{"name":"one:sleep","arguments":{"ms":500}}}"#;
    (&ours).write_all(format!("{CONVERSATION}{call}\n").as_bytes()).unwrap();
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    let lines: Vec<Value> =
        BufReader::new(&ours).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    let last = lines.iter().find(|line| line["id"] == "last").expect("the answer came before the end");
    assert_eq!(text_of(last), "slept");
    let status = wait_until("the program has ended", || child.try_wait().unwrap());
    assert_eq!(status.code(), Some(0));
}

#[test]
fn files_work_for_stdin_and_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let (questions, answers) = (folder.path().join("in"), folder.path().join("out"));
    fs::write(&questions, CONVERSATION).unwrap();
    let config = Config::new().server("one", fake());
    let status = run_with(&config, File::open(&questions).unwrap(), File::create(&answers).unwrap());
    assert_eq!(status.code(), Some(0));
    let text = fs::read_to_string(&answers).unwrap();
    let answers: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut ids: Vec<_> = answers.iter().filter_map(|answer| answer["id"].as_u64()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4]);
    let answer = |id: u64| answers.iter().find(|answer| answer["id"] == id).unwrap();
    assert_eq!(text_of(answer(3)).len(), 3_000_000);
    assert_eq!(text_of(answer(4)), "hi");
}

#[test]
fn an_empty_stdin_ends_the_program_in_order() {
    let config = Config::new().server("one", fake());
    assert_eq!(run_with(&config, Stdio::null(), Stdio::null()).code(), Some(0));
    assert_eq!(run_with(&Config::new(), Stdio::null(), Stdio::null()).code(), Some(0));
}

#[test]
fn a_full_disk_as_stdout_does_not_hang_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let questions = folder.path().join("in");
    fs::write(&questions, CONVERSATION).unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let config = Config::new().server("one", fake());
    let status = run_with(&config, File::open(&questions).unwrap(), full);
    assert!(status.code().is_some(), "{status}");
}

#[test]
fn a_terminal_that_takes_no_more_does_not_hang_the_program() {
    for ends_by_signal in [false, true] {
        let file = Config::new().server("one", fake()).write();
        // A terminal that accepts no output, as after Ctrl-S.
        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&screen).unwrap();
        unlockpt(&screen).unwrap();
        let path = ptsname(&screen, Vec::new()).unwrap();
        let terminal = File::options().write(true).open(path.to_str().unwrap()).unwrap();
        let mut command = Command::new(program("mcp-simple-aggregator"));
        command.arg("--config").arg(file.path()).stdin(Stdio::piped()).stdout(terminal).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(CONVERSATION.as_bytes()).unwrap();
        let server = wait_until("the server and its watchdog run", || {
            let processes = descendants(child.id());
            (processes.len() == 2).then_some(processes)
        });
        // The first responses arrive: the start is complete, and the large response is on its way.
        std::io::Read::read_exact(&mut &File::from(screen.try_clone().unwrap()), &mut [0]).unwrap();
        match ends_by_signal {
            true => kill_process(Pid::from_child(&child), Signal::TERM).unwrap(),
            false => drop(stdin),
        }
        let status = wait_until("the program has ended", || child.try_wait().unwrap());
        assert_eq!(status.code(), Some(0));
        server.into_iter().for_each(wait_gone_or_zombie);
    }
}

/// The program started by a shell that redirects its stderr; `$0` is the program, `$@` its arguments.
fn behind_a_shell(arrangement: &str, folder: &Path, config: &Path) -> Launch {
    let script = format!("{arrangement} exec \"$0\" \"$@\" 2>&3");
    let launch = Launch::program("sh").args(["-c", &script]).arg(program("mcp-simple-aggregator"));
    launch.arg("--config").arg(config).arg("--debug").cwd(folder)
}

#[test]
fn an_unread_stderr_blocks_nothing() {
    let file = Config::new().server("loud", fake()).server("good", fake()).write();
    // Open for reading as well, so that writing blocks when it is full instead of failing.
    let launch = behind_a_shell("mkfifo log; exec 3<>log;", file.folder(), file.path());
    let mut client = initialized(launch);
    assert_eq!(text_of(&client.call("loud:stderr", json!({"bytes": 3_000_000}))), "done");
    assert_eq!(text_of(&client.call("good:echo", json!({"text": "hi"}))), "hi");
    client.call("loud:crash", json!({}));
    client.close_stdin();
    assert_eq!(client.wait_exit().code(), Some(0));
}

#[test]
fn stderr_may_be_the_same_pipe_as_stdout() {
    let file = Config::new().server("loud", fake()).write();
    let mut client = initialized(behind_a_shell("exec 3>&1;", file.folder(), file.path()));
    assert_eq!(text_of(&client.call("loud:blob", json!({"bytes": 2_000_000}))).len(), 2_000_000);
    assert_eq!(text_of(&client.call("loud:stderr", json!({"bytes": 1_000_000}))), "done");
    client.close_stdin();
    assert_eq!(client.wait_exit().code(), Some(0));
    let panicked = client.drain().iter().any(|line| line.windows(8).any(|word| word == b"panicked"));
    assert!(!panicked);
}
