//! The test server answers as a server must, and the floor in front of it changes nothing.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use bench::payload::Tool;

const SERVER: &str = env!("CARGO_BIN_EXE_bench-server");
const FLOOR: &str = env!("CARGO_BIN_EXE_floor");

const REQUESTS: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":"two","method":"tools/list"}
{"method":"tools/call","params":{"arguments":{"id":9},"name":"text_10k"},"jsonrpc":"2.0","id":3}
{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"json_1m","arguments":{}}}
{"jsonrpc":"2.0","id":5,"method":"ping"}
{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"nothing","arguments":{}}}
{"jsonrpc":"2.0","id":7,"method":"resources/list"}
"#;

/// Sends everything, closes the input, and returns the lines up to the end; the program must then end well.
fn talk(command: &mut Command) -> Result<Vec<String>> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut stdin = child.stdin.take().context("stdin")?;
    stdin.write_all(REQUESTS.as_bytes())?;
    drop(stdin);
    let stdout = child.stdout.take().context("stdout")?;
    let lines = BufReader::new(stdout).lines().collect::<Result<_, _>>()?;
    ensure!(child.wait()?.success(), "it did not end well");
    Ok(lines)
}

#[test]
fn every_request_is_answered_in_order_and_notifications_are_not() {
    let lines = talk(Command::new(SERVER).args(["--tools", "12"])).unwrap();
    let answers: Vec<serde_json::Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<String> = answers.iter().map(|answer| answer["id"].to_string()).collect();
    assert_eq!(ids, ["1", "\"two\"", "3", "4", "5", "6", "7"]);
    assert_eq!(answers[0]["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(answers[1]["result"]["tools"].as_array().unwrap().len(), 12);
    assert!(lines[2].contains(&Tool::Text(10_000).result()));
    assert!(lines[3].contains(&Tool::Json(1_000_000).result()));
    assert!(answers[4]["result"].is_object());
    assert_eq!(answers[5]["error"]["code"], -32602);
    assert_eq!(answers[6]["error"]["code"], -32601);
}

#[test]
fn the_floor_passes_every_byte_and_ends_with_its_server() {
    let direct = talk(&mut Command::new(SERVER)).unwrap();
    let through = talk(Command::new(FLOOR).arg(SERVER)).unwrap();
    assert!(direct == through, "the floor changed something");
}
