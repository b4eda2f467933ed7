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
async fn success_is_well_what_is_not_found_is_odd_and_the_rest_is_ill() {
    let limit = Duration::from_secs(10);
    assert_eq!(remote::probe(answering("200 OK"), limit).await, Finding::Well);
    assert!(matches!(remote::probe(answering("404 Not Found"), limit).await, Finding::Odd(_)));
    assert!(matches!(remote::probe(answering("503 Busy"), limit).await, Finding::Ill(_)));
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    assert!(matches!(remote::probe(url, Duration::from_millis(50)).await, Finding::Ill(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_health_address_that_fails_makes_the_server_degraded_and_one_that_is_not_there_is_a_warning() {
    let setting = Setting::with(Stage { settings: json!({ "health_check_interval_s": 1 }), ..Stage::default() }).await;
    let mut ill = fake("ill", &[]);
    ill.health_check_url = Some(answering("500 No"));
    let mut odd = fake("odd", &[]);
    odd.health_check_url = Some(answering("404 Not Found"));
    setting.service.register(&somebody(), ill).await.unwrap();
    setting.service.register(&somebody(), odd).await.unwrap();
    let view = setting.until("ill", Status::Degraded).await;
    assert!(view.record.error_message.unwrap().contains("HTTP 500"));
    let health = setting.service.server_health("odd").await.unwrap();
    assert!(health.is_healthy && health.warning.unwrap().contains("HTTP 404"));
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
