//! Documents with the servers of a config, which are started for the run.

use rustix::process::{Pid, Signal, kill_process};
use testkit::{Config, ServerEntry, fake};

use super::{begin, block, read, without_results};
use crate::service_cli::Home;

fn config(home: &Home) -> String {
    let config = Config::new()
        .server("one", fake())
        .server("two", fake())
        .server("gone", ServerEntry::new("/nonexistent/program"))
        .server("off", fake().field("disabled", true));
    home.write("project/mcp.json", &config.text())
}

#[test]
fn only_the_servers_that_are_needed_are_started() {
    let home = Home::new();
    let config = config(&home);
    let text = format!("{}\n{}", block("mcp", "echo", "text: from one\n"), block("two", "echo", "text: from two\n"));
    let notes = home.write("project/notes.md", &text);
    let output = home.run(&["run", "notes.md", "--config", &config]);
    assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
    assert!(!output.stderr.contains("gone"), "{}", output.stderr);
    let report = read(&notes);
    assert!(report.contains("from one") && report.contains("from two"), "{report}");
    assert_eq!(without_results(&report), text);
}

#[test]
fn a_server_that_is_down_or_disabled_fails_its_blocks_alone() {
    let home = Home::new();
    let config = config(&home);
    let text = [block("gone", "x", ""), block("off", "x", ""), block("one", "nothing", ""), block("one", "size", "")];
    let notes = home.write("project/notes.md", &text.join("\n"));
    let said = home.fails(1, &["run", "notes.md", "--config", &config, "--jobs", "4"]);
    assert!(said.contains("server `gone` is down") && said.contains("/nonexistent/program"), "{said}");
    assert!(said.contains("server `one` has no tool `nothing`"), "{said}");
    assert!(said.contains("4 blocks: 1 done, 1 failed, 2 refused"), "{said}");
    assert_eq!(read(&notes).matches("status=error").count(), 3);
}

#[test]
fn an_interrupted_run_stops_its_servers_and_keeps_what_is_over() {
    let home = Home::new();
    let config = config(&home);
    let text = [block("one", "echo", "text: first\n"), block("one", "hang", "")].join("\n");
    let notes = home.write("project/notes.md", &text);
    let mut child = begin(&home, &["run", &notes, "--config", &config], "one.hang: executing");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let report = read(&notes);
    assert_eq!((without_results(&report), report.matches("<!-- mcp-result ").count()), (text, 1));
}
