//! Many clients, slow clients and clients that disappear: no other client waits for them, and nothing of them remains.

use serde_json::json;
use testkit::http_client::HttpRequest;
use testkit::{ClientSession, HttpSession, ModernHttp, Puppet, Spec, SseClient, open_fds, rss_kb, wait_until};

use super::assert_echoes;
use crate::relay::serving;

#[test]
fn two_hundred_clients_at_once_each_get_their_own_answers() {
    let puppet = Puppet::new(Spec::legacy().tool("t").echoes());
    let serve = serving(&[("s", &puppet)]);
    assert_echoes(&mut serve.session("/mcp"), "s.t");
    let files = open_fds(serve.pid());
    let all_there = std::sync::Barrier::new(200);
    std::thread::scope(|scope| {
        for number in 0..200 {
            let (address, all_there) = (serve.address(), &all_there);
            scope.spawn(move || {
                let mut client: Box<dyn ClientSession> = match number % 3 {
                    0 => Box::new(ModernHttp::new(address, "/mcp")),
                    1 => Box::new(SseClient::open(address, "/sse")),
                    _ => Box::new(HttpSession::open(address, "/mcp")),
                };
                all_there.wait();
                for round in 0..5 {
                    let arguments = json!({"client": number, "round": round});
                    let answer = client.ask("tools/call", json!({"name": "s.t", "arguments": arguments}));
                    assert_eq!(answer["result"]["structuredContent"], arguments);
                }
            });
        }
    });
    wait_until("every connection is closed", || (open_fds(serve.pid()) <= files).then_some(()));
}

#[test]
fn a_client_that_does_not_read_delays_no_other_and_fills_no_memory() {
    let (flooding, well) = (Puppet::new(Spec::legacy().tool("t")), Puppet::new(Spec::legacy().tool("t").echoes()));
    let serve = serving(&[("flooding", &flooding), ("well", &well)]);
    let slow = serve.session("/mcp");
    let mut other = serve.session("/mcp");
    let mut connection = serve.connect();
    connection.send(&slow.post(
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"flooding.t","_meta":{"progressToken":1}}}"#,
    ));
    let call = flooding.expect("tools/call");
    let before = rss_kb(serve.pid());
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let message = "x".repeat(1 << 20);
            for step in 0..100 {
                call.progress(&format!(r#""progress":{step},"message":"{message}""#));
            }
            call.answer(r#"{"content":[]}"#);
        });
        for _ in 0..20 {
            assert_echoes(&mut other, "well.t");
        }
        flood.join().expect("the server could say it all");
    });
    let grown = rss_kb(serve.pid()).saturating_sub(before);
    assert!(grown < 60_000, "grew by {grown} kB");
    // When it finally reads, the response is there.
    assert_eq!(connection.answer().message(None)["id"], 1);
}

#[test]
fn a_client_that_does_not_read_does_not_stop_the_server_for_others() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let slow = serve.session("/mcp");
    let mut other = serve.session("/mcp");
    let mut connection = serve.connect();
    connection.send(&slow.post(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s.t"}}"#));
    let large = format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(40 << 20));
    let call = puppet.expect("tools/call");
    std::thread::scope(|scope| {
        scope.spawn(|| call.answer(&large));
        let id = other.begin_call("s.t", json!({}));
        puppet.expect("tools/call").answer(r#"{"content":[]}"#);
        assert!(other.answer_to(id)["result"].is_object());
    });
    let mut answer = connection.answer();
    assert!(answer.bytes().len() > large.len());
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    let puppet = Puppet::new(Spec::legacy().tool("t").resource("r://1"));
    let serve = serving(&[("s", &puppet)]);
    let files = open_fds(serve.pid());
    for round in 0..30 {
        let mut modern: ModernHttp = serve.modern("/mcp");
        modern.begin("subscriptions/listen", json!({"notifications": {"resourceSubscriptions": ["r://1"]}}));
        let acknowledged = modern.notice("notifications/subscriptions/acknowledged");
        assert_eq!(acknowledged["params"]["notifications"]["resourceSubscriptions"], json!(["r://1"]));
        puppet.wait_for_count("resources/subscribe", round + 1);
        modern.begin_call("s.t", json!({}));
        puppet.expect("tools/call");
        let mut older = serve.sse("/sse");
        older.begin_call("s.t", json!({}));
        puppet.expect("tools/call");
        drop((modern, older));
        // Both disconnected, so both calls are cancelled and the subscription ends.
        puppet.wait_for_count("notifications/cancelled", 2 * (round + 1));
        puppet.wait_for_count("resources/unsubscribe", round + 1);
    }
    wait_until("every connection is closed", || (open_fds(serve.pid()) <= files).then_some(()));
    puppet.change(Spec::echoes);
    assert_echoes(&mut serve.session("/mcp"), "s.t");
}

#[test]
fn a_session_that_has_ended_leaves_nothing_behind() {
    let puppet = Puppet::new(Spec::legacy().tool("t"));
    let serve = serving(&[("s", &puppet)]);
    let mut connection = serve.connect();
    let mut begin_and_end = |sessions: usize| {
        for _ in 0..sessions {
            let mut begun = connection.ask(&HttpRequest::post("/mcp", super::initialize("2025-11-25")));
            let id = begun.header("mcp-session-id").expect("a session has begun").to_owned();
            begun.bytes();
            let ended = connection.ask(&HttpRequest::new("DELETE", "/mcp").header("Mcp-Session-Id", &id));
            assert_eq!(ended.status, 204);
        }
        rss_kb(serve.pid())
    };
    begin_and_end(2_000);
    // Other memory of the service (its index, its journal) may grow once; leaked sessions would grow in every round.
    // Even a hundred bytes for each would be 400 kB.
    let mut before = begin_and_end(1);
    let grown = (0..3).map(|_| {
        let after = begin_and_end(4_000);
        after.saturating_sub(std::mem::replace(&mut before, after))
    });
    let least = grown.min().expect("there are rounds");
    assert!(least < 350, "grew by at least {least} kB in every round");
}
