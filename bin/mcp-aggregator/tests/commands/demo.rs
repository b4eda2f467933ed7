//! `demo`, and what a newcomer does with it: the first command, the first tool, the live view, a client.

use std::process::{Command, Stdio};

use tempfile::TempDir;
use testkit::run::run_command;
use testkit::{Driver, Launch, Output, Signal, wait_until};

use crate::manual::needs;
use crate::{PROGRAM, expect};

/// A demo that runs, in an empty home.
pub(crate) struct Demo {
    driver: Driver,
    home: TempDir,
    pub(crate) url: String,
}

impl Demo {
    pub(crate) fn start() -> Self {
        let home = TempDir::with_prefix("home-").unwrap();
        let launch = Launch::program(PROGRAM).args(["demo", "--listen", "0"]);
        let driver =
            launch.env("HOME", home.path()).env("TMPDIR", home.path()).env_remove("MCP_AGGREGATOR_TOKEN").start();
        driver.wait_for_stderr("/api/docs");
        let said = driver.stderr_text();
        let url = said.lines().find_map(|line| line.strip_prefix("listening on ")).unwrap().to_owned();
        Self { driver, home, url }
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.args(arguments).args(["--url", &self.url]).env("HOME", self.home.path()).env_remove("COLUMNS");
        run_command(command.env_remove("MCP_AGGREGATOR_TOKEN").stdin(Stdio::null()))
    }

    /// Ends it, as the user does.
    pub(crate) fn stop(&mut self) {
        self.driver.signal(Signal::INT);
        assert!(self.driver.wait_exit().success());
    }

    /// Waits until both servers can be used.
    pub(crate) fn ready(&self) {
        wait_until("both servers are connected", || {
            let state = self.run(&["top", "--once"]).stdout;
            state.contains("2 of 2 servers connected").then_some(())
        });
    }
}

#[test]
fn the_commands_that_demo_prints_work() {
    let reported = testkit::run(PROGRAM, [""; 0]).stderr;
    assert!(reported.contains("mcp-aggregator demo "), "{reported}");
    let mut demo = Demo::start();
    demo.ready();
    let said = demo.driver.stderr_text();
    for verb in ["call --url", "top --url"] {
        assert!(said.contains(&format!("  mcp-aggregator {verb} {}", demo.url)), "{said}");
    }
    let answer = demo.run(&["call", "calc.evaluate", "expression=0.1 + 0.2"]);
    expect(&answer, 0);
    assert!(answer.stdout.contains("0.3"), "{}", answer.stdout);
    let found = demo.run(&["call", "notes.search", "query=demo"]);
    assert!(found.stdout.contains("welcome"), "{}", found.stdout);
    wait_until("the call is in the live view", || {
        let frame = demo.run(&["top", "--once"]).stdout;
        frame.lines().any(|line| line.contains("calc.evaluate") && line.contains("success")).then_some(())
    });
    let doctor = demo.run(&["doctor"]);
    expect(&doctor, 0);
    assert!(doctor.stdout.contains("calc: connected, "), "{}", doctor.stdout);
    let dry = demo.run(&["connect", "cursor", "--dry-run"]);
    expect(&dry, 0);
    assert!(dry.stdout.contains(&format!("\"url\": \"{}/mcp\"", demo.url)), "{}", dry.stdout);

    demo.stop();
    let left: Vec<_> = std::fs::read_dir(demo.home.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn top_without_a_terminal_suggests_an_alternative() {
    let output = testkit::run(PROGRAM, ["top"]);
    expect(&output, 2);
    assert!(output.stderr.contains("top --once"), "{}", output.stderr);
}

/// A terminal of our own, with a shell in it.
struct Terminal {
    socket: String,
}

impl Terminal {
    fn open(home: &TempDir) -> Self {
        let socket = home.path().join("tmux").to_str().unwrap().to_owned();
        let terminal = Self { socket };
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "env PS1='$ ' sh"]);
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        let output =
            run_command(command.args(["-S", &self.socket]).args(arguments).env_remove("TMUX").stdin(Stdio::null()));
        expect(&output, 0);
        output.stdout
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"][..], keys].concat());
    }

    fn shows(&self, what: &str) -> String {
        wait_until(&format!("the terminal shows {what}"), || {
            let screen = self.tmux(&["capture-pane", "-p"]);
            screen.contains(what).then_some(screen)
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // One that is gone already needs no end.
        Command::new("tmux").args(["-S", &self.socket, "kill-server"]).stderr(Stdio::null()).status().ok();
    }
}

#[test]
fn a_client_follows_a_service_that_moved() {
    let mut demo = Demo::start();
    demo.ready();
    let connect = |url: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["connect", "cursor", "--url", url]).env("HOME", demo.home.path()).stdin(Stdio::null());
        run_command(command.env_remove("MCP_AGGREGATOR_TOKEN"))
    };
    let file = demo.home.path().join(".cursor/mcp.json");
    let entry = || std::fs::read_to_string(&file).unwrap();
    expect(&connect(&demo.url), 0);
    assert!(entry().contains("127.0.0.1"), "{}", entry());
    let moved = demo.url.replace("127.0.0.1", "localhost");
    expect(&connect(&moved), 0);
    assert!(entry().contains("localhost") && !entry().contains("127.0.0.1"), "{}", entry());
    // What somebody else put there is not ours, whatever it is called.
    std::fs::write(&file, entry().replace("localhost", "other.example")).unwrap();
    let refused = connect(&moved);
    expect(&refused, 1);
    assert!(refused.stderr.contains("has another server with the name `all`"), "{}", refused.stderr);
    demo.stop();
}

#[test]
fn what_nohup_starts_outlives_its_terminal() {
    let home = TempDir::with_prefix("home-").unwrap();
    let script = format!("trap '' HUP; exec '{PROGRAM}' serve --listen 0 --data-dir '{}'", home.path().display());
    let launch = Launch::program("sh").args(["-c", &script]).env("HOME", home.path());
    let mut serve = launch.env_remove("MCP_AGGREGATOR_TOKEN").start();
    serve.wait_for_stderr("listening on ");
    serve.signal(Signal::HUP);
    let file = home.path().join("service.json");
    let status = run_command(Command::new(PROGRAM).args(["status", "--data-dir"]).arg(home.path()));
    expect(&status, 0);
    assert!(file.exists(), "it still says where it is");
    serve.signal(Signal::TERM);
    assert!(serve.wait_exit().success());
}

#[test]
fn a_call_that_is_named_is_not_taken_for_all_calls() {
    let mut demo = Demo::start();
    demo.ready();
    for word in ["stop", "allow"] {
        let refused = demo.run(&["calls", word, "0199c0de-0000-7000-8000-000000000000"]);
        expect(&refused, 2);
        assert!(refused.stderr.contains("calls cancel 0199c0de-"), "{}", refused.stderr);
    }
    expect(&demo.run(&["call", "calc.evaluate", "expression=1+1"]), 0);
    // Under either name, and under its own: what its schema calls text stays text.
    for name in ["calc.evaluate", "calc__evaluate", "evaluate"] {
        let answer = demo.run(&["call", name, "expression=42"]);
        expect(&answer, 0);
        assert!(answer.stdout.contains("42"), "{name}: {}", answer.stdout);
    }
    demo.stop();
}

#[test]
fn a_tool_is_explained_with_a_command_that_calls_it_and_a_server_has_its_tools_listed() {
    let mut demo = Demo::start();
    demo.ready();
    let output = demo.run(&["tools", "calc.evaluate"]);
    expect(&output, 0);
    let call = output.stdout.lines().last().unwrap();
    assert_eq!(call, format!("mcp-aggregator call --url {} calc.evaluate expression=TEXT", demo.url));
    assert!(output.stdout.contains("expression  string"), "{}", output.stdout);
    for name in ["calc__evaluate", "evaluate"] {
        assert_eq!(demo.run(&["tools", name]).stdout, output.stdout, "{name}");
    }
    let listed = demo.run(&["tools", "notes"]);
    expect(&listed, 0);
    assert!(listed.stdout.lines().all(|line| line.starts_with("notes.")), "{}", listed.stdout);
    let off = demo.run(&["tools", "off", "calc"]);
    assert!(off.stderr.contains("tools off --server calc"), "{}", off.stderr);
    let missing = demo.run(&["tools", "notse"]);
    expect(&missing, 1);
    assert!(missing.stderr.contains("did you mean `notes`?"), "{}", missing.stderr);
    demo.stop();
}

#[test]
fn a_demo_interrupted_at_its_start_leaves_nothing() {
    for _ in 0..5 {
        let home = TempDir::with_prefix("home-").unwrap();
        let things = || std::fs::read_dir(home.path()).unwrap().count();
        let launch = Launch::program(PROGRAM).args(["demo", "--listen", "0"]);
        let mut demo = launch.env("HOME", home.path()).env("TMPDIR", home.path()).start();
        // Without a pause: what matters are its first milliseconds.
        let deadline = std::time::Instant::now() + testkit::DEADLINE;
        while things() == 0 {
            assert!(std::time::Instant::now() < deadline, "it makes a folder");
            std::hint::spin_loop();
        }
        demo.signal(Signal::TERM);
        assert!(demo.wait_exit().success());
        assert_eq!(things(), 0);
    }
}

#[test]
fn top_is_live_obeys_its_keys_and_gives_the_terminal_back() {
    if !needs("tmux") {
        return;
    }
    let demo = Demo::start();
    demo.ready();
    let terminal = Terminal::open(&demo.home);
    let top = format!("'{PROGRAM}' top --url {}; echo \"ended with $?\"; stty -a | grep -o '[-]*icanon'", demo.url);
    terminal.keys(&[&top, "Enter"]);
    terminal.shows("2 of 2 servers connected");
    expect(&demo.run(&["call", "calc.evaluate", "expression=1+1"]), 0);
    terminal.shows("calc.evaluate");
    // The first below "(all)" is `calc`, the next `notes`, which nobody has called.
    terminal.keys(&["Down", "j"]);
    let of_notes = terminal.shows(">  notes");
    assert!(!of_notes.contains("calc.evaluate"), "{of_notes}");
    terminal.keys(&["k", "s"]);
    terminal.shows("sorted by calls");
    terminal.tmux(&["resize-window", "-x", "60", "-y", "15"]);
    wait_until("the view fits the smaller terminal", || {
        let screen = terminal.tmux(&["capture-pane", "-p"]);
        let fits = screen.contains("q quit") && screen.lines().count() <= 15;
        fits.then_some(())
    });
    terminal.keys(&["q"]);
    let after = terminal.shows("ended with 0");
    assert!(!after.contains("q quit"), "{after}");
    let after = wait_until("the terminal's mode is told", || {
        let screen = terminal.tmux(&["capture-pane", "-p"]);
        screen.lines().any(|line| line.trim_end().ends_with("icanon") && !line.contains("stty")).then_some(screen)
    });
    assert!(after.lines().any(|line| line.trim_end() == "icanon"), "{after}");
}
