//! `serve`: the command itself; what it serves is tested as a whole elsewhere.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::thread;

use testkit::{Config, fake, wait_until};

use crate::{PROGRAM, Run, expect, one, run};

/// A running `serve` and where it listens.
pub(crate) struct Served {
    child: Child,
    pub(crate) address: String,
    /// What else it says.
    words: thread::JoinHandle<String>,
}

pub(crate) fn serve(mut run: Run) -> Served {
    let mut child = run.command.args(["--listen", "0"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let (mut said, mut line) = (String::new(), String::new());
    let address = loop {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "{said}");
        if let Some(address) = line.trim().strip_prefix("listening on http://") {
            break address.to_owned();
        }
        said += &line;
    };
    let words = thread::spawn(move || {
        stderr.read_to_string(&mut said).unwrap();
        said
    });
    Served { child, address, words }
}

impl Served {
    /// The answer to a request that asks for the connection to be closed.
    fn ask(&self, head: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "{head}\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    pub(crate) fn stop(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, testkit::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        self.words.join().unwrap()
    }
}

#[test]
fn it_prints_its_address_and_a_client_config_and_ends_on_a_signal() {
    let config = one();
    let served = serve(Run::new("serve", config.path()));
    let health = served.ask("GET /health HTTP/1.1");
    assert!(health.starts_with("HTTP/1.1 200 ") && health.contains(r#"{"status":"ok""#), "{health}");
    assert!(!health.contains("one"), "names are nobody's business");
    let address = served.address.clone();
    let words = served.stop();
    assert!(words.contains(&format!(r#""url": "http://{address}/mcp""#)), "{words}");
}

#[test]
fn a_port_that_is_taken_is_named_and_no_server_is_started() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let config = Config::new().server("one", fake()).write();
    let journal = config.folder().join("journal");
    let config = Config::new().server("one", fake().args(["--journal", journal.to_str().unwrap()])).write();
    let output = run("serve", &config, &["--listen", &address]);
    expect(&output, 1);
    assert!(output.stderr.contains(&format!("could not listen on {address}")), "{}", output.stderr);
    // This very process has it.
    let program = std::env::args().next().unwrap();
    let holder = format!("process {} (`{program}", std::process::id());
    assert!(output.stderr.contains(&holder) && output.stderr.contains("listens there"), "{}", output.stderr);
    assert!(output.stderr.contains("hint: stop the program that listens there"), "{}", output.stderr);
    assert!(!journal.exists());
}

#[test]
fn without_tokens_only_this_machine_is_served() {
    let output = run("serve", &one(), &["--listen", "0.0.0.0:0"]);
    expect(&output, 2);
    assert!(output.stderr.contains("without tokens"), "{}", output.stderr);
    assert!(output.stderr.contains("hint: set MCP_AGGREGATOR_TOKEN"), "{}", output.stderr);
}

#[test]
fn tokens_are_required_and_never_printed() {
    let config = one();
    let tokens = config.folder().join("tokens");
    std::fs::write(&tokens, "ann:hunter2\n").unwrap();
    let with = ["--token-file", tokens.to_str().unwrap(), "--debug"];
    let served = serve(Run::new("serve", config.path()).args(&with).env("MCP_AGGREGATOR_TOKEN", "swordfish"));
    let refused = served.ask("GET /mcp HTTP/1.1\r\nAccept: text/event-stream");
    assert!(refused.starts_with("HTTP/1.1 401 ") && refused.contains("www-authenticate: Bearer"), "{refused}");
    for token in ["hunter2", "swordfish"] {
        let request = format!("GET /mcp HTTP/1.1\r\nAccept: text/event-stream\r\nAuthorization: Bearer {token}");
        let known = served.ask(&request);
        assert!(known.starts_with("HTTP/1.1 400 "), "let in, but without a session: {known}");
    }
    let words = served.stop();
    assert!(words.contains("Bearer <token>"), "{words}");
    assert!(!words.contains("hunter2") && !words.contains("swordfish"), "{words}");
}

#[test]
fn a_token_that_is_taken_out_of_the_file_opens_no_more_and_a_new_one_does() {
    let config = one();
    let tokens = config.folder().join("tokens");
    std::fs::write(&tokens, "ann:ann-0123456789abcdef\nbob:bob-0123456789abcdef\n").unwrap();
    let log = config.folder().join("log");
    let with = ["--token-file", tokens.to_str().unwrap(), "--log-file", log.to_str().unwrap()];
    let served = serve(Run::new("serve", config.path()).args(&with));
    let status = |token: &str| {
        let answer = served.ask(&format!("GET /api/v1/aggregator/state HTTP/1.1\r\nAuthorization: Bearer {token}"));
        answer.get(9..12).unwrap_or_default().to_owned()
    };
    let statuses = || ["ann", "bob", "eve"].map(|name| status(&format!("{name}-0123456789abcdef")));
    assert_eq!(statuses(), ["200", "200", "401"]);
    std::fs::write(&tokens, "ann:ann-0123456789abcdef\neve:eve-0123456789abcdef\n").unwrap();
    wait_until("the file is read again", || (statuses() == ["200", "401", "200"]).then_some(()));
    std::fs::write(&tokens, "no token at all\n").unwrap();
    let logged = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("what is wrong is told", || logged().contains("the last valid tokens remain in use").then_some(()));
    assert_eq!(statuses(), ["200", "401", "200"]);
    // Not only in the log: who was to be kept out may still come in.
    let health = || served.ask("GET /api/v1/aggregator/health HTTP/1.1\r\nAuthorization: Bearer ann-0123456789abcdef");
    let reply = health();
    assert!(reply.contains("\"degraded\"") && reply.contains("\"tokens\""), "{reply}");
    std::fs::write(&tokens, "ann:ann-0123456789abcdef\n").unwrap();
    wait_until("all is well again", || health().contains("\"healthy\"").then_some(()));
    assert_eq!(statuses(), ["200", "401", "401"]);
    served.stop();
}

#[test]
fn tokens_that_others_can_read_or_guess_are_warned_of() {
    let config = one();
    let tokens = config.folder().join("tokens");
    let serve_with = |text: &str, mode: u32| {
        std::fs::write(&tokens, text).unwrap();
        std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(mode)).unwrap();
        serve(Run::new("serve", config.path()).args(&["--token-file", tokens.to_str().unwrap()])).stop()
    };
    let words = serve_with("ann:hunter2\nbob:0123456789abcdef\n", 0o644);
    assert!(words.contains("can be guessed") && words.contains("ann") && !words.contains("bob"), "{words}");
    assert!(words.contains("chmod 600") && !words.contains("hunter2"), "{words}");
    let words = serve_with("bob:0123456789abcdef\n", 0o600);
    assert!(!words.contains("WARN"), "{words}");
}

#[test]
fn a_token_file_that_cannot_be_used_is_explained() {
    let config = one();
    let tokens = config.folder().join("tokens");
    std::fs::write(&tokens, "hunter2\n").unwrap();
    let output = run("serve", &config, &["--token-file", tokens.to_str().unwrap()]);
    expect(&output, 1);
    assert!(output.stderr.contains("line 1: expected `name:token`"), "{}", output.stderr);
    assert!(!output.stderr.contains("hunter2"), "{}", output.stderr);
    let output = testkit::run(PROGRAM, ["serve", "--config", "c", "--token-file", "/nonexistent/tokens"]);
    expect(&output, 1);
    assert!(output.stderr.contains("/nonexistent/tokens"), "{}", output.stderr);
}

#[test]
fn a_second_service_is_refused_with_the_process_of_the_first() {
    let config = one();
    let served = serve(Run::new("serve", config.path()));
    let output = run("serve", &config, &["--listen", "0"]);
    expect(&output, 1);
    let holder = format!("process {} (`{PROGRAM} serve --config ", served.child.id());
    assert!(output.stderr.contains(&holder), "{}", output.stderr);
    assert!(output.stderr.contains(&served.address), "{}", output.stderr);
    served.stop();
}

#[test]
fn a_config_that_cannot_be_parsed_ends_it_at_once() {
    for text in ["{ \"mcpServers\": { \"a\": } }", "", "{ \"mcpServers\": {} } more"] {
        let config = Config::new().raw(text).write();
        let output = run("serve", &config, &["--listen", "0"]);
        expect(&output, 1);
        assert!(output.stderr.contains(config.path().to_str().unwrap()), "{}", output.stderr);
        assert!(output.stderr.contains("invalid JSON in line 1"), "{}", output.stderr);
    }
}

#[test]
fn a_config_that_becomes_invalid_is_reported_everywhere_and_the_last_valid_one_stays() {
    let config = one();
    let served = serve(Run::new("serve", config.path()));
    let whole = std::fs::read_to_string(config.path()).unwrap();
    let health = || served.ask("GET /health HTTP/1.1");
    let status = |verb: &str| {
        let url = format!("http://{}", served.address);
        testkit::run(PROGRAM, [verb, "--url", &url])
    };
    let is_running = || served.ask("GET /api/v1/aggregator/servers/one HTTP/1.1").contains(r#""status":"connected""#);
    wait_until("it is connected", || is_running().then_some(()));
    expect(&status("status"), 0);

    let commented = format!("// what we use\n{whole}");
    std::fs::write(config.path(), &commented).unwrap();
    std::fs::write(config.path(), format!("{commented} broken")).unwrap();
    let reported = wait_until("what is wrong is told", || {
        Some(health()).filter(|reported| !reported.contains(r#""status":"ok""#))
    });
    let name = config.path().file_name().unwrap().to_str().unwrap();
    assert!(reported.contains(r#""status":"degraded""#) && reported.contains(name), "{reported}");
    assert!(!reported.contains(config.folder().to_str().unwrap()), "folders are nobody's business: {reported}");
    let path = config.path().to_str().unwrap();
    let output = status("status");
    expect(&output, 1);
    assert!(output.stderr.contains(path), "{}", output.stderr);
    let output = status("doctor");
    expect(&output, 1);
    assert!(output.stdout.contains(path), "{}", output.stdout);
    for page in ["/", "/system"] {
        let shown = served.ask(&format!("GET {page} HTTP/1.1"));
        assert!(shown.contains(path), "{page}: {shown}");
    }
    assert!(is_running());

    std::fs::write(config.path(), commented).unwrap();
    wait_until("all is well again", || health().contains(r#""status":"ok""#).then_some(()));
    assert!(is_running());
    expect(&status("status"), 0);
    served.stop();
}

#[test]
fn every_line_about_a_broken_config_is_shown_with_the_whole_path_of_the_file() {
    let config = one();
    let path = config.path().canonicalize().unwrap();
    let mut run = Run::new("serve", std::path::Path::new(path.file_name().unwrap()));
    run.command.current_dir(path.parent().unwrap());
    let served = serve(run);
    std::fs::write(&path, r#"{ "mcpServers": { "one": { "command": 5 }, "two": { "comand": "x" } } }"#).unwrap();
    wait_until("what is wrong is told", || {
        (!served.ask("GET /health HTTP/1.1").contains(r#""status":"ok""#)).then_some(())
    });
    let (path, url) = (path.to_str().unwrap(), format!("http://{}", served.address));
    let output = testkit::run(PROGRAM, ["status", "--url", &url]);
    expect(&output, 1);
    let doctor = testkit::run(PROGRAM, ["doctor", "--url", &url]);
    expect(&doctor, 1);
    let health = served.ask("GET /api/v1/aggregator/health HTTP/1.1");
    let page = served.ask("GET / HTTP/1.1");
    for (place, shown) in [("status", &output.stderr), ("doctor", &doctor.stdout), ("/health", &health), ("/", &page)] {
        for words in [path, "$.mcpServers.one.command", "$.mcpServers.two"] {
            assert!(shown.contains(words), "{place} does not show {words}: {shown}");
        }
    }
    served.stop();
}

#[test]
fn a_variable_that_is_no_text_is_refused_and_not_as_if_it_were_not_set() {
    use std::os::unix::ffi::OsStrExt;
    for name in [
        "MCP_AGGREGATOR_TOKEN",
        "MCP_AGGREGATOR_LIMITS",
        "MCP_AGGREGATOR_DATABASE_WAIT",
        "MCP_CREDENTIAL_KEY",
        "MCP_VECTORS",
    ] {
        let config = one();
        let mut run = Run::new("serve", config.path()).args(&["--listen", "0"]);
        run.command.env(name, std::ffi::OsStr::from_bytes(b"hunter2-\xff"));
        let output = run.output();
        expect(&output, 2);
        assert!(output.stderr.contains(&format!("{name} is not valid UTF-8")), "{}", output.stderr);
    }
}

#[test]
fn a_schema_is_for_postgresql_and_has_a_plain_name() {
    let output = run("serve", &one(), &["--listen", "0", "--database-schema", "team_a"]);
    expect(&output, 2);
    assert!(output.stderr.contains("--database-schema is for PostgreSQL"), "{}", output.stderr);
    let output = run("serve", &one(), &["--listen", "0", "--database-schema", "a.b"]);
    expect(&output, 2);
    assert!(output.stderr.contains("`a.b` cannot be the name of a schema"), "{}", output.stderr);
}
