//! Health checks of servers by a URL.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use registry::Status;
use serde_json::json;
use upstream::ProbeResult;

use crate::fixture::{FixtureOptions, ServiceFixture, fake, somebody};

/// A URL that answers every request with that status.
fn answering(status: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/health", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut request = [0; 4096];
            if connection.read(&mut request).is_ok() {
                // The client may have disconnected.
                write!(connection, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok();
            }
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn only_200_is_healthy_and_redirects_are_not_followed() {
    let limit = Duration::from_secs(10);
    assert_eq!(remote::probe(answering("200 OK"), limit).await, ProbeResult::Healthy);
    let moved: &'static str = format!("302 Found\r\nLocation: {}", answering("200 OK")).leak();
    for status in ["204 No Content", moved, "401 Unauthorized", "503 Busy"] {
        let found = remote::probe(answering(status), limit).await;
        assert!(matches!(&found, ProbeResult::Unhealthy(why) if why.contains(&status[..3])), "{status}: {found:?}");
    }
    let found = remote::probe(answering("404 Not Found"), limit).await;
    assert!(matches!(&found, ProbeResult::Missing(why) if why.contains("404")), "{found:?}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    assert!(matches!(remote::probe(url, Duration::from_millis(50)).await, ProbeResult::Unhealthy(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_health_address_that_does_not_answer_200_makes_the_server_degraded() {
    let fixture = ServiceFixture::with(FixtureOptions {
        settings: json!({ "health_check_interval_s": 1 }),
        ..FixtureOptions::default()
    })
    .await;
    let cases = [("failing", "500 No"), ("missing", "404 Not Found"), ("empty", "204 No Content")];
    for (name, status) in cases {
        let mut server = fake(name, &[]);
        server.health_check_url = Some(answering(status));
        fixture.service.register(&somebody(), server).await.unwrap();
    }
    for (name, status) in cases {
        let view = fixture.until(name, Status::Degraded).await;
        let why = view.record.error_message.unwrap();
        assert!(why.contains(&format!("HTTP {}", &status[..3])), "{why}");
    }
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_health_address_that_is_not_there_disconnects_no_working_server() {
    let fixture = ServiceFixture::with(FixtureOptions {
        settings: json!({ "health_check_interval_s": 1 }),
        ..FixtureOptions::default()
    })
    .await;
    let mut server = fake("missing", &[]);
    server.health_check_url = Some(answering("404 Not Found"));
    fixture.service.register(&somebody(), server).await.unwrap();
    let pid = |answer: serde_json::Value| answer["result"]["structuredContent"]["pid"].as_u64().unwrap();
    let before = pid(fixture.call("missing.pid", json!({})).await);
    // More checks than any other server may fail.
    let deadline = tokio::time::Instant::now() + testkit::DEADLINE;
    let health = loop {
        let health = fixture.service.server_health("missing").await.unwrap();
        if health.consecutive_failures >= 5 {
            break health;
        }
        assert!(tokio::time::Instant::now() < deadline, "{health:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!((health.status, health.is_healthy, health.failure_count), (Status::Degraded, false, 0), "{health:?}");
    assert!(health.warning.is_some_and(|why| why.contains("404")));
    assert_eq!(pid(fixture.call("missing.pid", json!({})).await), before, "it is the same process");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_interval_holds_at_once() {
    let day = json!({ "health_check_interval_s": 86_400 });
    let fixture = ServiceFixture::with(FixtureOptions { settings: day, ..FixtureOptions::default() }).await;
    let mut ill = fake("ill", &[]);
    ill.health_check_url = Some(answering("500 No"));
    fixture.service.register(&somebody(), ill).await.unwrap();
    fixture.until("ill", Status::Connected).await;
    fixture.service.change_settings(&somebody(), json!({ "health_check_interval_s": 1 })).await.unwrap();
    fixture.until("ill", Status::Degraded).await;
    fixture.end().await;
}
