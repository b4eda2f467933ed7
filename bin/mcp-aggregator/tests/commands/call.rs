//! `call`.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Command, Stdio};

use serde_json::json;
use testkit::{Config, Launch, ServerEntry, Signal, fake, raw};

use crate::{PROGRAM, Run, expect, failing, json, noted, one, run};

/// Calls the tool that answers with whatever it is told to.
fn answered_with(result: &str, more: &[&str]) -> testkit::Output {
    let arguments = json!({"result": result}).to_string();
    run("call", &one(), &[&["one.raw", arguments.as_str()], more].concat())
}

#[test]
fn arguments_are_pairs_an_object_or_stdin() {
    let config = one();
    let sent = |arguments: &[&str]| {
        let output = run("call", &config, &[&["one.echo", "--json"], arguments].concat());
        expect(&output, 0);
        raw::at(output.stdout.trim_end().as_bytes(), &["structuredContent"]).unwrap().to_owned()
    };
    assert_eq!(sent(&[]), "{}");
    assert_eq!(sent(&["n=1e2", "s=hello", "l:=[1, 2]"]), r#"{"n":1e2,"s":"hello","l":[1, 2]}"#);
    assert_eq!(sent(&[r#"{ "n" :1.50}"#]), r#"{ "n" :1.50}"#);

    let mut piped = Command::new(PROGRAM);
    piped.args(["call", "one.echo", "-", "--config"]).arg(config.path());
    let mut child = piped.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"{\n  \"text\": \"two\\nlines\"\n}\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"two\nlines\n");
}

#[test]
fn arguments_that_make_no_sense_start_nothing() {
    let folder = one();
    let config = Config::new().server("one", noted(folder.folder(), "journal")).write();
    for (typed, expected) in [("{\"a\":", "not valid JSON"), ("word", "key=value"), ("a:=x", "not valid JSON")] {
        let output = run("call", &config, &["one.echo", typed]);
        expect(&output, 2);
        assert!(output.stderr.starts_with("error: ") && output.stderr.contains(expected), "{}", output.stderr);
        assert_eq!(output.stdout, "");
    }
    assert!(!folder.folder().join("journal").exists());
}

#[test]
fn results_are_printed_as_text_or_verbatim() {
    let image = r#"{"type":"image","data":"AA==","mimeType":"image/png","n":1.0}"#;
    let result = format!(r#"{{ "content":[{{"type":"text","text":"a\nb"}},{image}],"x":1e2 }}"#);
    let output = answered_with(&result, &[]);
    expect(&output, 0);
    assert_eq!(output.stdout, format!("a\nb\n{image}\n"));
    assert_eq!(output.stderr, "");
    assert_eq!(answered_with(&result, &["--json"]).stdout, result + "\n");
    assert_eq!(answered_with(r#"{"structuredContent":{"a": 1.0}}"#, &[]).stdout, "{\"a\": 1.0}\n");
}

#[test]
fn a_tool_error_is_exit_status_3() {
    let result = r#"{"content":[{"type":"text","text":"no such file"}],"isError":true}"#;
    let output = answered_with(result, &[]);
    expect(&output, 3);
    assert_eq!(output.stdout, "");
    assert_eq!(output.stderr, "error: `one.raw` reported an error\nno such file\n");
    let output = answered_with(result, &["--json"]);
    expect(&output, 3);
    assert_eq!(output.stdout, format!("{result}\n"));
}

#[test]
fn a_json_rpc_error_is_exit_status_1() {
    let error = r#"{"code":-32602,"message":"bad path","data":{"n":1.0}}"#;
    let arguments = json!({"error": error}).to_string();
    let output = run("call", &one(), &["one.raw_error", &arguments]);
    expect(&output, 1);
    assert_eq!(output.stdout, "");
    let reported = "error: `one.raw_error` failed: bad path (code -32602)\n  data: {\"n\":1.0}\n";
    assert_eq!(output.stderr, reported);
    let output = run("call", &one(), &["one.raw_error", &arguments, "--json"]);
    expect(&output, 1);
    assert_eq!(output.stderr.lines().last(), Some(error));
    let reported = json(&output);
    assert_eq!(
        (&reported["error"]["code"], &reported["error"]["data"]["error"]["code"]),
        (&json!("EXECUTION_FAILED"), &json!(-32602))
    );
}

#[test]
fn a_server_that_dies_during_the_call_is_named() {
    let output = run("call", &one(), &["one.crash", "code=7"]);
    expect(&output, 1);
    assert!(output.stderr.contains("server `one` ended before it answered: it exited with status 7"));
}

#[test]
fn only_a_server_that_can_have_the_tool_is_started() {
    let folder = one();
    let server = |name: &str| noted(folder.folder(), name);
    let config = Config::new()
        .server("a", server("a").args(["--only-generated", "--tools", "1"]))
        .server("a.b", server("a.b"))
        .server("c", server("c"))
        .server("broken", ServerEntry::new("no-such-program"))
        .write();
    let started = || {
        let names = ["a", "a.b", "c"].into_iter().filter(|name| folder.folder().join(name).exists());
        let names: Vec<&str> = names.collect();
        for name in &names {
            fs::remove_file(folder.folder().join(name)).unwrap();
        }
        names
    };
    for (tool, expected) in [("c.echo", &["c"][..]), ("c__echo", &["c"]), ("a.b.echo", &["a", "a.b"])] {
        let output = run("call", &config, &[tool, "text=hi"]);
        expect(&output, 0);
        assert_eq!((output.stdout.as_str(), started().as_slice()), ("hi\n", expected), "{tool}");
        assert_eq!(output.stderr, "", "{tool}");
    }
    // An alias of `a.b` carries a hash, so there is no such tool; but nobody else could have it.
    expect(&run("call", &config, &["a_b__echo"]), 1);
    assert_eq!(started(), ["a.b"]);
}

#[test]
fn an_unknown_tool_brings_the_closest_names() {
    let config = Config::new().server("one", fake()).server("off", fake().field("disabled", true)).write();
    for (typed, hint) in [
        ("one.ehco", "hint: did you mean `one.echo`?\n"),
        ("one:echo", "hint: did you mean `one.echo`?\n"),
        ("one/echo", "hint: did you mean `one.echo`?\n"),
        ("echo", "hint: did you mean `one.echo`?\n"),
        ("nothing.like_this_at_all", " lists all tools\n"),
        ("off.echo", "hint: remove `\"disabled\": true` from it\n"),
    ] {
        let output = run("call", &config, &[typed]);
        expect(&output, 1);
        assert!(output.stderr.ends_with(hint), "{typed}: {}", output.stderr);
        assert_eq!(output.stdout, "");
    }
    let output = run("call", &config, &["one:echo", "--separator", ":", "text=hi"]);
    assert_eq!(output.stdout, "hi\n");
}

#[test]
fn a_tool_of_an_unavailable_server_is_reported() {
    let output = run("call", &Config::new().server("bad", failing()).write(), &["bad.echo"]);
    expect(&output, 1);
    let expected = "error: could not call `bad.echo`: server `bad` is down: initialization: it exited with status 3\n";
    assert!(output.stderr.contains(expected), "{}", output.stderr);
    assert!(output.stderr.contains("no database here"), "{}", output.stderr);
}

#[test]
fn ctrl_c_cancels_the_call_and_leaves_nothing_behind() {
    let folder = one();
    let journal = folder.folder().join("journal");
    let config = Config::new().server("one", noted(folder.folder(), "journal")).write();
    for signal in [Signal::INT, Signal::TERM] {
        let launch = Launch::program(PROGRAM).args(["call", "one.hang", "--config"]).arg(config.path());
        let mut driver = launch.env("TESTKIT_CANCEL", signal.as_raw().to_string()).start();
        let heard = || fs::read_to_string(&journal).unwrap_or_default();
        testkit::wait_until("the call arrived", || heard().contains("tools/call").then_some(()));
        driver.signal(signal);
        assert_eq!(driver.wait_exit().code(), Some(130));
        assert!(driver.wait_stdout_end().is_empty());
        driver.wait_for_stderr("error: interrupted");

        let lines = heard();
        let id = |method: &str, path: &[&str]| {
            let line =
                lines.lines().find(|line| line.contains(method)).unwrap_or_else(|| panic!("{method} in {lines}"));
            raw::at(line.as_bytes(), path).unwrap().to_owned()
        };
        assert_eq!(id("notifications/cancelled", &["params", "requestId"]), id("tools/call", &["id"]));
        fs::remove_file(&journal).unwrap();
        let mark = format!("TESTKIT_CANCEL={}", signal.as_raw());
        testkit::wait_until("nothing is left", || testkit::processes_with_env(&mark).is_empty().then_some(()));
    }
}

#[test]
fn ctrl_c_while_servers_start_stops_them() {
    let config = Config::new().server("one", fake().args(["--hang-at", "initialize"])).write();
    for verb in [&["tools"][..], &["check", "--start"], &["call", "one.x"]] {
        let mut driver = Launch::program(PROGRAM).args(verb).arg("--config").arg(config.path()).start();
        let server = testkit::wait_until("the server was started", || {
            let is_server =
                |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "fake-server\n");
            testkit::descendants(driver.pid()).into_iter().find(is_server)
        });
        driver.signal(Signal::INT);
        assert_eq!(driver.wait_exit().code(), Some(130), "{verb:?}");
        testkit::wait_gone_or_zombie(server);
    }
}

#[test]
fn a_large_result_passes_and_a_reader_may_leave_early() {
    let output = run("call", &one(), &["one.blob", "bytes=20000000"]);
    expect(&output, 0);
    assert_eq!(output.stdout.len(), 20_000_001);

    let config = one();
    let mut early = Command::new(PROGRAM);
    early.args(["call", "one.blob", "bytes=20000000", "--config"]).arg(config.path());
    let mut child = early.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 10]).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn progress_is_shown_on_a_terminal_and_only_there() {
    let config = one();
    let output = run("call", &config, &["one.progress", "steps=3"]);
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("progressed\n", ""));

    let (terminal, screen) = terminal();
    let mut on_terminal = Run::new("call", config.path()).args(&["one.progress", "steps=3"]);
    on_terminal.command.stdout(Stdio::piped()).stderr(screen);
    let child = on_terminal.command.spawn().unwrap();
    // Our copy of the screen must be closed, or its end would never come.
    on_terminal.command.stderr(Stdio::null());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"progressed\n");
    assert_eq!(staying(&seen_on(terminal)), "[1/3] step 1\r\n[2/3] step 2\r\n[3/3] step 3\r\n");
}

/// What stays of what was on a screen: a line that was wiped out is gone.
fn staying(seen: &str) -> String {
    let lines = seen.split_inclusive('\n').map(|line| line.rsplit("\r\u{1b}[K").next().unwrap_or_default());
    lines.collect()
}

#[test]
fn a_slow_call_displays_progress() {
    let config = one();
    let (terminal, screen) = terminal();
    let mut slow = Run::new("call", config.path()).args(&["one.sleep", "ms=700"]);
    slow.command.stdout(Stdio::piped()).stderr(screen);
    let child = slow.command.spawn().unwrap();
    slow.command.stderr(Stdio::null());
    assert!(child.wait_with_output().unwrap().status.success());
    let seen = seen_on(terminal);
    assert!(seen.contains("calling `one.sleep` ..."), "{seen:?}");
    assert_eq!(staying(&seen), "", "the word is wiped out at the end");
}

#[test]
fn tool_output_is_escaped_on_a_terminal_by_default() {
    let config = one();
    let hostile = "a\u{1b}]0;title\u{7}\u{202e}b";
    let result = json!({"content": [{"type": "text", "text": hostile}]}).to_string();
    let arguments = json!({ "result": result }).to_string();
    let on_terminal = |more: &[&str]| {
        let (terminal, screen) = terminal();
        let mut run = Run::new("call", config.path()).args(&["one.raw", &arguments]).args(more);
        run.command.stdout(screen).stderr(Stdio::null());
        assert!(run.command.spawn().unwrap().wait().unwrap().success());
        run.command.stdout(Stdio::null());
        seen_on(terminal)
    };
    assert_eq!(on_terminal(&[]), "a␛]0;title␇⟨U+202E⟩b\r\n");
    assert_eq!(on_terminal(&["--raw"]), format!("{hostile}\r\n"));
    let shown = on_terminal(&["--json"]);
    assert!(shown.contains(r"\u202eb") && !shown.contains('\u{202e}'), "{shown:?}");
    let piped = run("call", &config, &["one.raw", &arguments]);
    assert_eq!(piped.stdout, format!("{hostile}\n"), "what goes to another program is as it came");
}

/// A terminal: our end of it, and the end a program writes to.
fn terminal() -> (File, File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let screen = File::options().read(true).write(true).open(name).unwrap();
    (File::from(terminal), screen)
}

/// Everything that was written to a terminal whose other end is closed.
fn seen_on(mut terminal: File) -> String {
    let mut seen = Vec::new();
    // Linux reports the end of a terminal as an I/O error.
    terminal.read_to_end(&mut seen).ok();
    String::from_utf8(seen).unwrap()
}

#[test]
fn json_of_a_call_parses() {
    let output = run("call", &one(), &["one.pid", "--json"]);
    assert!(json(&output)["structuredContent"]["pid"].is_u64());
}
