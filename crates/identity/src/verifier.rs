//! Verifies access tokens: JWTs by the keys of their issuers, all others by asking their issuers (RFC 7662).

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oauth::Fetch;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use crate::cache::{Cache, Digest};
use crate::claims::{ClaimRules, LEEWAY, Verified, check_times};
use crate::issuer::{IssuerError, IssuerSettings};
use crate::jwt::{Jwt, Shape};
use crate::provider::{Known, Provider};
use crate::rejection::Rejection;

/// How long the answer of an introspection counts: for so long, a token that was revoked may still be accepted.
const ACTIVE_SECONDS: u64 = 30;
const INACTIVE_SECONDS: u64 = 10;
/// How many introspections run at once.
const INTROSPECTIONS: usize = 16;
/// How often keys are fetched again without a reason.
const REFRESH_INTERVAL: Duration = Duration::from_secs(15 * 60);
/// The same for an issuer that could not be used yet.
const START_INTERVAL: Duration = Duration::from_secs(15);

/// Verifies the tokens of identity providers.
pub struct Verifier {
    pub(crate) providers: Vec<Provider>,
    pub(crate) rules: ClaimRules,
    cache: Cache,
    introspections: Semaphore,
}

impl Verifier {
    /// Accepts the tokens of these issuers. Requests are made by `fetch`, the first when they are needed.
    pub fn new(issuers: Vec<IssuerSettings>, rules: ClaimRules, fetch: &Arc<dyn Fetch>) -> Self {
        let providers = issuers.into_iter().map(|settings| Provider::new(settings, Arc::clone(fetch))).collect();
        Self { providers, rules, cache: Cache::default(), introspections: Semaphore::new(INTROSPECTIONS) }
    }

    /// The issuers.
    pub fn issuers(&self) -> impl Iterator<Item = &str> {
        self.providers.iter().map(|provider| provider.settings.issuer.as_str())
    }

    /// Whether roles come from scopes, so that it is of use to ask for them.
    pub fn has_role_scopes(&self) -> bool {
        self.rules.role_claim.is_none()
    }

    /// Fetches what every issuer has published. Fails if one cannot be used; one that is only unreachable is tried again
    /// when it is needed.
    pub async fn start(&self) -> Result<(), IssuerError> {
        for provider in &self.providers {
            match provider.published().await {
                Err(error) if !error.is_temporary => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// The issuers that could not be used yet.
    pub fn unusable(&self) -> Vec<&str> {
        let unusable = self.providers.iter().filter(|provider| provider.known().is_none());
        unusable.map(|provider| provider.settings.issuer.as_str()).collect()
    }

    /// Keeps the keys of all issuers fresh, forever.
    pub async fn refresh(&self) {
        loop {
            let is_complete = self.unusable().is_empty();
            tokio::time::sleep(if is_complete { REFRESH_INTERVAL } else { START_INTERVAL }).await;
            for (issuer, provider) in self.providers.iter().enumerate() {
                if (is_complete || provider.known().is_none()) && provider.refresh().await {
                    self.cache.forget(issuer);
                }
            }
        }
    }

    /// What is known of a token without a request and without its signature: it was verified before.
    pub fn recall(&self, token: &str, is_audience: impl Fn(&str) -> bool) -> Option<Result<Arc<Verified>, Rejection>> {
        let known = self.cache.find(&Digest::of(token), now())?;
        Some(known.and_then(|verified| for_audience(verified, is_audience)))
    }

    /// Verifies a token for a resource, whose audiences `is_audience` knows.
    pub async fn verify(&self, token: &str, is_audience: impl Fn(&str) -> bool) -> Result<Arc<Verified>, Rejection> {
        let digest = Digest::of(token);
        let verified = match (self.cache.find(&digest, now()), Shape::of(token)) {
            (Some(known), _) => known?,
            (None, Ok(Shape::Jwt(jwt))) => self.verify_jwt(&jwt, digest).await?,
            (None, Ok(Shape::Opaque)) => self.introspect(token, digest).await?,
            (None, Err(rejection)) => return Err(rejection),
        };
        for_audience(verified, is_audience)
    }

    async fn verify_jwt(&self, jwt: &Jwt<'_>, digest: Digest) -> Result<Arc<Verified>, Rejection> {
        let claimed = jwt.unverified_claims.get("iss").and_then(Value::as_str).ok_or(Rejection::Issuer)?;
        let is_it = |provider: &Provider| provider.settings.issuer == claimed;
        let issuer = self.providers.iter().position(is_it).ok_or(Rejection::Issuer)?;
        let provider = &self.providers[issuer];
        // An expired token is refused without effort, and causes no request.
        let verified = Verified::read(&jwt.unverified_claims, claimed, &self.rules, now())?;
        let known = provider.published().await.map_err(|_| Rejection::Unavailable)?;
        self.verify_signature(jwt, issuer, &known).await?;
        let verified = Arc::new(verified);
        self.cache.accept(digest, Arc::clone(&verified), issuer, u64::MAX, now());
        Ok(verified)
    }

    /// The claims of an ID token of an issuer, whose audience and nonce the caller checks.
    pub(crate) async fn verify_id_token<'t>(
        &self,
        jwt: &'t Jwt<'t>,
        issuer: usize,
    ) -> Result<&'t Map<String, Value>, Rejection> {
        let provider = &self.providers[issuer];
        let claims = &jwt.unverified_claims;
        if claims.get("iss").and_then(Value::as_str) != Some(&provider.settings.issuer) {
            return Err(Rejection::Issuer);
        }
        check_times(claims, now())?;
        let known = provider.published().await.map_err(|_| Rejection::Unavailable)?;
        self.verify_signature(jwt, issuer, &known).await?;
        Ok(claims)
    }

    async fn verify_signature(&self, jwt: &Jwt<'_>, issuer: usize, known: &Arc<Known>) -> Result<(), Rejection> {
        let provider = &self.providers[issuer];
        match known.keys.verify(jwt) {
            // Without a key id, a new key looks like a wrong signature.
            Err(Rejection::Key) => {}
            Err(Rejection::Signature) if jwt.key_id.is_none() => {}
            verified => return verified,
        }
        if !provider.refetch_for_unknown_key(known).await {
            return Err(Rejection::Key);
        }
        self.cache.forget(issuer);
        let known = provider.known().ok_or(Rejection::Unavailable)?;
        known.keys.verify(jwt)
    }

    /// Asks every issuer that can be asked.
    async fn introspect(&self, token: &str, digest: Digest) -> Result<Arc<Verified>, Rejection> {
        if self.providers.iter().all(|provider| provider.secret().is_none()) {
            return Err(Rejection::Unknown);
        }
        let _turn = self.introspections.acquire().await.map_err(|_| Rejection::Unavailable)?;
        // Another request with the same token may have had the turn before.
        if let Some(known) = self.cache.find(&digest, now()) {
            return known;
        }
        let mut rejection = Rejection::Unknown;
        for (issuer, provider) in self.providers.iter().enumerate() {
            let answer = match self.ask(provider, token).await {
                Ok(Some(answer)) => answer,
                Ok(None) => continue,
                Err(error) => {
                    rejection = error;
                    continue;
                }
            };
            match self.read_introspection(&answer, &provider.settings.issuer) {
                Ok(verified) => {
                    let verified = Arc::new(verified);
                    let until = now() + ACTIVE_SECONDS;
                    self.cache.accept(digest, Arc::clone(&verified), issuer, until, now());
                    return Ok(verified);
                }
                // An issuer that is unreachable may be the one that knows it.
                Err(error) if rejection != Rejection::Unavailable => rejection = error,
                Err(_) => {}
            }
        }
        if rejection != Rejection::Unavailable {
            self.cache.reject(digest, rejection, now() + INACTIVE_SECONDS, now());
        }
        Err(rejection)
    }

    /// The answer of an issuer; `None` if it cannot be asked.
    async fn ask(&self, provider: &Provider, token: &str) -> Result<Option<Map<String, Value>>, Rejection> {
        let Some(client) = provider.settings.client.as_ref().filter(|client| client.secret.is_some()) else {
            return Ok(None);
        };
        let known = provider.published().await.map_err(|_| Rejection::Unavailable)?;
        let Some(address) = &known.metadata.introspection_endpoint else { return Ok(None) };
        let parameters = [("token", token), ("token_type_hint", "access_token")];
        let methods = &known.metadata.introspection_auth_methods;
        let answered = provider.post(address, client, methods, &parameters).await;
        let problem = match answered {
            Ok(response) if response.is_success() => match serde_json::from_slice(&response.body) {
                Ok(answer) => return Ok(Some(answer)),
                Err(_) => "the answer is not a JSON object".to_owned(),
            },
            Ok(response) => format!("status {}", response.status),
            Err(error) => error.to_string(),
        };
        tracing::warn!(issuer = provider.settings.issuer, problem, "could not ask the issuer about a token");
        Err(Rejection::Unavailable)
    }

    fn read_introspection(&self, answer: &Map<String, Value>, issuer: &str) -> Result<Verified, Rejection> {
        if answer.get("active") != Some(&Value::Bool(true)) {
            return Err(Rejection::Inactive);
        }
        if answer.get("iss").is_some_and(|other| other != issuer) {
            return Err(Rejection::Issuer);
        }
        let now = now();
        if answer.contains_key("exp") {
            return Verified::read(answer, issuer, &self.rules, now);
        }
        // It lives as long as the issuer says so when it is asked again.
        let mut answer = answer.clone();
        answer.insert("exp".to_owned(), Value::from(now + ACTIVE_SECONDS + LEEWAY));
        Verified::read(&answer, issuer, &self.rules, now)
    }
}

fn for_audience(verified: Arc<Verified>, is_audience: impl Fn(&str) -> bool) -> Result<Arc<Verified>, Rejection> {
    if verified.is_for(is_audience) { Ok(verified) } else { Err(Rejection::Audience) }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").field("issuers", &self.issuers().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}
