//! `check`.

use serde_json::json;
use testkit::{Config, ServerEntry, fake};

use crate::{Run, expect, failing, json, noted, one, run};

fn secretive() -> ServerEntry {
    ServerEntry::new("npx").args(["--token=hunter2"]).env("API_KEY", "hunter2")
}

#[test]
fn what_would_be_started_is_shown_without_secrets_and_nothing_is_started() {
    let folder = one();
    let config = Config::new()
        .server("database", secretive())
        .server("x", noted(folder.folder(), "journal"))
        .server("off", ServerEntry::new("y").field("disabled", true))
        .write();
    for arguments in [&[][..], &["--json"]] {
        let output = run("check", &config, arguments);
        expect(&output, 0);
        assert!(!output.stdout.contains("hunter2") && !output.stderr.contains("hunter2"));
        assert!(!output.stdout.contains("API_KEY"));
    }
    let output = run("check", &config, &[]);
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines[0], "SERVER    PROGRAM OR URL");
    assert_eq!(lines[1], "database  npx");
    assert_eq!(lines[3], "off       (disabled)");
    assert_eq!(output.stderr, "the config is valid: 2 to start, 1 disabled\n");
    let plan = json(&run("check", &config, &["--json"]));
    assert_eq!(plan["ok"], true);
    assert_eq!(plan["servers"][0], json!({"server": "database", "command": "npx"}));
    assert_eq!(plan["servers"][2], json!({"server": "off", "disabled": true}));
    assert!(!folder.folder().join("journal").exists());
}

#[test]
fn a_variable_that_is_not_utf_8_is_named_and_no_default_takes_its_place() {
    use std::os::unix::ffi::OsStrExt;
    let config = Config::new().server("x", ServerEntry::new("npx").env("KEY", "${MCP_TEST_KEY:-none}")).write();
    let mut check = Run::new("check", config.path());
    check.command.env("MCP_TEST_KEY", std::ffi::OsStr::from_bytes(b"k\xff"));
    let output = check.output();
    expect(&output, 1);
    let said = "MCP_TEST_KEY is set, but not to UTF-8 text; used at $.mcpServers.x.env.KEY";
    assert!(output.stderr.contains(said), "{}", output.stderr);
}

#[test]
fn unused_keys_cause_warnings_and_the_config_still_works() {
    let config = Config::new()
        .raw(
            r#"{"servers": {"lost": {"command": "x"}}, "mcpServers": {
                "two ways": {"command": "true", "url": "http://127.0.0.1:1/"},
                "the other": {"type": "http", "command": "true", "url": "http://127.0.0.1:1/"},
                "one way": {"command": "true"}}}"#,
        )
        .write();
    let warned = [
        "warning: $.servers is not used, because `mcpServers` is present, too\n",
        "warning: $.mcpServers[\"two ways\"] has both `command` and `url`; `url` is not used\n",
        "warning: $.mcpServers[\"the other\"] has both `command` and `url`; `command` is not used\n",
    ];
    let output = run("check", &config, &[]);
    expect(&output, 0);
    assert_eq!(output.stderr, format!("{}the config is valid: 3 to start, 0 disabled\n", warned.concat()));
    let plan = json(&run("check", &config, &["--json"]));
    assert_eq!(plan["warnings"][0]["path"], "$.servers");
    assert_eq!(plan["warnings"].as_array().map(Vec::len), Some(3));
    // Whoever starts it hears the same.
    let output = run("tools", &config, &[]);
    assert!(output.stderr.contains("$.servers is not used"), "{}", output.stderr);
}

#[test]
fn a_wrong_config_is_reported_with_all_its_problems() {
    let config = Config::new().raw(r#"{"mcpServers": {"a": {}, "b": {"command": 5}}}"#).write();
    let output = run("check", &config, &[]);
    expect(&output, 1);
    assert_eq!(output.stdout, "");
    for needed in ["error: ", "2 problems", "$.mcpServers.a.command", "$.mcpServers.b.command"] {
        assert!(output.stderr.contains(needed), "{}", output.stderr);
    }
    assert!(!output.stderr.contains("HTTP"));

    for verb in [&["--json"][..], &["--start", "--json"]] {
        let output = run("check", &config, verb);
        expect(&output, 1);
        let reply = json(&output);
        assert_eq!((&reply["ok"], &reply["error"]["code"]), (&json!(false), &json!("INVALID_SCHEMA")));
        assert_eq!(reply["error"]["data"]["problems"][1]["path"], "$.mcpServers.b.command");
        // Every verb says the same of it.
        assert_eq!(json(&run("tools", &config, &["--json"]))["error"], reply["error"]);
    }
}

#[test]
fn a_config_that_is_not_there_is_an_error_of_every_verb() {
    for (verb, more) in [("check", None), ("tools", None), ("call", Some("a.b")), ("stdio", None)] {
        let output = Run::new(verb, "/nowhere/c.json".as_ref()).args(more.as_slice()).output();
        expect(&output, 1);
        assert_eq!(output.stderr, "error: config file not found: /nowhere/c.json\n", "{verb}");
    }
}

#[test]
fn servers_that_work_are_started_counted_and_stopped() {
    let config = Config::new()
        .server("first", fake().args(["--tools", "3", "--only-generated"]))
        .server("b", fake().args(["--tools", "20", "--only-generated", "--page-size", "7"]))
        .server("off", fake().field("disabled", true))
        .write();
    let output = run("check", &config, &["--start"]);
    expect(&output, 0);
    let rows: Vec<Vec<&str>> = output.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["SERVER", "STATE", "TOOLS", "START"]);
    assert_eq!(rows[1][..3], ["first", "running", "3"]);
    assert_eq!(rows[2][..3], ["b", "running", "20"]);
    assert!(rows[2][3].parse::<f64>().is_ok() && rows[2][4] == "s");
    assert_eq!(rows[3], ["off", "disabled", "-", "-"]);
    assert_eq!(output.stderr, "all 2 servers work\n");

    let reply = json(&run("check", &config, &["--start", "--json"]));
    assert_eq!(reply["ok"], true);
    assert_eq!((&reply["servers"][1]["state"], &reply["servers"][1]["tools"]), (&json!("running"), &json!(20)));
    assert!(reply["servers"][1]["start_ms"].is_u64());
}

#[test]
fn failed_servers_are_reported_with_reason_stderr_and_a_hint() {
    let config = Config::new()
        .server("good", fake().field("startTimeout", 120_000))
        .server("bad", failing().field("startTimeout", 120_000))
        .server("gone", ServerEntry::new("no-such-program"))
        .server("stuck", fake().args(["--hang-at", "list"]))
        .server("mute", ServerEntry::new("false").env("TOKEN", "hunter2").field("startTimeout", 120_000))
        .write();
    // On a busy machine it is a while until the list is requested.
    let slow_reader_timeout = ("MCP_AGGREGATOR_START_TIMEOUT", "12");
    let output =
        Run::new("check", config.path()).args(&["--start"]).env(slow_reader_timeout.0, slow_reader_timeout.1).output();
    expect(&output, 1);
    let text = &output.stdout;
    for needed in [
        "good    running",
        "bad     failed   -",
        "  why: initialization: it exited with status 3\n",
        "  | no database here\n",
        "  why: startup: program `no-such-program` was not found; looked in ",
        "  hint: install it, or set `command` to its full path\n",
        "did not answer `tools/list` within 12 s",
        "  hint: if it needs more time, set MCP_AGGREGATOR_START_TIMEOUT",
        "it exited with status 1\n  hint: it wrote nothing to stderr",
    ] {
        assert!(text.contains(needed), "{needed:?} in\n{text}");
    }
    assert!(output.stderr.ends_with("error: 4 of 5 servers failed\n"), "{}", output.stderr);
    assert!(!text.contains("hunter2"));

    let output = Run::new("check", config.path())
        .args(&["--start", "--json"])
        .env(slow_reader_timeout.0, slow_reader_timeout.1)
        .output();
    expect(&output, 1);
    let reply = json(&output);
    assert_eq!(reply["ok"], false);
    assert_eq!(reply["servers"][1]["state"], "failed");
    assert!(reply["servers"][1]["stderr"].as_array().unwrap().contains(&json!("no database here")));
    assert!(reply["servers"][2]["hint"].as_str().unwrap().contains("install"));
}

#[test]
fn a_wait_names_its_servers() {
    let config =
        Config::new().server("quick", fake()).server("stuck", fake().args(["--hang-at", "initialize"])).write();
    let output = Run::new("check", config.path()).args(&["--start"]).env("MCP_AGGREGATOR_START_TIMEOUT", "12").output();
    expect(&output, 1);
    assert!(output.stderr.lines().any(|line| line == "waiting for stuck"), "{}", output.stderr);
}

#[test]
fn a_start_timeout_of_a_server_overrules_the_variable() {
    let impatient = Config::new().server("stuck", fake().args(["--hang-at", "initialize"]).field("startTimeout", 300));
    let output = Run::new("check", impatient.write().path())
        .args(&["--start"])
        .env("MCP_AGGREGATOR_START_TIMEOUT", "600")
        .output();
    expect(&output, 1);
    assert!(output.stdout.contains("did not answer `initialize` within 0.3 s"), "{}", output.stdout);
    assert!(output.stdout.contains("`startTimeout` of this server"), "{}", output.stdout);

    let patient =
        Config::new().server("slow", fake().args(["--start-delay-ms", "2500"]).field("startTimeout", 120_000));
    let output =
        Run::new("check", patient.write().path()).args(&["--start"]).env("MCP_AGGREGATOR_START_TIMEOUT", "1").output();
    expect(&output, 0);
    assert!(output.stdout.contains("slow    running"), "{}", output.stdout);
}

#[test]
fn a_start_timeout_that_is_no_number_is_named() {
    let output =
        Run::new("check", one().path()).args(&["--start"]).env("MCP_AGGREGATOR_START_TIMEOUT", "soon").output();
    expect(&output, 2);
    assert!(output.stderr.starts_with("error: MCP_AGGREGATOR_START_TIMEOUT"), "{}", output.stderr);
}

#[test]
fn no_server_at_all_is_fine() {
    let config = Config::new().write();
    let output = run("check", &config, &["--start"]);
    expect(&output, 0);
    assert_eq!(output.stderr, "there is no server to start\n");
}
