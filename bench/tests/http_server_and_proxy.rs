//! The test server answers over HTTP as a server must, and the proxy in front of it changes no status and no body.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use bench::listener::ANNOUNCEMENT;
use bench::payload::Tool;

const SERVER: &str = env!("CARGO_BIN_EXE_bench-http-server");
const PROXY: &str = env!("CARGO_BIN_EXE_floor-proxy");

const REQUESTS: [(&str, &str); 6] = [
    ("POST", r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}"#),
    ("POST", r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#),
    ("POST", r#"{"method":"tools/call","params":{"arguments":{"id":9},"name":"text_10k"},"jsonrpc":"2.0","id":3}"#),
    ("POST", r#"{"jsonrpc":"2.0","id":4,"method":"resources/list"}"#),
    ("GET", ""),
    ("DELETE", ""),
];

/// A program that listens; it ends with its stdin.
struct Listening {
    child: Child,
    address: String,
}

impl Listening {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let stderr = child.stderr.take().context("stderr")?;
        let line = BufReader::new(stderr).lines().next().context("it said nothing")??;
        let address = line.strip_prefix(ANNOUNCEMENT).context("it did not say where it listens")?.to_owned();
        Ok(Self { child, address })
    }

    /// Status line and headers, and the body.
    fn ask(&self, method: &str, body: &str) -> Result<(String, String)> {
        let mut stream = TcpStream::connect(&self.address)?;
        let length = body.len();
        let head =
            format!("{method} /mcp HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP")?;
        Ok((head.to_owned(), body.to_owned()))
    }

    fn end(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        ensure!(self.child.wait()?.success(), "it did not end well");
        Ok(())
    }
}

fn status(head: &str) -> &str {
    head.lines().next().unwrap_or_default()
}

#[test]
fn requests_are_answered_as_json_and_notifications_are_accepted() {
    let server = Listening::start(&mut Command::new(SERVER)).unwrap();
    let answers = REQUESTS.map(|(method, body)| server.ask(method, body).unwrap());
    let statuses = answers.each_ref().map(|(head, _)| status(head).split(' ').nth(1).unwrap_or_default());
    assert_eq!(statuses, ["200", "202", "200", "200", "405", "204"]);
    assert!(answers[0].0.contains("mcp-session-id: "));
    assert!(answers[0].0.contains("content-type: application/json"));
    let greeting: serde_json::Value = serde_json::from_str(&answers[0].1).unwrap();
    assert_eq!(greeting["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(answers[1].1, "");
    let result = Tool::Text(10_000).result();
    assert_eq!(answers[2].1, format!(r#"{{"jsonrpc":"2.0","id":3,"result":{result}}}"#));
    assert!(answers[3].1.contains("-32601"));
    server.end().unwrap();
}

#[test]
fn the_proxy_passes_every_status_and_body_and_ends_with_its_stdin() {
    let server = Listening::start(&mut Command::new(SERVER)).unwrap();
    let proxy = Listening::start(Command::new(PROXY).arg(&server.address)).unwrap();
    for (method, body) in REQUESTS {
        let (direct_head, direct_body) = server.ask(method, body).unwrap();
        let (through_head, through_body) = proxy.ask(method, body).unwrap();
        assert_eq!(status(&direct_head), status(&through_head));
        assert_eq!(direct_body, through_body);
    }
    proxy.end().unwrap();
    server.end().unwrap();
}
