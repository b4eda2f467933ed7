//! What all sign-ins of a process share, and the requests they make.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use catalog::{Secrets, TokenEndpointAuthMethod};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::error::{FlowError, FlowErrorKind, Step};
use crate::fetch::{Fetch, HttpRequest, HttpResponse, METADATA_TIMEOUT, TOKEN_TIMEOUT};
use crate::flow::challenge::Challenge;
use crate::flow::discovery::{Discovery, Found};
use crate::flow::metadata::ServerMetadata;
use crate::flow::registration::{self, Identity};
use crate::flow::{Next, token};
use crate::grant::{AuthorizationServer, ClientIdentity, Grant, RefreshMark, Tokens};
use crate::owner::Owner;
use crate::pending::Pending;
use crate::protected::Protected;
use crate::secret::Secret;
use crate::sign_in::{Change, ChangeKind, OAuthOptions};
use crate::sign_in_wait::WaitingServers;
use crate::store::{GrantStore, Replaced, StoreError, Version};

/// A refresh that takes longer than this does not happen any more: its request, and storing its result.
pub(crate) const REFRESH_LIMIT: Duration = Duration::from_secs(TOKEN_TIMEOUT.as_secs() + 30);
/// How often a store that cannot be written is tried again, and the first delay; it doubles each time.
const STORE_ATTEMPTS: u32 = 7;
const FIRST_STORE_DELAY: Duration = Duration::from_millis(200);

/// How long a registration is used again that no sign-in has confirmed: the authorization server may have forgotten it,
/// and says so only to the person.
const REGISTRATION_LIFETIME: Duration = Duration::from_secs(3600);

/// The parameters of a token request that are secrets.
const SECRET_PARAMETERS: [&str; 4] = ["code", "code_verifier", "refresh_token", "token"];

/// A client that was registered for a sign-in.
#[derive(Debug)]
struct Registration {
    /// The key and the URL of the server it was registered for. Another server needs its own client, even at the same
    /// authorization server: two accounts of one provider are kept apart by their clients.
    server: (String, String),
    issuer: String,
    client: ClientIdentity,
    at: Instant,
}

/// A request to the token endpoint that is ready to be sent.
pub(crate) struct TokenRequest {
    step: Step,
    endpoint: String,
    client_id: String,
    request: HttpRequest,
    /// What an answer must not show.
    hidden: Secrets,
}

/// The outcome of a refresh that could not be stored: it may be the only copy of a token.
#[derive(Debug)]
pub(crate) struct Unsaved {
    /// The version with our mark.
    pub(crate) version: Version,
    /// The refresh token that was used.
    pub(crate) used: Option<Secret>,
    /// What is to be stored.
    pub(crate) grant: Grant,
}

/// What all sign-ins of a process share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) fetch: Arc<dyn Fetch>,
    pub(crate) store: Arc<dyn GrantStore>,
    pub(crate) options: OAuthOptions,
    pub(crate) owner: Owner,
    changes: broadcast::Sender<Change>,
    /// How many refreshes are in flight.
    active: watch::Sender<usize>,
    /// By key: the URL of the server, and what it said last in a 401, whichever connection heard it.
    challenges: Mutex<HashMap<String, (String, Challenge)>>,
    /// The sign-ins that have begun.
    pending: Mutex<Pending>,
    /// The servers that wait for a sign-in.
    pub(crate) waiting: WaitingServers,
    /// By key: what could not be stored yet, although it must be.
    unsaved: Mutex<HashMap<String, Unsaved>>,
    /// By key: the last mark that may have been stored although the store reported an error. Its request was not sent.
    pub(crate) unsent_marks: Mutex<HashMap<String, RefreshMark>>,
    /// Registrations whose sign-in may never have been finished: the next one uses them.
    registrations: Mutex<Vec<Registration>>,
    /// One refresh per key at a time.
    locks: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Shared {
    pub(crate) fn new(
        fetch: Arc<dyn Fetch>,
        store: Arc<dyn GrantStore>,
        options: OAuthOptions,
        changes: broadcast::Sender<Change>,
    ) -> Arc<Self> {
        let active = watch::Sender::new(0);
        Arc::new(Self {
            fetch,
            store,
            options,
            owner: Owner::new(),
            changes,
            active,
            challenges: Mutex::default(),
            pending: Mutex::default(),
            waiting: WaitingServers::default(),
            unsaved: Mutex::default(),
            unsent_marks: Mutex::default(),
            registrations: Mutex::default(),
            locks: Mutex::default(),
        })
    }

    pub(crate) fn report(&self, key: &str, kind: ChangeKind) {
        if kind == ChangeKind::SignedIn {
            self.waiting.remove(key);
            self.pending().settle(key);
        }
        // Nobody needs to be listening.
        drop(self.changes.send(Change { key: key.to_owned(), kind }));
    }

    /// The sign-ins that have begun.
    pub(crate) fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock of whoever refreshes the grant of a key.
    pub(crate) fn lock_of(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.locks.lock().unwrap_or_else(PoisonError::into_inner).entry(key.to_owned()).or_default())
    }

    /// What the server said last in a 401, at the URL that it has now.
    pub(crate) fn last_challenge(&self, protected: &Protected) -> Option<Challenge> {
        let challenges = self.challenges();
        let (url, challenge) = challenges.get(&protected.key)?;
        (*url == protected.url).then(|| challenge.clone())
    }

    /// Remembers what a server said in a 401. A refusal that says nothing does not replace one that did.
    pub(crate) fn note_challenge(&self, protected: &Protected, challenge: Challenge) {
        let mut challenges = self.challenges();
        let is_known = challenges.get(&protected.key).is_some_and(|(url, _)| *url == protected.url);
        if challenge.is_bearer || !is_known {
            challenges.insert(protected.key.clone(), (protected.url.clone(), challenge));
        }
    }

    /// Forgets what the server of a key said.
    pub(crate) fn forget_challenge(&self, key: &str) {
        self.challenges().remove(key);
    }

    fn challenges(&self) -> MutexGuard<'_, HashMap<String, (String, Challenge)>> {
        self.challenges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what could not be stored, until it can be.
    pub(crate) fn keep_unsaved(&self, key: &str, unsaved: Unsaved) {
        self.unsaved.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned(), unsaved);
    }

    /// What could not be stored.
    pub(crate) fn take_unsaved(&self, key: &str) -> Option<Unsaved> {
        self.unsaved.lock().unwrap_or_else(PoisonError::into_inner).remove(key)
    }

    /// Counts something that must not be interrupted, until the guard is dropped.
    pub(crate) fn activity(self: &Arc<Self>) -> Activity {
        self.active.send_modify(|active| *active += 1);
        Activity(Arc::clone(self))
    }

    /// Waits until nothing is in flight that must not be interrupted.
    pub(crate) async fn drain(&self) {
        let mut active = self.active.subscribe();
        drop(timeout(REFRESH_LIMIT, active.wait_for(|&active| active == 0)).await);
    }

    pub(crate) async fn send(&self, step: Step, request: HttpRequest) -> Result<HttpResponse, FlowError> {
        let url = request.url.clone();
        self.fetch.fetch(request).await.map_err(|error| FlowError::fetch(step, &url, &error))
    }

    /// Finds the authorization server of a server.
    pub(crate) async fn discover(&self, protected: &Protected, challenge: &Challenge) -> Result<Found, FlowError> {
        let (mut discovery, mut next) = Discovery::begin(protected, challenge)?;
        loop {
            next = match next {
                Next::Done(found) => return Ok(found),
                Next::Send(request) => discovery.step(self.fetch.fetch(request).await)?,
            };
        }
    }

    /// Who we are at that authorization server; registers if necessary.
    pub(crate) async fn identify(
        &self,
        protected: &Protected,
        server: &ServerMetadata,
        redirect_uri: &str,
        last: Option<&Grant>,
    ) -> Result<ClientIdentity, FlowError> {
        match registration::identity(protected, &self.options, server, redirect_uri, last)? {
            Identity::Known(identity) => Ok(identity),
            Identity::Register(request) => {
                if let Some(known) = self.registration(protected, &server.issuer, redirect_uri) {
                    return Ok(known);
                }
                let response = self.send(Step::Registration, request).await?;
                let client = registration::registered(protected, server, redirect_uri, &response)?;
                let registration = Registration {
                    server: (protected.key.clone(), protected.url.clone()),
                    issuer: server.issuer.clone(),
                    client: client.clone(),
                    at: Instant::now(),
                };
                self.registrations().push(registration);
                Ok(client)
            }
        }
    }

    /// The registration of an earlier attempt.
    fn registration(&self, protected: &Protected, issuer: &str, redirect_uri: &str) -> Option<ClientIdentity> {
        let mut registrations = self.registrations();
        registrations.retain(|known| known.at.elapsed() < REGISTRATION_LIFETIME);
        let wanted = protected.settings.token_endpoint_auth_method;
        let is_meant = |known: &&Registration| {
            known.server == (protected.key.clone(), protected.url.clone())
                && known.issuer == issuer
                && registration::is_usable(&known.client, redirect_uri)
                && wanted.is_none_or(|wanted| known.client.auth_method == wanted)
        };
        registrations.iter().rfind(is_meant).map(|known| known.client.clone())
    }

    fn registrations(&self) -> MutexGuard<'_, Vec<Registration>> {
        self.registrations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request to the token endpoint, and reads the tokens.
    pub(crate) async fn request_tokens(
        &self,
        step: Step,
        protected: &Protected,
        server: &AuthorizationServer,
        identity: &ClientIdentity,
        parameters: token::Parameters,
        requested: &[String],
    ) -> Result<Tokens, FlowError> {
        let request = self.token_request(step, protected, server, identity, parameters).await?;
        self.send_token_request(request, requested).await
    }

    /// A request to the token endpoint. An error means that it cannot be made with these settings.
    pub(crate) async fn token_request(
        &self,
        step: Step,
        protected: &Protected,
        server: &AuthorizationServer,
        identity: &ClientIdentity,
        parameters: token::Parameters,
    ) -> Result<TokenRequest, FlowError> {
        let endpoint = server.token_endpoint.clone();
        let hidden = secrets_of(protected, identity, &parameters);
        let request = self.authenticated(step, protected, server, identity, &endpoint, parameters).await?;
        Ok(TokenRequest { step, endpoint, client_id: identity.id.clone(), request, hidden })
    }

    /// Sends it, and reads the tokens.
    pub(crate) async fn send_token_request(
        &self,
        TokenRequest { step, endpoint, client_id, request, hidden }: TokenRequest,
        requested: &[String],
    ) -> Result<Tokens, FlowError> {
        let response = self.send(step, request).await?;
        token::tokens(step, &endpoint, &response, requested).map_err(|error| {
            if error.kind == FlowErrorKind::InvalidClient {
                self.registrations().retain(|known| known.client.id != client_id);
            }
            // An error may repeat what was sent.
            FlowError { problem: hidden.hide(&error.problem).into_owned(), ..error }
        })
    }

    /// Revokes a token.
    pub(crate) async fn revoke(&self, protected: &Protected, grant: &Grant, endpoint: &str) -> Result<(), FlowError> {
        let step = Step::Revocation;
        let tokens = &grant.tokens;
        let (token, kind) = match &tokens.refresh_token {
            Some(token) => (token, "refresh_token"),
            None => (&tokens.access_token, "access_token"),
        };
        let parameters = vec![("token", token.clone()), ("token_type_hint", kind.into())];
        let hidden = secrets_of(protected, &grant.client, &parameters);
        let (server, client) = (&grant.authorization_server, &grant.client);
        let request = self.authenticated(step, protected, server, client, endpoint, parameters).await?;
        let response = self.send(step, HttpRequest { timeout: METADATA_TIMEOUT, ..request }).await?;
        if response.is_success() {
            return Ok(());
        }
        let error = FlowError::response(step, endpoint, &response);
        Err(FlowError { problem: hidden.hide(&error.problem).into_owned(), ..error })
    }

    async fn authenticated(
        &self,
        step: Step,
        protected: &Protected,
        server: &AuthorizationServer,
        identity: &ClientIdentity,
        endpoint: &str,
        parameters: token::Parameters,
    ) -> Result<HttpRequest, FlowError> {
        let needs_key = identity.auth_method == TokenEndpointAuthMethod::PrivateKeyJwt;
        let private_key = match protected.settings.private_key_file.as_ref().filter(|_| needs_key) {
            Some(path) => Some(private_key(step, Path::new(path)).await?),
            None => None,
        };
        let client = crate::flow::client_auth::Client {
            identity,
            settings: &protected.settings,
            issuer: &server.issuer,
            private_key: private_key.as_ref(),
        };
        token::request(step, endpoint, &client, parameters, protected.network)
    }

    /// Replaces a grant, as long as the version is `expected`. A store that cannot be written is tried again for a while:
    /// what is lost here may be the only copy of a token.
    pub(crate) async fn save(
        &self,
        key: &str,
        expected: Option<Version>,
        grant: Option<&Grant>,
    ) -> Result<Replaced, StoreError> {
        let mut delay = FIRST_STORE_DELAY;
        for attempt in 1.. {
            match self.store.replace(key, expected, grant.cloned()).await {
                Err(error) if attempt < STORE_ATTEMPTS => {
                    tracing::warn!(%error, retry_in = ?delay, "failed to store a sign-in; will retry");
                    sleep(delay).await;
                    delay *= 2;
                }
                replaced => return replaced,
            }
        }
        unreachable!("the last attempt returns")
    }
}

/// What an answer to a request with these parameters must not show.
fn secrets_of(protected: &Protected, identity: &ClientIdentity, parameters: &token::Parameters) -> Secrets {
    let sent = parameters.iter().filter(|(name, _)| SECRET_PARAMETERS.contains(name)).map(|(_, value)| value.reveal());
    let registered = identity.secret.as_ref().map(Secret::reveal);
    Secrets::default().with(sent.chain(registered).chain(protected.settings.client_secret.as_deref()))
}

/// Something that must not be interrupted.
pub(crate) struct Activity(Arc<Shared>);

impl Drop for Activity {
    fn drop(&mut self) {
        self.0.active.send_modify(|active| *active -= 1);
    }
}

async fn private_key(step: Step, path: &Path) -> Result<Secret, FlowError> {
    let shown = path.display().to_string();
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await;
    let problem = match read {
        Ok(Ok(text)) => return Ok(text.into()),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    let problem = format!("the private key file `{shown}` cannot be read: {problem}");
    Err(FlowError::new(step, problem).kind(FlowErrorKind::Final).hint("correct `oauth.private_key_file`"))
}
