//! The config file as a layer of servers, followed while the service runs.

use registry::{Origin, Status};
use serde_json::{Value, json};
use service::Error;
use service::servers::Update;

use crate::setting::{Setting, Stage, fake, somebody};

fn entry(args: &[&str]) -> Value {
    json!({ "command": testkit::program("fake-server"), "args": args })
}

async fn with_file(servers: Value) -> Setting {
    Setting::with(Stage { config: Some(json!({ "mcpServers": servers })), ..Stage::default() }).await
}

fn rewrite(setting: &Setting, text: &str) {
    let beside = setting.folder.path().join("config.json.new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(beside, setting.config_path()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_of_the_file_are_there_but_changed_only_there() {
    let setting = with_file(json!({ "From File": entry(&[]), "off": { "command": "x", "disabled": true } })).await;
    let view = setting.until("From File", Status::Connected).await;
    assert_eq!(view.record.origin, Origin::Config);
    assert_eq!(setting.service.server("off").await.unwrap().record.status, Status::Disabled);
    let update = Update { name: Some("other".to_owned()), ..Update::default() };
    let changed = setting.service.update(&somebody(), "From File", update).await;
    assert!(matches!(changed, Err(Error::ServerReadOnly { .. })), "{changed:?}");
    let removed = setting.service.remove(&somebody(), "From File", true).await;
    assert!(matches!(removed, Err(Error::ServerReadOnly { .. })), "{removed:?}");
    setting.service.disable(&somebody(), "From File").await.unwrap();
    let setting = setting.again().await;
    let view = setting.service.server("From File").await.unwrap();
    assert_eq!(view.record.status, Status::Disabled, "who switches it off is not overruled by the same file");
    setting.end().await;
}

/// Waits until what is not in the file is gone.
async fn until_there_are(setting: &Setting, servers: u64) {
    let gone = async {
        while setting.service.state().total_servers != servers {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(testkit::DEADLINE, gone).await.expect("what is not in the file is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_touches_only_what_it_is_about() {
    let setting = with_file(json!({ "a": entry(&[]), "b": entry(&["--tools", "1"]), "c": entry(&[]) })).await;
    for server in ["a", "b", "c"] {
        setting.until(server, Status::Connected).await;
    }
    let pid = |answer: Value| answer["result"]["structuredContent"]["pid"].as_u64().unwrap();
    let count = setting.service.server("b").await.unwrap().record.tool_count;
    let before = pid(setting.call("a.pid", json!({})).await);
    let edited = json!({ "mcpServers": { "a": entry(&[]), "b": entry(&["--tools", "2"]), "d": entry(&[]) } });
    rewrite(&setting, &edited.to_string());
    setting.until("d", Status::Connected).await;
    setting.until_it("b", "one with another tool", |view| view.record.tool_count > count).await;
    until_there_are(&setting, 3).await;
    let tools = setting.listed().await;
    assert!(tools.contains(&"b.tool_1".to_owned()) && !tools.iter().any(|tool| tool.starts_with("c.")), "{tools:?}");
    assert_eq!(pid(setting.call("a.pid", json!({})).await), before);

    rewrite(&setting, "{ broken");
    let fixed = json!({ "mcpServers": { "a": entry(&[]) } });
    setting.until("a", Status::Connected).await;
    rewrite(&setting, &fixed.to_string());
    until_there_are(&setting, 1).await;
    assert_eq!(pid(setting.call("a.pid", json!({})).await), before);
    setting.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registered_server_keeps_its_name_against_the_file() {
    let setting = Setting::new().await;
    setting.service.register(&somebody(), fake("one", &["--tools", "1"])).await.unwrap();
    let file = json!({ "mcpServers": { "one": entry(&[]), "two": entry(&[]) } });
    std::fs::write(setting.config_path(), file.to_string()).unwrap();
    let setting = setting.again().await;
    setting.until("two", Status::Connected).await;
    let view = setting.until("one", Status::Connected).await;
    assert_eq!(view.record.origin, Origin::Registered);
    assert_eq!(setting.service.state().total_servers, 2);
    setting.end().await;
}
