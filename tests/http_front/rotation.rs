//! Rotating a token: everything that the old secret opened ends, and the principal stays the same.

use serde_json::json;
use tempfile::NamedTempFile;
use testkit::http_client::HttpRequest;
use testkit::http_session::Hello;
use testkit::{ClientSession, HttpSession, ModernHttp, Puppet, Serve, Spec, SseClient, wait_until};

use super::{PING, assert_echoes};
use crate::relay::config;

const OLD: &str = "ann:old-secret-of-ann\nben:secret-of-ben-stays\n";
const NEW: &str = "ann:new-secret-of-ann\nben:secret-of-ben-stays\n";

fn serving(puppet: &Puppet) -> (Serve, NamedTempFile) {
    let tokens = NamedTempFile::new().expect("a temporary file can be made");
    std::fs::write(tokens.path(), OLD).expect("it can be written");
    let serve = Serve::start_as(&config(&[("s", puppet)]), |launch| {
        // Tries the new secret until it is accepted.
        launch.args(["--limit", "wrong-tokens-per-minute=100000", "--token-file"]).arg(tokens.path())
    });
    (serve, tokens)
}

fn bearer(ask: HttpRequest, secret: &str) -> HttpRequest {
    ask.header("Authorization", &format!("Bearer {secret}"))
}

/// Replaces the secret, and waits until the new one is accepted.
fn rotate(serve: &Serve, tokens: &NamedTempFile) {
    std::fs::write(tokens.path(), NEW).expect("it can be written");
    wait_until("the new secret opens", || {
        let asked = serve.fetch(&bearer(HttpRequest::new("GET", "/api/v1/aggregator/state"), "new-secret-of-ann"));
        (asked.status == 200).then_some(())
    });
}

#[test]
fn every_stream_that_the_old_secret_opened_ends_and_those_of_others_go_on() {
    let puppet = Puppet::new(Spec::legacy().tool("t").echoes());
    let (serve, tokens) = serving(&puppet);
    let hello = |secret: &str| Hello::default().with_token(secret);
    let ann = HttpSession::introduce(serve.address(), "/mcp", &hello("old-secret-of-ann"));
    let mut ben = HttpSession::introduce(serve.address(), "/mcp", &hello("secret-of-ben-stays"));
    let modern = ModernHttp::new(serve.address(), "/mcp").with_token("old-secret-of-ann");
    let listen = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen",
        "params": modern.dress(json!({"notifications": {"toolsListChanged": true}}))});
    let asks = [
        ann.get(),
        bearer(HttpRequest::stream("/sse"), "old-secret-of-ann"),
        modern.post(&listen.to_string()),
        bearer(HttpRequest::stream("/api/v1/aggregator/events"), "old-secret-of-ann"),
    ];
    let mut connections = [(); 5].map(|()| serve.connect());
    let [of_ben, of_ann @ ..] = &mut connections;
    let mut goes_on = of_ben.ask(&bearer(HttpRequest::stream("/api/v1/aggregator/events"), "secret-of-ben-stays"));
    let mut streams: Vec<_> = of_ann.iter_mut().zip(&asks).map(|(connection, ask)| connection.ask(ask)).collect();
    for stream in &mut streams {
        assert_eq!(stream.status, 200);
        assert!(stream.next_event().is_some(), "it is open");
    }
    goes_on.next_event();

    std::fs::write(tokens.path(), NEW).expect("it can be written");
    for stream in &mut streams {
        while stream.next_event().is_some() {}
    }
    assert_echoes(&mut ben, "s.t");
    // The session ended with its stream: neither secret finds it.
    assert_eq!(serve.fetch(&ann.post(PING)).status, 401);
    assert_eq!(serve.fetch(&bearer(ann.post(PING).without("Authorization"), "new-secret-of-ann")).status, 404);
    let reset = HttpRequest::new("POST", "/api/v1/aggregator/executions/reset").header("Content-Length", "0");
    assert_eq!(serve.fetch(&bearer(reset, "secret-of-ben-stays")).status, 200);
    assert!(goes_on.next_message().is_some(), "that of another goes on");
}

#[test]
fn the_new_secret_opens_what_is_new_and_not_the_sessions_of_the_old() {
    let puppet = Puppet::new(Spec::legacy().tool("t").echoes());
    let (serve, tokens) = serving(&puppet);
    let old = Hello::default().with_token("old-secret-of-ann");
    let session = HttpSession::introduce(serve.address(), "/mcp", &old);
    let older = SseClient::introduce(serve.address(), "/sse", &old);
    rotate(&serve, &tokens);
    for ask in [session.post(PING), session.get(), session.dressed(HttpRequest::new("DELETE", "/mcp"))] {
        assert_eq!(serve.fetch(&ask).status, 401, "the old secret opens nothing");
        assert_eq!(serve.fetch(&bearer(ask.without("Authorization"), "new-secret-of-ann")).status, 404);
    }
    assert_eq!(serve.fetch(&bearer(HttpRequest::post(&older.endpoint, PING), "new-secret-of-ann")).status, 404);
    let new = Hello::default().with_token("new-secret-of-ann");
    assert_echoes(&mut HttpSession::introduce(serve.address(), "/mcp", &new), "s.t");
    assert_echoes(&mut ModernHttp::new(serve.address(), "/mcp").with_token("new-secret-of-ann"), "s.t");
}

#[test]
fn a_file_that_is_written_again_with_the_same_secrets_ends_nothing() {
    let puppet = Puppet::new(Spec::legacy().tool("t").echoes());
    let (serve, tokens) = serving(&puppet);
    let hello = Hello::default().with_token("old-secret-of-ann");
    let mut session = HttpSession::introduce(serve.address(), "/mcp", &hello);
    std::fs::write(tokens.path(), format!("eve:secret-of-eve-is-new\n{OLD}")).expect("it can be written");
    wait_until("the file was read again", || {
        let asked = serve.fetch(&bearer(HttpRequest::new("GET", "/api/v1/aggregator/state"), "secret-of-eve-is-new"));
        (asked.status == 200).then_some(())
    });
    assert_echoes(&mut session, "s.t");
}

#[test]
fn a_call_that_is_parked_is_resumed_with_the_new_secret_and_not_with_the_old() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let (serve, tokens) = serving(&puppet);
    let client = |secret: &str| ModernHttp::new(serve.address(), "/mcp").interactive().with_token(secret);
    let mut old = client("old-secret-of-ann");
    old.ids("tools/list");
    let id = old.begin("tools/call", json!({"name": "s.t", "arguments": {}}));
    let call = puppet.expect("tools/call");
    call.ask("\"q\"", "elicitation/create", r#"{"message":"?","requestedSchema":{"type":"object","properties":{}}}"#);
    let offer = old.answer_to(id)["result"].clone();
    assert_eq!(offer["resultType"], "input_required", "{offer}");
    rotate(&serve, &tokens);

    let question = offer["inputRequests"].as_object().expect("there is a question").keys().next().expect("one").clone();
    let accept = json!({"action": "accept", "content": {}});
    let retry = json!({"name": "s.t", "arguments": {}, "requestState": offer["requestState"],
        "inputResponses": {question: accept}});
    let line = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": old.dress(retry.clone())});
    assert_eq!(serve.fetch(&old.post(&line.to_string())).status, 401);
    let mut new = client("new-secret-of-ann");
    let id = new.begin("tools/call", retry);
    assert_eq!(puppet.response("q")["result"], accept);
    call.answer(r#"{"content":[]}"#);
    assert_eq!(new.answer_to(id)["result"]["resultType"], "complete");
}

/// The start of a request whose body is never complete.
fn unfinished(ask: &HttpRequest, serve: &Serve) -> Vec<u8> {
    let mut bytes = ask.to_bytes(serve.address());
    bytes.pop();
    bytes
}

#[test]
fn a_request_that_is_still_arriving_ends_with_its_secret() {
    let puppet = Puppet::new(Spec::legacy().tool("t").echoes());
    let (serve, tokens) = serving(&puppet);
    let change = HttpRequest::new("PATCH", "/api/v1/aggregator/settings")
        .header("Content-Type", "application/json")
        .body(r#"{"timeout_ms": 1234}"#);
    let asks = [
        bearer(HttpRequest::post("/mcp", super::initialize("2025-11-25")), "old-secret-of-ann"),
        bearer(change, "old-secret-of-ann"),
    ];
    let mut connections = [serve.connect(), serve.connect()];
    for (connection, ask) in connections.iter_mut().zip(&asks) {
        connection.write(&unfinished(ask, &serve)).expect("the service reads");
    }
    rotate(&serve, &tokens);
    for connection in &mut connections {
        // The rest of the body is never sent: the service answers without it. It reports that the token was replaced,
        // or that it is wrong if it had not read the head by then.
        assert_eq!(connection.answer().status, 401);
    }
    let settings = serve.fetch(&bearer(HttpRequest::new("GET", "/api/v1/aggregator/settings"), "new-secret-of-ann"));
    assert_ne!(settings.json()["timeout_ms"], 1234);
}

#[test]
fn a_running_call_is_cancelled_with_the_secret_it_was_made_with() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let (serve, tokens) = serving(&puppet);
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "s.t", "arguments": {}}});
    let modern = ModernHttp::new(serve.address(), "/mcp").with_token("old-secret-of-ann");
    let mut modern_call = call.clone();
    modern_call["params"] = modern.dress(call["params"].clone());
    let hello = Hello::default().with_token("old-secret-of-ann");
    let legacy = HttpSession::introduce(serve.address(), "/mcp", &hello);
    let over_rest =
        HttpRequest::post("/api/v1/aggregator/tools/call", json!({"name": "s.t", "arguments": {}}).to_string());
    let asks =
        [bearer(over_rest, "old-secret-of-ann"), modern.post(&modern_call.to_string()), legacy.post(&call.to_string())];
    let mut connections = [(); 3].map(|()| serve.connect());
    for (connection, ask) in connections.iter_mut().zip(&asks) {
        // As one JSON response, which sends nothing before the end.
        connection.send(&ask.clone().without("Accept").header("Accept", "application/json"));
        puppet.expect("tools/call");
    }
    std::fs::write(tokens.path(), NEW).expect("it can be written");
    for connection in &mut connections {
        assert_eq!(connection.answer().status, 401);
    }
    puppet.wait_for_count("notifications/cancelled", 3);
}
