//! Servers that are watched from outside.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use registry::Status;
use serde_json::json;
use upstream::Finding;

use crate::setting::{Setting, Stage, fake, somebody};

/// An address that answers every request with that status.
fn answering(status: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/health", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut request = [0; 4096];
            if connection.read(&mut request).is_ok() {
                // Whoever asked may be gone.
                write!(connection, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok();
            }
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn only_200_is_healthy_and_redirects_are_not_followed() {
    let limit = Duration::from_secs(10);
    assert_eq!(remote::probe(answering("200 OK"), limit).await, Finding::Well);
    let moved: &'static str = format!("302 Found\r\nLocation: {}", answering("200 OK")).leak();
    for status in ["204 No Content", moved, "401 Unauthorized", "503 Busy"] {
        let found = remote::probe(answering(status), limit).await;
        assert!(matches!(&found, Finding::Ill(why) if why.contains(&status[..3])), "{status}: {found:?}");
    }
    let found = remote::probe(answering("404 Not Found"), limit).await;
    assert!(matches!(&found, Finding::Missing(why) if why.contains("404")), "{found:?}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    assert!(matches!(remote::probe(url, Duration::from_millis(50)).await, Finding::Ill(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_health_address_that_does_not_answer_200_makes_the_server_degraded() {
    let setting = Setting::with(Stage { settings: json!({ "health_check_interval_s": 1 }), ..Stage::default() }).await;
    let cases = [("failing", "500 No"), ("missing", "404 Not Found"), ("empty", "204 No Content")];
    for (name, status) in cases {
        let mut server = fake(name, &[]);
        server.health_check_url = Some(answering(status));
        setting.service.register(&somebody(), server).await.unwrap();
    }
    for (name, status) in cases {
        let view = setting.until(name, Status::Degraded).await;
        let why = view.record.error_message.unwrap();
        assert!(why.contains(&format!("HTTP {}", &status[..3])), "{why}");
    }
    setting.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_health_address_that_is_not_there_disconnects_no_working_server() {
    let setting = Setting::with(Stage { settings: json!({ "health_check_interval_s": 1 }), ..Stage::default() }).await;
    let mut server = fake("missing", &[]);
    server.health_check_url = Some(answering("404 Not Found"));
    setting.service.register(&somebody(), server).await.unwrap();
    let pid = |answer: serde_json::Value| answer["result"]["structuredContent"]["pid"].as_u64().unwrap();
    let before = pid(setting.call("missing.pid", json!({})).await);
    // More checks than any other server may fail.
    let deadline = tokio::time::Instant::now() + testkit::DEADLINE;
    let health = loop {
        let health = setting.service.server_health("missing").await.unwrap();
        if health.consecutive_failures >= 5 {
            break health;
        }
        assert!(tokio::time::Instant::now() < deadline, "{health:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!((health.status, health.is_healthy, health.failure_count), (Status::Degraded, false, 0), "{health:?}");
    assert!(health.warning.is_some_and(|why| why.contains("404")));
    assert_eq!(pid(setting.call("missing.pid", json!({})).await), before, "it is the same process");
    setting.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_interval_holds_at_once() {
    let day = json!({ "health_check_interval_s": 86_400 });
    let setting = Setting::with(Stage { settings: day, ..Stage::default() }).await;
    let mut ill = fake("ill", &[]);
    ill.health_check_url = Some(answering("500 No"));
    setting.service.register(&somebody(), ill).await.unwrap();
    setting.until("ill", Status::Connected).await;
    setting.service.change_settings(&somebody(), json!({ "health_check_interval_s": 1 })).await.unwrap();
    setting.until("ill", Status::Degraded).await;
    setting.end().await;
}
