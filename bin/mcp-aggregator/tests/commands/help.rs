//! The command line itself.

use crate::{PROGRAM, expect};

pub(crate) const VERBS: [&str; 30] = [
    "stdio",
    "serve",
    "check",
    "tools",
    "call",
    "add",
    "remove",
    "list",
    "show",
    "enable",
    "disable",
    "connect",
    "disconnect",
    "restart",
    "logs",
    "prompts",
    "resources",
    "clients",
    "client",
    "settings",
    "test",
    "history",
    "status",
    "import",
    "export",
    "doctor",
    "top",
    "demo",
    "completions",
    "man",
];

#[test]
fn help_shows_every_verb_with_examples_and_exit_codes() {
    let output = testkit::run(PROGRAM, ["--help"]);
    expect(&output, 0);
    for needed in [&VERBS[..], &["Examples:", "mcpServers", "Exit status:", "--config mcp.json"]].concat() {
        assert!(output.stdout.contains(needed), "{needed} in\n{}", output.stdout);
    }
    for verb in ["stdio", "serve", "check", "tools", "call"] {
        let output = testkit::run(PROGRAM, [verb, "--help"]);
        expect(&output, 0);
        assert!(output.stdout.contains("--config <FILE>"), "{}", output.stdout);
        assert!(output.stdout.contains("mcp-aggregator"), "{}", output.stdout);
    }
}

#[test]
fn help_has_the_verbs_in_groups_and_colours_only_for_terminals() {
    let help = testkit::run(PROGRAM, ["--help"]).stdout;
    let groups =
        ["Serve:", "Inspect and try:", "Servers:", "Other programs:", "Documents:", "This program:", "Options:"];
    let at: Vec<usize> = groups.iter().map(|group| help.find(&format!("\n{group}\n")).expect(group)).collect();
    assert!(at.is_sorted(), "{help}");
    assert!(!help.contains('\u{1b}'), "{help}");
}

#[test]
fn the_bare_name_explains_itself_in_ten_lines_that_no_client_takes_for_messages() {
    let output = testkit::run(PROGRAM, [""; 0]);
    expect(&output, 2);
    assert_eq!((output.stdout.as_str(), output.stderr.lines().count()), ("", 10), "{}", output.stderr);
    for needed in ["Usage: mcp-aggregator <COMMAND>", "mcp-aggregator serve ", "--help", "mcp-aggregator import"] {
        assert!(output.stderr.contains(needed), "{needed} in\n{}", output.stderr);
    }
}

#[test]
fn the_version_is_that_of_the_package() {
    let output = testkit::run(PROGRAM, ["--version"]);
    expect(&output, 0);
    assert_eq!(output.stdout, format!("mcp-aggregator {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_command_line_that_makes_no_sense_is_exit_status_2_and_leaves_stdout_empty() {
    for (arguments, expected) in [
        (&["serve", "--database", "mysql://host/db"][..], "`mysql` databases are not supported"),
        (&["serve", "--config", "c", "--listen", "here"], "127.0.0.1:8808"),
        (&["serve", "--config", "c", "--allow-host", "http://x"], "is not a host name"),
        (&["serve", "--config", "c", "--allow-origin", "x"], "is not an origin"),
        (&["tools", "--config"], "--config"),
        (&["tools", "--config", "c", "--url", "http://x"], "cannot be used with"),
        (&["check", "--config", "c", "--bogus"], "--bogus"),
        (&["stdio", "--config", "c", "--separator", ""], "--separator"),
        (&["stdio", "--config", "c", "--separator", "a b"], "white space"),
        (&["tools", "--config", "c", "--names", "nice"], "possible values: auto, canonical, safe"),
        (&["call", "--config", "c"], "TOOL"),
    ] {
        let output = testkit::run(PROGRAM, arguments);
        expect(&output, 2);
        assert_eq!(output.stdout, "", "{arguments:?}");
        assert!(output.stderr.contains(expected), "{arguments:?}: {}", output.stderr);
    }
}

#[test]
fn the_address_of_a_server_where_that_of_a_service_belongs_is_explained() {
    let output = testkit::run(PROGRAM, ["add", "web", "--url", "http://127.0.0.1:9/mcp"]);
    expect(&output, 2);
    assert!(output.stderr.contains("hint: write the URL of a server without --url"), "{}", output.stderr);
    assert!(output.stderr.contains("--url <SERVICE>"), "{}", output.stderr);
}

#[test]
fn a_header_may_be_written_as_http_does_and_what_is_wrong_with_one_is_reported_without_it() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let run = |header: &str| {
        let add = ["add", "web", "http://127.0.0.1:9/mcp", "--json", "--header", header, "--data-dir"];
        testkit::run(PROGRAM, add.iter().map(std::ffi::OsStr::new).chain([data.as_os_str()]))
    };
    let refused = run("hush-hush-1");
    expect(&refused, 2);
    assert!(!refused.stderr.contains("hush") && !refused.stdout.contains("hush"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--header 'NAME:VALUE'"), "{}", refused.stderr);
    let added = run("Authorization: Bearer hush-hush-1");
    expect(&added, 0);
    let added = crate::json(&added);
    assert!(added["connection_config"]["headers"]["Authorization"].is_string(), "{added:#}");
    assert!(!added.to_string().contains("hush"), "{added:#}");
}

#[test]
fn help_is_as_wide_as_the_terminal_and_what_is_to_be_pasted_stays_whole() {
    let help = |width: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new(PROGRAM);
        let output = testkit::run::run_command(command.args(arguments).env("COLUMNS", width));
        expect(&output, 0);
        output.stdout
    };
    for arguments in [&["--help"][..], &["serve", "--help"], &["add", "--help"], &["help", "ask"], &["run", "-h"]] {
        let text = help("80", arguments);
        let too_wide = text.lines().filter(|line| line.chars().count() > 80);
        let odd: Vec<&str> = too_wide.filter(|line| !line.contains("mcp-aggregator") && !line.contains('{')).collect();
        assert_eq!(odd, [""; 0], "{arguments:?}");
    }
    let example = "  mcp-aggregator call --config mcp.json time.get_current_time timezone=Europe/Vienna";
    assert!(help("60", &["call", "--help"]).lines().any(|line| line == example));
}
