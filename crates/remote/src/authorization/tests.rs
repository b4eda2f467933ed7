//! A token on every request, one refresh for all that were refused, and nothing of it anywhere else.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use catalog::{Remote, Secrets, ServerName, ServerSpec, TokenEndpointAuthMethod, Transport};
use hyper::{Method, Uri};
use oauth::{
    AuthorizationServer, ClientIdentity, ClientSource, Grant, GrantStore, MemoryStore, OAuth, OAuthOptions, Protected,
    Tokens,
};
use upstream::RemoteFailure;

use super::*;
use crate::HttpFetch;
use crate::http::{Http, OutgoingRequest};
use crate::test_server::{Reply, Seen, TestServer};

mod connection;

const KEY: &str = "key";

/// A server that accepts one token, and is its own authorization server.
struct Signed {
    server: TestServer,
    store: Arc<MemoryStore>,
    oauth: Arc<OAuth>,
    /// The number of the token that is accepted.
    accepted: Arc<AtomicUsize>,
}

impl Signed {
    /// `answer` gets the requests with an accepted token. `refresh` is what the token endpoint answers; otherwise it
    /// issues the accepted token.
    async fn start(refresh: Option<Reply>, answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let accepted = Arc::new(AtomicUsize::new(1));
        let number = Arc::clone(&accepted);
        let server = TestServer::start(move |seen| {
            let token = format!("token-{}-secret", number.load(Ordering::SeqCst));
            match (seen.path.as_str(), &refresh) {
                ("/token", Some(refresh)) => refresh.clone(),
                ("/token", None) => Reply::json(format!(
                    r#"{{"access_token":"{token}","token_type":"bearer","expires_in":3600,"refresh_token":"next"}}"#
                )),
                (path, _) if path.starts_with("/.well-known/") => metadata(seen),
                _ if seen.header("authorization") != Some(&format!("Bearer {token}")) => Reply::status(401).with(
                    "www-authenticate",
                    &format!(r#"Bearer error="invalid_token", saw="{:?}""#, seen.header("authorization")),
                ),
                _ => answer(seen),
            }
        })
        .await;
        let store = Arc::new(MemoryStore::default());
        let options = OAuthOptions { login_arguments: "--config mcp.json".to_owned(), ..OAuthOptions::new("0") };
        let oauth = OAuth::new(Arc::new(HttpFetch), Arc::clone(&store) as _, options);
        Self { server, store, oauth, accepted }
    }

    /// The same, and somebody has signed in.
    async fn signed_in(self) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let grant = Grant {
            server_url: self.server.url("/mcp"),
            authorization_server: AuthorizationServer {
                issuer: self.server.origin.clone(),
                token_endpoint: self.server.url("/token"),
                revocation_endpoint: None,
            },
            client: ClientIdentity {
                id: "client".into(),
                secret: None,
                secret_expires_at: None,
                auth_method: TokenEndpointAuthMethod::None,
                source: ClientSource::Registered,
                redirect_uri: None,
            },
            resource: None,
            requested_scopes: vec!["read".into()],
            missing_scopes: Vec::new(),
            tokens: Tokens {
                access_token: "token-1-secret".into(),
                refresh_token: Some("first".into()),
                issued_at: now,
                lifetime: Some(3600),
                scopes: vec!["read".into()],
            },
            refresh: None,
            sign_in_required: None,
        };
        self.store.replace(KEY, None, Some(grant)).await.unwrap();
        self
    }

    /// The server no longer accepts its token, but a new one.
    fn expire(&self) {
        self.accepted.fetch_add(1, Ordering::SeqCst);
    }

    fn spec(&self, path: &str) -> ServerSpec {
        ServerSpec {
            name: ServerName::new("notes").unwrap(),
            transport: Transport::Remote(Remote::at(&self.server.url(path), Vec::new())),
            lifecycle: None,
            timeout: None,
            start_timeout: None,
            sharing: catalog::Sharing::default(),
            secrets: Secrets::default(),
            grant_key: Some(KEY.to_owned()),
        }
    }

    async fn http(&self) -> Http {
        let spec = self.spec("/mcp");
        let source = self.oauth.source(Protected::of(&spec).unwrap());
        source.prepare().await;
        let Transport::Remote(remote) = &spec.transport else { unreachable!() };
        Http::new(remote).unwrap().authorized(Some(Authorization::new(source)))
    }
}

fn metadata(seen: &Seen) -> Reply {
    let origin = format!("http://{}", seen.header("host").unwrap());
    if seen.path.starts_with("/.well-known/oauth-protected-resource") {
        let resource = format!(r#"{{"resource":"{origin}","authorization_servers":["{origin}"]}}"#);
        return Reply::json(resource);
    }
    Reply::json(format!(
        r#"{{"issuer":"{origin}","authorization_endpoint":"{origin}/authorize","token_endpoint":"{origin}/token",
            "response_types_supported":["code"],"code_challenge_methods_supported":["S256"]}}"#
    ))
}

async fn send(http: &Http, method: Method) -> Result<Response<Body>, RequestError> {
    send_to(http, method, &http.url).await
}

async fn send_to(http: &Http, method: Method, url: &Uri) -> Result<Response<Body>, RequestError> {
    let (headers, body) = (http.post_headers(), Bytes::from_static(b"{\"the\":\"body\"}"));
    http.send(OutgoingRequest { method, url, headers: &headers, own_headers: &[], body }).await
}

#[tokio::test]
async fn every_request_carries_the_token_and_only_a_static_header_wins() {
    let signed = Signed::start(None, |_| Reply::json("{}")).await.signed_in().await;
    let http = signed.http().await;
    for method in [Method::POST, Method::GET, Method::DELETE] {
        assert_eq!(send(&http, method).await.unwrap().status(), 200);
    }
    assert!(signed.server.seen().iter().all(|seen| seen.header("authorization") == Some("Bearer token-1-secret")));
    let remote = Remote::at(&signed.server.url("/mcp"), vec![("Authorization".into(), "Basic x".into())]);
    assert_eq!(Protected::of(&ServerSpec { transport: Transport::Remote(remote), ..signed.spec("/mcp") }), None);
}

#[tokio::test]
async fn a_refused_token_is_renewed_and_the_same_request_sent_once_more() {
    let signed = Signed::start(None, |_| Reply::json("{}")).await.signed_in().await;
    let http = signed.http().await;
    signed.expire();
    assert_eq!(send(&http, Method::POST).await.unwrap().status(), 200);
    let seen = signed.server.seen();
    let lines: Vec<_> = seen.iter().map(Seen::line).collect();
    assert_eq!(lines, ["POST /mcp", "POST /token", "POST /mcp"]);
    assert!(seen[1].body.contains("refresh_token=first"), "{seen:?}");
    assert_eq!(seen[2].header("authorization"), Some("Bearer token-2-secret"));
    assert_eq!(seen[0].body, seen[2].body);
    assert_eq!(send(&http, Method::POST).await.unwrap().status(), 200);
    assert_eq!(signed.server.count("POST /token"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_refused_requests_share_one_refresh() {
    let signed = Signed::start(None, |_| Reply::json("{}")).await.signed_in().await;
    let http = signed.http().await;
    signed.expire();
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let http = http.clone();
            tokio::spawn(async move { send(&http, Method::POST).await.unwrap().status() })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.unwrap(), 200);
    }
    assert_eq!(signed.server.count("POST /token"), 1);
}

#[tokio::test]
async fn a_token_that_is_refused_right_away_requires_a_sign_in_without_another_refresh() {
    let refresh =
        Reply::json(r#"{"access_token":"wrong-secret","token_type":"Bearer","expires_in":3600,"refresh_token":"r"}"#);
    let signed = Signed::start(Some(refresh), |_| Reply::json("{}")).await.signed_in().await;
    let http = signed.http().await;
    signed.expire();
    for _ in 0..2 {
        let error = send(&http, Method::POST).await.unwrap_err();
        assert_eq!(error.failure(), RemoteFailure::SignInRequired, "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    assert_eq!(signed.server.count("POST /token"), 1);
}

#[tokio::test]
async fn more_scopes_are_asked_for_at_the_next_sign_in_and_only_that_request_fails() {
    let signed = Signed::start(None, |seen| match seen.method.as_str() {
        "PUT" => Reply::status(403).with("www-authenticate", r#"Bearer error="insufficient_scope", scope="write""#),
        "PATCH" => Reply::status(403).saying("no"),
        _ => Reply::json("{}"),
    })
    .await
    .signed_in()
    .await;
    let http = signed.http().await;
    let error = send(&http, Method::PUT).await.unwrap_err();
    assert_eq!(error.failure(), RemoteFailure::SignInRequired, "{error}");
    assert!(error.to_string().contains("write"), "{error}");
    assert_eq!(error.login_command().as_deref(), Some("mcp-aggregator login notes --config mcp.json"));
    let (_, grant) = signed.store.load(KEY).await.unwrap().unwrap();
    assert_eq!(grant.missing_scopes, ["write"]);
    assert_eq!(send(&http, Method::POST).await.unwrap().status(), 200);
    // A 403 about something else is a refusal as ever.
    let error = send(&http, Method::PATCH).await.unwrap_err();
    assert!(matches!(error, RequestError::Unauthorized { status: StatusCode::FORBIDDEN, .. }), "{error}");
}

#[tokio::test]
async fn a_sign_in_of_another_process_with_more_scopes_is_taken_up() {
    let accepted = Arc::<OnceLock<Arc<AtomicUsize>>>::default();
    let number = Arc::clone(&accepted);
    let signed = Signed::start(None, move |seen| {
        if seen.header("authorization") == Some("Bearer token-2-secret") {
            return Reply::json("{}");
        }
        number.get().unwrap().store(2, Ordering::SeqCst);
        Reply::status(403).with("www-authenticate", r#"Bearer error="insufficient_scope", scope="write""#)
    })
    .await
    .signed_in()
    .await;
    accepted.set(Arc::clone(&signed.accepted)).unwrap();
    let http = signed.http().await;
    let (version, mut grant) = signed.store.load(KEY).await.unwrap().unwrap();
    grant.tokens.access_token = "token-2-secret".into();
    signed.store.replace(KEY, Some(version), Some(grant)).await.unwrap();
    assert_eq!(send(&http, Method::POST).await.unwrap().status(), 200);
    let tokens: Vec<_> =
        signed.server.seen().iter().map(|seen| seen.header("authorization").map(str::to_owned)).collect();
    assert_eq!(tokens, [Some("Bearer token-1-secret".to_owned()), Some("Bearer token-2-secret".to_owned())]);
}

#[tokio::test]
async fn a_provider_that_cannot_answer_now_signs_nobody_out() {
    let signed = Signed::start(Some(Reply::status(503)), |_| Reply::json("{}")).await.signed_in().await;
    let http = signed.http().await;
    signed.expire();
    let error = send(&http, Method::POST).await.unwrap_err();
    assert!(matches!(error, RequestError::TokenUnavailable(_)), "{error}");
    assert_eq!(error.failure(), RemoteFailure::Unreachable);
    let (_, grant) = signed.store.load(KEY).await.unwrap().unwrap();
    assert_eq!((grant.sign_in_required, grant.refresh), (None, None));
}

#[tokio::test]
async fn the_end_of_a_session_is_not_worth_a_refresh() {
    let signed = Signed::start(None, |_| Reply::json("{}")).await.signed_in().await;
    let http = signed.http().await;
    signed.expire();
    assert!(matches!(send(&http, Method::DELETE).await, Err(RequestError::Unauthorized { .. })));
    assert_eq!(signed.server.count("POST /token"), 0);
}

#[tokio::test]
async fn a_redirect_takes_the_token_to_no_other_origin() {
    let other = TestServer::start(|_| Reply::json("{}")).await;
    let elsewhere = other.url("/mcp");
    let signed = Signed::start(None, move |seen| match seen.path.as_str() {
        "/away" => Reply::redirect(307, &elsewhere),
        "/mcp" => Reply::redirect(307, "/here"),
        _ => Reply::json("{}"),
    })
    .await
    .signed_in()
    .await;
    let http = signed.http().await;
    assert_eq!(send(&http, Method::POST).await.unwrap().status(), 200);
    assert_eq!(signed.server.seen().last().unwrap().header("authorization"), Some("Bearer token-1-secret"));
    let away: Uri = signed.server.url("/away").parse().unwrap();
    assert!(matches!(send_to(&http, Method::POST, &away).await, Err(RequestError::RedirectedAway(_))));
    assert!(other.seen().is_empty());
}

#[tokio::test]
async fn a_server_that_repeats_the_token_does_not_get_it_shown() {
    let signed = Signed::start(None, |seen| match seen.method.as_str() {
        "PUT" => Reply::status(403).with("www-authenticate", seen.header("authorization").unwrap()),
        _ => Reply::status(500).saying(seen.header("authorization").unwrap()),
    })
    .await
    .signed_in()
    .await;
    let http = signed.http().await;
    let error = send(&http, Method::PUT).await.unwrap_err().to_string();
    assert!(error.contains("***") && !error.contains("secret"), "{error}");
    let response = send(&http, Method::POST).await.unwrap();
    let error = crate::refusal::Refusal::read(response).await.unwrap().into_error().to_string();
    assert!(error.contains("500") && error.contains("***") && !error.contains("secret"), "{error}");
}

#[tokio::test]
async fn a_server_that_offers_no_sign_in_refuses_as_ever() {
    let server = TestServer::start(|seen| Reply::status(if seen.path == "/mcp" { 401 } else { 404 })).await;
    let signed = Signed { server, ..Signed::start(None, |_| Reply::Close).await };
    let error = send(&signed.http().await, Method::POST).await.unwrap_err();
    assert!(matches!(error, RequestError::Unauthorized { .. }), "{error}");
}
