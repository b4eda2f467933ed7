//! Documents with a running service: results, limits, timeouts, and servers that become unreachable.

use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::{Config, Serve, fake, wait_until};

use super::{begin, block, read, without_results, without_times};
use crate::service_cli::Home;

const PREFIX: &str = "/api/v1/aggregator";

pub(super) fn executions(serve: &Serve, query: &str) -> Vec<Value> {
    serve
        .fetch(&HttpRequest::new("GET", &format!("{PREFIX}/executions{query}")))
        .json()
        .as_array()
        .cloned()
        .unwrap_or_default()
}

#[track_caller]
fn change_settings(serve: &Serve, settings: &Value) {
    let ask = HttpRequest::new("PATCH", &format!("{PREFIX}/settings")).header("Content-Type", "application/json");
    let answer = serve.fetch(&ask.body(settings.to_string()));
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[test]
fn results_stand_under_their_blocks_and_a_second_run_replaces_them() {
    let home = Home::new();
    let serve = home.serve();
    home.add("one");
    let json = r#"result: '{"content":[{"type":"text","text":"{\"a\":[1,2]}"}]}'"#;
    let text = format!(
        "---\ntitle: x\n---\n# Notes\r\n\n{}\n- a list\n\n{}\nend, without a line end",
        block("one", "echo", "text: hello *you*\n"),
        block("mcp", "raw", &format!("{json}\n")),
    );
    let notes = home.write("project/notes.md", &text);
    let output = home.run(&["run", "notes.md"]);
    assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
    assert_eq!(output.stdout, "");
    assert!(output.stderr.starts_with("block 1, line 6, one.echo: pending\nblock 2, "), "{}", output.stderr);
    assert!(output.stderr.contains("block 1, line 6, one.echo: executing"), "{}", output.stderr);
    assert!(output.stderr.contains("block 2, line 13, one.raw: done in "), "{}", output.stderr);
    assert!(output.stderr.contains("2 blocks: 2 done"), "{}", output.stderr);
    let first = read(&notes);
    assert!(first.contains("hello") && first.contains("```json"), "{first}");
    assert_eq!(without_results(&first), text);
    home.ok(&["run", "notes.md"]);
    assert_eq!(without_times(&read(&notes)), without_times(&first));

    let listed = wait_until("both runs are in the account", || {
        let listed = executions(&serve, "?source=user-codeblock");
        (listed.len() == 4).then_some(listed)
    });
    assert_eq!(listed[3]["section_line"], 6);
    let path = listed[0]["document_path"].as_str().unwrap();
    assert!(path.starts_with('/') && path.ends_with("project/notes.md"), "{path}");
}

#[test]
fn what_is_wrong_is_reported_with_its_line_and_nothing_is_called() {
    let home = Home::new();
    let serve = home.serve();
    home.add("one");
    let text = [block("one", "blob", "bytes: many\n"), block("one", "ecco", ""), block("one", "size", "")].join("\n");
    let notes = home.write("project/notes.md", &text);
    let said = home.fails(1, &["run", "notes.md", "--dry-run"]);
    assert!(said.contains("line 3: "), "{said}");
    assert!(said.contains("server `one` has no tool `ecco`") && said.contains("`echo`"), "{said}");
    assert!(said.contains("one.size: ready") && said.contains("3 blocks: 1 ready, 2 refused"), "{said}");
    assert_eq!(read(&notes), text);
    assert_eq!(executions(&serve, "").len(), 0);
    let said = home.fails(2, &["run", "notes.md", "--block", "4"]);
    assert!(said.contains("there is no block 4") && said.contains("doc map notes.md"), "{said}");
}

#[test]
fn a_dry_run_reports_that_a_server_is_unavailable() {
    let home = Home::new();
    let serve = home.serve();
    home.add("one");
    home.fails(1, &["add", "gone", "--", "no-such-program"]);
    home.ok(&["add", "sleepy", "--lazy", "--", &crate::service_cli::fake()]);
    home.write("project/notes.md", &["one", "gone", "sleepy"].map(|server| block(server, "size", "")).join("\n"));
    let said = home.fails(1, &["run", "notes.md", "--dry-run"]);
    assert!(
        said.contains("gone.size: refused: ") && said.contains("server `gone` is not available: program"),
        "{said}"
    );
    assert!(said.contains("3 blocks: 2 ready, 1 refused"), "a call wakes a server that sleeps: {said}");
    assert_eq!(executions(&serve, "").len(), 0);
    home.ok(&["disconnect", "one"]);
    let said = home.fails(1, &["run", "notes.md", "--dry-run", "--block", "1"]);
    assert!(said.contains("server `one` is not available: it is disconnected"), "{said}");

    home.write("project/mcp.json", r#"{"mcpServers": {"gone": {"command": "no-such-program"}}}"#);
    let said = home.fails(1, &["run", "notes.md", "--block", "1", "--config", "mcp.json", "--dry-run"]);
    assert!(said.contains("server `gone` is not available: ") && said.contains("1 refused"), "{said}");
}

#[test]
fn some_blocks_can_run_and_the_text_can_be_written_to_another_file() {
    let home = Home::new();
    let _serve = home.serve();
    home.add("one");
    let blocks = ["a", "b", "c"].map(|text| block("one", "echo", &format!("text: result-{text}\n")));
    let text = format!("# A\n\n{}\n## B\n\n{}\n# C\n\n{}", blocks[0], blocks[1], blocks[2]);
    let notes = home.write("project/notes.md", &text);
    let printed = home.ok(&["run", "notes.md", "--section", "## B", "--output", "-"]);
    assert_eq!((read(&notes).as_str(), without_results(&printed)), (text.as_str(), text.clone()));
    assert_eq!(printed.matches("<!-- mcp-result ").count(), 1, "{printed}");
    home.ok(&["run", "notes.md", "--block", "1", "--block", "3", "--output", "copy.md", "--jobs", "2"]);
    let copy = read(home.path().join("project/copy.md").to_str().unwrap());
    assert_eq!((read(&notes).as_str(), copy.matches("<!-- mcp-result ").count()), (text.as_str(), 2));
    let reply = home.json(&["run", "notes.md", "--block", "2", "--json"]);
    assert_eq!((&reply["ok"], &reply["blocks"][0]["status"]), (&json!(true), &json!("done")));
    assert_eq!(reply["blocks"][0]["written"], "written");
}

#[test]
fn an_edited_result_is_kept_unless_forced() {
    let home = Home::new();
    let _serve = home.serve();
    home.add("one");
    let notes = home.write("project/notes.md", &block("one", "echo", "text: plain\n"));
    home.ok(&["run", "notes.md"]);
    let text = read(&notes);
    let (head, result) = text.split_once("<!-- mcp-result ").unwrap();
    let edited = format!("{head}<!-- mcp-result {}", result.replacen("plain", "my own words", 1));
    home.write("project/notes.md", &edited);
    assert!(home.fails(1, &["run", "notes.md"]).contains("1 refused"));
    assert_eq!(read(&notes), edited);
    home.ok(&["run", "notes.md", "--force"]);
    assert!(!read(&notes).contains("my own words"));
}

#[test]
fn limits_timeouts_and_missing_servers_are_reported_in_the_document() {
    let home = Home::new();
    let serve = home.serve();
    home.add("one");
    home.add("off");
    home.ok(&["disable", "off"]);
    home.add("other");
    change_settings(&serve, &json!({"session_limit": 3, "timeout_ms": 4000}));
    let blocks = [
        block("one", "hang", ""),
        block("off", "echo", ""),
        block("other", "crash", ""),
        block("one", "raw", "result: '{\"content\":[{\"type\":\"text\",\"text\":\"no luck\"}],\"isError\":true}'\n"),
        block("one", "size", ""),
    ];
    let text = blocks.join("\n");
    let notes = home.write("project/notes.md", &text);
    let said = home.fails(1, &["run", "notes.md"]);
    let line = |number: usize| {
        let begin = format!("block {number}, ");
        let mut lines = said
            .lines()
            .filter(|line| line.starts_with(&begin) && !line.ends_with("executing") && !line.ends_with("pending"));
        lines.next().unwrap_or_else(|| panic!("nothing about block {number} in\n{said}"))
    };
    assert!(line(1).contains("failed in ") && line(1).contains("4 s"), "{}", line(1));
    assert!(line(2).contains("refused") && line(2).contains("disabled"), "{}", line(2));
    assert!(line(3).contains("failed in "), "{}", line(3));
    assert!(line(4).contains("no luck"), "{}", line(4));
    assert!(line(5).contains("limit") && line(5).contains('3'), "{}", line(5));
    let report = read(&notes);
    assert_eq!((without_results(&report), report.matches("status=error").count()), (text, 5));
}

#[test]
fn a_run_that_is_interrupted_keeps_what_is_over_and_cancels_the_rest() {
    let home = Home::new();
    let serve = home.serve();
    home.add("one");
    let text = [block("one", "echo", "text: first\n"), block("one", "hang", ""), block("one", "size", "")].join("\n");
    let notes = home.write("project/notes.md", &text);
    let mut child = begin(&home, &["run", &notes], "one.hang: executing");
    wait_until("the call is on its way", || (executions(&serve, "?status=executing").len() == 1).then_some(()));
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let report = read(&notes);
    assert_eq!((without_results(&report), report.matches("<!-- mcp-result ").count()), (text, 1));
    wait_until("the call is cancelled", || executions(&serve, "?status=executing").is_empty().then_some(()));
    assert_eq!(executions(&serve, "").len(), 2, "the third was never called");
}

/// Starts a run whose second of three blocks hangs, and waits until that is called.
fn hanging_run(home: &Home, serve: &Serve) -> (String, String, Child) {
    let blocks = [block("one", "pid", ""), block("one", "hang", ""), block("other", "echo", "text: last\n")];
    let text = blocks.join("\n");
    let notes = home.write("project/notes.md", &text);
    let child = begin(home, &["run", &notes], "one.hang: executing");
    wait_until("the call is on its way", || (executions(serve, "?status=executing").len() == 1).then_some(()));
    (text, notes, child)
}

#[test]
fn a_server_that_is_killed_in_the_middle_of_a_run_fails_its_block_alone() {
    let home = Home::new();
    let serve = home.serve();
    home.add("one");
    home.add("other");
    let pid: i32 = home.ok(&["call", "one.pid"]).trim().parse().expect("a process number");
    let (text, notes, mut child) = hanging_run(&home, &serve);
    kill_process(Pid::from_raw(pid).expect("a process number"), Signal::KILL).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let report = read(&notes);
    assert_eq!(without_results(&report), text);
    let (ok, failed) = (report.matches("status=ok").count(), report.matches("status=error").count());
    assert_eq!((ok, failed), (2, 1), "{report}");
    assert!(report.contains("last") && report.contains("signal 9"), "{report}");
}

#[test]
fn the_stop_button_ends_a_run_and_the_document_records_it() {
    let home = Home::new();
    let serve = home.serve();
    home.add("one");
    home.add("other");
    let (text, notes, mut child) = hanging_run(&home, &serve);
    let stopped = serve.fetch(&HttpRequest::new("POST", &format!("{PREFIX}/executions/stop")));
    assert_eq!(stopped.status, 200, "{}", stopped.body);
    assert_ne!(child.wait().unwrap().code(), Some(0));
    let report = read(&notes);
    assert_eq!(without_results(&report), text);
    assert_eq!(report.matches("status=ok").count(), 1, "what was over before is kept: {report}");
    assert!(executions(&serve, "?status=success&source=user-codeblock").len() == 1, "nothing was called afterwards");
}

#[test]
fn a_run_that_is_killed_leaves_the_document_as_it_was() {
    let home = Home::new();
    let serve = home.serve();
    home.add("one");
    let text = [block("one", "echo", "text: first\n"), block("one", "hang", "")].join("\n");
    let notes = home.write("project/notes.md", &text);
    let mut child = begin(&home, &["run", &notes], "one.hang: executing");
    wait_until("the call is on its way", || (executions(&serve, "?status=executing").len() == 1).then_some(()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(read(&notes), text);
    wait_until("the call is cancelled", || executions(&serve, "?status=executing").is_empty().then_some(()));
}

#[test]
fn nothing_is_called_if_the_results_could_not_be_written() {
    let home = Home::new();
    let config = home.write("project/mcp.json", &Config::new().server("one", fake()).text());
    home.write("project/doc.md", &block("one", "echo", "text: hello\n"));
    let said = home.fails(1, &["run", "doc.md", "--config", &config, "--output", "no/such.md"]);
    assert!(said.contains("failed to write `no/such.md`") && !said.contains("executing"), "{said}");
}
