//! Connection tests of servers that require a sign-in.

use registry::Status;
use serde_json::{Value, json};
use service::Update;

use super::sign_in_flow::{MACHINE_SECRET, redirect_of, with_notes};
use crate::fixture::{registration, somebody};

fn update(config: Value) -> Update {
    let Value::Object(config) = config else { panic!("a config is an object") };
    Update { connection_config: Some(config), ..Update::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_requires_a_sign_in_is_told_from_one_that_fails() {
    let (fixture, _provider, server) = with_notes().await;
    let draft = registration("draft", "http", json!({ "url": server.url() }));
    let report = fixture.service.test_unregistered(draft).await.unwrap();
    assert!(!report.success && report.sign_in_required, "{report:?}");
    let error = report.error.unwrap();
    assert!(error.contains("add it first") && !error.contains("mcp-aggregator login"), "{error}");
    let report = fixture.service.test("notes").await.unwrap();
    assert!(report.sign_in_required && report.error.unwrap().contains("mcp-aggregator login notes"));
    let nowhere = registration("draft", "http", json!({ "url": "http://127.0.0.1:1/mcp" }));
    let report = fixture.service.test_unregistered(nowhere).await.unwrap();
    assert!(!report.success && !report.sign_in_required, "{report:?}");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_of_what_is_not_registered_leaves_nothing_behind() {
    let (fixture, _provider, server) = with_notes().await;
    let machine = |secret: &str| {
        let oauth = json!({ "grant": "client_credentials", "client_id": "machine", "client_secret": secret,
            "token_endpoint_auth_method": "client_secret_post" });
        registration("draft", "http", json!({ "url": server.url(), "oauth": oauth }))
    };
    let report = fixture.service.test_unregistered(machine(MACHINE_SECRET)).await.unwrap();
    assert!(report.success, "{report:?}");
    let key = format!("draft {}", server.url());
    assert_eq!(fixture.store.oauth_grant(&key).await.unwrap(), None);
    let report = fixture.service.test_unregistered(machine("wrong")).await.unwrap();
    assert!(!report.success, "the token of an earlier test is not used: {report:?}");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_tested_with_the_sign_in_of_the_server() {
    let (fixture, _provider, server) = with_notes().await;
    let attempt = fixture.service.begin_sign_in(&somebody(), "notes", None).await.unwrap();
    fixture.service.finish_sign_in(&redirect_of(&attempt.authorization_url)).await;
    fixture.until("notes", Status::Connected).await;
    let slower = update(json!({ "url": server.url(), "timeout": 5000 }));
    let report = fixture.service.test_update("notes", &slower).await.unwrap();
    assert!(report.success, "{report:?}");
    // Whoever signs in otherwise may need another sign-in.
    let other = update(json!({ "url": server.url(), "oauth": { "client_id": "other" } }));
    let report = fixture.service.test_update("notes", &other).await.unwrap();
    assert!(report.sign_in_required, "{report:?}");
    assert_eq!(fixture.service.server("notes").await.unwrap().record.status, Status::Connected);
    assert_eq!(fixture.service.sign_in_state("notes").await.unwrap().state, "signed_in");
    let invalid = update(json!({ "url": 5 }));
    assert_eq!(fixture.service.test_update("notes", &invalid).await.unwrap_err().code(), "VALIDATION_ERROR");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_address_at_which_nobody_listens_is_refused() {
    let (fixture, _provider, server) = with_notes().await;
    let begin = async |oauth: Value, redirect_uri: Option<&str>| {
        let change = update(json!({ "url": server.url(), "oauth": oauth }));
        fixture.service.update(&somebody(), "notes", change).await.unwrap();
        fixture.service.begin_sign_in(&somebody(), "notes", redirect_uri.map(str::to_owned)).await
    };
    let of_command = "http://localhost:8976/callback";
    let refused = begin(json!({ "callbackPort": 8976 }), None).await.unwrap_err();
    assert_eq!(refused.code(), "SIGN_IN_NOT_SUPPORTED");
    let why = refused.to_string();
    assert!(why.contains(of_command) && why.contains("mcp-aggregator login notes"), "{why}");
    let state = fixture.service.sign_in_state("notes").await.unwrap();
    assert_eq!((state.redirect_uri.as_deref(), state.needs_listener), (Some(of_command), true));
    let attempt = begin(json!({ "callbackPort": 8976 }), Some(of_command)).await.unwrap();
    assert!(attempt.authorization_url.contains("localhost%3A8976%2Fcallback"), "{attempt:?}");

    for ours in ["http://localhost:8808/oauth/callback", "https://proxy.example/oauth/callback"] {
        begin(json!({ "redirect_uri": ours }), None).await.unwrap();
        let state = fixture.service.sign_in_state("notes").await.unwrap();
        assert_eq!((state.redirect_uri.as_deref(), state.needs_listener), (Some(ours), false));
    }
    fixture.end().await;
}
