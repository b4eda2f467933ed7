//! Tests of the scripted HTTP server through a plain socket.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use testkit::http_server::LineEnd;
use testkit::{DEADLINE, HttpServer, Script, raw, wait_until};

/// A connection that writes requests and reads answers, one after the other.
struct Client {
    reader: BufReader<TcpStream>,
    path: String,
}

/// The head of an answer.
struct Head {
    status: u16,
    headers: BTreeMap<String, String>,
}

struct Answer {
    head: Head,
    body: String,
}

impl Client {
    fn new(server: &HttpServer) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", server.port())).expect("the server listens");
        socket.set_read_timeout(Some(DEADLINE)).expect("the deadline is not zero");
        let path = server.url().replace(&server.origin(), "");
        Self { reader: BufReader::new(socket), path }
    }

    fn send(&mut self, method: &str, path: &str, headers: &str, body: &str) {
        let length = body.len();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
        self.reader.get_mut().write_all(request.as_bytes()).expect("the server reads");
    }

    fn get(&mut self, headers: &str) -> Head {
        let path = self.path.clone();
        self.send("GET", &path, headers, "");
        self.head()
    }

    fn post_to(&mut self, path: &str, headers: &str, body: &str) -> Answer {
        self.send("POST", path, headers, body);
        self.answer()
    }

    fn post(&mut self, headers: &str, body: &str) -> Answer {
        let path = self.path.clone();
        self.post_to(&path, headers, body)
    }

    fn call(&mut self, tool: &str, arguments: &str) -> Answer {
        self.post("", &call(tool, arguments))
    }

    fn answer(&mut self) -> Answer {
        let head = self.head();
        let body = match head.headers.get("content-length") {
            Some(length) => {
                let mut body = vec![0; length.parse().expect("a length is a number")];
                self.reader.read_exact(&mut body).expect("the body is complete");
                body
            }
            None => std::iter::from_fn(|| self.chunk()).flatten().collect(),
        };
        Answer { head, body: String::from_utf8(body).expect("the body is text") }
    }

    fn head(&mut self) -> Head {
        let line = self.line();
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let lines = std::iter::from_fn(|| Some(self.line()).filter(|line| !line.is_empty()));
        let headers = lines.map(|line| {
            let (name, value) = line.split_once(": ").expect("a header has a colon");
            (name.to_lowercase(), value.to_owned())
        });
        let headers = headers.collect();
        Head { status: status.unwrap_or_else(|| panic!("no status in {line:?}")), headers }
    }

    /// The next chunk of a body, or `None` at its end.
    fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(&self.line(), 16).expect("a chunk begins with its size");
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk).expect("the chunk is complete");
        chunk.truncate(size);
        Some(chunk).filter(|chunk| !chunk.is_empty())
    }

    fn event(&mut self) -> Option<String> {
        self.chunk().map(|chunk| String::from_utf8(chunk).expect("an event is text"))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("the server writes");
        line.trim_end_matches("\r\n").to_owned()
    }

    fn is_closed(&mut self) -> bool {
        self.reader.read(&mut [0]).map_or(true, |bytes| bytes == 0)
    }
}

fn call(tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1e2,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":"7"}}}}}}"#
    )
}

fn request(method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"protocolVersion":"2025-06-18"}}}}"#)
}

/// What the events of a stream say, read as the standard has it.
fn data_of(stream: &str) -> Vec<String> {
    let lines = stream.replace("\r\n", "\n").replace('\r', "\n");
    let data = |event: &str| {
        let lines: Vec<_> = event.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        lines.join("\n")
    };
    lines.split("\n\n").map(data).filter(|data| !data.is_empty()).collect()
}

fn field<'a>(event: &'a str, name: &str) -> &'a str {
    event.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {event:?}"))
}

#[test]
fn arguments_and_ids_pass_byte_for_byte_as_json_and_in_every_kind_of_stream() {
    let sent = r#"{ "n":1.50,"n":1e2, "s":"\ud800\u00e9é\/" ,"deep":[[{}]]}"#;
    for script in [Script::default(), Script::default().chunks_of(3)] {
        let server = HttpServer::start(script);
        let mut client = Client::new(&server);
        let answer = client.call("echo", sent);
        assert_eq!(raw::at(answer.body.as_bytes(), &["id"]), Some("1e2"));
        assert_eq!(raw::at(answer.body.as_bytes(), &["result", "structuredContent"]), Some(sent));
        for line_end in [LineEnd::Lf, LineEnd::CrLf, LineEnd::Cr] {
            server.change(|script| script.answers_as_sse().line_end(line_end));
            let answer = client.call("echo", sent);
            assert!(answer.body.starts_with(": fake-http-server"), "{}", answer.body);
            assert_eq!(answer.head.headers["content-type"], "text/event-stream");
            let data = data_of(&answer.body).pop().unwrap();
            assert_eq!(raw::at(data.as_bytes(), &["result", "structuredContent"]), Some(sent));
        }
        assert_eq!((server.connections(), server.requests().len()), (1, 4));
    }
}

#[test]
fn pretty_json_takes_several_lines_and_several_data_fields() {
    let server = HttpServer::start(Script::default().pretty());
    let mut client = Client::new(&server);
    let plain = client.call("raw", r#"{"result":"{\"a\":1e2}"}"#).body;
    assert_eq!(plain, "{\n  \"jsonrpc\":\"2.0\",\n  \"id\":1e2,\n  \"result\":{\n    \"a\":1e2\n  }\n}");
    server.change(Script::answers_as_sse);
    let stream = client.call("raw", r#"{"result":"{\"a\":1e2}"}"#).body;
    assert_eq!(data_of(&stream), [plain]);
}

#[test]
fn requests_are_recorded_with_chunked_bodies_and_headers_in_lower_case() {
    let server = HttpServer::start(Script::default());
    let mut client = Client::new(&server);
    let body = "7\r\n{\"metho\r\n12\r\nd\":\"notifications/\r\n3\r\nx\"}\r\n0\r\n\r\n";
    let request = format!("POST /mcp HTTP/1.1\r\nX-Name: Value\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
    client.reader.get_mut().write_all(request.as_bytes()).unwrap();
    assert_eq!(client.answer().head.status, 202);
    client.send("DELETE", "/mcp", "", "");
    assert_eq!(client.answer().head.status, 200);
    let seen = server.wait_for(|requests| requests.len() == 2);
    assert!(seen[0].is("notifications/x"));
    assert_eq!(seen[0].header("x-name"), Some("Value"));
    assert_eq!((seen[1].method.as_str(), seen[1].path.as_str()), ("DELETE", "/mcp"));
}

#[test]
fn a_session_is_issued_required_and_forgotten() {
    let server = HttpServer::start(Script::default().with_session());
    let mut client = Client::new(&server);
    let answer = client.post("", &request("initialize"));
    assert_eq!(raw::at(answer.body.as_bytes(), &["result", "protocolVersion"]), Some("\"2025-06-18\""));
    let session = format!("Mcp-Session-Id: {}\r\n", answer.head.headers["mcp-session-id"]);
    assert_eq!(client.post("", &request("tools/list")).head.status, 400);
    assert_eq!(client.post("Mcp-Session-Id: x\r\n", &request("tools/list")).head.status, 404);
    assert_eq!(client.post(&session, &request("tools/list")).head.status, 200);
    server.forget_sessions();
    assert_eq!(client.post(&session, &request("tools/list")).head.status, 404);
    let again = client.post("", &request("initialize")).head.headers["mcp-session-id"].clone();
    assert_eq!(server.sessions(), [again.as_str()]);
    client.send("DELETE", "/mcp", &format!("Mcp-Session-Id: {again}\r\n"), "");
    assert_eq!(client.answer().head.status, 200);
    assert!(server.sessions().is_empty());
}

#[test]
fn refusals_are_answered_once_each_and_only_to_calls() {
    let script = Script::default().require_header("Authorization", "Bearer x").status_once(429, Some(1));
    let server = HttpServer::start(script.status_once(500, None).redirect_once(307, "/mcp?moved"));
    let mut client = Client::new(&server);
    let refused = client.call("echo", "{}");
    assert_eq!(refused.head.status, 401);
    assert!(refused.head.headers.contains_key("www-authenticate"));
    let allowed = "Authorization: Bearer x\r\n";
    let call = call("echo", "{}");
    assert_eq!(client.post(allowed, &request("tools/list")).head.status, 200);
    let busy = client.post(allowed, &call).head;
    assert_eq!((busy.status, busy.headers["retry-after"].as_str()), (429, "1"));
    assert_eq!(client.post(allowed, &call).head.status, 500);
    let moved = client.post(allowed, &call).head;
    assert_eq!((moved.status, moved.headers["location"].as_str()), (307, "/mcp?moved"));
    assert_eq!(client.post_to("/mcp?moved", allowed, &call).head.status, 200);
    assert_eq!(client.post_to("/elsewhere", allowed, &call).head.status, 404);
}

#[test]
fn the_response_of_a_dropped_stream_arrives_on_the_resumed_one() {
    let server = HttpServer::start(Script::default().drop_stream_before_answer(1));
    let mut client = Client::new(&server);
    let dropped = client.call("sleep", r#"{"ms":20}"#).body;
    assert_eq!((field(&dropped, "retry: "), field(&dropped, "data:")), ("50", " "));
    let resume = format!("Last-Event-ID: {}\r\n", field(&dropped, "id:"));
    for _ in 0..2 {
        assert_eq!(client.get(&resume).status, 200);
        assert!(client.event().unwrap().contains("slept"));
        assert_eq!(client.event(), None);
    }
    assert!(client.call("echo", "{}").body.starts_with('{'));
    assert_eq!(server.connections(), 1);
}

#[test]
fn notifications_are_pushed_on_a_stream_that_stays_open() {
    let server = HttpServer::start(Script::default());
    let mut stream = Client::new(&server);
    stream.send("GET", "/mcp", "", "");
    assert_eq!(stream.answer().head.status, 405);
    server.change(Script::with_get_stream);
    server.push(r#"{"early":1}"#);
    assert_eq!(stream.get("").status, 200);
    assert_eq!(data_of(&stream.event().unwrap()), [r#"{"early":1}"#]);
    let mut client = Client::new(&server);
    client.call("change_tools", r#"{"names":["new"]}"#);
    assert!(stream.event().unwrap().contains("notifications/tools/list_changed"));
    assert!(client.post("", &request("tools/list")).body.contains(r#""name":"new""#));
    assert_eq!(server.open_streams(), 1);
    server.close_streams();
    assert_eq!(stream.event(), None);
    assert_eq!(stream.get("").status, 200);
    wait_until("the new stream is open", || (server.open_streams() == 1).then_some(()));
    drop(stream);
    wait_until("the server sees that the client left", || (server.open_streams() == 0).then_some(()));
}

#[test]
fn progress_comes_before_the_answer_with_the_token_as_it_was_sent() {
    let server = HttpServer::start(Script::default());
    let data = data_of(&Client::new(&server).call("progress", r#"{"steps":2}"#).body);
    assert_eq!(data.len(), 3);
    assert_eq!(raw::at(data[1].as_bytes(), &["params", "progressToken"]), Some("\"7\""));
    assert!(data[2].contains("progressed"));
}

#[test]
fn legacy_clients_post_messages_next_to_their_stream() {
    let server = HttpServer::start(Script::default().sse().refuse_initialize(404));
    assert!(server.url().ends_with("/sse"));
    let (mut stream, mut client) = (Client::new(&server), Client::new(&server));
    assert_eq!(client.post("", &request("initialize")).head.status, 404);
    assert_eq!(stream.get("").status, 200);
    let endpoint = data_of(&stream.event().unwrap()).pop().unwrap();
    assert!(endpoint.starts_with("/message?sessionId="), "{endpoint}");
    let mut post = |body: &str| client.post_to(&endpoint, "", body).head.status;
    assert_eq!(post(&request("initialize")), 202);
    assert!(stream.event().unwrap().contains("2025-06-18"));
    assert_eq!(post(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#), 202);
    assert_eq!(post(&call("hang", "{}")), 202);
    assert_eq!(post(&call("progress", "{}")), 202);
    assert!(stream.event().unwrap().contains("progressToken"));
    assert!(stream.event().unwrap().contains("progressed"));
    server.forget_sessions();
    assert_eq!(stream.event(), None);
    assert_eq!(post(&request("tools/list")), 404);
}

#[test]
fn a_client_that_leaves_a_hanging_call_is_noticed_and_stopping_does_not_wait_for_one() {
    for script in [Script::default(), Script::default().answers_as_sse()] {
        let server = HttpServer::start(script);
        let mut client = Client::new(&server);
        client.send("POST", "/mcp", "", &call("hang", "{}"));
        server.wait_for(|requests| requests.len() == 1);
        drop(client);
        wait_until("the server sees that the client left", || (server.open_connections() == 0).then_some(()));
        let mut client = Client::new(&server);
        client.send("POST", "/mcp", "", &call("sleep", r#"{"ms":600000}"#));
        server.wait_for(|requests| requests.len() == 2);
        let begun = Instant::now();
        server.stop();
        assert!(begun.elapsed() < DEADLINE);
    }
}

#[test]
fn faults_follow_the_script() {
    let server = HttpServer::start(Script::default().garbage());
    let mut client = Client::new(&server);
    assert!(client.post("", &request("initialize")).body.contains("<html>"));
    server.change(|script| script.healed().refuse_initialize(405));
    assert_eq!(client.post("", &request("initialize")).head.status, 405);
    assert!(client.post("", &request("nonsense")).body.contains("-32601"));
    server.change(|script| script.healed().slow_headers(60));
    let begun = Instant::now();
    assert_eq!(client.call("echo", "{}").head.status, 200);
    assert!(begun.elapsed() >= Duration::from_millis(60));
    server.change(|script| script.healed().close_after_headers());
    client.send("POST", "/mcp", "", &call("echo", "{}"));
    assert_eq!(client.head().status, 200);
    assert!(client.is_closed());
}

#[test]
fn a_stopped_server_refuses_connections_and_its_port_can_be_used_again() {
    let server = HttpServer::start(Script::default());
    let port = server.port();
    let mut idle = Client::new(&server);
    idle.call("echo", "{}");
    server.stop();
    assert!(idle.is_closed());
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    let server = HttpServer::start_on(port, Script::default());
    assert_eq!(Client::new(&server).call("echo", "{}").head.status, 200);
}

#[test]
fn the_program_prints_its_url_and_ends_with_its_stdin() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_fake-http-server"))
        .args(["--sse", "--at", "/events", "--status-once", "429:1", "--require-header", "X-Key: 1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut url).unwrap();
    assert!(url.starts_with("http://127.0.0.1:") && url.ends_with("/events\n"), "{url}");
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
}
