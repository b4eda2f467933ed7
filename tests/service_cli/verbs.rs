//! Further commands: `logs`, `restart`, `settings`, `clients`, `prompts`, `resources`, `export`, and the output of
//! `add` and `call`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::thread;

use serde_json::{Value, json};
use testkit::client_session::ClientSession;
use testkit::puppet::{Puppet, Spec};
use testkit::wait_until;

use super::{Home, fake, row};

const LINE: &str = "listening for work";

#[test]
fn what_a_server_writes_to_stderr_is_printed_and_followed_through_a_restart() {
    let home = Home::new();
    let _serve = home.serve();
    home.ok(&["add", "one", "--", &fake(), "--stderr-line", LINE]);
    let printed = wait_until("the line is there", || Some(home.ok(&["logs", "one"])).filter(|text| !text.is_empty()));
    assert_eq!(printed, format!("{LINE}\n"));
    assert_eq!(home.json(&["logs", "one", "--json"]), json!({"lines": [LINE], "missed": 0}));

    let mut following = home.command(&["logs", "one", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), LINE);
    let before = home.json(&["show", "one", "--json"])["connected_at"].clone();
    home.ok(&["restart", "one"]);
    assert_eq!(lines.next().unwrap().unwrap(), LINE, "what its next life says follows");
    following.kill().unwrap();
    following.wait().unwrap();
    let after = home.json(&["show", "one", "--json"]);
    assert_eq!(after["status"], "connected");
    assert_ne!(after["connected_at"], before);

    let missing = home.fails(1, &["logs", "on"]);
    assert!(missing.contains("there is no server `on`") && missing.contains("did you mean `one`"), "{missing}");
    assert!(home.fails(1, &["logs", "on", "-f"]).contains("did you mean `one`"));
    assert!(home.fails(1, &["restart", "on"]).contains("there is no server `on`"));
    home.ok(&["disable", "one"]);
    assert!(home.fails(1, &["restart", "one"]).contains("enable it first"));
}

#[test]
fn settings_are_printed_changed_and_reset_with_and_without_a_service() {
    let home = Home::new();
    home.add("one");
    for runs in [false, true] {
        let _serve = runs.then(|| home.serve());
        assert_eq!(home.ok(&["settings", "timeout_ms"]), "30000\n", "{runs}");
        home.ok(&["settings", "timeout_ms", "60000"]);
        assert_eq!(home.json(&["settings", "timeout_ms", "--json"]), json!({"timeout_ms": 60000}));
        let table = home.ok(&["settings"]);
        assert_eq!(row(&table, "timeout_ms"), ["timeout_ms", "60000", "30000"]);
        home.ok(&["settings", "retry_backoff_ms", "1,2"]);
        assert_eq!(home.json(&["settings", "--json"])["retry_backoff_ms"], json!([1, 2]));
        home.ok(&["settings", "mcp_concurrent_limit", "-1"]);
        let said = home.fails(1, &["settings", "timeout_ms", "never"]);
        assert!(said.contains("timeout_ms") && said.contains("a whole number"), "{said}");
        let said = home.fails(2, &["settings", "timeout_m"]);
        assert!(said.contains("there is no setting `timeout_m`") && said.contains("`timeout_ms`"), "{said}");
        for key in ["timeout_ms", "retry_backoff_ms"] {
            home.ok(&["settings", key, "default"]);
        }
        assert_eq!(home.json(&["settings", "--json"])["timeout_ms"], 30000);
    }
}

#[test]
fn clients_are_listed_and_executions_name_them() {
    let home = Home::new();
    let serve = home.serve();
    home.add("one");
    assert_eq!(home.json(&["clients", "--json"]), json!([]));
    let mut session = serve.session("/mcp");
    session.ask("tools/call", json!({"name": "one.echo", "arguments": {"text": "hi"}}));
    let [legacy] = &clients(&home)[..] else { panic!("{:?}", clients(&home)) };
    assert_eq!((&legacy["name"], &legacy["calls"]), (&json!("mcp-inspector"), &json!(1)), "{legacy}");
    assert!(legacy["version"].is_string() && legacy["revision"] != "2026-07-28", "{legacy}");
    assert!(legacy["since"].as_str().unwrap().ends_with('Z'), "{legacy}");

    let mut modern = serve.modern("/mcp");
    modern.ask("tools/list", json!({}));
    for text in ["a", "b"] {
        modern.ask("tools/call", json!({"name": "one.echo", "arguments": {"text": text}}));
    }
    let all = clients(&home);
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!((&all[1]["revision"], &all[1]["calls"]), (&json!("2026-07-28"), &json!(2)), "{all:?}");
    assert!(home.ok(&["clients"]).lines().filter(|line| line.starts_with("mcp-inspector")).count() == 2);

    let calls = home.json(&["calls", "--json"]);
    let calls = calls.as_array().unwrap();
    assert!(calls.len() == 3 && calls.iter().all(|call| call["client"] == "mcp-inspector"), "{calls:?}");
    assert!(home.ok(&["calls"]).contains("mcp (mcp-inspector)"));
    home.ok(&["call", "one.echo", "text=x"]);
    assert_eq!(
        home.json(&["calls", "--limit", "1", "--json"])[0]["client"],
        Value::Null,
        "the command line is no client"
    );

    assert_eq!(session.delete(), 204);
    wait_until("its session is over", || (clients(&home).len() == 1).then_some(()));
}

fn clients(home: &Home) -> Vec<Value> {
    home.json(&["clients", "--json"]).as_array().expect("clients are a list").clone()
}

fn puppet() -> Puppet {
    let prompt = r#"{"name":"review","description":"Review a change","arguments":[{"name":"id","required":true}]}"#;
    let resource = r#"{"uri":"notes://1","name":"first note","mimeType":"text/plain"}"#;
    Puppet::over_http(Spec::legacy().tool("t").raw_prompt(prompt).raw_resource(resource).template("notes://{id}"))
}

const MESSAGES: &str = r#"{"messages":[{"role":"user","content":{"type":"text","text":"Review 12, please"}}],"n":1.0}"#;
const CONTENTS: &str = r#"{"contents":[{"uri":"notes://1","mimeType":"text/plain","text":"buy milk"}]}"#;

#[test]
fn prompts_and_resources_are_listed_filled_in_and_read() {
    let (home, puppet) = (Home::new(), puppet());
    let _serve = home.serve();
    home.ok(&["add", "desk", &format!("http://{}/mcp", puppet.address())]);
    let listed = home.json(&["prompts", "--json"]);
    assert_eq!((&listed[0]["name"], &listed[0]["server_name"]), (&json!("desk.review"), &json!("desk")), "{listed}");
    assert_eq!(row(&home.ok(&["prompts", "desk"]), "desk.review")[1], "id");
    let listed = home.json(&["resources", "--json"]);
    assert_eq!((&listed[0]["uri"], &listed[0]["template"]), (&json!("notes://1"), &json!(false)), "{listed}");
    assert_eq!((&listed[1]["uri"], &listed[1]["template"]), (&json!("notes://{id}"), &json!(true)), "{listed}");

    thread::scope(|scope| {
        let got = scope.spawn(|| home.ok(&["prompts", "get", "desk.review", "id=12"]));
        let asked = puppet.expect("prompts/get");
        assert_eq!(asked.value()["params"]["arguments"], json!({"id": "12"}), "arguments are texts");
        asked.answer(MESSAGES);
        assert_eq!(got.join().unwrap(), "user:\nReview 12, please\n");
        let got = scope.spawn(|| home.ok(&["prompts", "get", "review", "id=12", "--json"]));
        puppet.expect("prompts/get").answer(MESSAGES);
        assert_eq!(got.join().unwrap(), format!("{MESSAGES}\n"), "byte for byte");
        let read = scope.spawn(|| home.ok(&["resources", "read", "notes://1"]));
        puppet.expect("resources/read").answer(CONTENTS);
        assert_eq!(read.join().unwrap(), "buy milk");
        let read = scope.spawn(|| home.ok(&["resources", "read", "notes://7", "--server", "desk", "--json"]));
        puppet.expect("resources/read").answer(CONTENTS);
        assert_eq!(read.join().unwrap(), format!("{CONTENTS}\n"));
    });
    let missing = home.fails(1, &["prompts", "get", "desk.reviw", "id=1"]);
    assert!(
        missing.contains("there is no prompt `desk.reviw`") && missing.contains("did you mean `desk.review`"),
        "{missing}"
    );
    assert!(home.fails(2, &["prompts", "get", "desk.review", "id"]).contains("KEY=VALUE"));
    assert!(home.fails(1, &["prompts", "nobody"]).contains("there is no server `nobody`"));
}

#[test]
fn prompts_and_resources_of_a_config_need_no_service() {
    let (home, puppet) = (Home::new(), puppet());
    let config = json!({"mcpServers": {"desk": {"url": format!("http://{}/mcp", puppet.address())}}});
    let config = home.write("mcp.json", &config.to_string());
    assert_eq!(home.json(&["prompts", "--config", &config, "--json"])[0]["name"], "desk.review");
    assert_eq!(home.json(&["resources", "--config", &config, "--json"])[0]["uri"], "notes://1");
    thread::scope(|scope| {
        let got = scope.spawn(|| home.ok(&["prompts", "get", "review", "id=12", "--config", &config]));
        puppet.expect("prompts/get").answer(MESSAGES);
        assert_eq!(got.join().unwrap(), "user:\nReview 12, please\n");
        let read = scope.spawn(|| home.ok(&["resources", "read", "notes://1", "--config", &config]));
        puppet.expect("resources/read").answer(CONTENTS);
        assert_eq!(read.join().unwrap(), "buy milk");
    });
    for list in ["prompts", "resources"] {
        let missing = home.fails(1, &[list, "dsk", "--config", &config]);
        assert!(missing.contains("there is no server `dsk`") && missing.contains("did you mean `desk`"), "{missing}");
    }
    let missing = home.fails(1, &["prompts", "get", "desk.nothing", "--config", &config]);
    assert!(missing.contains("there is no prompt `desk.nothing`"), "{missing}");
}

#[test]
fn an_export_for_clients_is_plain_mcp_servers() {
    let home = Home::new();
    home.ok(&["add", "one", "--lazy", "--env", "KEY=hunter2", "--", &fake(), "--name", "x"]);
    home.ok(&["add", "two", "https://example.org/mcp", "--header", "X-Plain: ${TOKEN}"]);
    home.ok(&["disable", "two"]);
    let plain = home.json(&["export", "--format", "mcp", "--secrets"]);
    let expected = json!({"mcpServers": {
        "one": {"command": fake(), "args": ["--name", "x"], "env": {"KEY": "hunter2"}},
        "two": {"type": "http", "url": "https://example.org/mcp", "headers": {"X-Plain": "${TOKEN}"}, "disabled": true},
    }});
    assert_eq!(plain, expected);
    let masked = home.run(&["export", "--format", "mcp"]);
    assert!(!masked.stdout.contains("hunter2") && masked.stderr.contains("--secrets"), "{}", masked.stderr);
    assert_eq!(home.json(&["export"])["format"], "mcp-aggregator registry");
    // It is a config like any other.
    let file = home.write("mcp.json", &plain.to_string());
    assert!(home.ok(&["check", "--config", &file]).contains("one"));
    let given = home.write("given.json", &json!({"mcpServers": {"given": {"command": fake()}}}).to_string());
    let _serve = home.serve_as(|launch| launch.args(["--config", &given]));
    let partly = home.run(&["export", "--format", "mcp"]);
    assert!(partly.stderr.contains("`given` is left out: it is in the config file"), "{}", partly.stderr);
}

#[test]
fn a_program_and_its_arguments_in_one_word_are_taken_apart_in_the_hint() {
    let home = Home::new();
    let said = home.fails(2, &["add", "x", "--", "npx -y pkg"]);
    assert!(said.contains("as separate words") && said.contains("`-- npx -y pkg`"), "{said}");
    let said = home.fails(2, &["add", "x", "--json", r#"{"command": "npx -y pkg"}"#]);
    assert!(said.contains(r#"{"command":"npx","args":["-y","pkg"]}"#), "{said}");
    let said = home.fails(2, &["add", "x", "--", &format!("{} --name x", fake())]);
    assert!(said.contains("as separate words"), "{said}");
    let spaced = home.write("with blanks/server", "");
    home.ok(&["add", "spaced", "--no-connect", "--", &spaced]);
}

#[test]
fn a_failed_call_tells_scripts_why_and_whether_a_retry_is_safe() {
    let home = Home::new();
    let facts = |arguments: &[&str]| {
        let output = home.run(&[&["call", "--json"], arguments].concat());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", output.stderr);
        let printed: Value = serde_json::from_str(&output.stdout).unwrap();
        let error = printed["error"].clone();
        assert!(error["reason"].is_string() && error["safeToRetry"].is_boolean(), "{arguments:?}: {error}");
        (error["reason"].as_str().unwrap().to_owned(), error["safeToRetry"] == true, output.stderr)
    };
    let (reason, is_safe, _) = facts(&["one.echo"]);
    assert_eq!((reason.as_str(), is_safe), ("no_service", true));

    let _serve = home.serve();
    home.add("one");
    let (reason, is_safe, said) = facts(&["one.hang", "--timeout", "1"]);
    assert_eq!((reason.as_str(), is_safe), ("execution_timeout", false));
    assert!(said.contains("`mcp-aggregator call --timeout 2 one.hang`"), "{said}");
    assert!(said.contains("`mcp-aggregator settings timeout_ms 2000`"), "{said}");
    let (reason, is_safe, _) = facts(&["one.nothing"]);
    assert_eq!((reason.as_str(), is_safe), ("tool_not_found", true));
    let (reason, is_safe, _) = facts(&["one.crash"]);
    assert_eq!((reason.as_str(), is_safe), ("server_ended", false));
    home.ok(&["disable", "one"]);
    let (reason, is_safe, _) = facts(&["one.echo"]);
    assert_eq!((reason.as_str(), is_safe), ("server_unavailable", true));

    let entry = json!({"mcpServers": {"slow": {"command": fake(), "timeout": 300}}});
    let config = home.write("slow.json", &entry.to_string());
    let (reason, is_safe, said) = facts(&["slow.hang", "--config", &config]);
    assert_eq!((reason.as_str(), is_safe), ("server_too_slow", false));
    assert!(said.contains("raise the `timeout` (milliseconds)"), "{said}");
}

/// Answers every request at its own address: lists are empty, and calls end like those of a proxy that gives up.
fn impatient_proxy() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("it listens"));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.expect("a client connected"));
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|read| read > 0) {}
            for line in head.lines() {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().expect("a number");
                }
            }
            if reader.read_exact(&mut vec![0; length]).is_err() {
                continue;
            }
            let (status, body) =
                if head.starts_with("POST") { ("504 Gateway Timeout", "<html>") } else { ("200 OK", "[]") };
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
            // A client that disconnects first misses the response.
            reader.get_mut().write_all(answer.as_bytes()).ok();
        }
    });
    url
}

#[test]
fn a_call_that_a_proxy_gave_up_may_have_been_made() {
    let home = Home::new();
    let url = impatient_proxy();
    let output = home.run(&["call", "--json", "one.echo", "text=5", "--url", &url]);
    assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
    let error = serde_json::from_str::<Value>(&output.stdout).unwrap()["error"].clone();
    assert_eq!((&error["reason"], &error["safeToRetry"]), (&json!("answer_lost"), &json!(false)), "{error}");
    let said = home.fails(1, &["settings", "--url", &url]);
    assert!(said.contains("no settings"), "what is no answer is no empty table: {said}");
    let said = home.fails(1, &["status", "--url", &url]);
    assert!(said.contains("error:"), "{said}");
}

/// Minutes since midnight of `2026-07-28 14:05:09`, or of the same with a `T`.
fn minutes(moment: &str) -> u32 {
    let number = |at: std::ops::Range<usize>| moment[at].parse::<u32>().unwrap_or_else(|_| panic!("{moment}"));
    number(11..13) * 60 + number(14..16)
}

#[test]
fn times_are_local_for_people_and_utc_for_programs() {
    let home = Home::new();
    home.add("one");
    let utc = home.json(&["show", "one", "--json"])["registered_at"].as_str().unwrap().to_owned();
    assert!(utc.ends_with('Z'), "{utc}");
    for (zone, ahead) in [("IST-5:30", 330), ("UTC0", 0), ("XYZ+3", 24 * 60 - 180)] {
        let shown = home.run_with(&["show", "one"], &[("TZ", zone)]).stdout;
        let words = row(&shown, "registered");
        let local = format!("{} {}", words[1], words[2]);
        assert_eq!(minutes(&local), (minutes(&utc) + ahead) % (24 * 60), "{zone}: {local} for {utc}");
        let json = home.run_with(&["show", "one", "--json"], &[("TZ", zone)]).stdout;
        assert!(json.contains(&utc), "{zone}: {json}");
    }
}
