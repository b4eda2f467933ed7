//! Text of servers controls no terminal and forges no log line, wherever it is displayed.

use testkit::puppet::{Puppet, Spec};
use testkit::run::run_command;
use testkit::{Config, Launch, ServerEntry, program};

use crate::fixture::initialized;

/// Clears the screen, sets the title, uses a one-byte control of C1, reverses the text, returns to the start of the
/// line.
const STEERING: &str = r"\033[2J\033]0;title\007\302\2332K\342\200\256turned\177\rover";

/// A server that exits with that on its stderr, and with something that looks like a line of our log.
fn dying() -> ServerEntry {
    let script = format!(r"printf '{STEERING}\n2026-01-01T00:00:00.000001Z ERROR not ours\n' >&2; exit 3");
    ServerEntry::new("sh").args(["-c", &script])
}

/// A server whose texts are all of that kind.
fn steering() -> Spec {
    let evil = r"\u001b[2J\u001b]0;title\u0007\u009b2K\u202eturned\u007f\rover\nnext";
    let tool = format!(
        r#"{{"name":"tool","title":"{evil}","description":"{evil}","inputSchema":{{"type":"object","properties":{{"{evil}":{{"type":"string","description":"{evil}","default":"{evil}"}}}},"required":["{evil}"]}}}}"#
    );
    let other = format!(r#"{{"name":"{evil}","description":"{evil}","inputSchema":{{"type":"object"}}}}"#);
    let error = format!(r#"{{"content":[{{"type":"text","text":"{evil}"}}],"isError":true}}"#);
    Spec::legacy().instructions(evil).raw_tool(&tool).raw_tool(&other).answers("tools/call", &error)
}

#[track_caller]
fn assert_steers_nothing(what: &str, text: &str) {
    let steering = text.chars().find(|&letter| {
        letter.is_control() && !matches!(letter, '\n' | '\t') || matches!(letter, '\u{202a}'..='\u{202e}')
    });
    assert_eq!(steering, None, "{what}: {text:?}");
}

#[test]
fn the_log_shows_what_a_dying_server_wrote_and_obeys_none_of_it() {
    let config = Config::new().server("dying", dying());
    for (launch, arguments) in [(Launch::aggregator(&config), &["--debug"][..]), (Launch::service(&config), &[])] {
        let mut client = initialized(launch.args(arguments));
        client.wait_for_stderr("failed during");
        client.wait_for_stderr("not ours");
        client.close_stdin();
        client.wait_exit();
        let log = client.stderr_text();
        assert_steers_nothing("log", &log);
        assert!(log.contains("␛[2J"), "it is shown: {log}");
        assert!(!log.lines().any(|line| line.starts_with("2026-01-01")), "no line passes for a record: {log}");
    }
}

#[test]
fn commands_show_what_servers_wrote_and_obey_none_of_it() {
    let puppet = Puppet::over_http(steering());
    let config = Config::new().server("dying", dying()).server("evil", puppet.entry()).write();
    for arguments in [
        &["check"][..],
        &["check", "--start"],
        &["doctor"],
        &["tools"],
        &["tools", "evil.tool"],
        &["call", "evil.tool", "{}"],
        &["call", "evil.nothing", "{}"],
    ] {
        let mut command = std::process::Command::new(program("mcp-aggregator"));
        command.args(arguments).arg("--config").arg(config.path()).stdin(std::process::Stdio::null());
        command.env("HOME", config.folder()).env("XDG_DATA_HOME", config.folder());
        let output = run_command(&mut command);
        assert_steers_nothing(&format!("stderr of {arguments:?}"), &output.stderr);
        // Tool output is written to a pipe unchanged.
        if arguments[0] != "call" {
            assert_steers_nothing(&format!("stdout of {arguments:?}"), &output.stdout);
        }
    }
}
