//! The event stream.

use std::time::{Duration, Instant};

use serde_json::json;
use testkit::http_client::{Event, HttpRequest};

use super::{Rest, fake};

const EVENTS: &str = "/api/v1/aggregator/events";

#[test]
fn what_happens_to_servers_tools_and_calls_is_reported_with_names_and_growing_ids() {
    let rest = Rest::start();
    let mut connection = rest.serve.connect();
    let mut stream = connection.ask(&HttpRequest::stream(EVENTS));
    assert_eq!(stream.status, 200);
    assert!(stream.is_stream());
    assert_eq!(stream.next_event().unwrap().comment.as_deref(), Some("hello"));

    rest.register("one", &[]);
    rest.call("one.echo", &json!({}));
    rest.delete("/servers/one");
    let mut seen: Vec<Event> = Vec::new();
    while seen.last().and_then(|event| event.kind.as_deref()) != Some("server.removed") {
        seen.push(stream.next_message().expect("the stream goes on"));
    }
    let kinds: Vec<&str> = seen.iter().filter_map(|event| event.kind.as_deref()).collect();
    let expected = [
        "server.registered",
        "server.status_changed",
        "tools.changed",
        "execution.pending",
        "execution.executing",
        "execution.success",
    ];
    for kind in expected {
        assert!(kinds.contains(&kind), "{kind} is not among {kinds:?}");
    }
    let ids: Vec<i64> = seen.iter().map(|event| event.id.as_ref().unwrap().parse().unwrap()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    let registered = seen.iter().find(|event| event.kind.as_deref() == Some("server.registered")).unwrap().json();
    assert_eq!(registered["name"], "one");
    let connected = seen.iter().map(Event::json).find(|data| data["status"] == "connected").unwrap();
    assert_eq!(connected["previous"], "connecting");
}

#[test]
fn a_reconnecting_reader_learns_that_events_may_be_missing() {
    let rest = Rest::start();
    let mut connection = rest.serve.connect();
    let mut stream = connection.ask(&HttpRequest::stream(EVENTS).header("Last-Event-ID", "17"));
    assert_eq!(stream.next_message().unwrap().kind.as_deref(), Some("events.missed"));
}

#[test]
fn a_failure_that_switches_a_server_off_is_a_notice_for_people() {
    let rest = Rest::start();
    rest.patch("/settings", &json!({"retry_backoff_ms": [1, 1, 1]}));
    let mut connection = rest.serve.connect();
    let mut stream = connection.ask(&HttpRequest::stream(EVENTS));
    rest.post("/servers", &fake("broken", &["--fail-at", "initialize"]));
    let notice = std::iter::from_fn(|| stream.next_message()).find(|event| event.kind.as_deref() == Some("notice"));
    assert!(notice.unwrap().json()["message"].as_str().unwrap().contains("broken"));
    let off = rest.wait_for_status("broken", "disabled");
    assert_eq!((&off["enabled"], &off["auto_disabled"]), (&json!(false), &json!(true)));
}

#[test]
fn a_stream_ends_when_the_token_that_opened_it_is_taken_away() {
    let mut tokens = tempfile::NamedTempFile::new().unwrap();
    let write = |file: &mut tempfile::NamedTempFile, text: &str| std::fs::write(file.path(), text).unwrap();
    write(&mut tokens, "ann:secret-of-ann-is-long\nben:secret-of-ben-is-long\n");
    let rest = Rest::start_as(|launch| launch.arg("--token-file").arg(tokens.path()));
    let (mut of_ann, mut of_ben) = (rest.serve.connect(), rest.serve.connect());
    let stream =
        |name: &str| HttpRequest::stream(EVENTS).header("Authorization", &format!("Bearer secret-of-{name}-is-long"));
    let mut ann = of_ann.ask(&stream("ann"));
    let mut ben = of_ben.ask(&stream("ben"));
    assert_eq!((ann.status, ben.status), (200, 200));
    ann.next_event();
    ben.next_event();
    write(&mut tokens, "ann:secret-of-ann-is-long\n");
    assert_eq!(ben.next_message(), None, "it ends");
    let body = fake("one", &[]).to_string();
    let register = HttpRequest::post("/api/v1/aggregator/servers", body);
    let ask = register.header("Authorization", "Bearer secret-of-ann-is-long");
    assert_eq!(rest.serve.fetch(&ask).status, 201);
    assert!(ann.next_message().is_some(), "that of another goes on");
}

#[test]
fn a_stream_ends_when_the_service_does_and_holds_nothing_up() {
    testkit::takes_less_than(Duration::from_secs(5), || {
        let mut rest = Rest::start();
        let mut connection = rest.serve.connect();
        let mut stream = connection.ask(&HttpRequest::stream(EVENTS));
        stream.next_event();
        let begun = Instant::now();
        rest.serve.signal(testkit::Signal::TERM);
        while stream.next_event().is_some() {}
        assert!(rest.serve.wait_exit().success());
        begun.elapsed()
    });
}
