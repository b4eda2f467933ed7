//! Servers that are started on demand.

use registry::Status;
use serde_json::json;
use service::Registration;

use crate::fixture::{FixtureOptions, ServiceFixture, fake, somebody};

fn lazy(name: &str, args: &[&str]) -> Registration {
    let mut new = fake(name, args);
    new.connection_config.insert("lazy".to_owned(), json!(true));
    new
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lazy_server_is_started_once_to_list_its_tools_then_stops_and_starts_for_a_call() {
    let fixture =
        ServiceFixture::with(FixtureOptions { settings: json!({ "idle_timeout_s": 3 }), ..FixtureOptions::default() })
            .await;
    let view = fixture.service.register(&somebody(), lazy("one", &[])).await.unwrap();
    assert!(view.lazy);
    fixture.until("one", Status::Disconnected).await;
    assert_eq!(fixture.history_until("one", 3, "disconnected").await, ["connecting", "connected", "disconnected"]);
    assert!(fixture.listed().await.contains(&"one.echo".to_owned()), "what it offers stays on offer");
    let answer = fixture.call("one.echo", json!({ "text": "awake" })).await;
    assert_eq!(answer["result"]["content"][0]["text"], "awake", "{answer}");
    fixture.until("one", Status::Disconnected).await;
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_known_of_a_lazy_server_is_on_offer_after_a_restart_without_starting_it() {
    let fixture =
        ServiceFixture::with(FixtureOptions { settings: json!({ "idle_timeout_s": 1 }), ..FixtureOptions::default() })
            .await;
    fixture.service.register(&somebody(), lazy("one", &["--tools", "1"])).await.unwrap();
    fixture.until("one", Status::Disconnected).await;
    let fixture = fixture.again().await;
    assert!(fixture.listed().await.contains(&"one.tool_0".to_owned()));
    assert_eq!(fixture.history("one").await, ["connecting", "connected", "disconnected"], "it was not started again");
    let answer = fixture.call("one.echo", json!({ "text": "awake" })).await;
    assert_eq!(answer["result"]["content"][0]["text"], "awake", "{answer}");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lazy_server_with_a_call_in_hand_is_not_put_to_sleep() {
    let fixture =
        ServiceFixture::with(FixtureOptions { settings: json!({ "idle_timeout_s": 1 }), ..FixtureOptions::default() })
            .await;
    fixture.service.register(&somebody(), lazy("one", &[])).await.unwrap();
    let answer = fixture.call("one.sleep", json!({ "ms": 2500 })).await;
    assert_eq!(answer["result"]["content"][0]["text"], "slept", "{answer}");
    fixture.end().await;
}
