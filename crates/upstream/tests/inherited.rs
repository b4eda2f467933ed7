//! Programs inherit the original limit of open files and a mark; our own limits stay as they are.
//!
//! One test in its own program: limits apply to the whole process.

use std::fs::File;
use std::io::Read;

use catalog::{Accepted, Config, Program, Transport};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::process::Command;
use upstream::process::{Process, Streams};
use upstream::watchdog::Watchdog;
use upstream::{InstanceMark, raise_open_files};

const FOUND: u64 = 400;
const RAISED: u64 = 2000;

fn shell(script: &str) -> Program {
    let text = serde_json::json!({"mcpServers": {"x": {"command": "sh", "args": ["-c", script]}}}).to_string();
    let config = Config::parse(text.as_bytes(), Accepted::All, |_| None).expect("a good config");
    match config.servers.into_iter().next().expect("one server").transport {
        Transport::Stdio(program) => program,
        _ => unreachable!("it has a command"),
    }
}

/// The output of the program. Its input ends once it was started.
async fn said(script: &str) -> String {
    let instance_mark = InstanceMark::new(std::process::id(), 7, None);
    let watchdog = Watchdog::absent();
    let started = Process::start(&shell(script), &[], &[], instance_mark.tag_of(3), &watchdog);
    let (mut process, streams) = started.expect("a shell can be started");
    let Streams { stdin, stdout, stderr: _stderr } = streams;
    drop(stdin);
    let mut text = String::new();
    File::from(stdout).read_to_string(&mut text).expect("it writes text");
    process.ended().await.expect("it can be waited for");
    text.trim().to_owned()
}

#[tokio::test]
async fn programs_inherit_the_limits_that_are_meant_for_them() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(FOUND), maximum }).unwrap();
    let locks = getrlimit(Resource::Locks);
    raise_open_files(RAISED).unwrap();
    let raised = getrlimit(Resource::Nofile);
    assert_eq!(raised.current, Some(RAISED));

    assert_eq!(said("ulimit -Sn").await, FOUND.to_string());
    let direct = Command::new("sh").args(["-c", "ulimit -Sn"]).output().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&direct.stdout).trim(), RAISED.to_string(), "who inherits ours has ours");

    let marked = said("grep 'Max file locks' /proc/self/limits").await;
    let soft: u64 = marked.split_whitespace().nth(3).expect("a soft limit").parse().expect("a number");
    assert_eq!(soft & ((1 << 22) - 1), 3, "the number of the server: {marked}");

    // With so many files of ours, the limit is set right after the start; the end of its input comes after that.
    let many: Vec<File> = (0..500).map(|_| File::open("/dev/null").unwrap()).collect();
    assert_eq!(said("read -r line; ulimit -Sn").await, FOUND.to_string());
    drop(many);

    assert_eq!(getrlimit(Resource::Nofile), raised, "ours is as it was");
    assert_eq!(getrlimit(Resource::Locks), locks, "and is not marked");
}
