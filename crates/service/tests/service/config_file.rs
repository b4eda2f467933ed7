//! The config file as a source of servers, followed while the service runs.

use registry::{Origin, Status};
use serde_json::{Value, json};
use service::{Error, Event, Update};

use crate::fixture::{FixtureOptions, ServiceFixture, fake, somebody};

fn entry(args: &[&str]) -> Value {
    json!({ "command": testkit::program("fake-server"), "args": args })
}

async fn with_file(servers: Value) -> ServiceFixture {
    ServiceFixture::with(FixtureOptions { config: Some(json!({ "mcpServers": servers })), ..FixtureOptions::default() })
        .await
}

fn rewrite(fixture: &ServiceFixture, text: &str) {
    let beside = fixture.folder.path().join("config.json.new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, fixture.config_path()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_the_file_are_there_but_changed_only_there() {
    let fixture = with_file(json!({ "From File": entry(&[]), "off": { "command": "x", "disabled": true } })).await;
    let view = fixture.until("From File", Status::Connected).await;
    assert_eq!(view.record.origin, Origin::Config);
    assert_eq!(fixture.service.server("off").await.unwrap().record.status, Status::Disabled);
    let update = Update { name: Some("other".to_owned()), ..Update::default() };
    let changed = fixture.service.update(&somebody(), "From File", update).await;
    assert!(matches!(changed, Err(Error::ServerReadOnly { .. })), "{changed:?}");
    let removed = fixture.service.remove(&somebody(), "From File", true).await;
    assert!(matches!(removed, Err(Error::ServerReadOnly { .. })), "{removed:?}");
    fixture.service.disable(&somebody(), "From File").await.unwrap();
    let fixture = fixture.again().await;
    let view = fixture.service.server("From File").await.unwrap();
    assert_eq!(view.record.status, Status::Disabled, "who switches it off is not overruled by the same file");
    fixture.end().await;
}

/// Waits until what is not in the file is removed.
async fn until_there_are(fixture: &ServiceFixture, servers: u64) {
    let gone = async {
        while fixture.service.state().total_servers != servers {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(testkit::DEADLINE, gone).await.expect("what is not in the file is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_touches_only_what_it_is_about() {
    let fixture = with_file(json!({ "a": entry(&[]), "b": entry(&["--tools", "1"]), "c": entry(&[]) })).await;
    for server in ["a", "b", "c"] {
        fixture.until(server, Status::Connected).await;
    }
    let pid = |answer: Value| answer["result"]["structuredContent"]["pid"].as_u64().unwrap();
    let count = fixture.service.server("b").await.unwrap().record.tool_count;
    let before = pid(fixture.call("a.pid", json!({})).await);
    let edited = json!({ "mcpServers": { "a": entry(&[]), "b": entry(&["--tools", "2"]), "d": entry(&[]) } });
    rewrite(&fixture, &edited.to_string());
    fixture.until("d", Status::Connected).await;
    fixture.until_it("b", "one with another tool", |view| view.record.tool_count > count).await;
    until_there_are(&fixture, 3).await;
    let tools = fixture.listed().await;
    assert!(tools.contains(&"b.tool_1".to_owned()) && !tools.iter().any(|tool| tool.starts_with("c.")), "{tools:?}");
    assert_eq!(pid(fixture.call("a.pid", json!({})).await), before);

    rewrite(&fixture, "{ broken");
    let fixed = json!({ "mcpServers": { "a": entry(&[]) } });
    fixture.until("a", Status::Connected).await;
    rewrite(&fixture, &fixed.to_string());
    until_there_are(&fixture, 1).await;
    assert_eq!(pid(fixture.call("a.pid", json!({})).await), before);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registered_server_keeps_its_name_against_the_file() {
    let fixture = ServiceFixture::new().await;
    fixture.service.register(&somebody(), fake("one", &["--tools", "1"])).await.unwrap();
    let file = json!({ "mcpServers": { "one": entry(&[]), "two": entry(&[]) } });
    std::fs::write(fixture.config_path(), file.to_string()).unwrap();
    let fixture = fixture.again().await;
    fixture.until("two", Status::Connected).await;
    let view = fixture.until("one", Status::Connected).await;
    assert_eq!(view.record.origin, Origin::Registered);
    assert_eq!(fixture.service.state().total_servers, 2);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn comments_trailing_commas_and_a_byte_order_mark_change_nothing() {
    let fixture = with_file(json!({ "a": entry(&[]), "b": entry(&[]) })).await;
    for server in ["a", "b"] {
        fixture.until(server, Status::Connected).await;
    }
    let pid = |answer: Value| answer["result"]["structuredContent"]["pid"].as_u64().unwrap();
    let before = pid(fixture.call("a.pid", json!({})).await);
    let (a, c) = (entry(&[]), entry(&["--tools", "1"]));
    let commented = format!("\u{feff}{{ // what we use\n \"mcpServers\": {{ \"a\": {a}, /* new */ \"c\": {c}, }},\n}}");
    rewrite(&fixture, &commented);
    fixture.until("c", Status::Connected).await;
    until_there_are(&fixture, 2).await;
    assert_eq!(pid(fixture.call("a.pid", json!({})).await), before, "who is in both is not touched");
    assert_eq!(fixture.service.config_error(), None);

    let fixture = fixture.again().await;
    for server in ["a", "c"] {
        fixture.until(server, Status::Connected).await;
    }
    assert_eq!(fixture.service.state().total_servers, 2, "the same when it is read at start");
    fixture.end().await;
}

#[tokio::test]
async fn a_pipe_is_read_once_and_its_end_is_no_problem() {
    use std::io::Write;
    use std::os::fd::AsRawFd;
    let fixture = ServiceFixture::new().await;
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer
        .write_all(json!({ "mcpServers": { "a": { "command": "x", "disabled": true } } }).to_string().as_bytes())
        .unwrap();
    drop(writer);
    let pipe = format!("/dev/fd/{}", reader.as_raw_fd());
    std::os::unix::fs::symlink(pipe, fixture.config_path()).unwrap();
    let fixture = fixture.again().await;
    // The clock jumps over many checks of the file as soon as nothing else happens.
    tokio::time::pause();
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    tokio::time::resume();
    assert_eq!(fixture.service.config_error(), None);
    assert_eq!(fixture.service.server("a").await.unwrap().record.origin, Origin::Config);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_broken_is_reported_and_its_last_good_state_stays() {
    let fixture = with_file(json!({ "a": entry(&[]) })).await;
    fixture.until("a", Status::Connected).await;
    let mut events = fixture.service.events().listen();
    rewrite(&fixture, "{ \"mcpServers\": { \"a\": } }");
    let notice = async {
        loop {
            if let Ok(Event::Notice { server_id: None, message }) = events.recv().await {
                return message;
            }
        }
    };
    let message = tokio::time::timeout(testkit::DEADLINE, notice).await.expect("whoever listens hears of it");
    let path = fixture.config_path().display().to_string();
    assert!(message.contains(&path) && message.contains("is not valid"), "{message}");
    assert_eq!(fixture.service.config_error(), Some(message));
    assert_eq!(fixture.service.server("a").await.unwrap().record.status, Status::Connected);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_the_registry_cannot_keep_is_reported() {
    let long = "n".repeat(300);
    let fixture = with_file(json!({ "a": entry(&[]), (long.as_str()): entry(&[]) })).await;
    fixture.until("a", Status::Connected).await;
    let error = fixture.service.config_error().unwrap();
    assert!(error.contains(&long) && error.contains("255"), "{error}");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_that_is_not_set_fails_only_the_server_that_needs_it() {
    let mut needy = entry(&[]);
    needy["env"] = json!({ "KEY": "${MCP_TEST_NEVER_SET}" });
    let fixture = with_file(json!({ "needy": needy, "a": entry(&[]) })).await;
    fixture.until("a", Status::Connected).await;
    let view = fixture.until("needy", Status::Error).await;
    let why = view.record.error_message.unwrap();
    assert!(why.contains("MCP_TEST_NEVER_SET is not set"), "{why}");
    assert_eq!(fixture.service.config_error(), None, "the file itself is fine");
    fixture.end().await;
}
