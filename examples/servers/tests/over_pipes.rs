//! Talks to each example program over pipes, as an aggregator would.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

struct Session {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    next_id: u64,
}

impl Session {
    /// Starts the program and says hello.
    fn start(program: &str, arguments: &[&Path]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut session = Self {
            stdin: child.stdin.take().expect("a pipe"),
            stdout: BufReader::new(child.stdout.take().expect("a pipe")),
            child,
            next_id: 1,
        };
        let hello = session.ask(
            "initialize",
            &json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}),
        );
        assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
        session.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        session
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").expect("the program reads");
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the program answers");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({"name": tool, "arguments": arguments}))["result"].take()
    }

    fn tool_names(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", &json!({}));
        let tools = answer["result"]["tools"].as_array().expect("a list");
        tools.iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    }

    /// Closes stdin; the program must end well and have nothing more to say.
    fn end(mut self) {
        drop(self.stdin);
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).expect("the program closes its stdout");
        assert_eq!(rest, "");
        assert!(self.child.wait().expect("the program ends").success());
    }
}

#[test]
fn notes_are_kept_across_restarts() {
    let home = tempfile::tempdir().expect("a folder");
    let dir = home.path().join("my notes");
    let arguments = [Path::new("--dir"), &dir];
    let mut notes = Session::start(env!("CARGO_BIN_EXE_example-notes"), &arguments);
    assert_eq!(notes.tool_names(), ["add", "list", "read", "search", "delete"]);
    let added = notes.call("add", &json!({"title": "Café list", "text": "crème\nsugar"}));
    assert_eq!(added["structuredContent"], json!({"name": "café-list"}), "{added}");
    notes.end();

    let mut notes = Session::start(env!("CARGO_BIN_EXE_example-notes"), &arguments);
    let found = notes.call("search", &json!({"query": "SUGAR"}));
    assert_eq!(found["structuredContent"]["notes"][0]["lines"], json!([{"line": 4, "text": "sugar"}]));
    let list = notes.call("list", &json!({}));
    assert_eq!(list["structuredContent"]["notes"][0]["name"], "café-list");
    let read = notes.call("read", &json!({"name": "Café list"}));
    assert_eq!(read["content"][0]["text"], "# Café list\n\ncrème\nsugar\n");
    let deleted = notes.call("delete", &json!({"name": "café-list"}));
    assert_eq!(deleted["isError"], false, "{deleted}");
    assert_eq!(std::fs::read_dir(&dir).expect("the folder").count(), 0);
    notes.end();
}

#[test]
fn errors_about_notes_are_reported_and_paths_stay_inside_the_folder() {
    let home = tempfile::tempdir().expect("a folder");
    let secret = home.path().join("secret.md");
    std::fs::write(&secret, "secret").expect("written");
    let dir = home.path().join("notes");
    let mut notes = Session::start(env!("CARGO_BIN_EXE_example-notes"), &[Path::new("--dir"), &dir]);
    for (tool, arguments, sentence) in [
        ("read", json!({"name": "../secret"}), "a name is not a path"),
        ("delete", json!({"name": "../secret"}), "a name is not a path"),
        ("read", json!({"name": "missing"}), "there is no note `missing`"),
        ("add", json!({"title": "x"}), "`text` is missing"),
        ("add", json!({"title": "?", "text": "x"}), "at least one letter"),
        ("search", json!({"query": " "}), "at least one word"),
    ] {
        let result = notes.call(tool, &arguments);
        assert_eq!(result["isError"], true, "{result}");
        let text = result["content"][0]["text"].as_str().expect("a text");
        assert!(text.contains(sentence), "{text}");
    }
    assert_eq!(std::fs::read_to_string(&secret).expect("still there"), "secret");
    notes.end();
}

#[test]
fn calc_calculates() {
    let mut calc = Session::start(env!("CARGO_BIN_EXE_example-calc"), &[]);
    assert_eq!(calc.tool_names(), ["evaluate", "convert", "statistics", "days_between", "add_to_date", "now"]);
    let sum = calc.call("evaluate", &json!({"expression": "0.1 + 0.2"}));
    assert_eq!(sum["content"][0]["text"], "0.3");
    let run = calc.call("convert", &json!({"value": 26.2, "from": "mi", "to": "km"}));
    assert_eq!(run["content"][0]["text"], "26.2 mi = 42.1648128 km");
    let wrong = calc.call("evaluate", &json!({"expression": "2 +"}));
    assert_eq!(wrong["isError"], true);
    calc.end();
}

#[test]
fn an_invalid_command_line_prints_to_stderr_only() {
    for program in [env!("CARGO_BIN_EXE_example-notes"), env!("CARGO_BIN_EXE_example-calc")] {
        let output = Command::new(program).arg("--nonsense").output().expect("the program starts");
        assert!(!output.status.success());
        assert!(output.stdout.is_empty());
        assert!(String::from_utf8_lossy(&output.stderr).contains("--nonsense"));
    }
}

/// Every config is standard JSON of the usual shape, and the README tells about it.
#[test]
fn every_example_config_has_the_usual_shape_and_is_explained() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = std::fs::read_to_string(examples.join("README.md")).expect("a README");
    let mut configs = 0;
    for file in std::fs::read_dir(&examples).expect("the folder") {
        let path = file.expect("a file").path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        configs += 1;
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(readme.contains(name), "the README does not tell about {name}");
        let config: Value = serde_json::from_slice(&std::fs::read(&path).expect("readable")).expect("JSON");
        // VS Code calls them by another name, and one example does.
        let servers = config.get("mcpServers").or_else(|| config.get("servers")).and_then(Value::as_object);
        let servers = servers.unwrap_or_else(|| panic!("{name} has no servers"));
        assert!(!servers.is_empty(), "{name}");
        for (key, server) in servers {
            let place = server.get("command").or_else(|| server.get("url"));
            assert!(place.and_then(Value::as_str).is_some_and(|place| !place.is_empty()), "{name}: {key}");
        }
    }
    assert_eq!(configs, 8);
}
