//! Servers that wait for a sign-in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use oauth::{Grant, GrantStore as _, Replaced};
use registry::Status;
use serde_json::json;
use service::{Event, Update};
use testkit::http_server::{HttpServer, Script};
use upstream::{Cause, Connector, Ending, Phase};

use crate::fixture::{FixtureOptions, ServiceFixture, registration, somebody};

/// Connects to servers as soon as somebody is signed in; until then they demand a sign-in.
#[derive(Default)]
struct SignInConnector {
    is_open: AtomicBool,
    attempts: AtomicUsize,
}

impl SignInConnector {
    fn connector(self: &Arc<Self>) -> Connector {
        let sign_in = Arc::clone(self);
        Arc::new(move |upstream, observer, stop| {
            sign_in.attempts.fetch_add(1, Ordering::SeqCst);
            if sign_in.is_open.load(Ordering::SeqCst) {
                return remote::connect(upstream, observer, stop);
            }
            Box::pin(async move {
                let (why, command) = ("nobody is signed in".to_owned(), "mcp-aggregator login notes".to_owned());
                let cause = Cause::SignInRequired { why, command };
                upstream.ended(&observer, &Arc::new(Ending::Failed { phase: Phase::Startup, cause })).await;
            })
        })
    }

    fn attempts(&self) -> usize {
        self.attempts.load(Ordering::SeqCst)
    }
}

async fn with_sign_in_connector(settings: serde_json::Value) -> (ServiceFixture, Arc<SignInConnector>, HttpServer) {
    let sign_in = Arc::<SignInConnector>::default();
    let options = FixtureOptions { remote: sign_in.connector(), settings, ..FixtureOptions::default() };
    let server = HttpServer::start(Script::default());
    (ServiceFixture::with(options).await, sign_in, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_demands_a_sign_in_waits_for_it_and_has_not_failed() {
    let (fixture, sign_in, server) =
        with_sign_in_connector(json!({ "failure_threshold": 1, "retry_backoff_ms": [1] })).await;
    let mut events = fixture.service.events().listen();
    let new = registration("notes", "http", json!({ "url": server.url() }));
    fixture.service.register(&somebody(), new).await.unwrap();
    let view = fixture.until("notes", Status::SignInRequired).await;
    let record = &view.record;
    assert_eq!(
        (record.failure_count, record.enabled, record.auto_disabled, view.next_retry_at),
        (0, true, false, None)
    );
    assert_eq!((view.retry_count, sign_in.attempts()), (0, 1));
    loop {
        if let Event::ServerSignInRequired { name, command, .. } = events.recv().await.unwrap() {
            assert_eq!((name.as_str(), command.as_str()), ("notes", "mcp-aggregator login notes"));
            break;
        }
    }
    let state = fixture.service.state();
    assert_eq!((state.sign_in_required_servers, state.disconnected_servers, state.error_servers), (1, 1, 0));

    let answer = fixture.call("notes.anything", json!({})).await;
    let data = &answer["error"]["data"];
    assert_eq!((&data["reason"], &data["command"]), (&json!("sign_in_required"), &json!("mcp-aggregator login notes")));
    assert_eq!(data["safeToRetry"], true);
    let message = answer["error"]["message"].as_str().unwrap();
    assert_eq!(message.matches("mcp-aggregator login notes").count(), 1, "{message}");

    // Somebody who knows better may try.
    let refused = fixture.service.connect(&somebody(), "notes").await.unwrap_err();
    assert_eq!(refused.context()["reason"], "sign_in_required");
    assert_eq!(refused.context()["command"], "mcp-aggregator login notes");
    sign_in.is_open.store(true, Ordering::SeqCst);
    fixture.service.connect(&somebody(), "notes").await.unwrap();
    assert_eq!(fixture.service.server("notes").await.unwrap().record.status, Status::Connected);
    assert_eq!(sign_in.attempts(), 3);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_sign_in_survives_a_restart_and_ends_with_another_address() {
    let (fixture, sign_in, server) = with_sign_in_connector(json!({})).await;
    let new = registration("notes", "http", json!({ "url": server.url() }));
    fixture.service.register(&somebody(), new).await.unwrap();
    fixture.until("notes", Status::SignInRequired).await;
    let fixture = fixture.again().await;
    fixture.until("notes", Status::SignInRequired).await;
    assert_eq!(fixture.store.find_server("notes").await.unwrap().failure_count, 0);

    sign_in.is_open.store(true, Ordering::SeqCst);
    let config = json!({ "url": server.url(), "headers": { "X-Other": "1" } });
    let serde_json::Value::Object(config) = config else { unreachable!() };
    let update = Update { connection_config: Some(config), ..Update::default() };
    fixture.service.update(&somebody(), "notes", update).await.unwrap();
    fixture.until("notes", Status::Connected).await;
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_waits_for_a_sign_in_can_be_disabled_and_removed() {
    let (fixture, _door, server) = with_sign_in_connector(json!({})).await;
    let new = registration("notes", "http", json!({ "url": server.url() }));
    fixture.service.register(&somebody(), new).await.unwrap();
    fixture.until("notes", Status::SignInRequired).await;
    fixture.service.disable(&somebody(), "notes").await.unwrap();
    assert_eq!(fixture.service.server("notes").await.unwrap().record.status, Status::Disabled);
    fixture.service.remove(&somebody(), "notes", false).await.unwrap();
    assert!(fixture.service.server("notes").await.is_err());
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_stored_in_the_registry_by_compare_and_swap() {
    let (fixture, _door, server) = with_sign_in_connector(json!({})).await;
    let new = registration("notes", "http", json!({ "url": server.url() }));
    let id = fixture.service.register(&somebody(), new).await.unwrap().record.id.to_string();
    let grants = service::RegistryGrants::new(fixture.store.clone());
    assert_eq!(grants.load(&id).await.unwrap(), None);
    let stored = |replaced| match replaced {
        Replaced::Stored(Some(version)) => version,
        other => panic!("{other:?}"),
    };
    let first = stored(grants.replace(&id, None, Some(grant("one"))).await.unwrap());
    assert_eq!(grants.replace(&id, None, Some(grant("two"))).await.unwrap(), Replaced::Conflict);
    let second = stored(grants.replace(&id, Some(first), Some(grant("two"))).await.unwrap());
    assert_eq!(grants.replace(&id, Some(first), None).await.unwrap(), Replaced::Conflict);
    assert_eq!(grants.load(&id).await.unwrap(), Some((second, grant("two"))));
    let raw = fixture.store.oauth_grant(&id).await.unwrap().unwrap();
    assert!(raw.value.contains("two-secret") && !format!("{raw:?} {grants:?}").contains("secret"));
    // Nothing of it is in the file in clear.
    for file in std::fs::read_dir(fixture.folder.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap_or_default();
        assert!(!bytes.windows(10).any(|part| part == b"two-secret"));
    }
    fixture.service.remove(&somebody(), "notes", false).await.unwrap();
    assert_eq!(grants.load(&id).await.unwrap(), None);
    fixture.end().await;
}

fn grant(name: &str) -> Grant {
    let value = json!({
        "server_url": "https://mcp.example/mcp",
        "authorization_server": { "issuer": "https://as.example", "token_endpoint": "https://as.example/token",
            "revocation_endpoint": null },
        "client": { "id": "client", "secret": null, "secret_expires_at": null, "auth_method": "none",
            "source": "registered", "redirect_uri": null },
        "resource": null,
        "requested_scopes": [],
        "tokens": { "access_token": format!("{name}-secret"), "refresh_token": null, "issued_at": 0, "lifetime": null,
            "scopes": [] },
    });
    Grant::from_json(&value.to_string()).unwrap()
}
