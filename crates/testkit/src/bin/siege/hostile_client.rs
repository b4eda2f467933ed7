//! Clients, documents and bare sockets that ask for too much.
//!
//! Each attack has a proof: an outcome which shows that it reached the limit it is for. An attack without its proof
//! fails the siege, because it may not have attacked anything.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read as _};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::http_client::{Connection, HttpRequest};

use crate::hostile_reader;
use crate::hostile_server::Kind;
use crate::{ATTACKER_TOKEN, is_over};

/// A repeated attack.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// The pause after each time.
    pause: Duration,
    /// Attacks once; returns the outcome in a few words.
    act: fn(&mut Attacker) -> Option<String>,
    /// The outcome that must occur at least once.
    proof: &'static str,
}

/// The attacker, and what it keeps between attacks.
pub(crate) struct Attacker {
    pub(crate) address: SocketAddr,
    times: usize,
    session: Option<String>,
    /// Connections that stay open, oldest first.
    open: Vec<Connection>,
}

/// The outcomes of an attack, with their counts.
pub(crate) struct Tally {
    name: &'static str,
    proof: &'static str,
    outcomes: BTreeMap<String, u64>,
}

const fn attack(
    name: &'static str,
    pause_ms: u64,
    proof: &'static str,
    act: fn(&mut Attacker) -> Option<String>,
) -> Attack {
    Attack { name, pause: Duration::from_millis(pause_ms), act, proof }
}

pub(crate) const ATTACKS: [Attack; 31] = [
    attack("huge-client-name", 500, "client-info-kb", huge_client_name),
    attack("huge-ids", 500, "id-bytes", huge_ids),
    attack("many-sessions", 5, "an older session ended", many_sessions),
    attack("many-connections", 1_000, "some were closed", many_connections),
    attack("slow-body", 1_000, "408", slow_body),
    attack("wrong-token", 5, "429", wrong_token),
    attack("many-subscriptions", 100, "subscriptions-per-", many_subscriptions),
    attack("listen-to-templates", 500, "searched", listen_to_templates),
    attack("many-followers", 200, "notified", many_followers),
    attack("annotated-calls", 200, "200", annotated_calls),
    attack("unread-streams", 1_000, "opened", unread_streams),
    attack("unread-results", 500, "requested", unread_results),
    attack("large-results", 2_000, "200", large_results),
    attack("dry-run-doubling-schema", 200, r#""not_checked":"the check takes"#, dry_run_doubling_schema),
    attack("large-yaml", 500, "200", large_yaml),
    attack("yaml-bomb", 500, "refused", yaml_bomb),
    attack("deep-json", 100, "422", deep_json),
    attack("deep-markdown", 500, "200", deep_markdown),
    attack("cancelled-calls", 20, "hung up", cancelled_calls),
    attack("crashing-calls", 1_000, "200", crashing_calls),
    attack("progress-calls", 2_000, "200", progress_calls),
    attack("question-calls", 2_000, "200", question_calls),
    attack("long-search", 200, "422", long_search),
    attack("all-lists", 1_000, "200", all_lists),
    attack("reconnect-servers", 3_000, "done", reconnect_servers),
    attack("assistant-tools", 2_000, "200", assistant_tools),
    attack("assistant-tools-at-once", 2_000, "200", hostile_reader::assistant_tools_at_once),
    attack("rest-tools", 2_000, "200", hostile_reader::rest_tools),
    attack("rest-items", 500, "200", hostile_reader::rest_items),
    attack("document-context", 2_000, "200", hostile_reader::document_context),
    attack("list-of-one-server", 500, "200, several pages", hostile_reader::list_of_one_server),
];

impl Attack {
    /// Repeats it until the siege is over.
    pub(crate) fn repeat(&self, address: SocketAddr) -> Tally {
        let mut attacker = Attacker { address, times: 0, session: None, open: Vec::new() };
        let mut outcomes = BTreeMap::new();
        while !is_over() {
            attacker.times += 1;
            let outcome = (self.act)(&mut attacker).unwrap_or_else(|| "closed".to_owned());
            *outcomes.entry(outcome).or_default() += 1;
            thread::sleep(self.pause);
        }
        Tally { name: self.name, proof: self.proof, outcomes }
    }
}

impl Tally {
    /// The missing proof, if there is none.
    pub(crate) fn unproved(&self) -> Option<String> {
        let is_proved = self.outcomes.keys().any(|outcome| outcome.starts_with(self.proof));
        (!is_proved).then(|| format!("the attack {} proved nothing: never `{}`", self.name, self.proof))
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:<24}", self.name)?;
        for (outcome, count) in &self.outcomes {
            write!(formatter, " {outcome}: {count}")?;
        }
        Ok(())
    }
}

impl Attacker {
    /// Sends a request on a connection of its own; status and body.
    fn fetch(&self, ask: &HttpRequest) -> Option<(u16, String)> {
        fetch(self.address, ask)
    }

    fn status(&self, ask: &HttpRequest) -> Option<String> {
        self.fetch(ask).map(|(status, _)| status.to_string())
    }

    /// The first of these texts in the response, or its status.
    fn outcome(&self, ask: &HttpRequest, words: &[&str]) -> Option<String> {
        let (status, body) = self.fetch(ask)?;
        let found = words.iter().find(|word| body.contains(**word));
        Some(found.map_or_else(|| status.to_string(), |word| (*word).to_owned()))
    }

    /// Keeps a connection open, and closes the oldest if there are more than so many.
    fn keep(&mut self, connection: Connection, most: usize) {
        self.open.push(connection);
        if self.open.len() > most {
            self.open.remove(0);
        }
    }

    /// Opens a session; its id.
    fn begin_session(&self) -> Option<String> {
        let mut connection = Connection::try_open(self.address).ok()?;
        connection.try_send(&mcp(&hello("siege"))).ok()?;
        let mut answer = connection.try_answer().ok()??;
        let session = answer.header("mcp-session-id")?.to_owned();
        answer.try_bytes().ok()?;
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.fetch(&in_session(mcp(&initialized), &session))?;
        Some(session)
    }
}

/// Sends a request on a connection of its own; status and body.
pub(crate) fn fetch(address: SocketAddr, ask: &HttpRequest) -> Option<(u16, String)> {
    let mut connection = Connection::try_open(address).ok()?;
    let (status, body) = connection.try_fetch(ask)?;
    Some((status, String::from_utf8_lossy(&body).into_owned()))
}

pub(crate) fn authorized(ask: HttpRequest) -> HttpRequest {
    ask.header("Authorization", &format!("Bearer {ATTACKER_TOKEN}"))
}

fn mcp(message: &Value) -> HttpRequest {
    authorized(HttpRequest::post("/mcp", message.to_string()))
}

fn in_session(ask: HttpRequest, session: &str) -> HttpRequest {
    ask.header("Mcp-Session-Id", session).header("MCP-Protocol-Version", "2025-11-25")
}

fn rest(path: &str, body: &Value) -> HttpRequest {
    authorized(HttpRequest::post(&format!("/api/v1/aggregator{path}"), body.to_string()))
        .header("Accept", "application/json")
}

fn hello(name: &str) -> Value {
    json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
            "clientInfo": {"name": name, "version": "1"},
        },
    })
}

/// A modern request, which is self-contained.
fn modern(method: &str, params: Value) -> HttpRequest {
    mcp(&modern_message(method, params)).header("MCP-Protocol-Version", "2026-07-28").header("Mcp-Method", method)
}

fn modern_message(method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "siege", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
        "progressToken": 1,
    });
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn call(tool: &str) -> HttpRequest {
    modern("tools/call", json!({"name": tool, "arguments": {}})).header("Mcp-Name", tool)
}

fn huge_client_name(attacker: &mut Attacker) -> Option<String> {
    attacker.outcome(&mcp(&hello(&"n".repeat(60 << 20))), &["client-info-kb", "received-mb"])
}

fn huge_ids(attacker: &mut Attacker) -> Option<String> {
    let request = json!({"jsonrpc": "2.0", "id": "i".repeat(1 << 20), "method": "ping"});
    let session = attacker.begin_session()?;
    attacker.outcome(&in_session(mcp(&request), &session), &["id-bytes"])
}

/// More sessions than one token may have by default.
const MORE_SESSIONS_THAN_ALLOWED: usize = 550;

/// Opens sessions and leaves them idle. After more than allowed, it checks whether the first one still exists; not
/// earlier, because a session that is used is not idle.
fn many_sessions(attacker: &mut Attacker) -> Option<String> {
    let opened = attacker.begin_session()?;
    let Some(first) = attacker.session.clone() else {
        attacker.session = Some(opened);
        return Some("opened".to_owned());
    };
    if !attacker.times.is_multiple_of(MORE_SESSIONS_THAN_ALLOWED) {
        return Some("opened".to_owned());
    }
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    let (status, _) = attacker.fetch(&in_session(mcp(&ping), &first))?;
    if status != 404 {
        return Some(format!("the first one answers {status}"));
    }
    attacker.session = None;
    Some("an older session ended".to_owned())
}

/// Opens more connections than are allowed, sends nothing, and counts how many of them are closed after a while.
fn many_connections(attacker: &mut Attacker) -> Option<String> {
    let count = crate::CONNECTIONS + 50;
    let connections: Vec<_> = (0..count).map_while(|_| Connection::try_open(attacker.address).ok()).collect();
    thread::sleep(Duration::from_secs(2));
    let is_closed = |connection: &&Connection| {
        let mut socket = connection.writer();
        socket.set_nonblocking(true).is_ok()
            && !matches!(socket.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    let closed = connections.iter().filter(is_closed).count();
    Some(if closed > 0 || connections.len() < count { "some were closed" } else { "all stay open" }.to_owned())
}

/// Sends one byte per second of an endless body, until the service closes the connection.
fn slow_body(attacker: &mut Attacker) -> Option<String> {
    let mut connection = Connection::try_open(attacker.address).ok()?;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {ATTACKER_TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n",
        attacker.address
    );
    connection.write(head.as_bytes()).ok()?;
    let socket = connection.writer();
    let has_answer = || {
        socket.set_nonblocking(true).is_ok()
            && !matches!(socket.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    while !has_answer() {
        if is_over() {
            return Some("still open at the end".to_owned());
        }
        socket.set_nonblocking(false).ok()?;
        connection.write(b" ").ok()?;
        thread::sleep(Duration::from_secs(1));
    }
    socket.set_nonblocking(false).ok()?;
    Some(connection.try_answer().ok()??.status.to_string())
}

fn wrong_token(attacker: &mut Attacker) -> Option<String> {
    attacker.status(&HttpRequest::post("/mcp", hello("siege").to_string()).header("Authorization", "Bearer wrong"))
}

/// Subscribes to resources until the limit, and starts again in another session.
fn many_subscriptions(attacker: &mut Attacker) -> Option<String> {
    if attacker.session.is_none() {
        attacker.session = Some(attacker.begin_session()?);
        attacker.open = vec![Connection::try_open(attacker.address).ok()?];
    }
    let session = attacker.session.clone()?;
    for number in (0..200).take_while(|_| !is_over()) {
        let uri = format!("u://{}-{number}-{}", attacker.times, "x".repeat(1_000));
        let request = json!({"jsonrpc": "2.0", "id": number, "method": "resources/subscribe", "params": {"uri": uri}});
        let answer = attacker.open.first_mut()?.try_fetch(&in_session(mcp(&request), &session));
        let Some((status, body)) = answer else {
            attacker.session = None;
            return None;
        };
        let body = String::from_utf8_lossy(&body);
        if status != 200 || body.contains("\"error\"") {
            attacker.session = None;
            let limit = ["subscriptions-per-session", "subscriptions-per-token", "`subscriptions`"];
            let limit = limit.into_iter().find(|limit| body.contains(limit));
            return Some(limit.map_or_else(|| status.to_string(), str::to_owned));
        }
    }
    Some("subscribed".to_owned())
}

/// Subscriptions to a thousand resources each, whose URIs take long to match with templates.
fn listen_to_templates(attacker: &mut Attacker) -> Option<String> {
    let uris: Vec<String> = (0..1_000).map(|number| format!("t://{number}/{}", "y".repeat(2_000))).collect();
    let ask = modern("subscriptions/listen", json!({"notifications": {"resourceSubscriptions": uris}}));
    let mut connection = Connection::try_open(attacker.address).ok()?;
    connection.try_send(&ask).ok()?;
    let mut answer = connection.try_answer().ok()??;
    let first = if answer.is_stream() {
        answer.next_message()?.data
    } else {
        String::from_utf8_lossy(&answer.try_bytes().ok()?).into_owned()
    };
    // Both outcomes come after the search for the servers of the URIs.
    let outcomes = [
        ("acknowledged", "searched, acknowledged"),
        ("too many messages to this client are unread", "searched, too much is unread"),
        ("Too many subscriptions", "too many"),
    ];
    let outcome = outcomes.into_iter().find(|(word, _)| first.contains(word));
    attacker.keep(connection, 2);
    Some(outcome.map_or_else(|| format!("{first:.80}"), |(_, outcome)| outcome.to_owned()))
}

/// Sessions that follow a resource and what it is part of, whose server reports endlessly that it changed.
fn many_followers(attacker: &mut Attacker) -> Option<String> {
    let session = attacker.begin_session()?;
    let uri = "u://1/and/more";
    for end in "u://1/".len()..=uri.len() {
        let params = json!({"uri": uri[..end]});
        let request = json!({"jsonrpc": "2.0", "id": end, "method": "resources/subscribe", "params": params});
        let (status, body) = attacker.fetch(&in_session(mcp(&request), &session))?;
        if status != 200 || body.contains("\"error\"") {
            let limit = ["subscriptions-per-token", "`subscriptions`"].into_iter().find(|limit| body.contains(limit));
            return Some(limit.map_or_else(|| status.to_string(), str::to_owned));
        }
    }
    let mut connection = Connection::try_open(attacker.address).ok()?;
    connection.try_send(&in_session(authorized(HttpRequest::stream("/mcp")), &session)).ok()?;
    let mut answer = connection.try_answer().ok()??;
    let is_notified =
        (0..20).map_while(|_| answer.next_message()).any(|message| message.data.contains("resources/updated"));
    attacker.keep(connection, 60);
    Some(if is_notified { "notified" } else { "not notified" }.to_owned())
}

/// Calls with large arguments of a tool that wants many of them in headers.
fn annotated_calls(attacker: &mut Attacker) -> Option<String> {
    let tool = format!("{}.t", Kind::HeaderParams.name());
    let message = modern_message("tools/call", json!({"name": tool, "arguments": {}})).to_string();
    let arguments = format!(r#""arguments":{{{}"p7":"v"}}"#, r#""x":[1],"#.repeat(500_000));
    let message = message.replace(r#""arguments":{}"#, &arguments);
    attacker.status(&call(&tool).header("Mcp-Param-P7", "v").body(message))
}

/// Streams of sessions that nobody reads, while servers log.
fn unread_streams(attacker: &mut Attacker) -> Option<String> {
    let session = attacker.begin_session()?;
    let level = json!({"jsonrpc": "2.0", "id": 2, "method": "logging/setLevel", "params": {"level": "debug"}});
    attacker.fetch(&in_session(mcp(&level), &session))?;
    let mut connection = Connection::try_open(attacker.address).ok()?;
    connection.try_send(&in_session(authorized(HttpRequest::stream("/mcp")), &session)).ok()?;
    let is_open = connection.try_answer().ok()??.is_stream();
    attacker.keep(connection, 50);
    Some(if is_open { "opened" } else { "refused" }.to_owned())
}

/// Calls with huge results that nobody reads.
fn unread_results(attacker: &mut Attacker) -> Option<String> {
    let mut connection = Connection::try_open(attacker.address).ok()?;
    connection.try_send(&call("huge-results.t")).ok()?;
    attacker.keep(connection, 20);
    Some("requested".to_owned())
}

fn large_results(attacker: &mut Attacker) -> Option<String> {
    attacker.outcome(&call("huge-results.t"), &["_undelivered_kb", "unread-mb"])
}

fn document(block: &str) -> Value {
    json!({"text": block, "dry_run": true})
}

fn dry_run_doubling_schema(attacker: &mut Attacker) -> Option<String> {
    let block = format!("# A\n\n```{}\ntool: t\nc: x\n```\n", Kind::DoublingSchema.name());
    attacker.outcome(&rest("/documents/run", &document(&block)), &[r#""not_checked":"the check takes"#])
}

fn large_yaml(attacker: &mut Attacker) -> Option<String> {
    let mut block = "# A\n\n```good\ntool: echo\n".to_owned();
    for key in 0..40_000 {
        writeln!(block, "k{key}: v").expect("a string can be written");
    }
    block.push_str("```\n");
    attacker.status(&rest("/documents/run", &document(&block)))
}

/// Ten levels of aliases, each with ten of the previous level.
fn yaml_bomb(attacker: &mut Attacker) -> Option<String> {
    let mut block = "# A\n\n```good\ntool: echo\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(",");
        writeln!(block, "a{level}: &a{level} [{aliases}]").expect("a string can be written");
    }
    block.push_str("```\n");
    let (status, body) = attacker.fetch(&rest("/documents/run", &document(&block)))?;
    let is_refused = body.contains("100,000") || body.contains("100000") || body.contains("too large");
    Some(if is_refused { "refused".to_owned() } else { format!("{status} {body:.80}") })
}

fn deep_json(attacker: &mut Attacker) -> Option<String> {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let body = format!(r#"{{"name":"good.echo","arguments":{deep}}}"#);
    let ask = HttpRequest::post("/api/v1/aggregator/tools/call", body).header("Accept", "application/json");
    attacker.status(&authorized(ask))
}

fn deep_markdown(attacker: &mut Attacker) -> Option<String> {
    attacker.status(&rest("/documents/map", &json!({"text": "> ".repeat(50_000) + &"[".repeat(50_000)})))
}

/// Calls a server that never responds, and disconnects.
fn cancelled_calls(attacker: &mut Attacker) -> Option<String> {
    let mut connection = Connection::try_open(attacker.address).ok()?;
    connection.try_send(&call("silent.t")).ok()?;
    thread::sleep(Duration::from_millis(50));
    Some("hung up".to_owned())
}

fn crashing_calls(attacker: &mut Attacker) -> Option<String> {
    attacker.status(&call("crash.t"))
}

fn progress_calls(attacker: &mut Attacker) -> Option<String> {
    attacker.status(&call("huge-progress.t"))
}

fn question_calls(attacker: &mut Attacker) -> Option<String> {
    attacker.status(&call("questions.t"))
}

fn long_search(attacker: &mut Attacker) -> Option<String> {
    attacker.status(&rest("/search", &json!({"query": "find a word ".repeat(5_000)})))
}

/// Reads the whole list of tools, as legacy and modern clients do.
fn all_lists(attacker: &mut Attacker) -> Option<String> {
    let legacy = attacker.begin_session()?;
    let mut cursor = Value::Null;
    let mut pages = 0;
    while !is_over() {
        let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params});
        let ask = match attacker.times % 2 {
            0 => modern("tools/list", params),
            _ => in_session(mcp(&request), &legacy),
        };
        let (status, body) = attacker.fetch(&ask)?;
        let answer: Value = serde_json::from_str(&body).unwrap_or_default();
        pages += 1;
        cursor = answer["result"]["nextCursor"].clone();
        if status != 200 || cursor.is_null() {
            // A list that changes while it is read may end early.
            return Some(if pages > 1 { status.to_string() } else { format!("{status} in one page") });
        }
    }
    Some("interrupted".to_owned())
}

/// Failed servers are disabled after some attempts; this enables them again, so that they fail again.
fn reconnect_servers(attacker: &mut Attacker) -> Option<String> {
    for kind in Kind::ALL {
        for verb in ["enable", "connect", "tools/refresh"] {
            if is_over() {
                return Some("interrupted".to_owned());
            }
            attacker.status(&rest(&format!("/servers/{}/{verb}", kind.name()), &json!({})));
        }
    }
    Some("done".to_owned())
}

fn assistant_tools(attacker: &mut Attacker) -> Option<String> {
    let ask = HttpRequest::new("GET", "/api/v1/aggregator/assistant/tools?format=openai");
    attacker.status(&authorized(ask))
}
