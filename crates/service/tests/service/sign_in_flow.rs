//! From a sign-in to a connected server, and back: with an authorization server in memory.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use catalog::{OAuthSettings, ServerName};
use oauth::{Fetch, FetchError, HttpRequest, HttpResponse, Network, OAuth, OAuthOptions, Protected};
use registry::{AuditFilter, Page, Status};
use serde_json::{Value, json};
use service::{Event, Listener, RegistryGrants, Returned};
use testkit::http_server::{HttpServer, Script};

use crate::fixture::{FixtureOptions, ServiceFixture, registration, somebody};

pub(super) const TOKEN: &str = "granted-secret";

/// The secret of the machine that signs in by itself.
pub(super) const MACHINE_SECRET: &str = "right-secret";

/// The authorization server of a server at that address.
#[derive(Debug)]
pub(super) struct Provider {
    server: String,
    origin: String,
    revocations: AtomicUsize,
}

impl Provider {
    /// For this server.
    pub(super) fn of(server: &HttpServer) -> Self {
        Self { server: server.url(), origin: server.origin(), revocations: AtomicUsize::default() }
    }

    fn answer(&self, request: &HttpRequest) -> HttpResponse {
        let Self { server, origin, .. } = self;
        let address = request
            .url
            .strip_prefix("https://as.example")
            .unwrap_or_else(|| request.url.strip_prefix(origin.as_str()).unwrap_or(&request.url));
        let body = match address {
            "/.well-known/oauth-authorization-server" => json!({
                "issuer": "https://as.example",
                "authorization_endpoint": "https://as.example/authorize",
                "token_endpoint": "https://as.example/token",
                "registration_endpoint": "https://as.example/register",
                "revocation_endpoint": "https://as.example/revoke",
                "code_challenge_methods_supported": ["S256"],
            }),
            "/register" => json!({ "client_id": "client" }),
            "/token" if is_wrong_machine(request) => return response(401, &json!({ "error": "invalid_client" })),
            "/token" => {
                json!({ "access_token": TOKEN, "refresh_token": "renewal-secret", "token_type": "Bearer", "expires_in": 3600 })
            }
            "/revoke" => {
                self.revocations.fetch_add(1, Ordering::SeqCst);
                json!({})
            }
            address if address.starts_with("/.well-known/oauth-protected-resource") => {
                json!({ "resource": server, "authorization_servers": ["https://as.example"] })
            }
            _ => return response(401, &Value::Null),
        };
        response(200, &body)
    }
}

/// Whether it is a machine with another secret than it has.
fn is_wrong_machine(request: &HttpRequest) -> bool {
    let body = String::from_utf8_lossy(&request.body);
    body.contains("grant_type=client_credentials") && !body.contains(MACHINE_SECRET)
}

fn response(status: u16, body: &Value) -> HttpResponse {
    let www_authenticate = if status == 401 { vec!["Bearer".to_owned()] } else { Vec::new() };
    HttpResponse { status, content_type: "application/json".into(), www_authenticate, body: body.to_string().into() }
}

impl Fetch for Provider {
    fn fetch(
        &self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, FetchError>> + Send + '_>> {
        let answer = self.answer(&request);
        Box::pin(std::future::ready(Ok(answer)))
    }
}

/// A service with a server `notes` that wants a token.
pub(super) async fn with_notes() -> (ServiceFixture, Arc<Provider>, HttpServer) {
    let server = HttpServer::start(Script::default().require_header("Authorization", &format!("Bearer {TOKEN}")));
    let provider = Arc::new(Provider::of(&server));
    let options = FixtureOptions { provider: Some(Arc::clone(&provider) as _), ..FixtureOptions::default() };
    let fixture = ServiceFixture::with(options).await;
    let new = registration("notes", "http", json!({ "url": server.url() }));
    fixture.service.register(&somebody(), new).await.unwrap();
    fixture.until("notes", Status::SignInRequired).await;
    (fixture, provider, server)
}

/// What the browser comes back with, if the person agrees.
pub(super) fn redirect_of(authorization_url: &str) -> String {
    let query = authorization_url.split_once('?').unwrap().1;
    let state = query.split('&').find_map(|pair| pair.strip_prefix("state=")).unwrap();
    format!("code=abc&state={state}")
}

async fn wait_for(events: &mut Listener, wanted: &str) -> Event {
    loop {
        let event = events.recv().await.unwrap();
        if event.name() == wanted {
            return event;
        }
    }
}

async fn audited(fixture: &ServiceFixture, action: &str) -> Vec<(String, String)> {
    let filter = AuditFilter { action: Some(action.to_owned()), ..AuditFilter::default() };
    let rows = fixture.store.audit(&filter, Page::ALL).await.unwrap().items;
    rows.into_iter().map(|row| (row.who.unwrap_or_default(), row.target.unwrap_or_default())).collect()
}

async fn state_of(fixture: &ServiceFixture) -> &'static str {
    fixture.service.sign_in_state("notes").await.unwrap().state
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_connects_the_server_survives_a_restart_and_ends_with_a_sign_out() {
    let (fixture, provider, _server) = with_notes().await;
    let mut events = fixture.service.events().listen();
    assert_eq!(state_of(&fixture).await, "none");
    let attempt = fixture.service.begin_sign_in(&somebody(), "notes", None).await.unwrap();
    assert!(attempt.authorization_url.starts_with("https://as.example/authorize?"), "{attempt:?}");
    assert_eq!(state_of(&fixture).await, "pending");
    let done = fixture.service.finish_sign_in(&redirect_of(&attempt.authorization_url)).await;
    assert_eq!(done, Returned::SignedIn { server: "notes".into() });
    wait_for(&mut events, "server.signed_in").await;
    fixture.until("notes", Status::Connected).await;
    assert_eq!(state_of(&fixture).await, "signed_in");
    assert_eq!(audited(&fixture, "server.login").await, [("tester".to_owned(), "notes".to_owned())]);

    let fixture = fixture.again().await;
    fixture.until("notes", Status::Connected).await;

    let mut events = fixture.service.events().listen();
    assert_eq!(fixture.service.sign_out(&somebody(), "notes").await.unwrap(), None);
    wait_for(&mut events, "server.signed_out").await;
    let view = fixture.until("notes", Status::SignInRequired).await;
    assert_eq!((view.record.failure_count, provider.revocations.load(Ordering::SeqCst) > 0), (0, true));
    assert_eq!(audited(&fixture, "server.logout").await, [("tester".to_owned(), "notes".to_owned())]);
    fixture.service.sign_out(&somebody(), "notes").await.unwrap();
    assert_eq!(audited(&fixture, "server.logout").await.len(), 1, "there was nothing to sign out of");
    let key = view.record.id.to_string();
    assert_eq!(fixture.store.oauth_grant(&key).await.unwrap(), None);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_redirect_changes_nothing_and_each_works_once() {
    let (fixture, _provider, _server) = with_notes().await;
    let attempt = fixture.service.begin_sign_in(&somebody(), "notes", None).await.unwrap();
    let redirect = redirect_of(&attempt.authorization_url);
    for foreign in ["", "code=abc", "code=abc&state=guessed", "error=access_denied&state=guessed&error_description=boo"]
    {
        let done = fixture.service.finish_sign_in(foreign).await;
        let Returned::Rejected { why } = done else { panic!("{foreign}: {done:?}") };
        assert!(!why.contains("guessed") && !why.contains("boo"), "{why}");
    }
    let done = fixture.service.finish_sign_in(&format!("{redirect}&iss=https://evil.example")).await;
    assert!(matches!(done, Returned::Rejected { .. }), "{done:?}");
    assert!(audited(&fixture, "server.login").await.is_empty());
    assert_eq!(state_of(&fixture).await, "pending");
    // The true one comes after them.
    assert!(matches!(fixture.service.finish_sign_in(&redirect).await, Returned::SignedIn { .. }));
    assert_eq!(audited(&fixture, "server.login").await, [("tester".to_owned(), "notes".to_owned())]);
    assert!(matches!(fixture.service.finish_sign_in(&redirect).await, Returned::Rejected { .. }), "used");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_at_another_service_on_the_same_registry_connects_the_server() {
    let (fixture, provider, server) = with_notes().await;
    let mut events = fixture.service.events().listen();
    let grants = Arc::new(RegistryGrants::new(fixture.store.clone()));
    let elsewhere = OAuth::new(provider, grants, OAuthOptions::new("0"));
    let protected = Protected {
        key: fixture.until("notes", Status::SignInRequired).await.record.id.to_string(),
        server: ServerName::new("notes").unwrap(),
        url: server.url(),
        settings: OAuthSettings::default(),
        network: Network::Any,
    };
    let attempt = elsewhere.begin(&protected, "http://127.0.0.1:1/oauth/callback").await.unwrap();
    elsewhere.finish(&redirect_of(&attempt.authorization_url)).await.unwrap();
    wait_for(&mut events, "server.signed_in").await;
    fixture.until("notes", Status::Connected).await;
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_signs_in_to_a_program() {
    let (fixture, _provider, _server) = with_notes().await;
    let local = crate::fixture::fake("local", &[]);
    fixture.service.register(&somebody(), local).await.unwrap();
    let refused = fixture.service.begin_sign_in(&somebody(), "local", None).await.unwrap_err();
    assert_eq!(refused.code(), "SIGN_IN_NOT_SUPPORTED");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_modern_client_is_sent_to_the_sign_in_page_and_its_call_continues() {
    let (fixture, _provider, _server) = with_notes().await;
    let call = |more: Value| {
        let mut params = json!({
            "name": "notes.echo",
            "arguments": { "text": "hello" },
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "0" },
                "io.modelcontextprotocol/clientCapabilities": { "elicitation": { "url": {} } },
            },
        });
        let Value::Object(more) = more else { unreachable!() };
        params.as_object_mut().unwrap().extend(more);
        params
    };
    let asked = fixture.ask("tools/call", call(json!({}))).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let request = &asked["result"]["inputRequests"]["sign-in"];
    assert_eq!((&request["method"], &request["params"]["mode"]), (&json!("elicitation/create"), &json!("url")));
    let state = asked["result"]["requestState"].clone();
    let answers =
        |action: &str| json!({ "requestState": state, "inputResponses": { "sign-in": { "action": action } } });
    let declined = fixture.ask("tools/call", call(answers("decline"))).await;
    assert_eq!(declined["error"]["data"]["reason"], "sign_in_required", "{declined}");

    let url = request["params"]["url"].as_str().unwrap();
    let redirect = redirect_of(url);
    let (continued, done) =
        tokio::join!(fixture.ask("tools/call", call(answers("accept"))), fixture.service.finish_sign_in(&redirect));
    assert_eq!(done, Returned::SignedIn { server: "notes".into() });
    assert!(continued["result"]["content"].is_array(), "{continued}");
    assert_eq!(audited(&fixture, "server.login").await, [("mcp client".to_owned(), "notes".to_owned())]);
    fixture.end().await;
}
