//! One identity provider while the service runs: its metadata and its keys, fetched when they are needed.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use oauth::{Fetch, FetchError, HttpRequest, HttpResponse, Method, Network, Redirects, Secret, Wanted};
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::{Url, form_urlencoded};

use crate::issuer::{ClientSettings, IssuerError, IssuerSettings, Metadata};
use crate::keys::KeySet;

/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Keys are fetched for unknown key ids at most this often.
pub(crate) const UNKNOWN_KEY_INTERVAL: Duration = Duration::from_secs(60);
/// An issuer that was unreachable is not tried again before.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// An identity provider.
pub(crate) struct Provider {
    pub(crate) settings: IssuerSettings,
    fetch: Arc<dyn Fetch>,
    /// What was fetched last, if anything.
    known: RwLock<Option<Arc<Known>>>,
    /// Held while something is fetched: whoever waits for it then finds the result.
    attempts: Mutex<Attempts>,
}

/// What an issuer has published.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) metadata: Metadata,
    pub(crate) keys: KeySet,
}

#[derive(Default)]
struct Attempts {
    /// When everything was last fetched in vain, and why.
    failed: Option<(Instant, IssuerError)>,
    /// When keys were last fetched because of an unknown key id.
    for_key: Option<Instant>,
}

impl Provider {
    pub(crate) fn new(settings: IssuerSettings, fetch: Arc<dyn Fetch>) -> Self {
        Self { settings, fetch, known: RwLock::default(), attempts: Mutex::default() }
    }

    /// What is known without a request.
    pub(crate) fn known(&self) -> Option<Arc<Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the issuer has published; fetched if that has not succeeded yet.
    pub(crate) async fn published(&self) -> Result<Arc<Known>, IssuerError> {
        if let Some(known) = self.known() {
            return Ok(known);
        }
        let mut attempts = self.attempts.lock().await;
        if let Some(known) = self.known() {
            return Ok(known);
        }
        if let Some((at, error)) = &attempts.failed
            && at.elapsed() < RETRY_INTERVAL
        {
            return Err(error.clone());
        }
        match self.fetch_all().await {
            Ok(known) => Ok(self.store(known)),
            Err(error) => {
                tracing::warn!(%error, "tokens of this issuer are refused");
                attempts.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// Fetches the keys again because a token names one that is unknown, unless that was done a moment ago. Returns
    /// whether the keys are others now.
    pub(crate) async fn refetch_for_unknown_key(&self, seen: &Arc<Known>) -> bool {
        let mut attempts = self.attempts.lock().await;
        // Somebody else fetched them while this waited.
        if self.known().is_some_and(|known| !Arc::ptr_eq(&known, seen)) {
            return true;
        }
        if attempts.for_key.is_some_and(|last| last.elapsed() < UNKNOWN_KEY_INTERVAL) {
            return false;
        }
        attempts.for_key = Some(Instant::now());
        self.refetch_keys(seen).await
    }

    /// Fetches everything again, as is done from time to time. Returns whether the keys are others now.
    pub(crate) async fn refresh(&self) -> bool {
        let attempts = self.attempts.lock().await;
        let known = self.known();
        let refreshed = match &known {
            Some(known) => self.refetch_keys(known).await,
            None => false,
        };
        drop(attempts);
        if known.is_none() {
            // The error was logged.
            return self.published().await.is_ok();
        }
        refreshed
    }

    /// Keeps the old keys if there are no new ones: an issuer that is unreachable does not take back its tokens.
    async fn refetch_keys(&self, known: &Arc<Known>) -> bool {
        let Some(address) = &known.metadata.jwks_uri else { return false };
        match self.keys(address).await {
            Ok(keys) if keys == known.keys => false,
            Ok(keys) => {
                tracing::info!(issuer = self.settings.issuer, "the keys of the issuer have changed");
                self.store(Known { metadata: known.metadata.clone(), keys });
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the keys of the issuer could not be fetched again; the last ones remain in use");
                false
            }
        }
    }

    fn store(&self, known: Known) -> Arc<Known> {
        let known = Arc::new(known);
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&known));
        known
    }

    async fn fetch_all(&self) -> Result<Known, IssuerError> {
        let metadata = self.metadata().await?;
        let keys = match &metadata.jwks_uri {
            Some(address) => self.keys(address).await?,
            None => KeySet::default(),
        };
        Ok(Known { metadata, keys })
    }

    async fn metadata(&self) -> Result<Metadata, IssuerError> {
        let issuer = &self.settings.issuer;
        let url = Url::parse(issuer).map_err(|error| self.error(error.to_string(), "correct the address", false))?;
        let (mut problems, mut is_temporary) = (Vec::new(), false);
        for address in oauth::server_metadata_addresses(&url) {
            let problem = match self.get(address.as_str()).await {
                Ok(response) if response.is_success() => match Metadata::parse(&response.body, issuer) {
                    Ok(metadata) if self.can_verify(&metadata) => return Ok(metadata),
                    Ok(_) => "it has no `jwks_uri`".to_owned(),
                    Err(problem) => problem,
                },
                Ok(response) => {
                    is_temporary |= response.status >= 500 || response.status == 429;
                    format!("status {}", response.status)
                }
                Err(error) => {
                    is_temporary |= !matches!(error, FetchError::Refused(_));
                    error.to_string()
                }
            };
            problems.push(format!("{address}: {problem}"));
        }
        let hint = match is_temporary {
            true => "check that this machine can reach it",
            false => "--oauth-issuer must be the `issuer` of the provider's metadata, byte for byte",
        };
        Err(self.error(format!("it has no usable metadata ({})", problems.join("; ")), hint, is_temporary))
    }

    /// Whether tokens can be verified: by keys, or by asking.
    fn can_verify(&self, metadata: &Metadata) -> bool {
        metadata.jwks_uri.is_some() || (metadata.introspection_endpoint.is_some() && self.secret().is_some())
    }

    /// Who we are there, with a secret.
    pub(crate) fn secret(&self) -> Option<(&str, &Secret)> {
        let client = self.settings.client.as_ref()?;
        Some((client.id.as_str(), client.secret.as_ref()?))
    }

    async fn keys(&self, address: &str) -> Result<KeySet, IssuerError> {
        let failed = |problem: String, is_temporary| {
            let hint = "its metadata names this address for its keys";
            self.error(format!("no keys at {address}: {problem}"), hint, is_temporary)
        };
        let response = self.get(address).await.map_err(|error| failed(error.to_string(), true))?;
        if !response.is_success() {
            return Err(failed(format!("status {}", response.status), response.status >= 500));
        }
        let keys = KeySet::parse(&response.body).ok_or_else(|| failed("it is not a key set".to_owned(), false))?;
        match keys.is_empty() {
            true => Err(failed("there is none of a supported kind (RSA, P-256, P-384, Ed25519)".to_owned(), false)),
            false => Ok(keys),
        }
    }

    async fn get(&self, address: &str) -> Result<HttpResponse, FetchError> {
        self.fetch
            .fetch(HttpRequest {
                method: Method::Get,
                url: address.to_owned(),
                headers: vec![("accept", "application/json".into())],
                body: Bytes::new(),
                redirects: Redirects::Follow,
                network: Network::Any,
                timeout: REQUEST_TIMEOUT,
                wanted: Wanted::Whole,
            })
            .await
    }

    /// Sends a form as the configured client, authenticated by one of these methods.
    pub(crate) fn post(
        &self,
        address: &str,
        client: &ClientSettings,
        methods: &[String],
        parameters: &[(&str, &str)],
    ) -> impl Future<Output = Result<HttpResponse, FetchError>> + Send + '_ {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(parameters);
        let mut headers: Vec<(&'static str, Secret)> =
            vec![("accept", "application/json".into()), ("content-type", "application/x-www-form-urlencoded".into())];
        let has_method = |name: &str| methods.iter().any(|method| method == name);
        match &client.secret {
            Some(secret) if has_method("client_secret_post") && !has_method("client_secret_basic") => {
                form.append_pair("client_id", &client.id).append_pair("client_secret", secret.reveal());
            }
            Some(secret) => {
                // RFC 6749, 2.3.1: both are form-encoded first.
                let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                let pair = format!("{}:{}", encoded(&client.id), encoded(secret.reveal()));
                headers.push(("authorization", format!("Basic {}", STANDARD.encode(pair)).into()));
            }
            None => {
                form.append_pair("client_id", &client.id);
            }
        }
        let request = HttpRequest {
            method: Method::Post,
            url: address.to_owned(),
            headers,
            body: Bytes::from(form.finish()),
            redirects: Redirects::Return,
            network: Network::Any,
            timeout: REQUEST_TIMEOUT,
            wanted: Wanted::Whole,
        };
        self.fetch.fetch(request)
    }

    fn error(&self, problem: String, hint: &str, is_temporary: bool) -> IssuerError {
        IssuerError { issuer: self.settings.issuer.clone(), problem, hint: hint.to_owned(), is_temporary }
    }
}
