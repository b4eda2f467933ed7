//! Clients that send too much about themselves, or exceed their share.

use std::io::ErrorKind;

use serde_json::{Value, json};
use tempfile::NamedTempFile;
use testkit::http_client::{Connection, HttpRequest};
use testkit::http_session::Hello;
use testkit::processes::{peak_rss_kb, reset_peak_rss};
use testkit::{ClientSession, Config, HttpSession, Puppet, Serve, Spec, fake, rss_kb, wait_until};

use super::{BASELINE_KB, assert_well, message_of};
use crate::http_front::PING;

/// A service with a well-behaved server, and these limits.
#[track_caller]
fn limited(limits: &[&str]) -> Serve {
    let flags = limits.iter().flat_map(|limit| ["--limit", limit]);
    Serve::start_as(&Config::new().server("well", fake()), |launch| launch.args(flags))
}

/// The same with two tokens, `ann` and `ben`.
#[track_caller]
fn limited_with_tokens(limits: &[&str]) -> (Serve, NamedTempFile) {
    let tokens = NamedTempFile::new().expect("a temporary file can be made");
    std::fs::write(tokens.path(), "ann:secret-token-of-ann\nben:secret-token-of-ben\n").expect("it can be written");
    let flags = limits.iter().flat_map(|limit| ["--limit", limit]);
    let serve = Serve::start_as(&Config::new().server("well", fake()), |launch| {
        launch.args(flags).arg("--token-file").arg(tokens.path())
    });
    (serve, tokens)
}

fn of(name: &str) -> String {
    format!("Bearer secret-token-of-{name}")
}

#[track_caller]
fn session_of(serve: &Serve, name: &str) -> HttpSession {
    let hello = Hello::default().with_token(&format!("secret-token-of-{name}"));
    HttpSession::introduce(serve.address(), "/mcp", &hello)
}

fn initialize(info: &Value, capabilities: &Value) -> String {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string()
}

#[test]
fn a_client_with_too_large_client_info_gets_no_session() {
    let serve = limited(&[]);
    let long = "x".repeat(60_000_000);
    let much = [
        initialize(&json!({"name": long, "version": "1"}), &json!({})),
        initialize(&json!({"name": "x", "version": long}), &json!({})),
        initialize(&json!({"name": "x", "version": "1"}), &json!({"experimental": {"x": {"y": long}}})),
    ];
    // One after the other, because each is as large as a request may be.
    for message in much.iter().cycle().take(12) {
        let refused = serve.fetch(&HttpRequest::post("/mcp", message));
        assert!(!refused.headers.contains_key("mcp-session-id"), "{:?}", refused.headers);
        let answer = refused.json();
        assert!(
            message_of(&answer).contains("have 58594 kB; at most 64 kB are accepted (limit `client-info-kb`)"),
            "{answer}"
        );
    }
    assert_well(&mut serve.session("/mcp"));
    wait_until("nothing of it is kept", || (rss_kb(serve.pid()) < BASELINE_KB).then_some(()));
}

#[test]
fn a_modern_client_with_too_large_client_info_is_refused() {
    let serve = limited(&["client-info-kb=1"]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "x".repeat(2000), "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}).to_string();
    let ask = HttpRequest::post("/mcp", message)
        .header("Mcp-Protocol-Version", "2026-07-28")
        .header("Mcp-Method", "tools/list");
    let answer = serve.fetch(&ask).json();
    assert!(message_of(&answer).contains("`client-info-kb`"), "{answer}");
    assert_well(&mut serve.modern("/mcp"));
}

#[test]
fn ids_and_tokens_that_are_too_long_are_refused() {
    let serve = limited(&["id-bytes=100"]);
    let mut session = serve.session("/mcp");
    let long = "x".repeat(200);
    let call = |id: &Value, token: &str| {
        let params = json!({"name": "well.echo", "_meta": {"progressToken": token}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
    };
    for (message, what) in
        [(call(&json!(long), "t"), "the id has 202 bytes"), (call(&json!(1), &long), "the progress token has")]
    {
        let answer = serve.fetch(&session.post(&message)).json();
        assert!(message_of(&answer).contains(what) && message_of(&answer).contains("(limit `id-bytes`)"), "{answer}");
    }
    let answer = session.ask("tools/list", json!({"cursor": long}));
    assert!(message_of(&answer).contains("the cursor has 202 bytes"), "{answer}");
    assert_well(&mut session);
}

#[test]
fn subscriptions_are_bounded_for_each_session() {
    let puppet = Puppet::new((0..6).fold(Spec::legacy(), |spec, number| spec.resource(&format!("r://{number}"))));
    let config = Config::new().server("s", puppet.entry()).server("well", fake());
    let limits = ["--limit", "subscriptions-per-session=3", "--limit", "subscriptions=5", "--limit", "uri-bytes=100"];
    let serve = Serve::start_as(&config, |launch| launch.args(limits));
    let mut one = serve.session("/mcp");
    one.ids("tools/list");
    let subscribe = |session: &mut HttpSession, uri: &str| session.ask("resources/subscribe", json!({"uri": uri}));
    for number in 0..3 {
        assert!(subscribe(&mut one, &format!("r://{number}"))["result"].is_object());
    }
    let refused = subscribe(&mut one, "r://3");
    assert!(
        message_of(&refused)
            .contains("this session may have 3 subscriptions at most (limit `subscriptions-per-session`)"),
        "{refused}"
    );
    let mut other = serve.session("/mcp");
    for number in 0..2 {
        assert!(subscribe(&mut other, &format!("r://{number}"))["result"].is_object());
    }
    let refused = subscribe(&mut other, "r://2");
    assert!(message_of(&refused).contains("all clients together may have 5"), "{refused}");
    let refused = subscribe(&mut other, &format!("r://{}", "x".repeat(200)));
    assert!(message_of(&refused).contains("`uri-bytes`"), "{refused}");
    // A client that frees one may have another.
    assert!(one.ask("resources/unsubscribe", json!({"uri": "r://0"}))["result"].is_object());
    assert!(subscribe(&mut one, "r://3")["result"].is_object());
    assert_well(&mut one);
}

#[test]
fn subscriptions_are_bounded_for_each_token() {
    let puppet = Puppet::new((0..3).fold(Spec::legacy(), |spec, number| spec.resource(&format!("r://{number}"))));
    let tokens = NamedTempFile::new().expect("a temporary file can be made");
    std::fs::write(tokens.path(), "ann:secret-token-of-ann\nben:secret-token-of-ben\n").expect("it can be written");
    let serve = Serve::start_as(&Config::new().server("s", puppet.entry()), |launch| {
        launch.args(["--limit", "subscriptions-per-token=2", "--token-file"]).arg(tokens.path())
    });
    let mut sessions = [session_of(&serve, "ann"), session_of(&serve, "ann"), session_of(&serve, "ben")];
    sessions[0].ids("tools/list");
    let mut subscribe = |session: usize, number: usize| {
        sessions[session].ask("resources/subscribe", json!({"uri": format!("r://{number}")}))
    };
    assert!(subscribe(0, 0)["result"].is_object());
    assert!(subscribe(1, 1)["result"].is_object());
    for session in [0, 1] {
        let refused = subscribe(session, 2);
        let why = "this token or user may have 2 subscriptions at most (limit `subscriptions-per-token`)";
        assert!(message_of(&refused).contains(why), "{refused}");
    }
    assert!(subscribe(2, 2)["result"].is_object(), "ben has a share of his own");
}

#[test]
fn a_token_with_many_sessions_evicts_only_its_own() {
    let (serve, _tokens) = limited_with_tokens(&["sessions=4", "sessions-per-token=3"]);
    let mut of_ben: Vec<_> = (0..2).map(|_| session_of(&serve, "ben")).collect();
    let of_ann: Vec<_> = (0..8).map(|_| session_of(&serve, "ann")).collect();
    for session in &mut of_ben {
        assert_well(session);
    }
    let is_alive = |session: &HttpSession| serve.fetch(&session.post(PING)).status == 200;
    let alive = of_ann.iter().filter(|session| is_alive(session)).count();
    assert_eq!(alive, 2, "with the two of ben there are four");
    assert!(of_ann.iter().rev().take(2).all(is_alive), "the newest stay");
}

#[test]
fn a_token_with_many_connections_is_refused_and_others_are_served() {
    let (serve, _tokens) = limited_with_tokens(&["connections-per-token=3"]);
    let (ann, mut ben) = (session_of(&serve, "ann"), session_of(&serve, "ben"));
    let ping = |session: &HttpSession| session.post(PING);
    let mut open: Vec<Connection> = Vec::new();
    // Connections of the session itself may still be open at first.
    wait_until("ann has three connections", || {
        let mut connection = serve.connect();
        let mut answer = connection.ask(&ping(&ann));
        let is_served = answer.status == 200;
        answer.bytes();
        if is_served {
            open.push(connection);
        }
        (open.len() == 3).then_some(())
    });
    let refused = serve.fetch(&ping(&ann));
    assert_eq!(refused.status, 429);
    let why = "Too many connections: token `ann` may have 3 (limit `connections-per-token`)";
    assert!(refused.body.contains(why), "{refused:?}");
    assert_well(&mut ben);
    let rest = serve.fetch(&HttpRequest::new("GET", "/api/v1/aggregator/servers").header("Authorization", &of("ann")));
    assert_eq!(rest.status, 429, "REST counts as well: {rest:?}");
    open.clear();
    wait_until("ann is served again", || (serve.fetch(&ping(&ann)).status == 200).then_some(()));
}

#[test]
fn a_newcomer_gets_the_place_of_an_idle_connection() {
    let (serve, _tokens) = limited_with_tokens(&["connections=6", "connections-per-token=5"]);
    // These belong to no known client.
    let idle: Vec<Connection> = (0..20).map(|_| serve.connect()).collect();
    let mut ben = session_of(&serve, "ben");
    assert_well(&mut ben);
    let is_closed = |connection: &&Connection| {
        let stream = connection.writer();
        stream.set_nonblocking(true).expect("it is a socket");
        stream.peek(&mut [0]).map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |bytes| bytes == 0)
    };
    wait_until("no more than six are left", || (idle.iter().filter(is_closed).count() >= 14).then_some(()));
}

#[test]
fn a_token_may_have_so_many_sessions_although_there_is_room() {
    let (serve, _tokens) = limited_with_tokens(&["sessions-per-token=3"]);
    let mut ben = session_of(&serve, "ben");
    let of_ann: Vec<_> = (0..5).map(|_| session_of(&serve, "ann")).collect();
    let alive: Vec<bool> = of_ann.iter().map(|session| serve.fetch(&session.post(PING)).status == 200).collect();
    assert_eq!(alive, [false, false, true, true, true]);
    assert_well(&mut ben);
}

#[test]
fn requests_of_a_session_are_bounded() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let config = Config::new().server("s", puppet.entry()).server("well", fake());
    let serve = Serve::start_as(&config, |launch| launch.args(["--limit", "requests-per-session=2"]));
    let session = serve.session("/mcp");
    let call = |id: u32| {
        let params = json!({"name": "s.t", "arguments": {}});
        session.post(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string())
    };
    let mut pending: Vec<Connection> = (1..=2).map(|_| serve.connect()).collect();
    let mut calls = Vec::new();
    for (connection, id) in pending.iter_mut().zip(1..) {
        connection.send(&call(id));
        calls.push(puppet.expect("tools/call"));
    }
    let refused = serve.fetch(&call(3));
    assert_eq!(refused.status, 429, "{refused:?}");
    assert_well(&mut serve.session("/mcp"));
    calls.iter().for_each(|call| call.answer(r#"{"content":[]}"#));
    for connection in &mut pending {
        assert!(connection.answer().json()["result"].is_object());
    }
    assert_eq!(serve.fetch(&session.post(PING)).status, 200, "there is room again");
}

#[test]
fn what_a_session_keeps_to_be_read_again_is_bounded() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let config = Config::new().server("s", puppet.entry());
    let serve = Serve::start_as(&config, |launch| launch.args(["--limit", "kept-kb-per-session=100"]));
    let session = serve.session("/mcp");
    // Each stream keeps its answer. The id of its first event:
    let answered = |id: u32| {
        let params = json!({"name": "s.t", "arguments": {}, "_meta": {"progressToken": id}});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string();
        let mut connection = serve.connect();
        connection.send(&session.post(&call));
        let call = puppet.expect("tools/call");
        call.progress(r#""progress":1"#);
        let mut answer = connection.answer();
        let first = answer.next_message().expect("a stream begins").id.expect("events have ids");
        call.answer(&json!({"content": [{"type": "text", "text": "x".repeat(70_000)}]}).to_string());
        assert_eq!(answer.message(None)["id"], id);
        first
    };
    let resumed = |event: &str| serve.fetch(&session.get().header("Last-Event-ID", event)).status;
    let first = answered(0);
    assert_eq!(resumed(&first), 200);
    // Far fewer streams than may be kept if they are small.
    let is_forgotten = (1..10).any(|id| {
        assert_eq!(resumed(&answered(id)), 200, "the newest is kept");
        resumed(&first) == 204
    });
    assert!(is_forgotten, "the oldest is kept beyond the limit");
}

#[test]
fn request_bodies_are_bounded_for_each_token() {
    let (serve, _tokens) = limited_with_tokens(&["received-mb-per-token=2", "received-mb=3"]);
    let (ann, mut ben) = (session_of(&serve, "ann"), session_of(&serve, "ben"));
    let half = " ".repeat(1_490_000);
    // Refused shortly before its end, so that all of it can be sent.
    let large = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"well.size","arguments":{{"x":"{}"}}}}}}"#,
        "x".repeat(610_000)
    );
    // The last one is refused: if that is the second one, the first still works.
    let (slow, refused) = wait_until("a second large request of ann is refused", || {
        let mut slow = serve.connect();
        slow.send(&ann.post(&half).header("Content-Length", "3000000"));
        let answer = serve.fetch(&ann.post(&large));
        (answer.status != 200).then_some((slow, answer))
    });
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(
        refused.body.contains("unfinished requests of token `ann` have more than 2 MB (limit `received-mb-per-token`)"),
        "{refused:?}"
    );
    assert_well(&mut ben);
    assert_eq!(serve.fetch(&ben.post(&large)).status, 200, "ben has room");
    drop(slow);
    wait_until("ann has room again", || (serve.fetch(&ann.post(&large)).status == 200).then_some(()));
}

#[test]
fn unread_responses_are_bounded() {
    let serve = limited(&["unread-mb=2"]);
    let mut stream = serve.connect();
    stream.send(&HttpRequest::stream("/sse"));
    let mut answer = stream.answer();
    let endpoint = answer.next_event().expect("the stream names its address").data;
    let post = |message: &str| assert_eq!(serve.fetch(&HttpRequest::post(&endpoint, message)).status, 202);
    post(&initialize(&json!({"name": "x", "version": "1"}), &json!({})));
    for id in 1..=30 {
        let params = json!({"name": "well.blob", "arguments": {"bytes": 1_000_000}});
        post(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string());
    }
    // Dropped messages are reported; queued ones, and those in the system's buffers, are delivered.
    let mut session = serve.session("/mcp");
    serve.wait_for_stderr("dropped a response");
    let (mut delivered, mut dropped) = (0, 0);
    while delivered + dropped < 30 {
        let message: Value = serde_json::from_str(&answer.next_message().expect("all are answered").data).unwrap();
        if message["id"] == 0 {
            continue;
        }
        if message["result"].is_object() {
            delivered += 1;
        } else {
            assert!(message_of(&message).contains("`unread-mb"), "{message}");
            dropped += 1;
        }
    }
    assert!(delivered >= 2 && dropped >= 1, "{delivered} delivered, {dropped} dropped");
    assert_well(&mut session);
}

#[test]
fn answers_over_rest_and_in_one_piece_count_until_they_are_read() {
    let serve = limited(&["unread-mb=2"]);
    let over_rest = |bytes: u32| {
        let call = json!({"name": "well.blob", "arguments": {"bytes": bytes}});
        HttpRequest::post("/api/v1/aggregator/tools/call", call.to_string())
    };
    let session = serve.session("/mcp");
    let in_one_piece = |bytes: u32| {
        let params = json!({"name": "well.blob", "arguments": {"bytes": bytes}});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).to_string();
        session.post(&call).without("Accept").header("Accept", "application/json")
    };
    // More than the system buffers for a reader.
    for ask in [over_rest(30_000_000), in_one_piece(30_000_000)] {
        let mut slow = serve.connect();
        let mut unread = slow.ask(&ask);
        assert_eq!(unread.status, 200);
        let refused = serve.fetch(&over_rest(1_000_000));
        assert_eq!(refused.status, 429, "{refused:?}");
        assert!(
            refused.body.contains("The response was dropped") && refused.body.contains("`unread-mb`"),
            "{refused:?}"
        );
        let refused = serve.fetch(&in_one_piece(1_000_000)).json();
        assert!(message_of(&refused).contains("`unread-mb`"), "{refused}");
        assert_eq!(serve.fetch(&over_rest(1_000)).status, 200, "what is small is sent all the same");
        assert!(serve.fetch(&in_one_piece(1_000)).json()["result"].is_object());
        assert!(unread.bytes().len() > 30_000_000, "it was only slow");
        wait_until("there is room again", || (serve.fetch(&over_rest(1_000_000)).status == 200).then_some(()));
    }
}

#[test]
fn a_subscription_that_cannot_be_acknowledged_is_refused() {
    let serve = limited(&["unread-mb=2"]);
    let call = json!({"name": "well.blob", "arguments": {"bytes": 30_000_000}});
    let mut slow = serve.connect();
    let mut unread = slow.ask(&HttpRequest::post("/api/v1/aggregator/tools/call", call.to_string()));
    assert_eq!(unread.status, 200);
    let method = "subscriptions/listen";
    let params = json!({
        "notifications": {"toolsListChanged": true},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "listener", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    });
    let listen = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
    let listen =
        HttpRequest::post("/mcp", listen).header("MCP-Protocol-Version", "2026-07-28").header("Mcp-Method", method);
    let first_message = || {
        let mut connection = serve.connect();
        let mut answer = connection.ask(&listen);
        if answer.is_stream() {
            answer.next_message().expect("a stream has a message").data
        } else {
            String::from_utf8(answer.bytes()).expect("an answer is text")
        }
    };
    let refused = first_message();
    assert!(refused.contains("too many messages to this client are unread"), "{refused}");
    assert!(unread.bytes().len() > 30_000_000, "it was only slow");
    wait_until("there is room again", || first_message().contains("subscriptions/acknowledged").then_some(()));
}

/// A tree of every definition takes many times its bytes.
#[test]
fn many_tools_are_listed_for_an_assistant_without_a_tree_of_all_of_them() {
    const TOOLS: usize = 10_000;
    let entry = fake().args(["--tools", &TOOLS.to_string()]);
    // With a model elsewhere, which does not answer, no vectors take memory meanwhile.
    let serve = Serve::start_as(&Config::new().server("many", entry).server("well", fake()), |launch| {
        launch.args(["--embeddings-url", "http://127.0.0.1:9", "--embeddings-model", "none"])
    });
    let get = |path: &str| serve.fetch(&HttpRequest::new("GET", &format!("/api/v1/aggregator{path}")));
    wait_until("both are connected and their tools registered", || {
        let state = get("/state").json();
        let has_tools = state["total_tools"].as_u64().is_some_and(|tools| tools > TOOLS as u64);
        (has_tools && state["connected_servers"] == 2).then_some(())
    });
    let count = |listed: &Value| listed["tools"].as_array().map_or(0, Vec::len);
    wait_until("a short list shows that both can be called", || {
        (count(&get("/assistant/tools?servers=well").json()) > 0).then_some(())
    });
    // What was taken in at the start is not counted. Three times, because what one request frees another may use.
    reset_peak_rss(serve.pid());
    let before = peak_rss_kb(serve.pid());
    for _ in 0..3 {
        let listed = get("/assistant/tools?format=openai");
        assert!(count(&listed.json()) > TOOLS, "{:.300}", listed.body);
    }
    // It was 60 to 90 MB; with trees it is 240 MB at least.
    let grown = peak_rss_kb(serve.pid()).saturating_sub(before);
    assert!(grown < 160_000, "{grown} kB");
}

#[test]
fn limits_from_the_environment_are_validated() {
    let config = Config::new().server("well", fake());
    let serve = Serve::start_as(&config, |launch| launch.env("MCP_AGGREGATOR_LIMITS", "id-bytes=10, sessions=5"));
    let session = serve.session("/mcp");
    let answer = serve.fetch(&session.post(r#"{"jsonrpc":"2.0","id":"0123456789","method":"ping"}"#)).json();
    assert!(message_of(&answer).contains("at most 10 are accepted"), "{answer}");
    let wrong = testkit::run::run_command(std::process::Command::new(testkit::program("mcp-aggregator")).args([
        "serve",
        "--limit",
        "sessoins=5",
    ]));
    assert!(wrong.stderr.contains("there is no limit `sessoins`; the limits are connections,"), "{wrong:?}");
}

#[test]
fn a_batch_of_millions_is_refused_in_little_more_memory_than_its_bytes() {
    let serve = limited(&[]);
    let hello = Hello { revision: "2025-03-26".to_owned(), ..Hello::default() };
    let session = HttpSession::introduce(serve.address(), "/mcp", &hello);
    let batch = format!("[{}1]", "1,".repeat(15_000_000));
    reset_peak_rss(serve.pid());
    let before = rss_kb(serve.pid());
    let refused = serve.fetch(&session.post(&batch));
    let grown = peak_rss_kb(serve.pid()) - before;
    assert!(refused.body.contains("a batch of more than 100 messages"), "{refused:?}");
    // Its bytes, which may be copied while they arrive. A span and a part for each element would take 700 MB.
    assert!(grown < 200_000, "the service grew by {grown} kB");
}
