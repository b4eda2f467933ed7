//! Invalid configs: every problem at once, and nothing is started.

use std::fs;

use serde_json::json;
use testkit::{Config, Launch, ServerEntry, fake, program};

use crate::fixture::{Journal, connected, initialized, run_arguments, run_config, text_of};

const FAILED: i32 = 1;

/// The error about a config that the program refuses.
#[track_caller]
fn refusal(text: &str, environment: &[(&str, &str)]) -> String {
    let output = run_config(&Config::new().raw(text), environment);
    assert_eq!(output.status.code(), Some(FAILED), "{text}\n{}", output.stderr);
    assert_eq!(output.stdout, "");
    assert!(output.stderr.starts_with("error: "), "{}", output.stderr);
    output.stderr
}

/// The text of a config with one server.
fn server(members: &str) -> String {
    format!(r#"{{"mcpServers": {{"postgres": {members}}}}}"#)
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let output = run_arguments(["--config", "/no/such/config.json"], &[]);
    assert_eq!(output.status.code(), Some(FAILED));
    assert_eq!(output.stderr, "error: config file not found: /no/such/config.json\n");
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let output = run_arguments(["--config", path], &[]);
    assert_eq!(output.status.code(), Some(FAILED));
    assert!(output.stderr.contains(path) && output.stderr.contains("directory"), "{}", output.stderr);
}

#[test]
fn invalid_json_is_shown_with_line_and_column() {
    let stderr = refusal("{\n  \"mcpServers\": {\n    \"a\": {\"command\": oops}\n  }\n}\n", &[]);
    assert!(stderr.contains("line 3, column 22"), "{stderr}");
    assert!(stderr.contains(r#"3 |     "a": {"command": oops}"#), "{stderr}");
    assert!(stderr.contains('^'), "{stderr}");
    for text in ["", "  \n", "{", "nope", "{\"mcpServers\": {}} x", "{'mcpServers': {}}", "/* {\"mcpServers\": {}}"] {
        assert!(refusal(text, &[]).contains("invalid JSON in line 1"), "{text}");
    }
}

#[test]
fn text_in_another_encoding_is_refused() {
    for bytes in [&b"{\"mcpServers\": {\"\xff\": 1}}"[..], b"\xff\xfe{\0}\0"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        fs::write(&path, bytes).unwrap();
        let output = run_arguments(["--config".as_ref(), path.as_os_str()], &[]);
        assert_eq!(output.status.code(), Some(FAILED));
        assert!(output.stderr.contains("UTF-8"), "{}", output.stderr);
    }
}

#[test]
fn every_kind_of_problem_has_its_path() {
    for (text, path, words) in [
        ("[]", "$", "must be an object, not an array"),
        ("5", "$", "must be an object, not a number"),
        ("{}", "$.mcpServers", "is missing"),
        (r#"{"mcpServers": null}"#, "$.mcpServers", "must be an object, not null"),
        (r#"{"mcpServers": []}"#, "$.mcpServers", "must be an object, not an array"),
        (r#"{"mcpServers": {"": {"command": "x"}}}"#, r#"$.mcpServers[""]"#, "empty name"),
        (r#"{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}"#, "$.mcpServers.a", "given twice"),
        (r#"{"mcpServers": {"a": "x"}}"#, "$.mcpServers.a", "must be an object, not a string"),
        (r#"{"mcpServers": {"my key": []}}"#, r#"$.mcpServers["my key"]"#, "must be an object"),
        (&server("{}"), "$.mcpServers.postgres.command", "is missing"),
        (&server(r#"{"command": ""}"#), "$.mcpServers.postgres.command", "is empty"),
        (&server(r#"{"command": "  "}"#), "$.mcpServers.postgres.command", "is empty"),
        (&server(r#"{"command": 5}"#), "$.mcpServers.postgres.command", "must be a string, not a number"),
        (&server(r#"{"command": ["x"]}"#), "$.mcpServers.postgres.command", "must be a string, not an array"),
        (&server(r#"{"command": "x", "args": "y"}"#), "$.mcpServers.postgres.args", "must be an array of strings"),
        (&server(r#"{"command": "x", "args": {}}"#), "$.mcpServers.postgres.args", "must be an array of strings"),
        (&server(r#"{"command": "x", "args": ["a", 5]}"#), "$.mcpServers.postgres.args[1]", "must be a string"),
        (&server(r#"{"command": "x", "env": []}"#), "$.mcpServers.postgres.env", "must be an object of strings"),
        (&server(r#"{"command": "x", "env": {"PORT": 80}}"#), "$.mcpServers.postgres.env.PORT", "must be a string"),
        (&server(r#"{"command": "x", "disabled": "yes"}"#), "$.mcpServers.postgres.disabled", "must be true or false"),
    ] {
        let stderr = refusal(text, &[]);
        let names_both = stderr.lines().any(|line| line.trim_start().starts_with(path) && line.contains(words));
        assert!(names_both, "{text}: expected `{path} {words}` in\n{stderr}");
        assert!(stderr.contains("1 problem"), "{stderr}");
    }
}

#[test]
fn what_only_looks_like_a_variable_is_passed_on_with_a_warning() {
    let entry = ServerEntry::new("sh").args(["-c", r#"exec "$0" # ${} ${X"#]);
    let entry = entry.arg(program("fake-server").to_str().expect("the path is text"));
    let mut client = connected(&Config::new().server("one", entry));
    assert_eq!(text_of(&client.call("one:echo", json!({"text": "hi"}))), "hi");
    client.wait_for_stderr("$.mcpServers.one.args[1] has a `${` that is never closed; it is passed on unchanged");
    client.wait_for_stderr("$.mcpServers.one.args[1] has a `${}` without a variable name; it is passed on unchanged");
}

#[test]
fn all_problems_are_reported_at_once_and_nothing_is_started() {
    let journal = Journal::new();
    let config = Config::new()
        .server("healthy", journal.fake())
        .server("a", ServerEntry::new("").field("args", json!("x")).field("env", json!({"K": 1})))
        .server("b", fake().field("url", "http://localhost").field("type", "http"))
        .server("c", fake().arg("$NOT_SET_ANYWHERE"));
    let output = run_config(&config, &[]);
    assert_eq!(output.status.code(), Some(FAILED));
    for problem in [
        "$.mcpServers.a.command",
        "$.mcpServers.a.args",
        "$.mcpServers.a.env.K",
        "$.mcpServers.b ",
        "NOT_SET_ANYWHERE is not set; used at $.mcpServers.c.args[0]",
        "5 problems",
    ] {
        assert!(output.stderr.contains(problem), "{problem} in\n{}", output.stderr);
    }
    assert!(!journal.exists(), "a server was started although the config has problems");
}

#[test]
fn a_server_that_is_not_stdio_is_refused_by_name_with_a_way_out() {
    for members in [
        r#"{"url": "http://localhost:1/mcp"}"#,
        r#"{"type": "http", "url": "http://localhost:1/mcp"}"#,
        r#"{"type": "sse", "url": "http://localhost:1/sse"}"#,
        r#"{"type": "streamable-http", "command": "x"}"#,
        r#"{"type": "http"}"#,
    ] {
        let stderr = refusal(&server(members), &[]);
        assert!(stderr.contains("$.mcpServers.postgres"), "{stderr}");
        assert!(stderr.contains("`mcp-aggregator`"), "{stderr}");
        assert!(stderr.contains("1 problem"), "{stderr}");
    }
}

#[test]
fn every_missing_variable_is_named_with_every_place() {
    let text = r#"{"mcpServers": {
        "postgres": {"command": "$PG_BIN", "env": {"DATABASE_URL": "${DATABASE_URL}", "X": "a${two words}b"}},
        "other": {"command": "x", "args": ["--url", "$DATABASE_URL", "${OK}", "${DEF:-fine}", "$lower"]}
    }}"#;
    let stderr = refusal(text, &[("OK", "set")]);
    for expected in [
        "PG_BIN is not set; used at $.mcpServers.postgres.command",
        "DATABASE_URL is not set; used at $.mcpServers.postgres.env.DATABASE_URL, $.mcpServers.other.args[1]",
        "\"two words\" is not set; used at $.mcpServers.postgres.env.X",
        "3 problems",
    ] {
        assert!(stderr.contains(expected), "{expected} in\n{stderr}");
    }
}

#[test]
fn a_secret_is_never_printed() {
    let secret = "hunter2-correct-horse";
    let text = r#"{"mcpServers": {
        "a": {"command": "/no/such/${SECRET}", "args": ["$SECRET", "$MISSING$SECRET"], "env": {"K": "${SECRET}${"}},
        "b": {"command": "x", "type": "http", "url": "http://${SECRET}@host"}
    }}"#;
    let stderr = refusal(text, &[("SECRET", secret)]);
    assert!(stderr.contains("MISSING") && !stderr.contains(secret), "{stderr}");
}

#[test]
fn variables_are_filled_in_wherever_a_server_uses_them() {
    let entry = ServerEntry::new("${BIN_FOLDER}/fake-server")
        .args(["--name", "$UPPER-${lower name}-${UNSET_ONE:-default}-${EMPTY:-also}-$lower-$$UPPER-${VALUE}"])
        .env("KEY", "<${VALUE}>")
        .env("EMPTY_TOO", "${EMPTY}");
    let bin = program("fake-server");
    let launch = Launch::aggregator(&Config::new().server("one", entry))
        .env("BIN_FOLDER", bin.parent().unwrap())
        .env("UPPER", "up")
        .env("lower name", "low")
        .env("EMPTY", "")
        .env("VALUE", "$UPPER ${UNSET_TWO}")
        .env("INHERITED", "from above");
    let mut client = initialized(launch);
    let answer = client.call("one:args", json!({}));
    let expected = "up-low-default-also-$lower-$up-$UPPER ${UNSET_TWO}";
    assert_eq!(answer["result"]["structuredContent"]["args"], json!(["--name", expected]));
    for (name, value) in
        [("KEY", json!("<$UPPER ${UNSET_TWO}>")), ("EMPTY_TOO", json!("")), ("INHERITED", json!("from above"))]
    {
        let answer = client.call("one:env", json!({"name": name}));
        assert_eq!(answer["result"]["structuredContent"]["value"], value, "{name}");
    }
}

#[test]
fn a_servers_own_variable_wins_over_an_inherited_one() {
    let launch = Launch::aggregator(&Config::new().server("one", fake().env("WHOSE", "the server's")));
    let mut client = initialized(launch.env("WHOSE", "everybody's"));
    let answer = client.call("one:env", json!({"name": "WHOSE"}));
    assert_eq!(answer["result"]["structuredContent"]["value"], "the server's");
}

#[test]
fn a_byte_order_mark_is_tolerated() {
    let text = Config::new().server("one", fake()).text();
    let mut client = connected(&Config::new().raw(format!("\u{feff}{text}")));
    assert_eq!(text_of(&client.call("one:echo", json!({"text": "hi"}))), "hi");
}

#[test]
fn an_empty_mcp_servers_is_valid_and_has_no_tools() {
    for text in [r#"{"mcpServers": {}}"#, r#"{"mcpServers":{},"globalShortcut":"Ctrl+Q","other":[1]}"#] {
        let mut client = connected(&Config::new().raw(text));
        let id = client.request("tools/list", json!({}));
        assert_eq!(client.response(id)["result"], json!({"tools": []}));
        client.close_stdin();
        assert_eq!(client.wait_exit().code(), Some(0));
        assert_eq!(client.stderr_text(), "");
    }
}

#[test]
fn a_disabled_server_is_left_alone() {
    let journal = Journal::new();
    let config = Config::new()
        .server("off", journal.fake().arg("$NOT_SET_ANYWHERE").field("disabled", true))
        .server("remote", fake().field("type", "http").field("disabled", true))
        .server("on", fake().args(["--only-generated", "--tools", "1"]).field("disabled", false));
    let mut client = connected(&config);
    assert_eq!(client.tool_names(), ["on:tool_0"]);
    assert!(!journal.exists());
    let answer = client.call("off:echo", json!({}));
    assert_eq!(answer["error"]["code"], -32601);
}

#[test]
fn what_other_clients_write_is_ignored() {
    let entry = fake()
        .field("type", "stdio")
        .field("autoApprove", json!(["echo", 5]))
        .field("alwaysAllow", json!({"x": "$NOT_SET_ANYWHERE"}))
        .field("timeout", 60)
        .field("description", "costs ${NOT_SET_ANYWHERE}")
        .field("icon", json!(null));
    let mut client = connected(&Config::new().server("one", entry));
    assert_eq!(text_of(&client.call("one:echo", json!({"text": "hi"}))), "hi");
}

#[test]
fn a_working_directory_is_honoured() {
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().canonicalize().unwrap();
    let entry = fake().field("cwd", there.to_str().unwrap());
    let mut client = connected(&Config::new().server("one", entry));
    let answer = client.call("one:cwd", json!({}));
    assert_eq!(answer["result"]["structuredContent"]["cwd"], there.to_str().unwrap());
}

#[test]
fn a_config_may_come_through_a_pipe() {
    let file = Config::new().server("one", fake()).write();
    let launch = Launch::program("bash").args(["-c", r#"exec "$0" --config <(cat "$1")"#]);
    let mut client = initialized(launch.arg(program("mcp-simple-aggregator")).arg(file.path()));
    assert_eq!(text_of(&client.call("one:echo", json!({"text": "hi"}))), "hi");
}
