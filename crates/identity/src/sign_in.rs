//! Signs people in to the console: the authorization code flow of OpenID Connect with PKCE, and the renewal afterwards.
//!
//! Who signed in is whom the access token names, as in any other request; the ID token proves that it was issued for this
//! very sign-in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use catalog::{Principal, Role};
use oauth::{HttpResponse, Secret};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::{Map, Value};
use tokio::time::Instant;
use url::{Url, form_urlencoded};

use crate::claims::{Verified, scope_of};
use crate::issuer::{ClientSettings, IssuerError};
use crate::jwt::Shape;
use crate::provider::Provider;
use crate::verifier::Verifier;

/// How long a person may take to sign in.
const ATTEMPT_LIFETIME: Duration = Duration::from_secs(600);
/// How many sign-ins may be pending.
const MAX_ATTEMPTS: usize = 1000;
/// After this time a person signs in again, whatever the provider says.
const MAX_SIGNED_IN: Duration = Duration::from_secs(12 * 3600);
/// A token is renewed when it is valid for no longer than this.
const RENEWED_BEFORE: Duration = Duration::from_secs(60);
const RENEWAL_INTERVAL: Duration = Duration::from_secs(5);

/// The sign-ins to the console.
pub struct SignIns {
    verifier: Arc<Verifier>,
    /// What tokens are for.
    resource: String,
    redirect_uri: String,
    attempts: Mutex<HashMap<String, Attempt>>,
    people: Mutex<Vec<Weak<Person>>>,
}

/// A sign-in that was begun.
#[derive(Clone)]
struct Attempt {
    issuer: usize,
    nonce: String,
    code_verifier: Secret,
    /// Where the person wanted to go.
    next: String,
    begun: Instant,
}

/// What a browser needs to sign in.
#[derive(Debug)]
pub struct Begun {
    /// The page of the provider.
    pub url: String,
    /// What identifies the attempt, which the same browser must bring back.
    pub state: String,
}

/// A person that signed in.
pub struct Person {
    issuer: usize,
    subject: Arc<str>,
    since: Instant,
    state: Mutex<State>,
}

struct State {
    verified: Arc<Verified>,
    refresh_token: Option<Secret>,
    has_ended: bool,
}

/// Why nobody was signed in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignInError {
    /// There is no such attempt, or no longer.
    #[error("this sign-in is not pending: it was completed, has expired, or was begun in another browser")]
    NotPending,
    /// The response is not from the provider.
    #[error("the response does not come from the identity provider that was asked")]
    WrongIssuer,
    /// The provider refused, or the person did.
    #[error("the identity provider refused the sign-in: {0}")]
    Refused(String),
    /// The provider cannot be used.
    #[error("{0}")]
    Issuer(IssuerError),
    /// Its response is not what it must be.
    #[error("the sign-in failed: {0}")]
    Failed(String),
}

/// The tokens in a response.
struct Tokens {
    access: String,
    id: Option<String>,
    refresh: Option<Secret>,
}

impl SignIns {
    /// Sign-ins at every issuer at which this service is a client; `None` if there is none. Browsers come back to
    /// `redirect_uri`.
    pub fn new(verifier: &Arc<Verifier>, public_url: &str, redirect_uri: String) -> Option<Self> {
        let has_client = verifier.providers.iter().any(|provider| provider.settings.client.is_some());
        has_client.then(|| Self {
            verifier: Arc::clone(verifier),
            resource: public_url.to_owned(),
            redirect_uri,
            attempts: Mutex::default(),
            people: Mutex::default(),
        })
    }

    /// The issuers at which a person may sign in.
    pub fn issuers(&self) -> Vec<&str> {
        let providers = self.verifier.providers.iter().filter(|provider| provider.settings.client.is_some());
        providers.map(|provider| provider.settings.issuer.as_str()).collect()
    }

    /// Begins a sign-in at an issuer.
    pub async fn begin(&self, issuer: &str, next: &str) -> Result<Begun, SignInError> {
        let is_it = |provider: &Provider| provider.settings.issuer == issuer;
        let number = self.verifier.providers.iter().position(is_it).ok_or(SignInError::NotPending)?;
        let (provider, client) = self.client(number)?;
        let known = provider.published().await.map_err(SignInError::Issuer)?;
        let endpoint = known.metadata.authorization_endpoint.as_deref();
        let endpoint = endpoint.ok_or_else(|| failed("the issuer has no `authorization_endpoint`"))?;
        let mut url = Url::parse(endpoint).map_err(|error| failed(error.to_string()))?;
        let (state, nonce, code_verifier) = (random(), random(), random());
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, code_verifier.as_bytes()));
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &client.id)
            .append_pair("redirect_uri", &self.redirect_uri)
            .append_pair("scope", &self.scopes(&known.metadata.scopes_supported))
            .append_pair("state", &state)
            .append_pair("nonce", &nonce)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256")
            .append_pair("resource", &self.resource);
        let attempt = Attempt {
            issuer: number,
            nonce,
            code_verifier: code_verifier.into(),
            next: next.to_owned(),
            begun: Instant::now(),
        };
        self.remember(state.clone(), attempt);
        Ok(Begun { url: url.into(), state })
    }

    /// Completes the sign-in that the query of a redirect belongs to. Returns who signed in, and where to go on.
    pub async fn finish(&self, query: &str) -> Result<(Arc<Person>, String), SignInError> {
        let parameters: HashMap<_, _> = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let state = parameters.get("state").ok_or(SignInError::NotPending)?;
        let attempt = self.attempt(state).ok_or(SignInError::NotPending)?;
        let (provider, client) = self.client(attempt.issuer)?;
        let known = provider.published().await.map_err(SignInError::Issuer)?;
        // Nothing of a response counts that may come from somebody else.
        match parameters.get("iss") {
            Some(issuer) if *issuer != provider.settings.issuer => return Err(SignInError::WrongIssuer),
            None if known.metadata.has_iss_parameter => return Err(SignInError::WrongIssuer),
            _ => {}
        }
        self.attempts().remove(state).ok_or(SignInError::NotPending)?;
        if let Some(error) = parameters.get("error") {
            let about = parameters.get("error_description").unwrap_or(error);
            return Err(SignInError::Refused(about.chars().filter(|it| !it.is_control()).take(200).collect()));
        }
        let code = parameters.get("code").ok_or_else(|| failed("the response has no code"))?;
        let request = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &self.redirect_uri),
            ("code_verifier", attempt.code_verifier.reveal()),
            ("resource", &self.resource),
        ];
        let tokens = self.tokens(provider, client, &request).await?;
        let subject = self.read_id_token(&tokens, &attempt, client).await?;
        let verified = self.read_access_token(&tokens, attempt.issuer, &subject).await?;
        let state = Mutex::new(State { verified, refresh_token: tokens.refresh, has_ended: false });
        let person = Arc::new(Person { issuer: attempt.issuer, subject: subject.into(), since: Instant::now(), state });
        self.people().push(Arc::downgrade(&person));
        Ok((person, attempt.next))
    }

    /// Renews the tokens of everybody who is signed in, forever.
    pub async fn renew(&self) {
        loop {
            tokio::time::sleep(RENEWAL_INTERVAL).await;
            let people: Vec<Arc<Person>> = {
                let mut people = self.people();
                people.retain(|person| person.strong_count() > 0);
                people.iter().filter_map(Weak::upgrade).collect()
            };
            for person in people {
                self.renew_one(&person).await;
            }
        }
    }

    async fn renew_one(&self, person: &Person) {
        let Some(refresh_token) = person.due() else { return };
        let Ok((provider, client)) = self.client(person.issuer) else { return };
        let request = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh_token.reveal()),
            ("resource", self.resource.as_str()),
        ];
        let renewed = match self.tokens(provider, client, &request).await {
            Ok(tokens) => {
                let verified = self.read_access_token(&tokens, person.issuer, &person.subject).await;
                verified.map(|verified| (verified, tokens.refresh))
            }
            Err(error) => Err(error),
        };
        match renewed {
            Ok((verified, refresh)) => person.renewed(verified, refresh),
            Err(SignInError::Refused(why)) => {
                tracing::info!(person = %person.subject, why, "the identity provider ended a sign-in to the console");
                person.end();
            }
            // It is tried again until the token expires.
            Err(error) => tracing::warn!(%error, "could not renew a sign-in to the console"),
        }
    }

    fn client(&self, issuer: usize) -> Result<(&Provider, &ClientSettings), SignInError> {
        let provider = self.verifier.providers.get(issuer).ok_or(SignInError::NotPending)?;
        Ok((provider, provider.settings.client.as_ref().ok_or(SignInError::NotPending)?))
    }

    /// A provider refuses scopes that it does not know, so only those are asked for that it lists, if it lists any.
    fn scopes(&self, supported: &[String]) -> String {
        let roles = Role::ALL.iter().map(|role| scope_of(*role)).filter(|_| self.verifier.has_role_scopes());
        let wanted = ["openid", "profile"].map(str::to_owned).into_iter().chain(roles);
        let is_known = |scope: &String| supported.is_empty() || supported.contains(scope);
        wanted.filter(is_known).collect::<Vec<_>>().join(" ")
    }

    /// Sends a request to the token endpoint. [`SignInError::Refused`] if it never will be answered otherwise.
    async fn tokens(
        &self,
        provider: &Provider,
        client: &ClientSettings,
        parameters: &[(&str, &str)],
    ) -> Result<Tokens, SignInError> {
        let known = provider.published().await.map_err(SignInError::Issuer)?;
        let endpoint = known.metadata.token_endpoint.as_deref();
        let endpoint = endpoint.ok_or_else(|| failed("the issuer has no `token_endpoint`"))?;
        let sent = provider.post(endpoint, client, &known.metadata.token_auth_methods, parameters).await;
        let HttpResponse { status, body, .. } = sent.map_err(|error| failed(error.to_string()))?;
        let answer: Map<String, Value> = serde_json::from_slice(&body).unwrap_or_default();
        let text = |name: &str| answer.get(name).and_then(Value::as_str).map(str::to_owned);
        if (400..500).contains(&status) && status != 429 {
            return Err(SignInError::Refused(text("error").unwrap_or_else(|| format!("status {status}"))));
        }
        let access = text("access_token").filter(|_| (200..300).contains(&status));
        let access = access.ok_or_else(|| failed(format!("status {status} of the token endpoint, without a token")))?;
        Ok(Tokens { access, id: text("id_token"), refresh: text("refresh_token").map(Secret::from) })
    }

    /// The subject of the ID token, which must have been issued for this attempt.
    async fn read_id_token(
        &self,
        tokens: &Tokens,
        attempt: &Attempt,
        client: &ClientSettings,
    ) -> Result<String, SignInError> {
        let wrong = |why: &str| failed(format!("the ID token: {why}"));
        let token = tokens.id.as_deref().ok_or_else(|| wrong("there is none; the scope `openid` was asked for"))?;
        let Ok(Shape::Jwt(jwt)) = Shape::of(token) else { return Err(wrong("it is no signed JWT")) };
        let claims = self.verifier.verify_id_token(&jwt, attempt.issuer).await;
        let claims = claims.map_err(|rejection| wrong(&rejection.to_string()))?;
        let is = |name: &str, value: &str| claims.get(name).and_then(Value::as_str) == Some(value);
        let audiences = match claims.get("aud") {
            Some(Value::Array(all)) => all.len(),
            _ => 1,
        };
        let is_for_us = is("aud", &client.id)
            || claims
                .get("aud")
                .and_then(Value::as_array)
                .is_some_and(|all| all.iter().any(|it| *it == client.id.as_str()));
        if !is_for_us || (audiences > 1 && !is("azp", &client.id)) {
            return Err(wrong("it is for another client"));
        }
        if !is("nonce", &attempt.nonce) {
            return Err(wrong("it belongs to another sign-in"));
        }
        let subject = claims.get("sub").and_then(Value::as_str).filter(|subject| !subject.is_empty());
        subject.map(str::to_owned).ok_or_else(|| wrong("it has no subject"))
    }

    /// Who the access token says it is, which must be the same person.
    async fn read_access_token(
        &self,
        tokens: &Tokens,
        issuer: usize,
        subject: &str,
    ) -> Result<Arc<Verified>, SignInError> {
        let endpoint = format!("{}/mcp", self.resource);
        let is_audience = |audience: &str| {
            let audience = audience.strip_suffix('/').unwrap_or(audience);
            audience == self.resource || audience == endpoint
        };
        let verified = self.verifier.verify(&tokens.access, is_audience).await.map_err(|rejection| {
            let hint = "the provider must issue access tokens for the public URL of this service";
            failed(format!("the access token: {rejection} ({hint})"))
        })?;
        let issuer = &self.verifier.providers[issuer].settings.issuer;
        let expected = Principal::of_identity(issuer, subject, "", Role::User, None);
        match *verified.principal() == expected {
            true => Ok(verified),
            false => Err(failed("the access token is somebody else's")),
        }
    }

    fn attempt(&self, state: &str) -> Option<Attempt> {
        self.attempts().get(state).filter(|attempt| attempt.begun.elapsed() < ATTEMPT_LIFETIME).cloned()
    }

    fn remember(&self, state: String, attempt: Attempt) {
        let mut attempts = self.attempts();
        attempts.retain(|_, attempt| attempt.begun.elapsed() < ATTEMPT_LIFETIME);
        if attempts.len() >= MAX_ATTEMPTS {
            let oldest = attempts.iter().min_by_key(|(_, attempt)| attempt.begun).map(|(state, _)| state.clone());
            oldest.and_then(|state| attempts.remove(&state));
        }
        attempts.insert(state, attempt);
    }

    fn attempts(&self) -> MutexGuard<'_, HashMap<String, Attempt>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn people(&self) -> MutexGuard<'_, Vec<Weak<Person>>> {
        self.people.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Person {
    /// Who it is; `None` if the provider ended the sign-in, the token expired without being renewed, or the sign-in is
    /// too old.
    pub fn principal(&self) -> Option<Arc<Principal>> {
        let state = self.state();
        let is_over = state.has_ended || state.verified.remaining().is_zero() || self.since.elapsed() >= MAX_SIGNED_IN;
        (!is_over).then(|| Arc::clone(state.verified.principal()))
    }

    /// The refresh token, if it is time to use it.
    fn due(&self) -> Option<Secret> {
        let state = self.state();
        let is_due = !state.has_ended && state.verified.remaining() <= RENEWED_BEFORE;
        state.refresh_token.clone().filter(|_| is_due)
    }

    fn renewed(&self, verified: Arc<Verified>, refresh_token: Option<Secret>) {
        let mut state = self.state();
        state.verified = verified;
        // Without a new one, the old one remains valid.
        if refresh_token.is_some() {
            state.refresh_token = refresh_token;
        }
    }

    fn end(&self) {
        self.state().has_ended = true;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(why: impl Into<String>) -> SignInError {
    SignInError::Failed(why.into())
}

/// 256 unguessable bits that can stand in a URL.
fn random() -> String {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).expect("a system with TLS has random bytes");
    URL_SAFE_NO_PAD.encode(bytes)
}
