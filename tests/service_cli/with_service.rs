//! Commands with a running service.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use testkit::http_client::HttpRequest;
use testkit::wait_until;

use super::{Home, fake, row};
use crate::console::Visitor;
use crate::rest::Rest;

#[test]
fn a_server_is_added_looked_at_called_and_removed() {
    let home = Home::new();
    let _serve = home.serve();
    home.add("one");
    let tool_count = home.json(&["show", "one", "--json"])["tool_count"].to_string();
    let listed = home.ok(&["list"]);
    let listed = row(&listed, "one");
    assert_eq!(listed[1..3], ["connected", &*tool_count]);
    assert!(listed.contains(&"stdio"), "{listed:?}");
    let shown = home.ok(&["show", "one"]);
    assert_eq!(row(&shown, "status"), ["status", "connected"]);
    assert!(shown.contains("one.echo"), "{shown}");
    assert!(home.ok(&["tools"]).contains("one.echo"));
    assert_eq!(home.ok(&["call", "one.echo", "text=hello"]), "hello\n");
    assert!(home.ok(&["history", "one"]).contains("connecting -> connected"));
    assert!(home.ok(&["test", "one"]).lines().any(|line| line == "echo"));
    assert_eq!(row(&home.ok(&["status"]), "status"), ["status", "healthy"]);

    for (verb, state) in
        [("disconnect", "disconnected"), ("connect", "connected"), ("disable", "disabled"), ("enable", "connected")]
    {
        home.ok(&[verb, "one"]);
        assert_eq!(home.json(&["show", "one", "--json"])["status"], state, "{verb}");
    }
    home.ok(&["remove", "one"]);
    let missing = home.fails(1, &["show", "one"]);
    assert!(missing.contains("there is no server `one`") && missing.contains("`mcp-aggregator list`"), "{missing}");
}

#[test]
fn a_server_that_does_not_start_is_added_and_reported_with_the_reason() {
    let home = Home::new();
    let _serve = home.serve();
    let said = home.fails(1, &["add", "bad", "--", "/nonexistent/program"]);
    assert!(said.contains("added `bad`, but it could not be connected"), "{said}");
    let listed = home.ok(&["list"]);
    assert!(listed.contains("  why: program `/nonexistent/program` does not exist"), "{listed}");
    let output = home.run(&["status"]);
    assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
    assert_eq!(row(&output.stdout, "status"), ["status", "degraded"]);
    assert!(output.stderr.contains("server `bad`"), "{}", output.stderr);
    let output = home.run(&["test", "bad"]);
    assert_eq!(output.status.code(), Some(1));
    let refused = home.fails(1, &["connect", "bad"]);
    assert!(refused.contains("could not connect to server `bad`"), "{refused}");
}

#[test]
fn a_server_that_is_there_is_changed_and_keeps_what_belongs_to_it() {
    let home = Home::new();
    let _serve = home.serve();
    home.add("one");
    let id = home.json(&["show", "one", "--json"])["id"].clone();
    home.ok(&["tools", "off", "one.echo"]);
    let said = home.fails(1, &["add", "one", "--", &fake()]);
    assert!(said.contains("add --replace"), "{said}");
    home.ok(&["add", "one", "--replace", "--env", "COLOUR=blue", "--", &fake()]);
    assert!(home.ok(&["call", "one.env", "name=COLOUR"]).contains("blue"));
    assert_eq!(home.json(&["show", "one", "--json"])["id"], id);
    assert!(!home.ok(&["tools"]).contains("one.echo "), "what is off stays off");
    let missing = home.fails(1, &["add", "two", "--replace", "--", &fake()]);
    assert!(missing.contains("there is no server `two`"), "{missing}");
}

/// A server that never responds, and the file in which it writes its process id.
fn mute(home: &Home, name: &str) -> (String, std::path::PathBuf) {
    let file = home.path().join(format!("{name}.pid"));
    (format!("echo $$ > '{}'; exec sleep 600", file.display()), file)
}

fn process_in(file: &Path) -> Pid {
    wait_until("the server has started", || {
        let pid = fs::read_to_string(file).ok()?.trim().parse().ok()?;
        Pid::from_raw(pid)
    })
}

#[test]
fn a_connection_test_ends_with_its_request() {
    let home = Home::new();
    let _serve = home.serve();
    let (script, file) = mute(&home, "mute");
    home.ok(&["add", "mute", "--no-connect", "--", "sh", "-c", &script]);
    let mut trial = home.command(&["test", "mute"]).stderr(Stdio::null()).spawn().unwrap();
    let server = process_in(&file);
    kill_process(Pid::from_child(&trial), Signal::INT).unwrap();
    assert!(!trial.wait().unwrap().success());
    wait_until("the server is gone", || test_kill_process(server).is_err().then_some(()));
}

#[test]
fn an_interrupted_add_reports_that_the_server_is_registered() {
    let home = Home::new();
    let _serve = home.serve();
    let (script, file) = mute(&home, "mute");
    let adding = home.command(&["add", "mute", "--", "sh", "-c", &script]).stderr(Stdio::piped()).spawn().unwrap();
    process_in(&file);
    kill_process(Pid::from_child(&adding), Signal::INT).unwrap();
    let output = adding.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("`mute` was added") && said.contains("remove mute`"), "{said}");
}

#[test]
fn removing_a_server_of_the_config_file_is_not_suggested() {
    let home = Home::new();
    let config = home.write("mcp.json", &json!({"mcpServers": {"one": {"command": fake()}}}).to_string());
    let _serve = home.serve_as(|launch| launch.args(["--config", &config]));
    wait_until("it is there", || home.ok(&["list"]).contains("one").then_some(()));
    let said = home.fails(1, &["add", "one", "--", "x"]);
    assert!(said.contains("is in the config file") && !said.contains("remove one"), "{said}");
}

#[test]
fn a_typo_gets_a_suggestion() {
    let home = Home::new();
    let _serve = home.serve();
    home.add("notes");
    assert!(home.fails(1, &["show", "note"]).contains("hint: did you mean `notes`?"));
    assert!(home.fails(1, &["call", "notes.ecko"]).contains("hint: did you mean `notes.echo`?"));
    let said = home.fails(1, &["call", "notes.nothing_like_this_at_all"]);
    assert!(said.contains("hint: `notes` has `"), "{said}");
    let output = home.run(&["call", "notes.ecko", "--json"]);
    let reply: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((&reply["error"]["code"], &reply["error"]["exit_status"]), (&json!("TOOL_NOT_FOUND"), &json!(1)));
}

#[test]
fn calls_are_listed_stopped_and_allowed_again() {
    let home = Home::new();
    let _serve = home.serve();
    home.add("one");
    assert_eq!(home.ok(&["calls"]), "");
    home.ok(&["call", "one.echo", "text=hello"]);
    let listed = home.ok(&["calls"]);
    assert!(listed.contains("one.echo"), "{listed}");
    home.ok(&["calls", "stop"]);
    let refused = home.fails(1, &["call", "one.echo", "text=hello"]);
    assert_eq!(refused, "error: executions are stopped\nhint: `mcp-aggregator calls allow` allows them again\n");
    assert_eq!(home.json(&["calls", "allow", "--json"])["stopped"], false);
    assert_eq!(home.ok(&["call", "one.echo", "text=hello"]), "hello\n");
    assert!(home.fails(1, &["calls", "cancel", "nobody"]).contains("nobody"));
}

#[test]
fn secrets_are_shown_nowhere() {
    let home = Home::new();
    let _serve = home.serve();
    home.ok(&["add", "one", "--env", "KEY=hunter2", "--env", "REF=${HOME}", "--", &fake()]);
    assert_eq!(home.ok(&["call", "one.env", "name=KEY"]), "\"hunter2\"\n");
    for verb in [&["list"][..], &["show", "one"], &["show", "one", "--json"], &["history", "one"], &["export"]] {
        let text = home.ok(verb);
        assert!(!text.contains("hunter2"), "{verb:?}: {text}");
    }
    assert!(home.ok(&["show", "one"]).contains("REF=${HOME}"));
}

#[test]
fn options_and_json_cover_everything_in_rest() {
    let home = Home::new();
    let _serve = home.serve();
    let health = "http://127.0.0.1:9/health";
    home.ok(&[
        "add",
        "a",
        "http://127.0.0.1:9/sse",
        "--transport",
        "sse",
        "--header",
        "X=${Y}",
        "--description",
        "for tests",
        "--health-url",
        health,
        "--no-connect",
    ]);
    let a = home.json(&["show", "a", "--json"]);
    assert_eq!((&a["transport_type"], &a["description"]), (&json!("sse"), &json!("for tests")));
    assert_eq!(a["connection_config"], json!({"url": "http://127.0.0.1:9/sse", "headers": {"X": "${Y}"}}));
    assert_eq!(
        (&a["health_check_url"], &a["auto_connect"], &a["status"]),
        (&json!(health), &json!(false), &json!("disconnected"))
    );

    let entry = json!({"command": fake(), "args": ["--only-generated"]}).to_string();
    let b = home.json(&["add", "b", "--lazy", "--json", &entry]);
    assert_eq!((&b["name"], &b["lazy"], &b["status"]), (&json!("b"), &json!(true), &json!("connected")));
    let whole =
        json!({"name": "c", "transport_type": "stdio", "connection_config": {"command": fake()}, "enabled": false});
    assert_eq!(home.json(&["add", "--json", &whole.to_string()])["status"], "disabled");

    for (arguments, said) in [
        (&["add", "Bad Name", "--no-connect", "--", "x"][..], "name: "),
        (&["add", "a", "--", "x"], "a server named `a` already exists"),
        (&["add", "x", "--json", r#"{"args": []}"#], "needs"),
    ] {
        let stderr = home.fails(1, arguments);
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
}

#[test]
fn json_is_what_rest_answers() {
    let home = Home::new();
    let serve = home.serve();
    home.add("one");
    for (verb, path) in [
        (&["list", "--json"][..], "/servers"),
        (&["tools", "--json"], "/tools"),
        (&["history", "one", "--json"], "/servers/one/history"),
        (&["export"], "/export"),
    ] {
        let by_rest = || serve.fetch(&HttpRequest::new("GET", &format!("/api/v1/aggregator{path}"))).json();
        // A tool that is being classified may change between two looks.
        let mut answers = wait_until("nothing changes while it is looked at twice", || {
            let (before, by_command, after) = (by_rest(), home.json(verb), by_rest());
            let states =
                |listed: &Value| listed.as_array().map(|all| all.iter().map(|it| it["state"].clone()).collect());
            (states(&before) == states(&after) as Option<Vec<Value>>).then_some([by_command, after])
        });
        for answer in answers.iter_mut().filter_map(|answer| answer.as_object_mut()) {
            answer.remove("exported_at");
        }
        // The resource usage of a server changes all the time.
        for server in answers.iter_mut().filter_map(|answer| answer.as_array_mut()).flatten() {
            server.as_object_mut().map(|server| server.remove("usage"));
        }
        assert_eq!(answers[0], answers[1], "{path}");
    }
}

#[test]
fn a_call_reports_its_outcome_and_its_owner() {
    let home = Home::new();
    let serve = home.serve();
    home.add("one");
    let failing = json!({"result": r#"{"content":[{"type":"text","text":"no luck"}],"isError":true}"#}).to_string();
    let said = home.fails(3, &["call", "one.raw", &failing]);
    assert!(said.contains("reported an error") && said.contains("no luck"), "{said}");
    let said = home.fails(1, &["call", "one.nothing"]);
    assert!(said.contains("there is no tool `one.nothing`") && said.contains("`mcp-aggregator tools`"), "{said}");
    let said = home.fails(1, &["call", "one.hang", "--timeout", "1"]);
    assert!(said.starts_with("error: "), "{said}");
    let result = home.json(&["call", "one.echo", "text=x", "--json"]);
    assert_eq!(result["metadata"]["routed_to"], "one");
    let executions = serve.fetch(&HttpRequest::new("GET", "/api/v1/aggregator/executions?source=cli"));
    assert_eq!(executions.headers["x-total-count"], "3");
}

#[test]
fn a_token_is_taken_from_the_environment_or_a_file() {
    let home = Home::new();
    let secret = "a-secret-that-nobody-can-guess-by-chance";
    let file = home.write("tokens", &format!("# ours\nlaptop:{secret}\n"));
    let serve = home.serve_as(|launch| launch.args(["--token-file", &file]));
    let refused = home.fails(1, &["list"]);
    assert!(refused.contains("MCP_AGGREGATOR_TOKEN") && refused.contains("--token-file"), "{refused}");
    assert_eq!(home.run_with(&["list"], &[("MCP_AGGREGATOR_TOKEN", secret)]).status.code(), Some(0));
    home.ok(&["add", "one", "--token-file", &file, "--", &fake()]);
    let url = format!("http://{}", serve.address());
    let elsewhere = Home::new();
    let bare = elsewhere.write("token", secret);
    assert!(elsewhere.ok(&["list", "--url", &url, "--token-file", &bare]).contains("one"));
}

#[test]
fn skills_are_listed_and_searched_by() {
    let home = Home::new();
    let _serve = home.serve();
    home.add("one");
    let listed = home.ok(&["skills"]);
    assert!(row(&listed, "files")[2..].join(" ").starts_with("Files and folders Read, write"), "{listed}");
    assert!(home.json(&["skills", "--json"]).as_array().unwrap().iter().all(|skill| skill["origin"] == "builtin"));
    testkit::wait_until("what was added is searched", || {
        home.ok(&["search", "echo", "--strategy", "hierarchical"]).contains("one.echo").then_some(())
    });
    let stderr_of = |query: &str| home.run(&["search", query]).stderr;
    assert!(stderr_of("отправь письмо Анне").contains("The built-in model reads English"));
    assert!(!stderr_of("send a letter to Anna").contains("reads English"));
    let said = home.fails(1, &["search", "echo", "--skill", "nope"]);
    assert!(said.contains("there is no skill `nope`"), "{said}");
    assert!(home.fails(2, &["search", "echo", "--strategy", "luck"]).contains("possible values: direct, hierarchical"));
    let broken = home.write("skills.json", r#"[{"id":"a","name":"","description":"d"}]"#);
    let refused = home.fails(1, &["serve", "--listen", "0", "--skills", &broken]);
    assert!(refused.contains("the skill `a` has no name"), "{refused}");
}

#[test]
fn hints_can_be_pasted_wherever_the_service_is() {
    let home = Home::new();
    let serve = home.serve();
    let url = format!("http://{}", serve.address());
    let said = home.fails(1, &["add", "broken", "--url", &url, "--", "/nonexistent/program"]);
    assert!(said.contains(&format!("`mcp-aggregator test broken --url {url}`")), "{said}");
    let data = home.data();
    let data = data.to_str().expect("our folders are UTF-8");
    let said = home.fails(1, &["show", "nobody", "--data-dir", data]);
    assert!(said.contains(&format!("`mcp-aggregator list --data-dir {data}`")), "{said}");
}

#[test]
fn headers_may_be_written_as_everywhere_and_a_wrong_one_is_not_repeated() {
    let home = Home::new();
    let address = "http://127.0.0.1:9/mcp";
    home.ok(&["add", "web", address, "--header", "X-Name: ${Y}", "--header", "A=${B}", "--no-connect"]);
    let web = home.json(&["show", "web", "--json"]);
    assert_eq!(web["connection_config"]["headers"], json!({"X-Name": "${Y}", "A": "${B}"}));
    let said = home.fails(2, &["add", "other", address, "--header", "hunter2"]);
    assert!(said.contains("--header 'NAME:VALUE'") && !said.contains("hunter2"), "{said}");
}

#[test]
fn disabled_tools_are_not_listed_and_calls_report_it() {
    let rest = Rest::start();
    rest.register("fake", &[]);
    let url = format!("http://{}", rest.serve.address());
    Visitor::new(&rest).submit("/tools", &[("action", "off"), ("tool", "fake.echo"), ("back", "/tools")]);
    let home = Home::new();
    let listed = home.run(&["tools", "--url", &url]);
    assert!(!listed.stdout.contains("fake.echo "), "{}", listed.stdout);
    assert!(listed.stderr.contains("; 1 more disabled"), "{}", listed.stderr);
    let said = home.fails(1, &["call", "fake.echo", "text=x", "--url", &url]);
    assert!(said.contains("`fake.echo` is disabled") && said.contains("tools on fake.echo"), "{said}");
}
