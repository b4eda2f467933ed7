//! A server and its authorization server in memory. By default they do everything right; a test overrides answers.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use catalog::{OAuthSettings, ServerName};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::timeout;
use url::form_urlencoded;

use crate::{
    Attempt, CallbackError, Fetch, FetchError, Grant, GrantStore, HttpRequest, HttpResponse, MemoryStore, Method,
    Network, OAuth, OAuthOptions, Protected, Redirects, Replaced, SignedIn, StoreError, StoreFuture, TokenError,
    TokenSource, Version,
};

pub(super) const SERVER: &str = "https://mcp.example/a/mcp";
pub(super) const ISSUER: &str = "https://as.example/t";
pub(super) const RESOURCE_METADATA: &str = "GET https://mcp.example/.well-known/oauth-protected-resource/a/mcp";
pub(super) const TOKEN: &str = "POST https://as.example/token";
pub(super) const REDIRECT: &str = "http://127.0.0.1:4711/callback";

type Answer = Result<HttpResponse, FetchError>;

/// The provider, and what it was asked.
#[derive(Debug, Default)]
pub(super) struct Provider {
    script: Mutex<Script>,
    /// Token requests wait for this, if they are told to.
    pub(super) go_on: Notify,
}

#[derive(Default)]
struct Script {
    /// By `METHOD url`: what is answered instead, the last one for ever.
    answers: HashMap<String, VecDeque<Answer>>,
    /// Members that replace those of the metadata of the authorization server; null removes one.
    metadata: HashMap<String, Value>,
    requests: Vec<ReceivedRequest>,
    issued: u64,
    is_slow: bool,
}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Script")
    }
}

/// A request that the provider got.
#[derive(Debug, Clone)]
pub(super) struct ReceivedRequest {
    pub(super) line: String,
    pub(super) headers: HashMap<&'static str, String>,
    pub(super) body: String,
    pub(super) network: Network,
    pub(super) redirects: Redirects,
}

impl ReceivedRequest {
    /// A form parameter.
    pub(super) fn form(&self, name: &str) -> Option<String> {
        form_urlencoded::parse(self.body.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

pub(super) fn answer(status: u16, body: impl Into<String>) -> HttpResponse {
    HttpResponse { status, content_type: String::new(), www_authenticate: Vec::new(), body: body.into().into() }
}

/// The metadata of another authorization server with the endpoints of this one.
pub(super) fn metadata_of(issuer: &str) -> String {
    json!({
        "issuer": issuer,
        "authorization_endpoint": "https://as.example/authorize",
        "token_endpoint": "https://as.example/token",
        "registration_endpoint": "https://as.example/register",
        "code_challenge_methods_supported": ["S256"],
    })
    .to_string()
}

pub(super) fn challenge(header: &str) -> HttpResponse {
    HttpResponse { www_authenticate: vec![header.to_owned()], ..answer(401, "") }
}

impl Provider {
    /// Answers so from now on.
    pub(super) fn always(&self, line: &str, answer: Answer) {
        self.script.lock().unwrap().answers.insert(line.to_owned(), VecDeque::from([answer]));
    }

    /// Answers so once, and then as before.
    pub(super) fn once(&self, line: &str, answer: Answer) {
        let mut script = self.script.lock().unwrap();
        let normal = script.default(line);
        let answers = script.answers.entry(line.to_owned()).or_insert_with(|| VecDeque::from([normal]));
        answers.push_front(answer);
    }

    /// Replaces a member of the metadata of the authorization server.
    pub(super) fn metadata(&self, key: &str, value: Value) {
        self.script.lock().unwrap().metadata.insert(key.to_owned(), value);
    }

    /// Token requests wait until they are told to go on.
    pub(super) fn slow_down(&self) {
        self.script.lock().unwrap().is_slow = true;
    }

    pub(super) fn requests_to(&self, line: &str) -> Vec<ReceivedRequest> {
        self.script.lock().unwrap().requests.iter().filter(|request| request.line == line).cloned().collect()
    }

    /// The server now names the authorization server `https://evil.example`.
    pub(super) fn name_another_issuer(&self) {
        let document = json!({"resource": SERVER, "authorization_servers": ["https://evil.example"]});
        self.always(RESOURCE_METADATA, Ok(answer(200, document.to_string())));
        let metadata = metadata_of("https://evil.example").replace("as.example/token", "evil.example/token");
        self.always("GET https://evil.example/.well-known/oauth-authorization-server", Ok(answer(200, metadata)));
        self.always("POST https://evil.example/token", Ok(answer(200, r#"{"access_token":"evil"}"#)));
    }

    pub(super) fn all_asked(&self) -> Vec<ReceivedRequest> {
        self.script.lock().unwrap().requests.clone()
    }

    pub(super) fn token_requests(&self) -> Vec<ReceivedRequest> {
        self.requests_to("POST https://as.example/token")
    }
}

impl Script {
    fn default(&mut self, line: &str) -> Answer {
        let body = match line {
            "POST https://mcp.example/a/mcp" => return Ok(challenge("Bearer scope=\"read\"")),
            RESOURCE_METADATA => {
                json!({"resource": SERVER, "authorization_servers": [ISSUER], "scopes_supported": ["all"]})
            }
            "GET https://as.example/.well-known/oauth-authorization-server/t" => self.server_metadata(),
            "POST https://as.example/register" => {
                self.issued += 1;
                json!({"client_id": format!("client-{}", self.issued)})
            }
            "POST https://as.example/token" => {
                self.issued += 1;
                json!({
                    "access_token": format!("access-{}-secret", self.issued),
                    "refresh_token": format!("refresh-{}-secret", self.issued),
                    "token_type": "Bearer",
                    "expires_in": 3600,
                })
            }
            "POST https://as.example/revoke" => json!({}),
            _ => return Ok(answer(404, "<html>nothing here</html>")),
        };
        Ok(answer(200, body.to_string()))
    }

    fn server_metadata(&self) -> Value {
        let mut metadata = json!({
            "issuer": ISSUER,
            "authorization_endpoint": "https://as.example/authorize?tenant=t",
            "token_endpoint": "https://as.example/token",
            "registration_endpoint": "https://as.example/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
        });
        for (key, value) in &self.metadata {
            match value {
                Value::Null => drop(metadata.as_object_mut().unwrap().remove(key)),
                value => metadata[key] = value.clone(),
            }
        }
        metadata
    }
}

impl Fetch for Provider {
    fn fetch(&self, request: HttpRequest) -> Pin<Box<dyn Future<Output = Answer> + Send + '_>> {
        Box::pin(async move {
            let method = if request.method == Method::Get { "GET" } else { "POST" };
            let line = format!("{method} {}", request.url);
            let received = ReceivedRequest {
                line: line.clone(),
                headers: request.headers.iter().map(|(name, value)| (*name, value.reveal().to_owned())).collect(),
                body: String::from_utf8(request.body.to_vec()).unwrap(),
                network: request.network,
                redirects: request.redirects,
            };
            let is_slow = {
                let mut script = self.script.lock().unwrap();
                script.requests.push(received);
                script.is_slow && line.ends_with("/token")
            };
            if is_slow && timeout(request.timeout, self.go_on.notified()).await.is_err() {
                return Err(FetchError::Lost("it did not answer in time".to_owned()));
            }
            let mut script = self.script.lock().unwrap();
            match script.answers.get_mut(&line) {
                Some(answers) if answers.len() > 1 => answers.pop_front().unwrap(),
                Some(answers) => answers[0].clone(),
                None => script.default(&line),
            }
        })
    }
}

/// A store that several processes share, and that can fail.
#[derive(Debug, Default)]
pub(super) struct SharedStore {
    memory: MemoryStore,
    pub(super) is_broken: AtomicBool,
    /// It reports an error once, although it stores what it is given.
    pub(super) loses_an_answer: AtomicBool,
}

impl GrantStore for SharedStore {
    fn load<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Option<(Version, Grant)>> {
        self.memory.load(key)
    }

    fn replace<'a>(
        &'a self,
        key: &'a str,
        expected: Option<Version>,
        grant: Option<Grant>,
    ) -> StoreFuture<'a, Replaced> {
        if self.is_broken.load(Ordering::Relaxed) {
            return Box::pin(std::future::ready(Err(StoreError("the disk is full".to_owned()))));
        }
        let replaced = self.memory.replace(key, expected, grant);
        if self.loses_an_answer.swap(false, Ordering::Relaxed) {
            return Box::pin(std::future::ready(Err(StoreError("the connection broke".to_owned()))));
        }
        replaced
    }
}

/// A process that signs in.
pub(super) struct Process {
    pub(super) provider: Arc<Provider>,
    pub(super) store: Arc<SharedStore>,
    pub(super) oauth: Arc<OAuth>,
    pub(super) protected: Protected,
}

impl Process {
    pub(super) fn new() -> Self {
        Self::with(Arc::default(), Arc::default(), OAuthSettings::default())
    }

    pub(super) fn with_settings(settings: OAuthSettings) -> Self {
        Self::with(Arc::default(), Arc::default(), settings)
    }

    pub(super) fn with(provider: Arc<Provider>, store: Arc<SharedStore>, settings: OAuthSettings) -> Self {
        let options = OAuthOptions::new("1");
        let oauth = OAuth::new(Arc::clone(&provider) as _, Arc::clone(&store) as _, options);
        let protected = Protected {
            key: "key".into(),
            server: ServerName::new("docs").unwrap(),
            url: SERVER.into(),
            settings,
            network: crate::Network::Any,
        };
        Self { provider, store, oauth, protected }
    }

    pub(super) async fn begin(&self) -> Attempt {
        self.oauth.begin(&self.protected, REDIRECT).await.unwrap()
    }

    /// Begins, and lets the authorization server redirect back with a code.
    pub(super) async fn sign_in(&self) -> Result<SignedIn, CallbackError> {
        let attempt = self.begin().await;
        let state = parameter(&attempt.authorization_url, "state").unwrap();
        self.oauth.finish(&format!("code=code-secret&state={state}")).await
    }

    pub(super) async fn grant(&self) -> crate::Grant {
        self.store.load("key").await.unwrap().unwrap().1
    }
}

/// The header of HTTP basic authentication, for texts without special characters.
pub(super) fn basic(id: &str, secret: &str) -> String {
    let pair = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!("{id}:{secret}"));
    format!("Basic {pair}")
}

/// A query parameter of an address.
pub(super) fn parameter(url: &str, name: &str) -> Option<String> {
    let url = url::Url::parse(url).unwrap();
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// A process that is signed in, and its source.
pub(super) async fn signed_in() -> (Process, Arc<TokenSource>) {
    let process = Process::new();
    process.sign_in().await.unwrap();
    let source = process.oauth.source(process.protected.clone());
    source.prepare().await;
    (process, source)
}

/// Changes the stored grant.
pub(super) async fn change(process: &Process, change: impl FnOnce(&mut Grant)) {
    let (version, mut grant) = process.store.load("key").await.unwrap().unwrap();
    change(&mut grant);
    process.store.replace("key", Some(version), Some(grant)).await.unwrap();
}

pub(super) fn sign_in_required(error: &TokenError) -> &str {
    match error {
        TokenError::SignInRequired { why } => why,
        other => panic!("{other:?}"),
    }
}
